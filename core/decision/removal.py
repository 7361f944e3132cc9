"""`TopicDelete` and `TopicRelease`: a topic goes, or what waits under its name is withdrawn."""

from __future__ import annotations

from dataclasses import replace

from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import SpuId, TopicDelete, TopicRelease
from spu_assigner.core.base.records import (
    Record,
    ReplicaMap,
    RingChange,
    SpuChanged,
    Status,
    WaitingSettled,
)
from spu_assigner.core.base.replica_lists import tally
from spu_assigner.core.decision.answers import (
    Refusal,
    chains_changed,
    entered,
    rejected,
    ring_event,
    ring_with,
    status,
)
from spu_assigner.core.decision.requests import shown_index
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.core_weights import weights_after


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
    lists = topic.replicas.lists()
    held = dict(zip(*tally(lists.flat()), strict=True))
    restored = [
        spu_id
        for spu_id in state.ledger.saturated_ids()
        if state.spus[SpuId(spu_id)].capacity > state.ledger.count(spu_id) - held.get(spu_id, 0)
    ]
    weights = weights_after(state.core_weights, topic.held_by_cores(), {})
    changed: dict[SpuId, SpuChanged] = {}
    registration = state.registration_next
    for host in map(SpuId, restored):
        after = tuple(weights.get(host, state.core_weights[host]))
        changed[host] = replace(state.spus[host], registration=registration, core_weights=after)
        registration += 1
    ring = ring_with(state, changed, restored)
    chains = entered(ring, state.chains)
    records: list[Record] = [
        ReplicaMap(
            cluster_id=state.cluster_id,
            topic=event.topic,
            revision=topic.revision + 1,
            policy=topic.policy,
            replicas=None,
            cores=None,
            chain_index=shown_index(
                state, topic.policy, ring, chains, ignore_rack=topic.ignore_rack
            ),
            cause=event.event_id,
            replication_factor=topic.replication_factor,
            is_released=answer is Status.RELEASED,
        ),
        status(state, event.topic, answer, event.event_id),
    ]
    for spu_id in restored:
        records.append(ring_event(state, spu_id, RingChange.RESTORED, ring.size, event.event_id))
    records += changed.values()
    records += chains_changed(state, chains, registration)
    return records + settled
