"""The values that `plan` and `apply` work on: what is wanted, what is in Kafka, and a plan.

A plan has one form: what `plan` decides is what it prints, what its file holds and what `apply`
reads and carries out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, Literal

from msgspec import Meta
from spu_assigner.core.base.limits import KAFKA_OWN, SPU_ID_MAX
from spu_assigner.core.base.records import Mode, ReplicaMap
from spu_assigner.core.base.structs import FrozenStruct
from spu_assigner.core.constraints.improvable import Improvable
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.clusters.moves.status import new_move
from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.kafka.log_dirs import UnseenTopics

Broker = Annotated[int, Meta(ge=0, le=SPU_ID_MAX)]
Count = Annotated[int, Meta(ge=0)]
Name = Annotated[str, Meta(pattern=r"^(?!\.\.?$)[a-zA-Z0-9._-]{1,249}\Z")]  # of a topic
# The replicas of one partition, the preferred leader first.
Row = Annotated[tuple[Broker, ...], Meta(min_length=1)]
Rows = tuple[Row, ...]
Configs = Mapping[str, Mapping[str, str]]  # settings of topics, as Kafka takes them

FORMAT: Final = 3  # of a plan's file
UNDO_MARK: Final = "undo"  # the ids of the events of `drain --undo` begin so


def is_adopted(known: ReplicaMap) -> bool:
    """Whether a map is as its topic was in Kafka, and not changed here, as `drain --undo` does."""
    is_undone = known.cause.startswith(f"{UNDO_MARK}/")
    return known.reason is not None and known.reason.mode is Mode.ADOPTED and not is_undone


def rows_digest(rows: Rows | None) -> str:
    """A fingerprint of replica lists."""
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One topic as its replica map says."""

    replicas: Rows | None  # None: it had a map, and is deleted
    short: frozenset[int] = frozenset()  # the partitions whose lists wait for a replica
    is_released: bool = False  # its map went by a release: it stays in Kafka
    was_released: bool = False  # now, or before its name was asked for again
    is_pinned: bool = False
    is_adopted: bool = False  # as Kafka had it then; nothing has changed it here since


