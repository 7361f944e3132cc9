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

from spu_assigner.stream.broker import EmbeddedBroker
from spu_assigner.stream.failpoints import VARIABLE
from spu_assigner.stream.topics import create_topics
from support.judge import Judge
from support.programs import running, session
from support.story import Story
from support.streams import Outgoing, Streams

JOB = (sys.executable, "-m", "spu_assigner.stream.job")
WAIT_SECONDS = 180.0  # a start takes 5 s on two idle cores
PART = 25  # messages of a part: a batch or two

# What a broker does not clean up for minutes is cleaned up in a second, so that time-outs show.
BROKER_SETTINGS: Mapping[str, str] = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class Trial:
    """One query with its topics, its checkpoint, its stream and its judge."""

    def __init__(self, broker: EmbeddedBroker, prefix: str, folder: Path, seed: int) -> None:
        create_topics({"bootstrap.servers": broker.bootstrap_servers}, prefix=prefix)
        self.streams = Streams(broker.bootstrap_servers, prefix)
        self.story = Story(seed)
        self.judge = Judge(self.streams, prefix, folder)
        self.log = folder / "job.log"
        self.checkpoint = folder / "checkpoint"
        self.sent = 0
        self.job: subprocess.Popen[bytes] | None = None
        self._stack = ExitStack()
        self._environ = {
            "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "SPU_ASSIGNER_TOPIC_PREFIX": prefix,
            "SPU_ASSIGNER_CHECKPOINT": str(self.checkpoint),
            "SPU_ASSIGNER_SHARDS": "2",
            "SPU_ASSIGNER_TOPIC_EVENTS_PER_BATCH": "200",
            "SPU_ASSIGNER_UI_PORT": "0",
        }
        self._send(self.story.beginning())

    def start(
        self, failpoint: str | None = None, command: Sequence[str] = JOB
    ) -> subprocess.Popen[bytes]:
        """Start a job, armed if it is to be, and leave it to itself."""
        environ = {**self._environ, VARIABLE: failpoint or ""}
        self.job = self._stack.enter_context(running(command, self.log, environ))
        return self.job

    def send(self, count: int = PART) -> None:
        self._send(self.story.part(count))

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        """Until it is so; fails when the job ends before or time is up."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not is_so():
            assert self.job is not None
            assert self.job.poll() is None, f"{what}: ended: {self.job.returncode}, {self.told()}"
            assert time.monotonic() < deadline, f"{what}: not in {WAIT_SECONDS} s: {self.told()}"
            time.sleep(0.05)

    def is_applied(self) -> bool:
        """Whether the committed batches have read all that was sent."""
        self.judge.look()
        return self.judge.applied >= self.sent

    def check(self) -> None:
        """All that was sent is applied, and all that is written is right."""
        self.wait(self.is_applied, "to apply all that was sent")
        self.judge.settle()
        assert self.judge.faults == []

    def die(self) -> int:
        """Go on sending until the job dies of what it is armed with; its status."""
        assert self.job is not None
        deadline = time.monotonic() + WAIT_SECONDS
        while self.job.poll() is None:
            assert time.monotonic() < deadline, f"it did not die: {self.told()}"
            self.send()
            before = self.judge.batch
            while self.judge.batch == before and self.job.poll() is None:
                assert time.monotonic() < deadline, f"it did not die: {self.told()}"
                self.judge.look()
        return self.job.returncode

    def kill(self) -> None:
        """SIGKILL for the driver's process group."""
        assert self.job is not None
        os.killpg(self.job.pid, signal.SIGKILL)
        self.job.wait()

    def processes(self, of: str) -> list[int]:
        """Process ids of the job whose command line holds the word."""
        assert self.job is not None
        return [pid for pid, line in session(self.job).items() if of in line]

    def noted_by_spark(self) -> int:
        """The last batch that Spark has noted as done; -1: none."""
        names = (path.name for path in (self.checkpoint / "commits").glob("[0-9]*"))
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def told(self) -> str:
        """The end of what the jobs have said."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-3_000:]

    def close(self) -> None:
        """End the job, and whatever jobs have left behind."""
        self._stack.close()
        self.judge.close()

    def _send(self, messages: Sequence[Outgoing]) -> None:
        self.streams.send(messages)
        self.sent += len(messages)
