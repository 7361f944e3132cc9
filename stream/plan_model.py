"""What is between the replica maps of a cluster and the topics of a Kafka cluster: a pure function.

    make_plan(maps, cluster, delete=False) -> Plan

Rules: an SPU's id is a broker's id. Only the assignment of replicas is looked at, never a topic's
configuration, and no topic but those that maps name. Kafka's own topics and the product's are never
touched. A topic is deleted only if a tombstone says that it had a map, and only when that was asked
for. A list that waits for a replica changes nothing: what is there stays until the list is whole. A
partition is never taken away. Order is by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

Row = tuple[int, ...]  # the replicas of one partition, the preferred leader first
Rows = tuple[Row, ...]

INTERNAL: Final = "__"  # what Kafka's own topics begin with
IDS_TOLD_MAX: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One topic as its replica map says."""

    replicas: Rows | None  # None: it had a map, and is deleted
    replication_factor: int = 0  # that was asked for: a list with fewer is waiting

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
    ids: Mapping[str, str] = field(default_factory=dict)  # Kafka's, of topics that may be deleted
    own: frozenset[str] = frozenset()  # topics of the product itself

    def rows(self, topic: str) -> Rows | None:
        """Its replica lists; None: it is not there."""
        found = self.topics.get(topic)
        return None if found is None else tuple(each.replicas for each in found)


