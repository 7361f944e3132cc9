"""Which topics the job cannot take off a decommissioned SPU, and what holds them: a pure function.

Rule: the state is asked after the job has followed the decommission. A topic of which a list still
has the SPU, or waits for a replica, is held. What holds it is the rejection of a topic like it
where its rules conflict (those that conflict), else what the job said when it began to wait.

    t: [[2]], require tier in (ssd), which SPU 2 alone has:
    1 list of 1 replica cannot hold require tier in (ssd) (excludes 2 SPUs), with 2 SPUs online; …
"""

from __future__ import annotations

from typing import Final

from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy, SpuId, TopicCreate
from spu_assigner.core.base.records import Status, TopicStatus, Wait
from spu_assigner.core.decision.machine import decide
from spu_assigner.core.decision.repair import repair
from spu_assigner.core.state.cluster_state import ClusterState

_PROBE: Final = "drain.probe"  # the id, and the topic, of an event that nobody sends


def held_topics(state: ClusterState, spu_id: int) -> dict[str, str]:
    """By topic, what holds it; nothing before the job has followed the decommission."""
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
