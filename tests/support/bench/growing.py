"""A job that is measured while what it knows grows: started as a user starts it, its memory and
processor time taken, and every map it wrote held against the core.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition
from spu_assigner.core import Assigner
from spu_assigner.core.base.events import Event, Policy
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.schemas.messages.codec import encode_event, encode_record
from support.bench.loadrun import LoadError
from support.bench.memory import Sampler
from support.bench.workload import Client
from support.job.programs import cpu_seconds, running

POLICY: Final = Policy.FLUVIO  # as the neighbours are set
PIECE: Final = 100_000  # events that are under way at once, at most
CPU_UNIT: Final = 100_000  # events
END_SECONDS: Final = 60.0  # for a million maps to be read to their end, between two messages
_PROGRESS: Final = re.compile(r"^ *([0-9.]+) s  (Spark started|query started)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What a backlog took."""

    events: int
    seconds: float
    cpu_s: float

    @property
    def per_s(self) -> float:
        return self.events / self.seconds

    @property
    def cpu_s_per_unit(self) -> float:
        return self.cpu_s * CPU_UNIT / self.events


class GrowingJob:
    """Topics of its own, a checkpoint, and all events that were sent; the job while it runs."""

    def __init__(self, bootstrap: str, name: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.prefix = f"{name}."
        self.log = folder / f"{name}.log"
        self.events: list[Event] = []
        self._folder = folder
        self._environ = {
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
            "SPU_ASSIGNER_TOPIC_PREFIX": self.prefix,
            "SPU_ASSIGNER_CHECKPOINT": str(folder / f"{name}-checkpoint"),
            "SPU_ASSIGNER_DEFAULT_POLICY": POLICY.value,
            "SPU_ASSIGNER_UI_PORT": "0",
        }
        program = [sys.executable, "-m", "spu_assigner.stream.cli", "topics", "create"]
        subprocess.run(
            program, env={**os.environ, **self._environ}, check=True, stdout=subprocess.DEVNULL
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._begun = 0.0
        self._spus = self._client("spu-events", "ring-events")
        self._topics = self._client("topic-events", "replica-map")

    def _client(self, source: str, target: str) -> Client:
        return Client(self.bootstrap, self.prefix + source, self.prefix + target, self._look)

    def _look(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise LoadError(f"{self.name} ended with status {self._process.returncode}")

    @contextmanager
    def started(self, environ: Mapping[str, str] | None = None) -> Iterator[None]:
        """The job, from now until the block ends."""
        command = [sys.executable, "-m", "spu_assigner.stream.cli", "run"]
        self.log.unlink(missing_ok=True)
        self._begun = time.perf_counter()
        with running(command, self.log, {**self._environ, **(environ or {})}) as process:
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

    def first_answer(self, event: Event) -> dict[str, float]:
        """Ask at once, and wait: seconds since the process was started, by what was reached."""
        self._ask(event)
        seconds = time.perf_counter() - self._begun
        output = self.log.read_text(encoding="utf-8", errors="replace")
        reached = {what.replace(" ", "_"): float(at) for at, what in _PROGRESS.findall(output)}
        return {**reached, "first_answer": round(seconds, 2)}

    def join(self, events: Sequence[Event]) -> float:
        """Have SPUs join: seconds."""
        begun = time.perf_counter()
        for piece in _pieces(events):
            self._spus.send(_messages(piece))
            self._spus.take(len(piece))
        self.events += events
        return time.perf_counter() - begun

    def ask_each(self, events: Iterable[Event]) -> list[float]:
        """One at a time: ms."""
        return [self._ask(event) for event in events]

    def _ask(self, event: Event) -> float:
        self.events.append(event)
        return self._topics.ask(event.cluster_id, encode_event(event))

    def answer(self, events: Sequence[Event]) -> Backlog:
        """A backlog, from the start of sending it until its last answer is read."""
        messages = _messages(events)
        self.events += events
        cpu_before, begun = cpu_seconds(self.process), time.perf_counter()
        for piece in _pieces(messages):
            self._topics.send(piece)
            self._topics.take(len(piece))
        seconds = time.perf_counter() - begun
        return Backlog(
            events=len(events), seconds=seconds, cpu_s=cpu_seconds(self.process) - cpu_before
        )

    @contextmanager
    def sampled(self) -> Iterator[dict[str, int]]:
        """The most memory that its processes hold while the block runs; filled when it ends."""
        peaks: dict[str, int] = {}
        with Sampler(self.process, None) as sampler:
            yield peaks
        peaks.update(sampler.peaks_mb())

    def wrong_answers(self) -> int:
        """How many topics have another map than the core gives them, none, or one too many."""
        assigner = Assigner(POLICY)
        expected: dict[bytes, int] = {}
        for event in self.events:
            for record in assigner.apply(event):
                if isinstance(record, ReplicaMap):
                    key = f"{record.cluster_id}/{record.topic}".encode()
                    if record.replicas is None:
                        del expected[key]
                    else:
                        expected[key] = hash(encode_record(record))
        found: dict[bytes, int] = {}
        for key, value in _read(self.bootstrap, f"{self.prefix}replica-map"):
            if value is None:
                found.pop(key, None)
            else:
                found[key] = hash(value)
        return sum(
            1 for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)
        )

    def close(self) -> None:
        """Leave the broker alone."""
        self._spus.close()
        self._topics.close()
        del self._spus, self._topics  # A producer that lives on complains when the broker ends.


def _pieces(items: Sequence[Any]) -> Iterator[Any]:
    for begin in range(0, len(items), PIECE):
        yield items[begin : begin + PIECE]


def _messages(events: Iterable[Event]) -> list[tuple[str, bytes]]:
    return [(event.cluster_id, encode_event(event)) for event in events]


def _read(bootstrap: str, topic: str) -> Iterator[tuple[bytes, bytes | None]]:
    """All that is committed on a topic, which may not fit in memory."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "growth",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = set(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        while partitions:
            messages = consumer.consume(10_000, END_SECONDS)
            if not messages:
                raise LoadError(f"{topic} cannot be read to its end")
            for message in messages:
                error = message.error()
                if error is None:
                    yield message.key(), message.value()
                elif error.code() == KafkaError._PARTITION_EOF:
                    partitions.discard(message.partition())
                else:
                    raise LoadError(str(error))
    finally:
        consumer.close()
