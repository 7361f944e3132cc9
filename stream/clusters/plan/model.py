"""The values that `plan` and `apply` work on: what is wanted, what is in Kafka, and a plan."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.limits import KAFKA_OWN
from spu_assigner.schemas.messages.wire import MovedPartition

Row = tuple[int, ...]  # the replicas of one partition, the preferred leader first
Rows = tuple[Row, ...]


class TargetError(AssignerError):
    """The Kafka cluster whose topics are to be as mapped cannot be looked at."""


def rows_digest(rows: Rows | None) -> str:
    """A fingerprint of replica lists."""
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One topic as its replica map says."""

    replicas: Rows | None  # None: it had a map, and is deleted
    replication_factor: int = 0  # that was asked for: a list with fewer is waiting
    lengths: tuple[int, ...] | None = None  # of each list, where an adopted topic's differ
    is_released: bool = False  # its map went by a release: it stays in Kafka
    is_adopted: bool = False  # as Kafka had it then; nothing has changed it here since
    says_bytes: bool = False  # how many it has: it demands so much of disks
    released_at: int | None = None  # of the last release that is known, ms; 0: time not known

    @property
    def short(self) -> frozenset[int]:
        """The partitions whose lists wait for a replica."""
        rows = self.replicas or ()
        lengths = self.lengths or (self.replication_factor,) * len(rows)
        pairs = enumerate(zip(rows, lengths, strict=True))
        return frozenset(n for n, (row, length) in pairs if len(row) < length)


@dataclass(frozen=True, slots=True, kw_only=True)
class Maps:
    """All that is wanted of one cluster."""

    cluster_id: str
    topics: Mapping[str, Wanted]
    waiting: Mapping[str, str] = field(default_factory=dict)  # creates without a map: for what
    is_live: bool = True  # the job's, in Kafka, and can be read again; else of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition as the brokers report it."""

    replicas: Row
    in_sync: frozenset[int]
    leader: int | None = None  # None: there is none, or it is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaCluster:
    """What is there."""

    kafka_id: str
    brokers: tuple[int, ...]  # that are alive, in order
    topics: Mapping[str, tuple[Partition, ...]]
    ids: Mapping[str, str] = field(default_factory=dict)  # Kafka's, of the topics asked about
    own: frozenset[str] = frozenset()  # topics of the product itself
    hidden: frozenset[str] = frozenset()  # deleted ones that may be there: this user may not see

    def rows(self, topic: str) -> Rows | None:
        """Its replica lists; None: it is not there."""
        found = self.topics.get(topic)
        return None if found is None else tuple(each.replicas for each in found)

    def reserved(self, topic: str) -> str | None:
        """Why a topic is never touched; None: it may be."""
        if topic.startswith(KAFKA_OWN):
            return "begins like Kafka's own topics, which are left alone; use another name"
        if topic in self.own:
            return "is called like a topic of the product; use another name, or another prefix"
        return None

    def is_as_mapped(self, topic: str, wanted: Wanted) -> bool:
        """Whether a topic is exactly as mapped, and may be recorded as found."""
        return (
            wanted.replicas is not None
            and self.rows(topic) == wanted.replicas
            and topic in self.ids
            and self.reserved(topic) is None
        )


class ChangeKind(StrEnum):
    """What a change does with a topic."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSize:
    """How much data a topic holds."""

    records: int  # offsets between the ends of its partitions, summed
    size_bytes: int | None  # of one replica of each partition; None: the brokers do not report it


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """What one topic needs."""

    topic: str
    kind: ChangeKind
    before: Rows = ()  # of a partition that is being moved: with what it gives up at its end
    after: Rows = ()
    moving: frozenset[int] = frozenset()  # partitions that Kafka is moving to `after` now
    topic_id: str | None = None  # Kafka's, of one that is there
    gone_id: str | None = None  # of one that is created again: the id that it had
    size: TopicSize | None = None  # of one that is deleted; None: not measured

    @property
    def added(self) -> Rows:
        """The lists of new partitions."""
        return self.after[len(self.before) :] if self.kind is not ChangeKind.DELETE else ()

    @property
    def moves(self) -> dict[int, tuple[Row, Row]]:
        """Partitions whose lists differ, before and after; without those that are being moved."""
        if self.kind is not ChangeKind.CHANGE:
            return {}
        pairs = enumerate(zip(self.before, self.after, strict=False))
        moving = self.moving
        return {at: (old, new) for at, (old, new) in pairs if old != new and at not in moving}

    def is_done(self, rows: Rows | None) -> bool:
        """Whether a topic with these lists, or None, is as planned; moves are not looked at."""
        if self.kind is ChangeKind.DELETE or rows is None:
            return self.kind is ChangeKind.DELETE and rows is None
        return rows[len(self.before) :] == self.added


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReason:
    """A topic that is left alone, and why."""

    topic: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsPlan:
    """All that applying would do, and what it was decided on."""

    cluster_id: str
    kafka_id: str
    brokers: tuple[int, ...]
    changes: tuple[TopicChange, ...] = ()
    refused: tuple[TopicReason, ...] = ()  # Kafka would not, or we should not
    waiting: tuple[TopicReason, ...] = ()  # for events of the cluster
    deletable: tuple[str, ...] = ()  # there, mapped no more, and not asked to be deleted
    staying: tuple[TopicReason, ...] = ()  # there, mapped no more, and never deleted by us
    first_seen: tuple[str, ...] = ()  # as mapped, and neither made nor recorded by apply
    unchanged: Mapping[str, Rows] = field(default_factory=dict)
    recreate: bool = False  # whether topics that are gone are created again
    is_live: bool = True  # the maps are the job's, and can be read again
    maps: Mapping[str, str] = field(default_factory=dict)  # their fingerprints, by topic

    def of(self, kind: ChangeKind) -> list[TopicChange]:
        """The changes of one kind."""
        return [change for change in self.changes if change.kind is kind]

    @property
    def moves(self) -> dict[str, dict[int, tuple[Row, Row]]]:
        """By topic, the partitions that are to move, with their lists before and after."""
        return {change.topic: change.moves for change in self.changes if change.moves}

    def moved_partitions(self) -> list[MovedPartition]:
        """The same, as `apply --moves` carries them out; sizes are not known yet."""
        return [
            MovedPartition(
                topic=change.topic,
                topic_id=change.topic_id or "",
                partition=number,
                before=before,
                after=after,
                size_bytes=0,
            )
            for change in self.changes
            for number, (before, after) in change.moves.items()
        ]
