"""A real job under load: broker and job as a user starts them, a producer, a collector of answers,
and a sampler of memory.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from spu_assigner.core.base.events import Event, SpuEvent
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.schemas.messages.wire import CommitMarker
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from spu_assigner.stream.local.broker.process import HEAP_MB
from support.bench.figures import say
from support.bench.judging import ANSWERS, Tally
from support.bench.memory import Sampler
from support.job.programs import running
from support.job.streams import Read, Streams

CLIENT_ID: Final = "bench"  # whom a throttle leaves alone
PATIENCE_SECONDS: Final = 300.0  # without a single new answer
QUIET_SECONDS: Final = 2.0  # a transaction's end shows in one partition earlier than in another
REPORT_SECONDS: Final = 10.0
_QUEUED_KIB: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """How the job is started."""

    master: str = "local[2]"
    shards: int = 2
    driver_memory: str = "2g"
    topic_events_per_batch: int | None = None  # None: the default

    def environ(self) -> dict[str, str]:
        settings = {
            "MASTER": self.master,
            "SHARDS": self.shards,
            "DRIVER_MEMORY": self.driver_memory,
            "TOPIC_EVENTS_PER_BATCH": self.topic_events_per_batch,
            "UI_PORT": 0,
        }
        return {
            f"SPU_ASSIGNER_{name}": str(value)
            for name, value in settings.items()
            if value is not None
        }


class LoadError(Exception):
    """The job ended, or answers no more."""


class Load:
    """The broker and what is sent to it; the job once it is started."""

    def __init__(self, broker: EmbeddedBroker, folder: Path) -> None:
        self.bootstrap = broker.bootstrap_servers
        self.broker = broker
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self.tally = Tally()
        self.sent = 0
        self.latencies: list[tuple[float, float]] = []  # (moment, ms) of each status
        self.log = folder / "job.log"
        self._failures: list[object] = []
        self._producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "client.id": CLIENT_ID,
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
            }
        )
        self._consumer: Any = None
        self._not_at_end: set[tuple[str, int]] = set()  # partitions that may hold more

    def send(self, events: Iterable[Event]) -> None:
        """Send all; returns when they are acknowledged."""
        for event in events:
            is_spu = isinstance(event, SpuEvent)
            topic = "spu-events" if is_spu else "topic-events"
            key, value = event.cluster_id.encode(), encode_event(event)
            while True:
                try:
                    self._producer.produce(topic, value, key, on_delivery=self._on_delivery)
                except BufferError:
                    self._producer.poll(0.1)
                else:
                    break
            self.sent += 1
            if self.sent % 1_000 == 0:
                self._producer.poll(0)
        self._producer.flush()
        if self._failures:
            raise LoadError(f"not sent: {self._failures[0]}")

    def _on_delivery(self, error: object, message: object) -> None:
        if error is not None:
            self._failures.append(error)

    def collect(self, seconds: float = 0.2) -> int:
        """Take what has come, for so long at most: how many messages."""
        if self._consumer is None:
            self._consumer = self._subscribe()
        messages = self._consumer.consume(20_000, seconds)
        now = time.time()
        take = self.tally.take
        count = 0
        for message in messages:
            topic, error = message.topic(), message.error()
            place = (topic, message.partition())
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise LoadError(str(error))
                self._not_at_end.discard(place)
                continue
            self._not_at_end.add(place)
            count += 1
            headers = dict(message.headers())
            take(topic, message.key(), message.value(), headers["ce_id"])
            if topic == "topic-status":
                asked = datetime.fromisoformat(headers["ce_time"].decode()).timestamp()
                self.latencies.append((now, (now - asked) * 1000))
        return count

    def collect_the_rest(self) -> None:
        """Take what still comes after every question has an answer: some have several."""
        quiet_since = time.monotonic()
        while self._not_at_end or time.monotonic() - quiet_since < QUIET_SECONDS:
            if self.collect():
                quiet_since = time.monotonic()

    def _subscribe(self) -> Any:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "client.id": CLIENT_ID,
                "group.id": CLIENT_ID,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "fetch.message.max.bytes": 16 * 1024 * 1024,
                "queued.max.messages.kbytes": _QUEUED_KIB,
                "log_level": 0,
            }
        )
        topics = consumer.list_topics(timeout=10).topics
        places = [(name, part) for name in ANSWERS for part in topics[name].partitions]
        consumer.assign([TopicPartition(name, part, 0) for name, part in places])
        self._not_at_end = set(places)
        return consumer

    def markers(self) -> list[CommitMarker]:
        """Of all batches."""
        return Streams(self.bootstrap, "").markers()

    def applied(self) -> list[Read]:
        """The input messages, in the order in which they were applied."""
        return Streams(self.bootstrap, "").applied()

    def checkpoint_size(self) -> int:
        """Bytes of the checkpoint."""
        files = (file for file in self.checkpoint.rglob("*") if file.is_file())
        return sum(file.stat().st_size for file in files)


@dataclass(slots=True, kw_only=True)
class RunningLoad:
    """A job that runs under load."""

    load: Load
    process: subprocess.Popen[bytes]
    sampler: Sampler
    begun: float = field(default_factory=time.monotonic)

    def wait(self, is_enough: Callable[[], bool] | None = None) -> None:
        """Collect until all that was sent is answered, or it is enough.

        Raises:
            LoadError: the job ended, or for long nothing came.
        """
        load = self.load
        heard = reported = time.monotonic()
        while not (is_enough or self.is_all_answered)():
            now = time.monotonic()
            if load.collect():
                heard = now
            if self.process.poll() is not None:
                raise LoadError(f"the job ended with status {self.process.returncode}")
            if now - heard > PATIENCE_SECONDS:
                raise LoadError(f"no answer for {PATIENCE_SECONDS:.0f} s, {self.standing()}")
            if now - reported >= REPORT_SECONDS:
                reported = now
                say(f"    {now - self.begun:5.0f} s  {self.standing()}")

    def is_all_answered(self) -> bool:
        return len(self.load.tally.answered) >= self.load.sent

    def standing(self) -> str:
        """In a line: answers, memory."""
        tally, samples = self.load.tally, self.sampler.samples
        sizes = samples[-1].sizes if samples else {}
        held = ", ".join(f"{role} {size // 1_000_000}" for role, size in sorted(sizes.items()))
        return f"{len(tally.answered):,} of {self.load.sent:,} answered; MB: {held}"


@contextmanager
def broker_for_load(
    folder: Path, *, heap_mb: int = HEAP_MB, settings: Mapping[str, str] | None = None
) -> Iterator[Load]:
    """A broker of its own with the product's topics."""
    with EmbeddedBroker(folder / "broker", heap_mb=heap_mb, settings=settings) as broker:
        create_topics({"bootstrap.servers": broker.bootstrap_servers})
        yield Load(broker, folder)


@contextmanager
def job_for_load(load: Load, options: JobOptions) -> Iterator[RunningLoad]:
    """The job on that broker, its memory sampled from its start on."""
    command = [sys.executable, "-m", "spu_assigner.stream.cli", "run", "-b", load.bootstrap]
    command += ["--checkpoint", str(load.checkpoint)]
    with (
        running(command, load.log, options.environ()) as process,
        Sampler(process, load.broker.pid) as sampler,
    ):
        yield RunningLoad(load=load, process=process, sampler=sampler)
