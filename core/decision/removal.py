"""`TopicDelete` and `TopicRelease`: a topic goes, or what waits under its name is withdrawn."""

from __future__ import annotations

from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import TopicDelete, TopicRelease
from spu_assigner.core.base.records import (
    Record,
    ReplicaMap,
    Status,
    WaitingSettled,
)
from spu_assigner.core.base.replica_lists import tally
from spu_assigner.core.decision.answers import (
    Refusal,
    rejected,
    status,
)
from spu_assigner.core.decision.requests import shown_index
from spu_assigner.core.decision.ring_changes import ring_after
from spu_assigner.core.state.cluster_state import ClusterState


def forget(state: ClusterState, event: TopicDelete | TopicRelease, answer: Status) -> list[Record]:
    """The records of a delete or a release, which differ in their answer and tombstone alone."""
    topic = state.topics.get(event.topic)
    waiting = state.waiting.get(event.topic)
    settled: list[Record] = []
    if waiting is not None:
        settled.append(WaitingSettled(cluster_id=state.cluster_id, topic=event.topic))
    if topic is None and waiting is not None:
        return [status(state, event.topic, answer, event.event_id), *settled]
    if topic is None:
        refusal = Refusal(
            Code.TOPIC_UNKNOWN, f"no topic {event.topic!r} in cluster {state.cluster_id!r}"
        )
        return [rejected(state, event.topic, refusal, event.event_id)]
    held = dict(zip(*tally(topic.replicas.lists().flat()), strict=True))
    *_, full = state.ledger.outside_ring()
    after = ring_after(state, {spu_id: -held[spu_id] for spu_id in full if spu_id in held})
    return [
        *after.described.values(),
        ReplicaMap(
            cluster_id=state.cluster_id,
            topic=event.topic,
            revision=topic.revision + 1,
            policy=topic.policy,
            replicas=None,
            cores=None,
            chain_index=shown_index(
                state, topic.policy, after.ring, after.chains, ignore_rack=topic.ignore_rack
            ),
            cause=event.event_id,
            replication_factor=topic.replication_factor,
            is_released=answer is Status.RELEASED,
        ),
        status(state, event.topic, answer, event.event_id),
        *after.records(state, event.event_id),
        *settled,
    ]
