"""A job under a stream of events that is killed and started again, and its judge.

A job may be armed at its start for a batch that is some way ahead: it first does what the one
before left, which shows that this one's death is survived, and dies on what is sent then.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from spu_assigner.stream.kafka.topic_admin import create_topics
from support.events.story import Story
from support.failpoints import Failpoint, dying_at
from support.job.judge import Judge
from support.job.programs import running, session, sessions
from support.job.s3_server import BUCKET, S3Server
from support.job.streams import SHARDS, Outgoing, Streams
from support.kafka.shared_broker import SharedBroker

JOB = (sys.executable, "-m", "spu_assigner.stream.job.lifecycle")
IN_A_BATCH = [
    each
    for each in Failpoint
    if each is not Failpoint.BEFORE_RECOVERY_MARKER and not each.startswith("wave-")
]
WAIT_SECONDS = 180.0  # a start takes 5 s on two idle cores
AHEAD = 5  # batches to where an armed job dies: by then it has done what was left to it
PART = 25  # messages of a part: a batch or two

# What a broker does not clean up for minutes is cleaned up in a second, so that time-outs show.
BROKER_SETTINGS: Mapping[str, str] = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"
}


class Trial:
    """One query with its topics, its checkpoint, its stream and its judge."""

    def __init__(
        self,
        broker: SharedBroker,
        prefix: str,
        folder: Path,
        seed: int,
        *,
        store: S3Server | None = None,
    ) -> None:
        """Args: store: where the checkpoint is; None: on this machine."""
        create_topics({"bootstrap.servers": broker.bootstrap_servers}, prefix=prefix)
        self.streams = Streams(broker.bootstrap_servers, prefix)
        self.story = Story(seed)
        self.judge = Judge(self.streams, broker.bootstrap_servers, prefix)
        self._folder = folder
        self._logs: dict[int, Path] = {}  # by process id
        self._store = store
        self.checkpoint = str(folder / "checkpoint")
        if store is not None:
            self.checkpoint = f"s3a://{BUCKET}/{prefix}checkpoint"
        self.sent = 0
        self.job: subprocess.Popen[bytes] | None = None
        self._kind: tuple[str | None, Sequence[str]] = (None, JOB)
        self._stack = ExitStack()
        self._environ = {
            "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "SPU_ASSIGNER_TOPIC_PREFIX": prefix,
            "SPU_ASSIGNER_CHECKPOINT": self.checkpoint,
            "SPU_ASSIGNER_SHARDS": str(SHARDS),
            "SPU_ASSIGNER_TOPIC_EVENTS_PER_BATCH": "200",
            "SPU_ASSIGNER_UI_PORT": "0",
            **({} if store is None else store.environ),
        }
        self._send(self.story.beginning())

    def start(
        self, failpoint: str | None = None, command: Sequence[str] = JOB, *, ahead: int = AHEAD
    ) -> subprocess.Popen[bytes]:
        """Start a job, armed for a batch that is to come if it is to be, and leave it to itself."""
        self.judge.look()
        self._kind = failpoint, command
        place = "" if failpoint is None else f"{failpoint}:{self.judge.batch + ahead}"
        environ = {**self._environ, **dying_at(place)}
        log = self._folder / f"job-{len(self._logs)}.log"
        self.job = self._stack.enter_context(running(command, log, environ))
        self._logs[self.job.pid] = log
        return self.job

    def start_again(self) -> subprocess.Popen[bytes]:
        """One like the one before, not armed."""
        return self.start(command=self._kind[1])

    def ensure(
        self, failpoint: str | None = None, command: Sequence[str] = JOB
    ) -> subprocess.Popen[bytes]:
        """The job that runs, if it is such a one, else a new one; it has begun to work."""
        if self.job is None or self.job.poll() is not None or self._kind != (failpoint, command):
            if self.job is not None and self.job.poll() is None:
                self.kill()
            self.start(failpoint, command)
        self.send()
        self.wait(self.is_applied, "to apply all that was sent")
        assert self.job is not None
        return self.job

    def send(self, count: int = PART) -> None:
        self._send(self.story.part(count))

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        """Until it is so; fails when the job ends before or time is up."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not is_so():
            assert self.job is not None
            assert self.job.poll() is None, (
                f"{what}: ended: {self.job.returncode}, {self.log_end()}"
            )
            assert time.monotonic() < deadline, f"{what}: not in {WAIT_SECONDS} s: {self.log_end()}"
            time.sleep(0.05)

    def is_applied(self) -> bool:
        """Whether the committed batches have read all that was sent."""
        self.judge.look()
        return self.judge.applied >= self.sent

    def check(self) -> None:
        """What was sent is applied, and something after it; all that is written is right."""
        self.send()
        self.wait(self.is_applied, "to apply all that was sent")
        self.judge.settle()
        assert self.judge.faults == [], self.judge.faults

    def check_restarted(self, command: Sequence[str]) -> None:
        """The same of a job that may end with an error of its own, as one under a supervisor."""
        assert self.job is not None
        self.send()
        deadline = time.monotonic() + WAIT_SECONDS
        while not self.is_applied():
            assert time.monotonic() < deadline, f"not applied: {self.log_end()}"
            if self.job.poll() is not None:
                assert "start the job again" in self.log_end(), self.log_end()
                self.start(command=command)
            time.sleep(0.05)
        self.check()

    def die(self) -> int:
        """Go on sending until the job dies of what it is armed with; its status."""
        assert self.job is not None
        deadline = time.monotonic() + WAIT_SECONDS
        while self.job.poll() is None:
            assert time.monotonic() < deadline, f"it did not die: {self.log_end()}"
            self.send()
            before = self.judge.batch
            while self.judge.batch == before and self.job.poll() is None:
                assert time.monotonic() < deadline, f"it did not die: {self.log_end()}"
                self.judge.look()
                time.sleep(0.02)
        return self.job.returncode

    def kill(self) -> None:
        """SIGKILL for the driver's process group."""
        assert self.job is not None
        os.killpg(self.job.pid, signal.SIGKILL)
        self.job.wait()

    def move(self, checkpoint: str) -> None:
        """Give the jobs that are started from now on a recovered checkpoint. Its batches begin at 0
        again, after the marker -1 that the recovery has written."""
        self.judge.batch = -2
        self.checkpoint = self._environ["SPU_ASSIGNER_CHECKPOINT"] = checkpoint

    def processes(self, of: str) -> list[int]:
        """Process ids of the job whose command line holds the word."""
        assert self.job is not None
        return [pid for pid, line in session(self.job).items() if of in line]

    def noted_by_spark(self) -> int:
        """The last batch that Spark has noted as done; -1: none."""
        if self._store is None:
            names = [path.name for path in Path(self.checkpoint, "commits").glob("[0-9]*")]
        else:
            keys = self._store.keys(f"{self.checkpoint}/commits")
            names = [name for name in keys if name[:1].isdigit()]
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def sent_and_not_noted(self, *, at_least: int = 0) -> int:
        """How many batches are in Kafka which Spark has not noted, now that the job is dead. So
        many are waited for, and then a little for more."""
        deadline = time.monotonic() + WAIT_SECONDS
        noted = self.noted_by_spark()
        while self.judge.batch - noted < at_least and time.monotonic() < deadline:
            self.judge.look()
            time.sleep(0.05)
        for _ in range(5):  # A commit is acknowledged before its messages are shown.
            self.judge.look()
            time.sleep(0.1)
        return self.judge.batch - noted

    def log_end(self, job: subprocess.Popen[bytes] | None = None) -> str:
        """The end of what a job has said, the present one by default."""
        job = job or self.job
        assert job is not None
        return self._logs[job.pid].read_text(encoding="utf-8", errors="replace")[-5_000:]

    def left(self, seconds: float) -> dict[int, str]:
        """Processes of all jobs that still run some seconds after they were killed."""
        deadline = time.monotonic() + seconds
        while (left := sessions(self._logs)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return left

    def close(self) -> None:
        """End the job, and whatever jobs have left behind."""
        self._stack.close()
        self.judge.close()

    def _send(self, messages: Sequence[Outgoing]) -> None:
        self.streams.send(messages)
        self.sent += len(messages)
