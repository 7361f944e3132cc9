"""A job's topics seen from outside: what was sent, what is committed, and in which order it was
applied, from the markers alone. Reads with the plain client, not with the product's own reader.
"""

from __future__ import annotations

import heapq
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from spu_assigner.core.base.events import Event, SpuEvent
from spu_assigner.schemas.messages.codec import decode_record, encode_event
from spu_assigner.schemas.messages.wire import CommitMarker

SPU_EVENTS = "spu-events"
TOPIC_EVENTS = "topic-events"
AUDIT = "assigner-audit"
INPUTS = (SPU_EVENTS, TOPIC_EVENTS)  # in the order of merging
READ_SECONDS = 60.0  # to read to the end; a broker that was killed is back in five
_AWAY = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
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
        topic = SPU_EVENTS if isinstance(event, SpuEvent) else TOPIC_EVENTS
        key = event.cluster_id.encode()
        return cls(topic=topic, key=key, value=encode_event(event), partition=partition)


class Tail:
    """Reads topics to their present end, and later what has come since; the committed alone. A
    broker that is away is waited for."""

    def __init__(self, client: Mapping[str, Any], prefix: str, topics: Sequence[str]) -> None:
        self._names = {f"{prefix}{topic}": topic for topic in topics}
        self._settings: dict[str, Any] = {
            **client,
            "group.id": "test",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
        self._consumer = Consumer(self._settings)
        self._read: dict[tuple[str, int], int] = {}  # up to which offset

    def more(self) -> Iterator[Read]:
        """What has come since the last time, in the order of each partition."""
        deadline = time.monotonic() + READ_SECONDS
        if not self._read:
            self._read = dict.fromkeys(self._places(deadline), 0)
            self._assign()
        ends = {place: self._end(place, deadline) for place in self._read}
        while any(self._read[place] < end for place, end in ends.items()):
            assert time.monotonic() < deadline, f"not read to the end: {ends}, but {self._read}"
            for message in self._consumer.consume(1_000, 0.1):
                place, error = (message.topic(), message.partition()), message.error()
                if error is None:
                    self._read[place] = message.offset() + 1
                    yield _read(self._names[place[0]], message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._read[place] = message.offset()
                else:
                    assert error.retriable() or error.code() in _AWAY, error

    def close(self) -> None:
        self._consumer.close()

    def _places(self, deadline: float) -> list[tuple[str, int]]:
        return [
            (name, number)
            for name in self._names
            for number in self._asked(
                lambda name=name: self._consumer.list_topics(name, 10).topics[name].partitions,
                deadline,
            )
        ]

    def _end(self, place: tuple[str, int], deadline: float) -> int:
        where = TopicPartition(*place)
        _, end = self._asked(
            lambda: self._consumer.get_watermark_offsets(where, timeout=10), deadline
        )
        return int(end)

    def _asked(self, request: Callable[[], Any], deadline: float) -> Any:
        while True:
            try:
                return request()
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
                self._forget()

    def _forget(self) -> None:
        """Go on with another client: one that saw a broker come back may refuse from memory."""
        self._consumer.close()
        self._consumer = Consumer(self._settings)
        self._assign()

    def _assign(self) -> None:
        self._consumer.assign(
            [TopicPartition(*place, next_) for place, next_ in self._read.items()]
        )


class Streams:
    """The topics under one prefix."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._client = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._prefix = prefix
        self._producer = Producer({**self._client, "enable.idempotence": True, "linger.ms": 1})
        self._audit: Tail | None = None
        self._markers: list[CommitMarker] = []

    def send(self, messages: Iterable[Outgoing | Event]) -> None:
        """Send all, and return when all are acknowledged."""
        failures: list[object] = []

        def delivered(error: object, message: object) -> None:
            if error is not None:
                failures.append(error)

        for item in messages:
            message = item if isinstance(item, Outgoing) else Outgoing.of_event(item)
            given: dict[str, Any] = {}
            if message.partition is not None:
                given["partition"] = message.partition
            topic = f"{self._prefix}{message.topic}"
            self._producer.produce(
                topic, message.value, message.key, on_delivery=delivered, **given
            )
        assert self._producer.flush(90) == 0
        assert not failures

    def read(self, topic: str) -> list[Read]:
        """All that is committed now, partition by partition."""
        tail = self.tail(topic)
        try:
            return sorted(tail.more(), key=lambda read: (read.partition, read.offset))
        finally:
            tail.close()

    def markers(self) -> list[CommitMarker]:
        """The markers of all batches that are committed now, in the order they were committed.
        Asked often while a job runs, so its reader stays and reads on."""
        if self._audit is None:
            self._audit = self.tail(AUDIT)
        self._markers += [marker_of(read.value) for read in self._audit.more()]
        return list(self._markers)

    def tail(self, *topics: str) -> Tail:
        """A reader of topics from their begin."""
        return Tail(self._client, self._prefix, topics)

    def applied_count(self) -> int:
        """How many input messages the committed batches have read."""
        return sum(
            part.count
            for marker in self.markers()
            for parts in marker.offsets.values()
            for part in parts
        )

    def applied(self) -> list[Read]:
        """The input messages in the order they were applied: batch by batch, shard by shard. Fails
        unless the markers cover each partition from its begin without gap or overlap."""
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
            order += merged(parts, marker.shards)
        assert not inputs, f"{len(inputs)} messages are in no marker"
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


def merged(parts: Sequence[Sequence[Read]], shards: int) -> Iterator[Read]:
    """The parts of a batch, SPU events first, in the order they are applied: server by server, two
    of each shard, and of each always the least time; among equals the first part."""
    for server in product(range(shards), range(2)):
        own = [[read for read in reads if _server(read, shards) == server] for reads in parts]
        yield from heapq.merge(*own, key=lambda read: read.time_ms)


def _server(read: Read, shards: int) -> tuple[int, int]:
    crc = zlib.crc32(read.key or b"")
    return crc % shards, crc >> 16 & 1


def marker_of(value: bytes | None) -> CommitMarker:
    """The marker that a message of `assigner-audit` holds."""
    assert value is not None
    marker = decode_record(value)
    assert isinstance(marker, CommitMarker)
    return marker


SHARDS: Final = 2
