"""Outgoing Kafka messages packed into few rows.

A row of Spark's costs more than a message's decision, so a shard puts the messages of a batch into
bundles: bytes, of about 256 KiB. The last bundle of a shard also says what the shard has read, and
what that came to (`job/shard/tally.py`). Layout, numbers big-endian:

    bundle  = format u8, messages u32, sizes u32 of summary and messages, summary, messages
    summary = ranges of the input and tally, in msgpack
    message = kind u8, id size u16, key size i32 (-1: none), value size i32 (-1: none),
              broker time i64 in ms, id, key, value

The digest of a batch is taken over the messages' bytes, so it does not depend on where bundles end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.stream.job.shard.tally import Tally
from spu_assigner.stream.kafka import topics
from spu_assigner.stream.kafka.cloud_events import TOPIC_RELEASED

BUNDLE_SIZE: Final = 256 * 1024  # bytes; a larger message has a bundle of its own

_FORMAT: Final = 5
_HEADER: Final = struct.Struct(">BIII")
_MESSAGE: Final = struct.Struct(">BHiiq")


class InputSource(IntEnum):
    """An input topic; in this order at the same broker time."""

    SPU_EVENTS = 0
    TOPIC_EVENTS = 1


SOURCE_TOPICS: Final[Mapping[InputSource, str]] = {
    InputSource.SPU_EVENTS: topics.SPU_EVENTS,
    InputSource.TOPIC_EVENTS: topics.TOPIC_EVENTS,
}


class MessageKind(IntEnum):
    """What a message carries. The numbers are part of the format: add, never change."""

    REPLICA_MAP = 0
    TOPIC_STATUS = 1
    RING_EVENT = 2
    DEAD_LETTER = 3
    SPU_STATE = 4
    CHAIN_STATE = 5
    SEEN_STATE = 6
    WAITING_STATE = 7
    TOPIC_RELEASED = 8  # a tombstone of `replica-map`: the topic is forgotten, its data stay


KINDS: Final[Mapping[MessageKind, tuple[str, str]]] = {  # the topic and the CloudEvents type
    MessageKind.REPLICA_MAP: (topics.REPLICA_MAP, "ReplicaMap"),
    MessageKind.TOPIC_STATUS: (topics.TOPIC_STATUS, "TopicStatus"),
    MessageKind.RING_EVENT: (topics.RING_EVENTS, "RingEvent"),
    MessageKind.DEAD_LETTER: (topics.DEAD_LETTER, "DeadLetter"),
    MessageKind.SPU_STATE: (topics.ASSIGNER_STATE, "SpuState"),
    MessageKind.CHAIN_STATE: (topics.ASSIGNER_STATE, "ChainState"),
    MessageKind.SEEN_STATE: (topics.ASSIGNER_STATE, "SeenState"),
    MessageKind.WAITING_STATE: (topics.ASSIGNER_STATE, "WaitingState"),
    MessageKind.TOPIC_RELEASED: (topics.REPLICA_MAP, TOPIC_RELEASED),
}


class Message(NamedTuple):
    """One message to Kafka."""

    kind: int  # of MessageKind
    id: bytes  # the same again when the batch is repeated
    key: bytes | None
    value: bytes | None  # None: a tombstone
    time_ms: int  # the broker's, of the event that caused it


class SourceRange(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What a shard, or a batch, has read of one input partition."""

    source: InputSource
    partition: int
    first: int
    last: int
    count: int


_SUMMARY: Final = msgspec.msgpack.Decoder(tuple[list[SourceRange], Tally | None])


def message_bytes(
    kind: int, event_id: bytes, key: bytes | None, value: bytes | None, time_ms: int
) -> tuple[bytes, bytes]:
    """What a digest is taken over, as lead and value."""
    key_size = -1 if key is None else len(key)
    value_size = -1 if value is None else len(value)
    lead = _MESSAGE.pack(kind, len(event_id), key_size, value_size, time_ms)
    return lead + event_id + (key or b""), value or b""


class Bundler:
    """Packs messages, in the order they are added."""

    def __init__(self) -> None:
        self.full: list[bytes] = []  # bundles, which the caller takes out
        self._parts: list[bytes] = []
        self._size = 0
        self._count = 0

    def put(
        self, kind: int, event_id: bytes, key: bytes | None, value: bytes | None, time_ms: int
    ) -> None:
        """Add a message."""
        lead, content = message_bytes(kind, event_id, key, value, time_ms)
        self._parts += (lead, content)
        self._size += len(lead) + len(content)
        self._count += 1
        if self._size >= BUNDLE_SIZE:
            self.full.append(self.close(()))

    def close(self, ranges: Sequence[SourceRange], tally: Tally | None = None) -> bytes:
        """The last bundle, with what was read, and what that came to."""
        summary = msgspec.msgpack.encode((ranges, tally))
        header = _HEADER.pack(_FORMAT, self._count, len(summary), self._size)
        bundle = b"".join((header, summary, *self._parts))
        self._parts, self._size, self._count = [], 0, 0
        return bundle


class Bundle:
    """A bundle read back: ranges, messages, and the bytes that a digest is taken over."""

    __slots__ = ("count", "digestible", "ranges", "tally")

    def __init__(self, data: bytes) -> None:
        """Unpack; raises InvariantError if this release's `Bundler` has not made it."""
        form, self.count, summary_size, size = _HEADER.unpack_from(data)
        if form != _FORMAT:
            raise InvariantError(f"a bundle has format {form}; expected {_FORMAT}")
        end = _HEADER.size + summary_size
        if len(data) != end + size:
            raise InvariantError(f"a bundle has {len(data)} bytes; its header says {end + size}")
        try:
            self.ranges, self.tally = _SUMMARY.decode(data[_HEADER.size : end])
        except msgspec.DecodeError as reason:
            raise InvariantError(f"a bundle's summary cannot be read: {reason}") from reason
        self.digestible = data[end:]

    def messages(self) -> Iterator[Message]:
        """The messages, in the order they were added."""
        data, position, end = self.digestible, 0, len(self.digestible)
        while position < end:
            kind, id_size, key_size, value_size, time_ms = _MESSAGE.unpack_from(data, position)
            start = position + _MESSAGE.size
            key_start = start + id_size
            value_start = key_start + max(key_size, 0)
            position = value_start + max(value_size, 0)
            key = None if key_size < 0 else data[key_start:value_start]
            value = None if value_size < 0 else data[value_start:position]
            yield Message(kind, data[start:key_start], key, value, time_ms)


def merged_ranges(ranges: Iterable[SourceRange]) -> list[SourceRange]:
    """What several shards have read together, by source and partition."""
    merged: dict[tuple[InputSource, int], SourceRange] = {}
    for each in ranges:
        place = (each.source, each.partition)
        other = merged.get(place, each)
        merged[place] = SourceRange(
            source=each.source,
            partition=each.partition,
            first=min(each.first, other.first),
            last=max(each.last, other.last),
            count=each.count + (0 if other is each else other.count),
        )
    return [merged[place] for place in sorted(merged)]