class Kind(StrEnum):
    """What a change does with a topic."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one topic needs."""

    topic: str
    kind: Kind
    before: Rows = ()  # of a partition that is being moved: with what it gives up at its end
    after: Rows = ()
    moving: frozenset[int] = frozenset()  # partitions that Kafka is moving to `after` now
    topic_id: str | None = None  # of one that is deleted

    @property
    def added(self) -> Rows:
        """The lists of new partitions."""
        return self.after[len(self.before) :] if self.kind is not Kind.DELETE else ()

    @property
    def moves(self) -> dict[int, tuple[Row, Row]]:
        """Partitions whose lists differ, before and after; without those that are being moved."""
        if self.kind is not Kind.CHANGE:
            return {}
        pairs = enumerate(zip(self.before, self.after, strict=False))
        return {
            number: (before, after)
            for number, (before, after) in pairs
            if before != after and number not in self.moving
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A topic that is left alone, and why."""

    topic: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that applying would do."""

    cluster_id: str
    kafka_id: str
    brokers: tuple[int, ...]
    changes: tuple[Change, ...] = ()
    refused: tuple[Told, ...] = ()  # Kafka would not, or we should not
    waiting: tuple[Told, ...] = ()  # for events of the cluster
    deletable: tuple[str, ...] = ()  # there, mapped no more, and not asked to be deleted
    unchanged: Mapping[str, Rows] = field(default_factory=dict)

    def of(self, kind: Kind) -> list[Change]:
        """The changes of one kind."""
        return [change for change in self.changes if change.kind is kind]

    @property
    def moves(self) -> dict[str, dict[int, tuple[Row, Row]]]:
        """By topic, the partitions that `kafka-reassign-partitions` is to move."""
        return {change.topic: change.moves for change in self.changes if change.moves}


def make_plan(maps: Maps, cluster: KafkaCluster, *, delete: bool = False) -> Plan:
    """What makes the topics of `cluster` as `maps` say.

    Args:
        delete: also delete topics that are there though their maps are deleted.
    """
    changes: list[Change] = []
    refused: list[Told] = []
    waiting = [Told(topic=name, reason=why) for name, why in maps.waiting.items()]
    deletable: list[str] = []
    unchanged: dict[str, Rows] = {}
    collisions = _collisions(maps, cluster)
    for name, wanted in sorted(maps.topics.items()):
        there = cluster.topics.get(name)
        if wanted.replicas is None:
            if there is None:
                continue
            if (reason := reserved(name, cluster)) is not None:
                refused.append(Told(topic=name, reason=reason))
            elif delete:
                changes.append(_deletion(name, cluster))
            else:
                deletable.append(name)
            continue
        found = _change(name, wanted.replicas, wanted.short, there)
        if wanted.short:
            waiting.append(
                Told(topic=name, reason=_short(wanted.short, is_there=there is not None))
            )
        if found is None:
            if there is not None:
                unchanged[name] = tuple(each.replicas for each in there)
        elif (reason := _refusal(found, cluster, collisions)) is not None:
            refused.append(Told(topic=name, reason=reason))
        else:
            changes.append(found)
    return Plan(
        cluster_id=maps.cluster_id,
        kafka_id=cluster.kafka_id,
        brokers=cluster.brokers,
        changes=tuple(changes),
        refused=tuple(refused),
        waiting=tuple(sorted(waiting, key=lambda told: told.topic)),
        deletable=tuple(deletable),
        unchanged=unchanged,
    )


def remaining(plan: Plan, cluster: KafkaCluster) -> Plan:
    """What of a plan is still to be done, of one that speaks of what is there."""
    changes: list[Change] = []
    unchanged = dict(plan.unchanged)
    for change in plan.changes:
        there = cluster.topics.get(change.topic)
        if change.kind is not Kind.DELETE:
            found = _change(change.topic, change.after, frozenset(), there)
            if found is None:
                unchanged[change.topic] = change.after
            else:
                changes.append(found)
        elif there is not None:
            changes.append(change)
    return replace(plan, changes=tuple(changes), unchanged=unchanged)


def _deletion(name: str, cluster: KafkaCluster) -> Change:
    rows = cluster.rows(name) or ()
    return Change(topic=name, kind=Kind.DELETE, before=rows, topic_id=cluster.ids.get(name))


def _change(
    name: str, rows: Rows, short: frozenset[int], there: tuple[Partition, ...] | None
) -> Change | None:
    """What a mapped topic needs as far as its lists are whole; None: nothing now."""
    if there is None:
        return None if short else Change(topic=name, kind=Kind.CREATE, after=rows)
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
    return Change(topic=name, kind=Kind.CHANGE, before=before, after=after, moving=moving)


def is_moving(partition: Partition, target: Row) -> bool:
    """Whether Kafka is moving a partition to these replicas.

    While it does, it lists them first, then those that are given up, until all of them have caught
    up; Kafka's clients for Python cannot ask for more.
    """
    listed = partition.replicas
    is_ahead = len(listed) > len(target) and listed[: len(target)] == target
    return is_ahead and not partition.in_sync >= frozenset(target)


def _refusal(change: Change, cluster: KafkaCluster, collisions: Mapping[str, str]) -> str | None:
    """Why a change is not made."""
    if (reason := reserved(change.topic, cluster)) is not None:
        return reason
    if len(change.after) < len(change.before):
        return (
            f"has {len(change.before)} partitions in Kafka and {len(change.after)} in its map; "
            f"Kafka takes none away: grow the map (`spu-assigner produce topic-grow --partitions "
            f"{len(change.before)}`), or delete the topic in Kafka"
        )
    if change.kind is Kind.CREATE and change.topic in collisions:
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
    if change.kind is Kind.CREATE and len(lengths) > 1:
        return f"has lists of {_ids(sorted(lengths))} replicas; Kafka creates topics of one number"
    return None


def reserved(name: str, cluster: KafkaCluster) -> str | None:
    """Why a topic is never touched; None: it may be."""
    if name.startswith(INTERNAL):
        return "begins like Kafka's own topics, which are left alone; use another name"
    if name in cluster.own:
        return "is called like a topic of the product itself; use another name, or another prefix"
    return None


def _collisions(maps: Maps, cluster: KafkaCluster) -> dict[str, str]:
    """Of names that Kafka cannot tell apart in its metrics, whom each new one collides with."""
    first: dict[str, str] = {}
    for name in sorted(cluster.topics):
        first[_folded(name)] = name
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
    told = ", ".join(map(str, listed[:IDS_TOLD_MAX]))
    left = len(listed) - IDS_TOLD_MAX
    return f"{told} and {left} more" if left > 0 else told or "none"
