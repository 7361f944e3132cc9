"""Why a drain leaves partitions on the broker: pure functions.

Rule: a partition that is not moved has one reason: its topic is refused, Kafka is moving it, the
job cannot take it off the SPU, its list waits for a replica, or its topic has no map (any more).
Only the last is for `--foreign`: `adopt` takes no topic on an SPU that has left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy, SpuId, TopicCreate
from spu_assigner.core.base.records import Status, TopicStatus, Wait
from spu_assigner.core.decision.machine import decide
from spu_assigner.core.decision.repair import repair
from spu_assigner.core.state.cluster_state import ClusterState
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
_PROBE: Final = "drain.probe"  # the id, and the topic, of an event that nobody sends


def staying_lines(
    plan: TopicsPlan, held: Collection[Partition], rules: Mapping[str, str]
) -> Iterator[str]:
    """A line for each topic of the partitions `held`, which stay, and each reason."""
    refused = {each.topic: each.reason for each in plan.refused}
    waiting = {each.topic: each.reason for each in plan.waiting}
    staying = {each.topic: each.reason for each in plan.staying}
    moving = {each.topic: each.moving for each in plan.changes}
    mapped = {*plan.unchanged, *moving}

    def reason(topic: str, number: int) -> str:
        if topic in refused:
            return refused[topic]
        if number in moving.get(topic, ()):
            return MOVING
        if topic in rules and (topic in waiting or topic in mapped):
            return f"{rules[topic]}; run this again when that is done"
        if topic in waiting:
            return f"{waiting[topic]}; add SPUs or capacity, and run this again"
        if topic in staying:
            return f"the topic {staying[topic]}; it has no map: {BY_HAND}"
        if topic in plan.deletable:
            return DELETED
        return CHANGED if topic in mapped else NO_MAP

    counts = Counter((topic, reason(topic, number)) for topic, number in sorted(held))
    for (topic, why), count in counts.items():
        stay = "stays" if count == 1 else "stay"
        yield f"{printable(topic)}: {counted(count, 'replica')} {stay} on the broker: {why}"


def held_topics(state: ClusterState, spu_id: int) -> dict[str, str]:
    """What the job cannot take off a decommissioned SPU, and what holds each topic.

    Nothing before the job has followed the decommission. What holds it is the rejection of a topic
    like it where its rules conflict, else what the job said when it began to wait.
    """
    if spu_id in state.spus and SpuId(spu_id) not in state.leaving:
        return {}
    waiting = {each.topic for each in state.waiting.values() if each.kind is Wait.REPAIR}
    return {
        name: _why(state, name)
        for name, topic in sorted(state.topics.items())
        if name in waiting or topic.replicas.holds(spu_id)
    }


def _why(state: ClusterState, name: str) -> str:
    topic = state.topics[name]
    if topic.constraints is not None:
        like_it = TopicCreate(
            event_id=_PROBE,
            cluster_id=state.cluster_id,
            topic=_PROBE,
            replication_factor=topic.replication_factor,
            policy=Policy.BALANCED,
            ignore_rack=topic.ignore_rack,
            constraints=topic.constraints,
            validate_only=True,
        )
        for record in decide(state, like_it, default_policy=Policy.BALANCED):
            if isinstance(record, TopicStatus) and record.code is Code.UNSATISFIABLE:
                return f"{record.message} ({record.code})"
    for record in repair(state, name, cause=_PROBE):
        if isinstance(record, TopicStatus) and record.status is Status.WAITING:
            return f"{record.message} ({record.code})"
    return "the job has not placed its replicas elsewhere yet"
