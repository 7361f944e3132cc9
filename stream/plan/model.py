"""What is between the replica maps of a cluster and the topics of a Kafka cluster: a pure function.

    make_plan(maps, cluster, applied=…, delete=False) -> TopicsPlan

Rules: an SPU's id is a broker's id. Only the assignment of replicas is looked at, never a topic's
configuration, and no topic but those that maps name. Kafka's own topics and the product's are never
touched. A topic is deleted only if a tombstone says that it had a map, if `apply` made it (by
Kafka's id of the topic), and only when that was asked for. A topic that `apply` neither made nor
found as mapped is not changed without an explicit word. A topic that was in Kafka and is gone is
created again only on request. A list that waits for a replica changes nothing: what is there stays
until the list is whole. A partition is never taken away. Order is by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from spu_assigner.core.base.reserved import KAFKA_OWN

if TYPE_CHECKING:
    from spu_assigner.stream.plan.applied import AppliedRecords

Row = tuple[int, ...]  # the replicas of one partition, the preferred leader first
Rows = tuple[Row, ...]

IDS_REPORTED_MAX: Final = 10
GONE_FACT: Final = "was in Kafka before; its data are gone"
GONE_FIX: Final = (
    "give --recreate to create it again, empty, or delete its map (`spu-assigner produce "
    "topic-delete`)"
)
GONE: Final = f"{GONE_FACT}; {GONE_FIX}"
NOT_OURS: Final = "is mapped no more; apply did not make it, so it stays"
RELEASED: Final = "was released; it stays in Kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One topic as its replica map says."""

    replicas: Rows | None  # None: it had a map, and is deleted
    replication_factor: int = 0  # that was asked for: a list with fewer is waiting
    is_released: bool = False  # its map went by a release: it stays in Kafka
    released_at: int | None = None  # of the last release that is known, ms; 0: time not known

    @property
    def short(self) -> frozenset[int]:
        """The partitions whose lists wait for a replica."""
        rows = self.replicas or ()
        return frozenset(n for n, row in enumerate(rows) if len(row) < self.replication_factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Maps:
    """All that is wanted of one cluster."""

    cluster_id: str
    topics: Mapping[str, Wanted]
    waiting: Mapping[str, str] = field(default_factory=dict)  # creates without a map: for what


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition as the brokers tell."""

    replicas: Row
    in_sync: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaCluster:
    """What is there."""

    kafka_id: str
    brokers: tuple[int, ...]  # that are alive, in order
    topics: Mapping[str, tuple[Partition, ...]]
    ids: Mapping[str, str] = field(default_factory=dict)  # Kafka's, of the topics asked about
    own: frozenset[str] = frozenset()  # topics of the product itself

    def rows(self, topic: str) -> Rows | None:
        """Its replica lists; None: it is not there."""
        found = self.topics.get(topic)
        return None if found is None else tuple(each.replicas for each in found)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReason:
    """A topic that is left alone, and why."""

    topic: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsPlan:
    """All that applying would do."""

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

    def of(self, kind: ChangeKind) -> list[TopicChange]:
        """The changes of one kind."""
        return [change for change in self.changes if change.kind is kind]

    @property
    def moves(self) -> dict[str, dict[int, tuple[Row, Row]]]:
        """By topic, the partitions that `kafka-reassign-partitions` is to move."""
        return {change.topic: change.moves for change in self.changes if change.moves}


def make_plan(
    maps: Maps,
    cluster: KafkaCluster,
    *,
    applied: AppliedRecords,
    delete: bool = False,
    recreate: bool = False,
    is_foreign: Callable[[str], bool] = lambda topic: False,
) -> TopicsPlan:
    """What makes the topics of `cluster` as `maps` say.

    Args:
        applied: what `apply` has recorded of topics.
        delete: also delete topics that are there though their maps are deleted.
        recreate: also create topics again that were there and are gone.
        is_foreign: whether a topic may be changed though `apply` did not make it.
    """
    making = _Making(
        maps=maps,
        cluster=cluster,
        applied=applied,
        delete=delete,
        recreate=recreate,
        is_foreign=is_foreign,
    )
    for name, wanted in sorted(maps.topics.items()):
        if wanted.replicas is None:
            making.take_deleted(name, wanted)
        else:
            making.take_mapped(name, wanted, wanted.replicas)
    return making.plan()


class _Making:
    """A plan that is being made, topic by topic."""

    def __init__(
        self,
        *,
        maps: Maps,
        cluster: KafkaCluster,
        applied: AppliedRecords,
        delete: bool,
        recreate: bool,
        is_foreign: Callable[[str], bool],
    ) -> None:
        self._maps = maps
        self._cluster = cluster
        self._applied = applied
        self._delete = delete
        self._recreate = recreate
        self._is_foreign = is_foreign
        self._collisions = _collisions(maps, cluster)
        self._changes: list[TopicChange] = []
        self._refused: list[TopicReason] = []
        self._waiting = [TopicReason(topic=name, reason=why) for name, why in maps.waiting.items()]
        self._deletable: list[str] = []
        self._staying: list[TopicReason] = []
        self._first_seen: list[str] = []
        self._unchanged: dict[str, Rows] = {}

    def take_deleted(self, name: str, wanted: Wanted) -> None:
        """A topic that had a map."""
        cluster = self._cluster
        if name not in cluster.topics or reserved(name, cluster) is not None:
            return
        topic_id = cluster.ids.get(name)
        if wanted.is_released:
            self._staying.append(TopicReason(topic=name, reason=RELEASED))
        elif not self._applied.is_made(name, topic_id, released_at=wanted.released_at):
            self._staying.append(TopicReason(topic=name, reason=NOT_OURS))
        elif self._delete:
            rows = cluster.rows(name) or ()
            change = TopicChange(topic=name, kind=ChangeKind.DELETE, before=rows, topic_id=topic_id)
            self._changes.append(change)
        else:
            self._deletable.append(name)

    def take_mapped(self, name: str, wanted: Wanted, rows: Rows) -> None:
        """A topic that has a map."""
        there = self._cluster.topics.get(name)
        change = _change(name, rows, wanted.short, there)
        if wanted.short:
            reason = _short(wanted.short, is_there=there is not None)
            self._waiting.append(TopicReason(topic=name, reason=reason))
        if change is not None:
            self._take(
                replace(
                    change,
                    topic_id=self._cluster.ids.get(name),
                    gone_id=self._applied.gone_id(name) if there is None else None,
                )
            )
        elif there is not None:
            self._unchanged[name] = tuple(each.replicas for each in there)
            is_known = self._applied.is_known(name, self._cluster.ids.get(name))
            if not is_known and is_first_seen(name, wanted, self._cluster):
                self._first_seen.append(name)

    def _take(self, change: TopicChange) -> None:
        topic = change.topic
        reason = _refusal(change, self._cluster, self._collisions)
        if reason is None and change.kind is ChangeKind.CHANGE:
            is_ours = self._applied.is_known(topic, change.topic_id) or self._is_foreign(topic)
            reason = None if is_ours else _clash(change)
        if reason is None and change.gone_id is not None and not self._recreate:
            reason = GONE
        if reason is not None:
            self._refused.append(TopicReason(topic=topic, reason=reason))
        else:
            self._changes.append(change)

    def plan(self) -> TopicsPlan:
        return TopicsPlan(
            cluster_id=self._maps.cluster_id,
            kafka_id=self._cluster.kafka_id,
            brokers=self._cluster.brokers,
            changes=tuple(self._changes),
            refused=tuple(self._refused),
            waiting=tuple(sorted(self._waiting, key=lambda told: told.topic)),
            deletable=tuple(self._deletable),
            staying=tuple(self._staying),
            first_seen=tuple(self._first_seen),
            unchanged=self._unchanged,
            recreate=self._recreate,
        )


def is_first_seen(name: str, wanted: Wanted, cluster: KafkaCluster) -> bool:
    """Whether a topic is exactly as mapped, and may be recorded as found."""
    return (
        wanted.replicas is not None
        and cluster.rows(name) == wanted.replicas
        and name in cluster.ids
        and reserved(name, cluster) is None
    )


def remaining(plan: TopicsPlan, cluster: KafkaCluster) -> TopicsPlan:
    """What of a plan is still to be done, of one that speaks of what is there."""
    changes: list[TopicChange] = []
    unchanged = dict(plan.unchanged)
    for change in plan.changes:
        there = cluster.topics.get(change.topic)
        if change.kind is not ChangeKind.DELETE:
            found = _change(change.topic, change.after, frozenset(), there)
            if found is None:
                unchanged[change.topic] = change.after
            else:
                changes.append(replace(found, topic_id=change.topic_id, gone_id=change.gone_id))
        elif there is not None:
            changes.append(change)
    return replace(plan, changes=tuple(changes), unchanged=unchanged)


def _change(
    name: str, rows: Rows, short: frozenset[int], there: tuple[Partition, ...] | None
) -> TopicChange | None:
    """What a mapped topic needs as far as its lists are whole; None: nothing now."""
    if there is None:
        return None if short else TopicChange(topic=name, kind=ChangeKind.CREATE, after=rows)
    before = tuple(each.replicas for each in there)
    after = tuple(
        before[number] if number in short else row for number, row in enumerate(rows[: len(before)])
    )
    if not any(number >= len(before) for number in short):  # All new partitions come at once.
        after += rows[len(before) :]
    if after == before:
        return None
    moving = frozenset(
        number
        for number, (partition, row) in enumerate(zip(there, after, strict=False))
        if is_moving(partition, row)
    )
    return TopicChange(
        topic=name, kind=ChangeKind.CHANGE, before=before, after=after, moving=moving
    )


def is_moving(partition: Partition, target: Row) -> bool:
    """Whether Kafka is moving a partition to these replicas.

    While it does, it lists them first, then those that are given up, until all of them have caught
    up; Kafka's clients for Python cannot ask for more.
    """
    listed = partition.replicas
    is_ahead = len(listed) > len(target) and listed[: len(target)] == target
    return is_ahead and not partition.in_sync >= frozenset(target)


def _refusal(
    change: TopicChange, cluster: KafkaCluster, collisions: Mapping[str, str]
) -> str | None:
    """Why a change is not made."""
    if (reason := reserved(change.topic, cluster)) is not None:
        return reason
    if len(change.after) < len(change.before):
        return (
            f"has {len(change.before)} partitions in Kafka and {len(change.after)} in its map; "
            f"Kafka takes none away: grow the map (`spu-assigner produce topic-grow --partitions "
            f"{len(change.before)}`), or delete the topic in Kafka"
        )
    if change.kind is ChangeKind.CREATE and change.topic in collisions:
        return (
            f"differs from topic {collisions[change.topic]!r} by dots and underscores alone, which "
            "Kafka refuses; create it under another name"
        )
    coming = {broker for row in change.added for broker in row}
    coming |= {
        broker
        for number, (before, after) in change.moves.items()
        for broker in set(after) - set(before)
    }
    if absent := sorted(coming - set(cluster.brokers)):
        return (
            f"its map names SPUs {_ids(absent)}, and Kafka's live brokers are "
            f"{_ids(cluster.brokers)}; start them, or decommission these SPUs (`spu-assigner "
            "produce spu-left --mode decommission`)"
        )
    lengths = {len(row) for row in change.after}
    if change.kind is ChangeKind.CREATE and len(lengths) > 1:
        return f"has lists of {_ids(sorted(lengths))} replicas; Kafka creates topics of one number"
    return None


def _clash(change: TopicChange) -> str:
    """A topic at first contact that is not as mapped: another's, under the same name."""
    if len(change.before) != len(change.after):
        differs = f"has {len(change.before)} partitions in Kafka and {len(change.after)} in its map"
    else:
        number, before, after = next(
            (number, before, after)
            for number, (before, after) in enumerate(zip(change.before, change.after, strict=True))
            if before != after
        )
        differs = f"has partition {number} on {row_text(before)}, mapped to {row_text(after)}"
    return (
        f"exists in Kafka, was not made by apply, and {differs}; it is left alone. Release the "
        "request (`spu-assigner produce topic-release`) and choose another name, or give "
        f"`--foreign {change.topic}` to have this topic changed"
    )


def reserved(name: str, cluster: KafkaCluster) -> str | None:
    """Why a topic is never touched; None: it may be."""
    if name.startswith(KAFKA_OWN):
        return "begins like Kafka's own topics, which are left alone; use another name"
    if name in cluster.own:
        return "is called like a topic of the product itself; use another name, or another prefix"
    return None


def _collisions(maps: Maps, cluster: KafkaCluster) -> dict[str, str]:
    """Of names that Kafka cannot tell apart in its metrics, whom each new one collides with."""
    first = {_folded(name): name for name in sorted(cluster.topics)}
    found: dict[str, str] = {}
    for name, wanted in sorted(maps.topics.items()):
        if wanted.replicas is None or name in cluster.topics:
            continue
        other = first.setdefault(_folded(name), name)
        if other != name:
            found[name] = other
    return found


def _folded(name: str) -> str:
    return name.replace(".", "_")


def _short(short: frozenset[int], *, is_there: bool) -> str:
    what = f"the lists of partitions {_ids(sorted(short))} wait for a replica"
    return f"{what}; what is in Kafka stays" if is_there else f"{what}; it is created with all"


def _ids(numbers: Iterable[int]) -> str:
    listed = list(numbers)
    told = ", ".join(map(str, listed[:IDS_REPORTED_MAX]))
    left = len(listed) - IDS_REPORTED_MAX
    return f"{told} and {left} more" if left > 0 else told or "none"


def row_text(row: Row) -> str:
    """A replica list, for a message."""
    return f"[{', '.join(map(str, row))}]"