@dataclass(frozen=True, slots=True, kw_only=True)
class Maps:
    """All that is wanted of one cluster."""

    cluster_id: str
    topics: Mapping[str, Wanted]
    waiting: Mapping[str, str] = field(default_factory=dict)  # creates without a map: for what
    is_live: bool = True  # the job's, in Kafka, and can be read again; else of a file
    state: ClusterState | None = field(default=None, compare=False)  # that they are of

    def lists(self) -> dict[str, Rows]:
        """The lists of each topic that is not deleted."""
        wanted = self.topics.items()
        return {name: each.replicas for name, each in wanted if each.replicas is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition as the brokers report it."""

    replicas: Row
    in_sync: frozenset[int]
    leader: int = -1  # that it has now; -1: none


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

    def partitions_ahead(self, topics: Mapping[str, Wanted]) -> int:
        """The partitions that are not as mapped; lists that wait for a replica aside."""
        return sum(
            number not in wanted.short and (row,) != found[number : number + 1]
            for topic, wanted in topics.items()
            for found in [self.rows(topic) or ()]
            for number, row in enumerate(wanted.replicas or ())
        )

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


class TopicChange(FrozenStruct, frozen=True, kw_only=True):
    """What one topic needs."""

    topic: Name
    kind: ChangeKind
    before: Rows = ()  # of a partition that is being moved: with what it gives up at its end
    after: Rows = ()
    moving: tuple[Count, ...] = ()  # partitions that Kafka is moving to `after` now
    topic_id: str | None = None  # Kafka's, of one that is there
    gone_id: str | None = None  # of one that is created again: the id that it had
    records: Count | None = None
    """Of one that is deleted: offsets between the ends of its partitions, summed."""
    size_bytes: Count | None = None
    """Of one replica of each partition, likewise; None: the brokers do not report it."""

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


class TopicReason(FrozenStruct, frozen=True, kw_only=True):
    """A topic that is left alone, and why."""

    topic: Name
    reason: str


class BrokerLoad(FrozenStruct, frozen=True, kw_only=True):
    """What one broker holds before and after a plan."""

    broker: Broker
    replicas_before: int = 0
    leaders_before: int = 0  # partitions whose list begins with it
    bytes_before: int | None = None  # None: not known
    replicas_after: int = 0
    leaders_after: int = 0
    bytes_after: int | None = None
    bytes_in: int = 0  # copied to it
    bytes_out: int = 0  # of replicas that leave it, freed when the moves are done


class PlanLoad(FrozenStruct, frozen=True, kw_only=True):
    """What a plan costs."""

    replicas_to_copy: int = 0
    replicas_unsized: int = 0  # of these, whose bytes are not known: none of them is in the bytes
    bytes_to_copy: int | None = 0  # None: no broker reports any
    brokers: tuple[BrokerLoad, ...] = ()


class TopicsPlan(FrozenStruct, frozen=True, kw_only=True):
    """What is between the maps of a cluster and Kafka; its fields are those of its JSON."""

    format: Literal[3] = FORMAT
    product: Literal["spu-assigner"] = "spu-assigner"
    release: str = RELEASE
    cluster_id: str
    kafka_id: str
    brokers: tuple[Broker, ...]
    maps_from: Literal["kafka", "file"] = "kafka"
    """The job's, which can be read again, or those of a file."""
    recreate: bool = False  # whether topics that are gone are created again
    changes: tuple[TopicChange, ...] = ()
    refused: tuple[TopicReason, ...] = ()  # Kafka would not, or we should not
    waiting: tuple[TopicReason, ...] = ()  # for events of the cluster
    deletable: tuple[Name, ...] = ()  # there, mapped no more, and not asked to be deleted
    staying: tuple[TopicReason, ...] = ()  # there, mapped no more, and never deleted by us
    first_seen: tuple[Name, ...] = ()  # as mapped, and neither made nor recorded by apply
    unchanged: Mapping[Name, Rows] = {}
    unmapped: tuple[str, ...] = ()  # in Kafka without a map; Kafka's own and the product's aside
    unmatched: tuple[str, ...] = ()
    """Globs that were given and that no topic matches: probably misspelt."""
    reassigned: tuple[str, ...] = ()
    """To move, since others have changed them in Kafka after their adoption."""
    unseen: UnseenTopics = UnseenTopics()
    improvable: Improvable = Improvable()
    partitions_ahead: Count = 0  # not in Kafka as mapped
    load: PlanLoad = PlanLoad()

    def of(self, kind: ChangeKind) -> list[TopicChange]:
        """The changes of one kind."""
        return [change for change in self.changes if change.kind is kind]

    def moved_partitions(self) -> list[MovedPartition]:
        """What `apply --moves` carries out; sizes are not known yet."""
        return [
            new_move((change.topic, number), change.topic_id or "", before, after)
            for change in self.changes
            for number, (before, after) in change.moves.items()
        ]


class TopicFailure(FrozenStruct, frozen=True, kw_only=True):
    """A change that was not made, and what Kafka says."""

    topic: str
    kind: ChangeKind
    reason: str
    is_overtaken: bool = False  # somebody else has done it, or something else of the kind


class AppliedPlan(FrozenStruct, frozen=True, kw_only=True):
    """What became of a plan; its fields are those of the JSON of `apply`."""

    plan: TopicsPlan
    created: tuple[str, ...] = ()
    grown: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    failed: tuple[TopicFailure, ...] = ()  # topics that are not as planned
    found: tuple[str, ...] = ()  # recorded as mapped, and not made by apply
    released: tuple[str, ...] = ()  # recorded as no concern of apply's any more
    moves: Mapping[str, object] | None = None  # what became of them; None: they were not asked for
