"""What is on the wire beside events and the core's records: dead letters, commit markers, and what
`apply` records of topics and of the moves that it carries out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spu_assigner.core.base.limits import DEAD_LETTER_RAW_SIZE_MAX
from spu_assigner.core.base.structs import FastStrEnum
from spu_assigner.schemas.errors import shortened

MOVES_KEY: Final = "/moves"  # of the one MovesRun; no cluster's id is empty


class Wire(FastStrEnum):
    """The encoding that is written; both are read."""

    CONFLUENT = "confluent"  # 0x00, schema id in 4 bytes, Avro
    SINGLE_OBJECT = "single-object"  # 0xC3 0x01, CRC-64-AVRO in 8 bytes, Avro


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that is no event, as far as it can be kept."""

    source_topic: str
    source_partition: int
    source_offset: int
    source_timestamp_ms: int  # the broker's
    code: str
    message: str
    raw: bytes | None  # the first 64 KiB of the value; None: it had none
    size: int  # of the whole value, bytes
    sha256: str  # of the whole value, hexadecimal

    @classmethod
    def of_value(
        cls,
        value: bytes | None,
        *,
        source_topic: str,
        source_partition: int,
        source_offset: int,
        source_timestamp_ms: int,
        code: str,
        message: str,
    ) -> DeadLetter:
        """The dead letter of a whole value."""
        whole = b"" if value is None else bytes(value)
        return cls(
            source_topic=source_topic,
            source_partition=source_partition,
            source_offset=source_offset,
            source_timestamp_ms=source_timestamp_ms,
            code=str(code),
            message=shortened(message),
            raw=None if value is None else whole[:DEAD_LETTER_RAW_SIZE_MAX],
            size=len(whole),
            sha256=hashlib.sha256(whole).hexdigest(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """What a batch read of one input partition."""

    partition: int
    first: int  # offset of the first message
    last: int  # of the last
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPosition:
    """How far one input partition has been read."""

    partition: int
    next: int  # offset of the first message that was not read yet


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredFrom:
    """The last batch of a checkpoint that was lost."""

    checkpoint_id: str
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMarker:
    """What one batch wrote and what it had read."""

    query: str
    checkpoint_id: str
    batch: int  # from 0; -1: no batch, a recovered checkpoint begins
    count: int  # messages written beside the marker
    digest: str  # SHA-256 over them in their order, behind the number of their shard, hexadecimal
    offsets: Mapping[str, tuple[PartitionOffsets, ...]]  # by input topic
    release: str  # that wrote the batch
    shards: int
    default_policy: str
    # By input topic, with all batches before: where this one ended, behind all it has read.
    positions: Mapping[str, tuple[PartitionPosition, ...]]
    recovered_from: RecoveredFrom | None = None
    # By input topic, Kafka's: one that is recreated has another. None of a broker that gives none.
    topic_ids: Mapping[str, str]


class Origin(StrEnum):
    """How `apply` knows a topic in Kafka."""

    CREATED = "created"  # it made it
    FOUND = "found"  # it was there, as mapped
    SEEN = "seen"  # `plan` saw it there, as mapped
    RELEASED = "released"  # its map was released: no longer managed
    INTENT = "intent"  # it is about to be created


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedTopic:
    """What `apply` has recorded of one topic of a cluster."""

    cluster_id: str  # the assigner's
    topic: str
    topic_id: str | None  # Kafka's; None: of an INTENT
    origin: Origin
    recorded_at: int  # ms since the epoch
    # A fingerprint of its replica lists then; of an INTENT, of those that it is to have. Of a topic
    # that grew since, also of the lists that were yet to move then, each as " 3:fingerprint".
    lists: str


class MovesState(StrEnum):
    """How far a run of `apply --moves` is."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"  # it ended before everything was moved
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedPartition:
    """One partition of the wave that is under way."""

    topic: str
    topic_id: str  # Kafka's
    partition: int
    before: tuple[int, ...]  # its replica list, the preferred leader first
    after: tuple[int, ...]
    size_bytes: int  # of one replica


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleValue:
    """One setting of a throttle, of a broker or of a topic."""

    broker: int | None
    topic: str | None
    setting: str  # Kafka's name of it
    value: str  # that the run sets
    before: str | None  # that it had and is given back; None: it had none


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesRun:
    """How far a run that moves partitions is: each wave is recorded before it is begun."""

    cluster_id: str  # the assigner's
    run_id: str
    holder: str  # the process, for a person
    state: MovesState
    recorded_at: int  # ms since the epoch
    began_at: int  # ms since the epoch
    wave: int = 0  # from 1; 0: none yet
    moves: tuple[MovedPartition, ...] = ()  # of the wave that is under way
    throttles: tuple[ThrottleValue, ...] = ()  # what is set, or about to be
    moves_total: int = 0
    moves_done: int = 0
    bytes_total: int = 0
    bytes_done: int = 0
    waves: int = 0  # of the run; 0: not known yet
    moves_failed: int = 0
    bytes_failed: int = 0
    failures: tuple[str, ...] = ()  # why it stopped, what failed first

    def moves_by_state(self) -> dict[str, int]:
        """How many moves are pending, done, failed; what is under way is pending."""
        return _by_state(self.moves_total, self.moves_done, self.moves_failed)

    def bytes_by_state(self) -> dict[str, int]:
        """How many bytes are pending, done, failed."""
        return _by_state(self.bytes_total, self.bytes_done, self.bytes_failed)


def _by_state(total: int, done: int, failed: int) -> dict[str, int]:
    return {"pending": max(0, total - done - failed), "done": done, "failed": failed}
