"""What a plan means for the brokers: bytes to be copied, load before and after; pure functions.

    plan_outlook(plan, cluster, sizes, unmapped=…, throttle=…) -> PlanOutlook

Rules: load is that of all topics in Kafka, mapped or not; of those that this user may not see, only
replicas and bytes are known, as brokers report them. A broker leads the partitions whose lists
begin with it: the preferred leaders, which do not change with a restart. A
replica that comes is copied whole, from the partition's leader; its bytes are those of the largest
replica. Of one that Kafka is copying already only the rest counts. A replica that goes frees its
own bytes. What no broker reports is not known, and never counted as nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from spu_assigner.stream.clusters.plan.model import (
    ChangeKind,
    KafkaCluster,
    Maps,
    Row,
    TopicChange,
    TopicsPlan,
)
from spu_assigner.stream.kafka.log_dirs import ReplicaSizes, UnseenReplicas


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHolding:
    """What one broker holds."""

    replicas: int = 0
    leaders: int = 0  # partitions whose list begins with it
    size_bytes: int | None = None  # None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOutlook:
    """One broker before and after a plan."""

    broker: int
    before: BrokerHolding
    after: BrokerHolding
    bytes_in: int = 0  # copied to it
    bytes_out: int = 0  # of replicas that leave it, freed when the moves are done
    bytes_sent: int = 0  # copied from it, as the leader

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "broker": self.broker,
            **{f"{name}_before": value for name, value in _fields(self.before)},
            **{f"{name}_after": value for name, value in _fields(self.after)},
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "bytes_sent": self.bytes_sent,
        }


def _fields(held: BrokerHolding) -> Iterator[tuple[str, int | None]]:
    yield "replicas", held.replicas
    yield "leaders", held.leaders
    yield "bytes", held.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutlook:
    """What a plan means for all brokers."""

    brokers: tuple[BrokerOutlook, ...] = ()  # by id
    replicas_to_copy: int = 0
    replicas_unsized: int = 0  # of these, whose bytes are not known: none of them is in the bytes
    bytes_to_copy: int = 0
    bytes_being_copied: int = 0  # of these, what Kafka has begun
    throttle: int | None = None  # bytes per second to and from each broker
    unmapped: tuple[str, ...] = ()  # topics in Kafka that have no map
    unmatched: tuple[str, ...] = ()  # globs that were given and that no topic matches
    reassigned: tuple[str, ...] = ()  # topics with moves that others changed since their adoption
    out_of_sync: Mapping[str, int] = field(default_factory=dict)  # partitions as mapped, by topic
    unseen: UnseenReplicas = field(default_factory=UnseenReplicas)

    @property
    def bytes_most(self) -> int:
        """To or from one broker: the most."""
        return max((max(each.bytes_in, each.bytes_sent) for each in self.brokers), default=0)

    @property
    def seconds(self) -> float | None:
        """The least time that copying takes at the throttle; None: none is given.

        A throttle limits each broker, as receiver and as sender: the busiest one decides.
        """
        return None if self.throttle is None else self.bytes_most / self.throttle

    @property
    def has_change(self) -> bool:
        """Whether any broker holds something else afterwards."""
        return any(each.before != each.after for each in self.brokers) or self.replicas_to_copy > 0

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        is_known = not self.replicas_to_copy or self.replicas_unsized < self.replicas_to_copy
        return {
            "replicas_to_copy": self.replicas_to_copy,
            "replicas_unsized": self.replicas_unsized,
            "bytes_to_copy": self.bytes_to_copy if is_known else None,
            "bytes_being_copied": self.bytes_being_copied,
            "throttle": self.throttle,
            "seconds": None if self.seconds is None or not is_known else round(self.seconds, 3),
            "brokers": [each.as_json() for each in self.brokers],
        }


def out_of_sync(maps: Maps, cluster: KafkaCluster) -> dict[str, int]:
    """How many partitions, by topic, have their lists and a replica that is not in sync.

    Where Kafka only adds replicas, its list is the new one from the first moment on: nothing else
    shows a client that they are still being copied.
    """
    counts = {
        name: sum(
            each.replicas == row and not each.in_sync >= frozenset(row)
            for each, row in zip(cluster.topics[name], wanted.replicas, strict=False)
        )
        for name, wanted in sorted(maps.topics.items())
        if wanted.replicas is not None and name in cluster.topics
    }
    return {name: count for name, count in counts.items() if count}


def unmatched_globs(globs: Collection[str], maps: Maps, cluster: KafkaCluster) -> tuple[str, ...]:
    """The globs that match no topic with a map, or in Kafka: probably misspelt."""
    names = {*maps.topics, *maps.waiting, *cluster.topics}
    return tuple(glob for glob in globs if not any(fnmatchcase(each, glob) for each in names))


def reassigned_topics(plan: TopicsPlan, maps: Maps) -> tuple[str, ...]:
    """The topics whose moves would undo what others have done in Kafka since the adoption.

    Their maps are as they were adopted, so it is Kafka that has changed.
    """
    return tuple(topic for topic in plan.moves if maps.topics[topic].is_adopted)


def unmapped_topics(
    maps: Maps, cluster: KafkaCluster, is_meant: Callable[[str], bool]
) -> tuple[str, ...]:
    """The topics in Kafka that have no map, by name; Kafka's own and the product's aside.

    A topic whose create waits is known, and gets its map.
    """
    mapped = {name for name, wanted in maps.topics.items() if wanted.replicas is not None}
    return tuple(
        name
        for name in sorted(cluster.topics)
        if name not in mapped
        and name not in maps.waiting
        and is_meant(name)
        and cluster.reserved(name) is None
    )


def plan_outlook(
    plan: TopicsPlan,
    cluster: KafkaCluster,
    sizes: ReplicaSizes,
    *,
    unmapped: tuple[str, ...] = (),
    throttle: int | None = None,
    unseen: UnseenReplicas | None = None,
) -> PlanOutlook:
    """What a plan means for the brokers."""
    counting = _OutlookCounting(cluster, sizes)
    changes = {change.topic: change for change in plan.changes}
    for topic in cluster.topics:
        counting.hold(topic, changes.get(topic))
    for change in plan.of(ChangeKind.CREATE):
        counting.create(change)
    unseen = unseen or UnseenReplicas()
    counting.hold_unseen(unseen)
    return replace(counting.outlook(unmapped=unmapped, throttle=throttle), unseen=unseen)


class _OutlookCounting:
    """Counts of brokers while the partitions are gone through."""

    def __init__(self, cluster: KafkaCluster, sizes: ReplicaSizes) -> None:
        self._cluster = cluster
        self._sizes = sizes
        self._before: Counter[int] = Counter()
        self._after: Counter[int] = Counter()
        self._led_before: Counter[int] = Counter()
        self._led_after: Counter[int] = Counter()
        self._held: Counter[int] = Counter()  # bytes
        self._freed: Counter[int] = Counter()  # bytes of topics that are deleted
        self._in: Counter[int] = Counter()
        self._out: Counter[int] = Counter()
        self._sent: Counter[int] = Counter()
        self._copies = 0
        self._unsized = 0
        self._being_copied = 0

    def create(self, change: TopicChange) -> None:
        """Count a new topic, which is empty."""
        for row in change.after:
            self._list_after(row)

    def hold(self, topic: str, change: TopicChange | None) -> None:
        """Count a topic that is there."""
        is_deleted = change is not None and change.kind is ChangeKind.DELETE
        for number, partition in enumerate(self._cluster.topics[topic]):
            size = self._sizes.sizes.get((topic, number), {})
            self._before.update(partition.replicas)
            self._led_before[partition.replicas[0]] += 1
            self._held.update(size)
            if is_deleted:
                self._freed.update(size)
                continue
            after = partition.replicas if change is None else change.after[number]
            self._list_after(after)
            if change is not None and after != partition.replicas:
                self._move(number, change, partition.leader, size)
        if change is not None and not is_deleted:
            for row in change.added:
                self._list_after(row)

    def hold_unseen(self, unseen: UnseenReplicas) -> None:
        """Count replicas of which the bytes alone are known; they stay."""
        for size in unseen.sizes.values():
            self._before.update(size.keys())
            self._after.update(size.keys())
            self._held.update(size)

    def _list_after(self, row: Row) -> None:
        self._after.update(row)
        self._led_after[row[0]] += 1

    def _move(
        self, number: int, change: TopicChange, leader: int | None, size: Mapping[int, int]
    ) -> None:
        before, after = change.before[number], change.after[number]
        partition = self._cluster.topics[change.topic][number]
        is_moving = number in change.moving
        whole = max(size.values(), default=None)
        source = before[0] if leader is None else leader
        for broker in after:
            has_it = broker in before and (not is_moving or broker in partition.in_sync)
            if has_it:
                continue
            self._copies += 1
            if whole is None:
                self._unsized += 1
                continue
            rest = whole - (size.get(broker, 0) if broker in before else 0)
            self._in[broker] += rest
            self._sent[source] += rest
            self._being_copied += rest if is_moving else 0
        for broker in before:
            if broker not in after:
                self._out[broker] += size.get(broker, 0)

    def outlook(self, *, unmapped: tuple[str, ...], throttle: int | None) -> PlanOutlook:
        """What was counted."""
        brokers = sorted({*self._cluster.brokers, *self._before, *self._after})
        return PlanOutlook(
            brokers=tuple(map(self._broker, brokers)),
            replicas_to_copy=self._copies,
            replicas_unsized=self._unsized,
            bytes_to_copy=self._in.total(),
            bytes_being_copied=self._being_copied,
            throttle=throttle,
            unmapped=unmapped,
        )

    def _broker(self, broker: int) -> BrokerOutlook:
        is_known = broker in self._sizes.brokers
        held = self._held[broker]
        freed = self._out[broker] + self._freed[broker]
        return BrokerOutlook(
            broker=broker,
            before=BrokerHolding(
                replicas=self._before[broker],
                leaders=self._led_before[broker],
                size_bytes=held if is_known else None,
            ),
            after=BrokerHolding(
                replicas=self._after[broker],
                leaders=self._led_after[broker],
                size_bytes=held + self._in[broker] - freed if is_known else None,
            ),
            bytes_in=self._in[broker],
            bytes_out=self._out[broker],
            bytes_sent=self._sent[broker],
        )
