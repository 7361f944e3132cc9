"""A job's topics seen from outside: what was sent, what is committed, and in which order it was
applied, from the markers alone.

Reads with the plain client, not with the product's own reader.
"""

from __future__ import annotations

import subprocess
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from spu_assigner.core.events import Event, SpuJoined, SpuLeft
from spu_assigner.schemas.codec import decode_record, encode_event
from spu_assigner.schemas.wire import CommitMarker

SPU_EVENTS = "spu-events"
TOPIC_EVENTS = "topic-events"
INPUTS = (SPU_EVENTS, TOPIC_EVENTS)  # in the order of merging
OUTPUTS = ("replica-map", "topic-status", "ring-events", "dead-letter", "assigner-state")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One message as it lies in Kafka."""

    topic: str  # without the prefix
    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    ce_id: bytes | None

    @property
    def place(self) -> tuple[str, int, int]:
        return self.topic, self.partition, self.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One message to send; partition None: by its key."""

    topic: str  # without the prefix
    key: bytes | None
    value: bytes | None
    partition: int | None = None

    @classmethod
    def of_event(cls, event: Event, partition: int | None = None) -> Outgoing:
        topic = SPU_EVENTS if isinstance(event, SpuJoined | SpuLeft) else TOPIC_EVENTS
        key = event.cluster_id.encode()
        return cls(topic=topic, key=key, value=encode_event(event), partition=partition)


class Streams:
    """The topics under one prefix."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._client = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._prefix = prefix
        self._producer = Producer({**self._client, "enable.idempotence": True, "linger.ms": 1})
        self._audit: Consumer | None = None
        self._audit_read = 0  # the offset up to which it was read
        self._markers: list[CommitMarker] = []

    def send(self, messages: Iterable[Outgoing | Event]) -> None:
        """Send all, and return when all are acknowledged."""
        failures: list[object] = []

        def told(error: object, message: object) -> None:
            if error is not None:
                failures.append(error)

        for item in messages:
            message = item if isinstance(item, Outgoing) else Outgoing.of_event(item)
            given: dict[str, Any] = {}
            if message.partition is not None:
                given["partition"] = message.partition
            topic = f"{self._prefix}{message.topic}"
            self._producer.produce(topic, message.value, message.key, on_delivery=told, **given)
        assert self._producer.flush(30) == 0
        assert not failures

    def read(self, topic: str) -> list[Read]:
        """All that is committed now, partition by partition."""
        consumer = self._consumer()
        name = f"{self._prefix}{topic}"
        open_ends = set(consumer.list_topics(name, 10).topics[name].partitions)
        consumer.assign([TopicPartition(name, number, 0) for number in open_ends])
        found: list[Read] = []
        deadline = time.monotonic() + 30
        while open_ends:
            assert time.monotonic() < deadline, f"{name} was not read to its end"
            for message in consumer.consume(1_000, 0.1):
                error = message.error()
                if error is None:
                    found.append(_read(topic, message))
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    open_ends.discard(message.partition())
        consumer.close()
        return sorted(found, key=lambda read: (read.partition, read.offset))

    def markers(self) -> list[CommitMarker]:
        """The markers of all batches that are committed now, in the order they were committed.

        Asked often while a job runs, so its consumer stays and reads on.
        """
        place = TopicPartition(f"{self._prefix}assigner-audit", 0, 0)
        if self._audit is None:
            self._audit = self._consumer()
            self._audit.assign([place])
        _, end = self._audit.get_watermark_offsets(place, timeout=10)
        deadline = time.monotonic() + 30
        while self._audit_read < end:
            assert time.monotonic() < deadline, "the audit was not read to its end"
            for message in self._audit.consume(1_000, 0.1):
                self._audit_read = message.offset()
                if message.error() is None:
                    self._audit_read += 1
                    self._markers.append(_marker(message.value()))
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
        return list(self._markers)

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                **self._client,
                "group.id": "test",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
            }
        )

    def applied_count(self) -> int:
        """How many input messages the committed batches have read."""
        return sum(
            part.count
            for marker in self.markers()
            for parts in marker.offsets.values()
            for part in parts
        )

    def wait(
        self, is_enough: Callable[[], bool], process: subprocess.Popen[bytes], seconds: float = 90.0
    ) -> None:
        """Until it is so; fails when the process ends before or time is up."""
        deadline = time.monotonic() + seconds
        while not is_enough():
            assert process.poll() is None, f"the job ended with status {process.returncode}"
            assert time.monotonic() < deadline, f"after {seconds} s: {self.applied_count()} applied"
            time.sleep(0.1)

    def applied(self) -> list[Read]:
        """The input messages in the order they were applied: batch by batch, shard by shard, and in
        a shard the partitions merged by broker time, then SPU events first, then partition, then
        offset. Where the broker's clock steps back this depends on what else the shard has, so the
        shards are the marker's, as in `spu-assigner verify`.

        Fails unless the markers cover each partition from its begin without gap or overlap.
        """
        inputs = {read.place: read for topic in INPUTS for read in self.read(topic)}
        following: dict[tuple[str, int], int] = {}
        order: list[Read] = []
        for marker in self.markers():
            parts: list[list[Read]] = []
            for topic in INPUTS:
                for part in marker.offsets.get(f"{self._prefix}{topic}", ()):
                    assert part.first == following.get((topic, part.partition), 0)
                    assert part.count == part.last - part.first + 1
                    following[topic, part.partition] = part.last + 1
                    offsets = range(part.first, part.last + 1)
                    parts.append([inputs.pop((topic, part.partition, each)) for each in offsets])
            shards = max(1, marker.shards)  # before 0.3 it was not told
            for shard in range(shards):
                order += _merged([_of_shard(reads, shard, shards) for reads in parts])
        assert not inputs, f"{len(inputs)} messages are in no marker"
        return order


def _of_shard(reads: list[Read], shard: int, shards: int) -> list[Read]:
    return [read for read in reads if zlib.crc32(read.key or b"") % shards == shard]


def _merged(heads: list[list[Read]]) -> list[Read]:
    """The least time first; among equals the first partition, as they are sorted."""
    order: list[Read] = []
    while heads := [reads for reads in heads if reads]:
        earliest = min(heads, key=lambda reads: reads[0].time_ms)
        order.append(earliest.pop(0))
    return order


def _read(topic: str, message: Any) -> Read:
    headers = dict(message.headers() or ())
    return Read(
        topic=topic,
        partition=message.partition(),
        offset=message.offset(),
        time_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        ce_id=headers.get("ce_id"),
    )


def _marker(value: bytes | None) -> CommitMarker:
    assert value is not None
    marker = decode_record(value)
    assert isinstance(marker, CommitMarker)
    return marker
