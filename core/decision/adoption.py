"""Metadata updates; replicas stay: a topic is adopted, described again, deleted or released.

The lists of an adopted topic are facts: they may differ in length, exceed a capacity, and name SPUs
that are offline; so is what their replicas need of resources. Each keeps its length: repair fills a
list up to what it was adopted with, no further. The topic's replication factor, by which it grows,
is the length of its longest list.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain

from spu_assigner.core.base.constraints import Constraints, given_constraints
from spu_assigner.core.base.errors import Code, Rejection
from spu_assigner.core.base.events import (
    Policy,
    TopicAdopted,
    TopicConstraints,
    TopicDelete,
    TopicDemand,
    TopicRelease,
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
from spu_assigner.core.base.replica_lists import ReplicaLists, tally
from spu_assigner.core.base.resources import Need
from spu_assigner.core.decision.answers import known_topic, status
from spu_assigner.core.decision.checks import (
    check_constraints,
    check_demand,
    check_name,
    unknown_spus,
)
from spu_assigner.core.decision.repair import settled
from spu_assigner.core.decision.ring_changes import next_map, revised, ring_after, shown_index
from spu_assigner.core.policies.manual_lists import plain_list_faults
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.core_weights import cores_of
from spu_assigner.core.state.memory import own_events_after


def adopt(
    state: ClusterState, event: TopicAdopted, default_policy: Policy, reserved_names: frozenset[str]
) -> list[Record]:
    """The map as it was found; a topic that is known to be so gets no new map.

    Replicas on leaving SPUs stay in this map; the repair that follows moves them.
    """
    name, cause = event.topic, event.event_id
    check_name(name, reserved_names, advice="leave it out")
    check_demand(state, event.demand, None)
    for fault in chain(plain_list_faults(event.replicas), unknown_spus(state, event.replicas)):
        raise fault
    topic = state.topics.get(name)
    policy = event.policy or (policy_of(default_policy) if topic is None else topic.policy)
    rows = [list(row) for row in event.replicas]
    adopted = status(state, name, Status.ADOPTED, cause)
    need = None if topic is None else topic.need
    if event.demand is not None:
        need = Need.of(event.demand, None if need is None else dict(need.leader_demand))
    replicas = ReplicaLists.of_lists(rows)
    changes = Counter(replicas.flat().tolist())
    if topic is not None:
        known = topic.replicas.lists()
        if (topic.policy, topic.pinned, known) == (policy, event.pinned, replicas):
            return _redescribed(
                state, event, Mode.ADOPTED, adopted, need=need, constraints=topic.constraints
            )
        changes.subtract(known.flat().tolist())
    after = ring_after(state, changes)
    found = next_map(
        state,
        name,
        cause,
        after,
        policy=policy,
        replicas=replicas,
        cores=cores_of(state.spus, topic, replicas) if policy is Policy.REDPANDA else None,
        replication_factor=max(map(len, rows)),
        own_events=own_events_after(topic, cause),
        reason=Reason(mode=Mode.ADOPTED),
        pinned=event.pinned,
        wanted_lengths=tuple(map(len, rows)) if replicas.ragged else None,
        need=need,
    )
    return after.around(state, cause, found, adopted, *_settled(state, event))


def _settled(state: ClusterState, event: TopicAdopted) -> list[Record]:
    """Settles the waiting request of this name.

    A create is rejected: the topic is there. A repair is done, unless it has to empty an SPU.
    """
    waiting = state.waiting.get(event.topic)
    if waiting is None:
        return []
    if waiting.kind is Wait.CREATE:
        exists = Rejection(
            Code.TOPIC_EXISTS,
            f"topic {event.topic!r} was adopted in cluster {state.cluster_id!r} while this create "
            "waited; delete it first, or choose another name",
        )
        return settled(state, event.topic, waiting.cause, exists)
    if any(spu_id in state.leaving for row in event.replicas for spu_id in row):
        return []
    return settled(state, event.topic, waiting.cause)


def redescribe(state: ClusterState, event: TopicDemand | TopicConstraints) -> list[Record]:
    """The next map of a topic with another demand or other constraints.

    Its lists stay: what was measured is a fact, and may exceed what an SPU has, which then gets
    nothing more that needs the resource; of lists that break constraints `VIOLATED` says so.
    """
    topic = known_topic(state, event.topic)
    need, constraints, mode = topic.need, topic.constraints, Mode.CONSTRAINTS
    if isinstance(event, TopicDemand):
        check_demand(state, event.demand, event.leader_demand)
        need, mode = Need.of(event.demand, event.leader_demand), Mode.DEMAND
    else:
        check_constraints(state, event.topic, topic.policy, event.constraints)
        constraints = given_constraints(event.constraints)
    assigned = status(state, event.topic, Status.ASSIGNED, event.event_id)
    return _redescribed(state, event, mode, assigned, need=need, constraints=constraints)


def _redescribed(
    state: ClusterState,
    event: TopicAdopted | TopicDemand | TopicConstraints,
    mode: Mode,
    answer: Record,
    *,
    need: Need | None,
    constraints: Constraints | None,
) -> list[Record]:
    """The next map of a topic that keeps its lists, where something changes, and the answer."""
    topic, cause = state.topics[event.topic], event.event_id
    if (need, constraints) == (topic.need, topic.constraints):
        return [answer]
    return revised(
        state,
        cause,
        mode,
        {event.topic: topic.replicas.lists()},
        answer,
        own_events=own_events_after(topic, cause),
        need=need,
        constraints=constraints,
    )


def forget(state: ClusterState, event: TopicDelete | TopicRelease) -> list[Record]:
    """The topic goes, or what waits under its name is withdrawn.

    A delete and a release differ in their answer and tombstone alone.
    """
    name, cause = event.topic, event.event_id
    is_released = isinstance(event, TopicRelease)
    answer = status(state, name, Status.RELEASED if is_released else Status.DELETED, cause)
    gone = WaitingSettled(cluster_id=state.cluster_id, topic=name)
    withdrawn = [gone] if name in state.waiting else []
    if withdrawn and name not in state.topics:
        return [answer, *withdrawn]
    topic = known_topic(state, name)
    held = dict(zip(*tally(topic.replicas.lists().flat()), strict=True))
    *_, full = state.ledger.outside_ring()
    after = ring_after(state, {spu_id: -held[spu_id] for spu_id in full if spu_id in held})
    tombstone = ReplicaMap(
        cluster_id=state.cluster_id,
        topic=name,
        revision=topic.revision + 1,
        policy=topic.policy,
        replicas=None,
        cores=None,
        chain_index=shown_index(state, topic.policy, after, ignore_rack=topic.ignore_rack),
        cause=cause,
        replication_factor=topic.replication_factor,
        is_released=is_released,
    )
    return after.around(state, cause, tombstone, answer, *withdrawn)
