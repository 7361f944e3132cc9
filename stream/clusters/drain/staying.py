"""Why a drain leaves partitions on the broker: a pure function.

Rule: a partition that is not moved has one reason: its topic is refused, Kafka is moving it, the
job cannot take it off the SPU, its list waits for a replica, or its topic has no map (any more).
Only the last is for `--foreign`: `adopt` takes no topic on an SPU that has left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from spu_assigner.stream.clusters.plan.model import TopicsPlan
from spu_assigner.stream.common.printable import counted, printable
from spu_assigner.stream.kafka.log_dirs import Partition

BY_HAND: Final = (
    "give --foreign GLOB to have it moved off the broker, or move it with kafka-reassign-partitions"
)
NO_MAP: Final = f"it has no map; {BY_HAND}"
MOVING: Final = (
    "somebody else has Kafka move them already; run this again when `kafka-reassign-partitions "
    "--list` no longer shows the topic"
)
DELETED: Final = (
    "its map was deleted, and it is still in Kafka; delete it (`spu-assigner apply --delete`), "
    f"{BY_HAND}"
)
CHANGED: Final = "its map has just been changed; run this again"


def staying_lines(
    plan: TopicsPlan, held: Collection[Partition], rules: Mapping[str, str]
) -> Iterator[str]:
    """A line for each topic of the partitions `held`, which stay, and each reason.

    Args:
        rules: what holds topics that the job cannot take off the broker.
    """
    counts: dict[tuple[str, str], int] = {}
    reason = _Reasons(plan, rules)
    for topic, number in sorted(held):
        key = topic, reason.of(topic, number)
        counts[key] = counts.get(key, 0) + 1
    for (topic, why), count in counts.items():
        stay = "stays" if count == 1 else "stay"
        yield f"{printable(topic)}: {counted(count, 'replica')} {stay} on the broker: {why}"


class _Reasons:
    """What a plan says of topics, by their names."""

    def __init__(self, plan: TopicsPlan, rules: Mapping[str, str]) -> None:
        self._rules = rules
        self._refused = {each.topic: each.reason for each in plan.refused}
        self._waiting = {each.topic: each.reason for each in plan.waiting}
        self._staying = {each.topic: each.reason for each in plan.staying}
        self._moving = {each.topic: each.moving for each in plan.changes}
        self._deletable = {*plan.deletable}
        self._mapped = {*plan.unchanged, *self._moving}

    def of(self, topic: str, number: int) -> str:
        """Why a partition stays."""
        if topic in self._refused:
            return self._refused[topic]
        if number in self._moving.get(topic, ()):
            return MOVING
        if topic in self._rules and (topic in self._waiting or topic in self._mapped):
            return f"{self._rules[topic]}; run this again when that is done"
        if topic in self._waiting:
            return f"{self._waiting[topic]}; add SPUs or capacity, and run this again"
        if topic in self._staying:
            return f"the topic {self._staying[topic]}; it has no map: {BY_HAND}"
        if topic in self._deletable:
            return DELETED
        return CHANGED if topic in self._mapped else NO_MAP
