"""A job that is measured: started as a user starts it, its memory and processor time taken, and all
that it wrote verified.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from spu_assigner.core.base.events import Event, Policy
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from support.bench.processes import BROKER, cpu_seconds, roles, sampled, thread_seconds
from support.bench.workload import Client
from support.job.programs import running

PROGRAM: Final = (sys.executable, "-m", "spu_assigner.stream.cli")
PIECE: Final = 100_000  # events that are under way at once, at most
CPU_UNIT: Final = 100_000  # events
_METRICS: Final = re.compile(r"^metrics +(\S+)$", re.MULTILINE)
_PART: Final = re.compile(
    r'^spu_assigner_batch_part_seconds_total\{part="(\w+)"\} (\S+)', re.MULTILINE
)
_PROGRESS: Final = re.compile(r"^ *([0-9.]+) s  (Spark started|query started)$", re.MULTILINE)


class LoadError(Exception):
    """The job ended, or what it wrote is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What some events took."""

    events: int
    seconds: float
    cpu: Counter[str]  # seconds by role

    @property
    def per_s(self) -> float:
        return self.events / self.seconds

    @property
    def job_cpu_s(self) -> float:
        """Of all but the broker."""
        return self.cpu.total() - self.cpu[BROKER]

    @property
    def cpu_s_per_unit(self) -> float:
        return self.job_cpu_s * CPU_UNIT / self.events


class MeasuredJob:
    """Topics of its own and a checkpoint; the job while it runs."""

    source, target = "topic-events", "replica-map"

    def __init__(
        self,
        broker: EmbeddedBroker,
        name: str,
        folder: Path,
        *,
        policy: Policy = Policy.FLUVIO,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self.broker = broker
        self.name = name
        self.prefix = f"{name}."
        self.checkpoint = folder / f"{name}-checkpoint"
        self._log = folder / f"{name}.log"
        self._program = program
        self._environ = {
            "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "SPU_ASSIGNER_TOPIC_PREFIX": self.prefix,
            "SPU_ASSIGNER_CHECKPOINT": str(self.checkpoint),
            "SPU_ASSIGNER_DEFAULT_POLICY": policy.value,
            "SPU_ASSIGNER_UI_PORT": "0",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._begun = 0.0
        self._joined = 0
        self.make_topics()
        self.topics = self.client()

    def make_topics(self) -> None:
        self._call("topics", "create")

    def command(self) -> Sequence[str]:
        return [*self._program, "run"]

    def _call(self, *arguments: str) -> str:
        """What a command of the product prints; it may find faults."""
        return subprocess.run(
            [*self._program, *arguments],
            env={**os.environ, **self._environ},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        ).stdout

    def client(self, source: str | None = None, target: str | None = None) -> Client:
        """One that sends to a topic of the job and reads another."""
        names = [self.prefix + each for each in (source or self.source, target or self.target)]
        return Client(self.broker.bootstrap_servers, *names, self._look)

    def _look(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise LoadError(f"{self.name} ended with status {self._process.returncode}")

    @contextmanager
    def started(self, environ: Mapping[str, str] | None = None) -> Iterator[None]:
        """The job, from now until the block ends."""
        self._log.unlink(missing_ok=True)
        self._begun = time.perf_counter()
        with running(self.command(), self._log, self._environ | dict(environ or {})) as process:
            self._process = process
            try:
                yield
            finally:
                self._process = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The job's."""
        if self._process is None:
            raise LoadError(f"{self.name} does not run")
        return self._process

    def sampled(self) -> AbstractContextManager[dict[str, int]]:
        """The most memory that its processes hold while the block runs; filled when it ends."""
        return sampled(self.process, self.broker)

    def measured(self, events: int, work: Callable[[], object]) -> Work:
        """Time and CPU time of some work."""
        before, begun = cpu_seconds(self.process, self.broker), time.perf_counter()
        work()
        seconds, cpu = time.perf_counter() - begun, cpu_seconds(self.process, self.broker)
        cpu.subtract(before)
        return Work(events=events, seconds=seconds, cpu=cpu)

    def join(self, events: Sequence[Event]) -> float:
        """Have SPUs join: seconds."""
        begun = time.perf_counter()
        self._joined += len(events)
        with closing(self.client("spu-events", "ring-events")) as spus:
            spus.send(messages(events))
            spus.take(self._joined)
        return time.perf_counter() - begun

    def threads(self) -> Counter[str]:
        """CPU seconds of its JVM's threads, by what they do; nothing before there is a JVM."""
        found = roles(self.process, self.broker)
        jvms = (thread_seconds(pid) for pid, role in found.items() if role == "jvm")
        return sum(jvms, Counter[str]())

    def parts(self) -> Counter[str]:
        """Seconds of its batches so far, by Spark's parts and the sink's."""
        output = self._log.read_text(encoding="utf-8", errors="replace")
        with urlopen(_METRICS.findall(output)[-1]) as page:
            found = _PART.findall(page.read().decode())
        return Counter({part: float(seconds) for part, seconds in found})

    def first_answer(self) -> dict[str, float]:
        """Wait for one answer: seconds since the process was started, by what was reached."""
        self.topics.take(1)
        seconds = time.perf_counter() - self._begun
        output = self._log.read_text(encoding="utf-8", errors="replace")
        reached = {what.replace(" ", "_"): float(at) for at, what in _PROGRESS.findall(output)}
        return {**reached, "first_answer": round(seconds, 2)}

    def ask_each(self, events: Iterable[Event]) -> list[float]:
        """One at a time: ms."""
        return [self.topics.ask(key, value) for key, value in messages(events)]

    def answer(self, events: Sequence[Event]) -> Work:
        """A backlog, from the start of sending it until its last answer is read."""
        waiting = messages(events)

        def answered() -> None:
            for begin in range(0, len(waiting), PIECE):
                piece = waiting[begin : begin + PIECE]
                self.topics.send(piece)
                self.topics.take(len(piece))

        return self.measured(len(events), answered)

    def verified(self) -> dict[str, Any]:
        """What `spu-assigner verify` finds in all that it wrote, compared with its inputs.

        Raises:
            LoadError: a message is missing, repeated or another.
        """
        found = json.loads(self._call("verify", "--output", "json"))
        if not found["right"]:
            raise LoadError(f"{self.name}: {found['findings'][:3]}")
        return {name: found[name] for name in ("messages", "batches", "not_checked")}

    def close(self) -> None:
        """Leave the broker alone."""
        self.topics.close()
        del self.topics  # A producer that lives on complains when the broker ends.


def messages(events: Iterable[Event]) -> list[tuple[str, bytes]]:
    """Key and value of each."""
    return [(event.cluster_id, encode_event(event)) for event in events]
