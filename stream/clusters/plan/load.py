"""What a plan costs: bytes to be copied, load of brokers before and after; a pure function.

    plan_load(plan, cluster, sizes, unseen, throttle=…) -> PlanLoad

Rules: load is that of all topics in Kafka, mapped or not; of those that this user may not see, only
replicas and bytes are known, as brokers report them. A broker leads the partitions whose lists
begin with it: the preferred leaders, which do not change with a restart. A replica that comes is
copied whole, from the partition's leader; its bytes are those of the largest replica. Of one that
Kafka is copying already only the rest counts. A replica that goes frees its own bytes. What no
broker reports is not known, and never counted as nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from spu_assigner.stream.clusters.plan.model import (
    BrokerLoad,
    ChangeKind,
    KafkaCluster,
    Partition,
    PlanLoad,
    Row,
    TopicChange,
    TopicsPlan,
)
from spu_assigner.stream.kafka.log_dirs import ReplicaSizes, UnseenReplicas

_COUNTED: Final = (
    *("replicas_before", "leaders_before", "replicas_after", "leaders_after"),
    *("bytes_in", "bytes_out", "bytes_sent"),
)


def plan_load(
    plan: TopicsPlan,
    cluster: KafkaCluster,
    sizes: ReplicaSizes,
    unseen: UnseenReplicas,
    *,
    throttle: int | None = None,
) -> PlanLoad:
    """What a plan costs.

    Args:
        throttle: bytes per second to and from each broker.
    """
    counts = _Counts()
    changes = {change.topic: change for change in plan.changes}
    for topic, partitions in cluster.topics.items():
        change = changes.pop(topic, None)
        for number, partition in enumerate(partitions):
            size = sizes.sizes.get((topic, number), {})
            counts.count("before", [partition.replicas])
            counts["bytes_before"].update(size)
            if change is None:
                counts.count("after", [partition.replicas])
            elif change.kind is ChangeKind.DELETE:
                counts["freed"].update(size)
            else:
                counts.count("after", [change.after[number]])
                counts.move(change, number, partition, size)
        counts.count("after", () if change is None else change.added)
    for change in changes.values():  # new ones, which are empty
        counts.count("after", change.added)
    for size in unseen.sizes.values():
        for name in ("replicas_before", "replicas_after"):
            counts[name].update(size.keys())
        counts["bytes_before"].update(size)
    return counts.load(cluster, sizes, throttle)


class _Counts(dict[str, Counter[int]]):
    """Numbers of each broker, by what they are."""

    def __init__(self) -> None:
        self.copies = 0
        self.unsized = 0

    def __missing__(self, name: str) -> Counter[int]:
        return self.setdefault(name, Counter())

    def count(self, when: str, rows: Iterable[Row]) -> None:
        """Count lists as they are before or after."""
        for row in rows:
            self[f"replicas_{when}"].update(row)
            self[f"leaders_{when}"][row[0]] += 1

    def move(
        self, change: TopicChange, number: int, partition: Partition, size: Mapping[int, int]
    ) -> None:
        """Count what is copied to the brokers of a list, and what the others free."""
        before, after = partition.replicas, change.after[number]
        has_it = partition.in_sync if number in change.moving else before
        whole = max(size.values(), default=None)
        source = partition.leader if partition.leader >= 0 else before[0]
        for broker in after:
            if broker in before and broker in has_it:
                continue
            self.copies += 1
            self.unsized += whole is None
            rest = (whole or 0) - size.get(broker, 0)
            self["bytes_in"][broker] += rest
            self["bytes_sent"][source] += rest
        for broker in set(before) - set(after):
            self["bytes_out"][broker] += size.get(broker, 0)

    def load(self, cluster: KafkaCluster, sizes: ReplicaSizes, throttle: int | None) -> PlanLoad:
        """What was counted."""
        brokers = sorted({*cluster.brokers, *self["replicas_before"], *self["replicas_after"]})
        is_known = not self.copies or self.unsized < self.copies
        most = max((*self["bytes_in"].values(), *self["bytes_sent"].values()), default=0)
        return PlanLoad(
            replicas_to_copy=self.copies,
            replicas_unsized=self.unsized,
            bytes_to_copy=self["bytes_in"].total() if is_known else None,
            throttle=throttle,
            seconds=round(most / throttle, 3) if throttle and is_known else None,
            brokers=tuple(self._broker(each, each in sizes.brokers) for each in brokers),
        )

    def _broker(self, broker: int, is_known: bool) -> BrokerLoad:
        held = self["bytes_before"][broker]
        gone = self["bytes_out"][broker] + self["freed"][broker]
        return BrokerLoad(
            broker=broker,
            bytes_before=held if is_known else None,
            bytes_after=held + self["bytes_in"][broker] - gone if is_known else None,
            **{name: self[name][broker] for name in _COUNTED},
        )
