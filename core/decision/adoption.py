"""What is said of topics as they are: nothing moves. `TopicAdopted`, and at the end
`TopicDemand` and `TopicConstraints`.

The lists are facts: they may differ in length, exceed a capacity, and name SPUs that are offline;
so is what their replicas need of resources.
Each keeps its length: repair fills a list up to what it was adopted with, no further. The topic's
replication factor, by which it grows, is the length of its longest list.
"""

from __future__ import annotations

from dataclasses import replace

from spu_assigner.core.base.constraints import given_constraints
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import (
    Policy,
    TopicAdopted,
    TopicConstraints,
    TopicDemand,
    policy_of,
)
from spu_assigner.core.base.records import (
    Mode,
    Reason,
    Record,
    ReplicaMap,
    Status,
    Wait,
    WaitingSettled,
)
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.base.resources import Need
from spu_assigner.core.decision.answers import (
    Refusal,
    refuse_name,
    rejected,
    status,
    unknown_topic,
)
from spu_assigner.core.decision.assignment import (
    refuse_constraints,
    refuse_need,
    refuse_size,
)
from spu_assigner.core.decision.manual_placement import unknown_spus
from spu_assigner.core.decision.repair import cores_of, revised
from spu_assigner.core.decision.requests import shown_index
from spu_assigner.core.decision.ring_changes import count_changes, ring_after
from spu_assigner.core.policies.manual_lists import plain_list_faults
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.memory import own_events_after
from spu_assigner.core.state.topic import Topic


def adopt(
    state: ClusterState,
    event: TopicAdopted,
    default_policy: Policy,
    reserved_names: frozenset[str],
) -> list[Record]:
    """The map as it was found, or the refusal; a topic that is known to be so gets no new map.

    Replicas on leaving SPUs stay in this map; the repair that follows moves them.
    """
    refusal = _refuse(state, event, reserved_names)
    if refusal is not None:
        return [rejected(state, event.topic, refusal, event.event_id)]
    topic = state.topics.get(event.topic)
    policy = event.policy or (policy_of(default_policy) if topic is None else topic.policy)
    rows = [list(row) for row in event.replicas]
    adopted = status(state, event.topic, Status.ADOPTED, event.event_id)
    need = _need_after(topic, event)
    known = None if topic is None else (topic.policy, topic.pinned, topic.replicas.lists().tolist())
    if topic is not None and known == (policy, event.pinned, rows):
        if need == topic.need:
            return [adopted]
        changed = _redescribed(state, topic, event, Mode.ADOPTED)
        return [replace(changed, need=need, reason=Reason(mode=Mode.ADOPTED)), adopted]
    replicas = ReplicaLists.of_lists(rows)
    cores = cores_of(state.core_weights, topic, replicas) if policy is Policy.REDPANDA else None
    lengths = tuple(map(len, rows)) if replicas.ragged else None
    too_large = refuse_size(replicas, cores, None if lengths is None else bytes(lengths))
    if too_large is not None:
        return [rejected(state, event.topic, too_large, event.event_id)]
    before = None if topic is None else topic.replicas.lists()
    after = ring_after(state, count_changes(before, replicas))
    ignore_rack = topic is not None and topic.ignore_rack
    replica_map = ReplicaMap(
        cluster_id=state.cluster_id,
        topic=event.topic,
        revision=1 if topic is None else topic.revision + 1,
        policy=policy,
        replicas=replicas,
        cores=cores,
        chain_index=shown_index(state, policy, after.ring, after.chains, ignore_rack=ignore_rack),
        cause=event.event_id,
        replication_factor=max(map(len, rows)),
        ignore_rack=ignore_rack,
        own_events=own_events_after(topic, event.event_id),
        reason=Reason(mode=Mode.ADOPTED),
        pinned=event.pinned,
        wanted_lengths=lengths,
        need=need,
        constraints=None if topic is None else topic.constraints,
    )
    return [
        *after.described.values(),
        replica_map,
        adopted,
        *_settled(state, event),
        *after.records(state, event.event_id),
    ]


def _need_after(topic: Topic | None, event: TopicAdopted) -> Need | None:
    known = None if topic is None else topic.need
    if event.demand is None:
        return known
    return Need.of(event.demand, None if known is None else dict(known.leader_demand))


def _refuse(
    state: ClusterState, event: TopicAdopted, reserved_names: frozenset[str]
) -> Refusal | None:
    refusal = refuse_name(event.topic, reserved_names, advice="leave it out")
    if refusal is None:
        refusal = refuse_need(state, event.demand, None)
    if refusal is not None:
        return refusal
    fault = next(plain_list_faults(event.replicas), None)
    if fault is None:
        fault = next(unknown_spus(state, event.replicas), None)
    return None if fault is None else Refusal(fault.code, fault.message)


def _settled(state: ClusterState, event: TopicAdopted) -> list[Record]:
    """What becomes of what waits under the topic's name.

    A create is refused: the topic is there. A repair is done with, unless it has to empty an SPU.
    """
    waiting = state.waiting.get(event.topic)
    if waiting is None:
        return []
    settled = WaitingSettled(cluster_id=state.cluster_id, topic=event.topic)
    if waiting.kind is Wait.CREATE:
        refusal = Refusal(
            Code.TOPIC_EXISTS,
            f"topic {event.topic!r} was adopted in cluster {state.cluster_id!r} while this create "
            "waited; delete it first, or choose another name",
        )
        return [rejected(state, event.topic, refusal, waiting.cause), settled]
    if any(spu_id in state.leaving for row in event.replicas for spu_id in row):
        return []
    return [status(state, event.topic, Status.ASSIGNED, waiting.cause), settled]


def redescribe(state: ClusterState, event: TopicDemand | TopicConstraints) -> list[Record]:
    """The next map of a topic with another demand or other constraints, or the refusal.

    Its lists stay: what was measured is a fact, and may exceed what an SPU has, which then gets
    nothing more that needs the resource; of lists that break constraints `VIOLATED` says so.
    """
    topic = state.topics.get(event.topic)
    if topic is None:
        refusal = unknown_topic(state, event.topic)
        return [rejected(state, event.topic, refusal, event.event_id)]
    if isinstance(event, TopicDemand):
        unfit = refuse_need(state, event.demand, event.leader_demand)
    else:
        unfit = refuse_constraints(state, event.topic, topic.policy, event.constraints)
    if unfit is not None:
        return [rejected(state, event.topic, unfit, event.event_id)]
    need, constraints, mode = topic.need, topic.constraints, Mode.DEMAND
    if isinstance(event, TopicDemand):
        need = Need.of(event.demand, event.leader_demand)
    else:
        constraints, mode = given_constraints(event.constraints), Mode.CONSTRAINTS
    assigned = status(state, event.topic, Status.ASSIGNED, event.event_id)
    if (need, constraints) == (topic.need, topic.constraints):
        return [assigned]
    changed = _redescribed(state, topic, event, mode)
    return [replace(changed, need=need, constraints=constraints), assigned]


def _redescribed(
    state: ClusterState,
    topic: Topic,
    event: TopicAdopted | TopicDemand | TopicConstraints,
    mode: Mode,
) -> ReplicaMap:
    """The next map of a topic that keeps its lists."""
    lists, cause = topic.replicas.lists(), event.event_id
    changed = revised(state, event.topic, cause=cause, replicas=lists, mode=mode)
    return replace(changed, own_events=own_events_after(topic, cause))
