"""The next maps of topics, and the records of events that give lists to a topic or change them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

from msgspec.structs import replace
from spu_assigner.core.base.constraints import given_constraints
from spu_assigner.core.base.events import SpuId, TopicCreate, TopicGrow
from spu_assigner.core.base.limits import MOVES_REPORTED_MAX
from spu_assigner.core.base.records import Mode, Move, Order, Reason, Record, ReplicaMap, Status
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.base.resources import Need
from spu_assigner.core.decision.answers import status
from spu_assigner.core.decision.checks import check_size
from spu_assigner.core.decision.requests import shown_index
from spu_assigner.core.decision.ring_changes import (
    Assignment,
    RingAfter,
    recorded_ring,
    ring_after,
    ring_filled,
)
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.core_weights import first_core, held_by_cores, weights_after
from spu_assigner.core.state.memory import own_events_after
from spu_assigner.core.state.topic import Topic, map_of


def next_map(
    state: ClusterState, name: str, cause: str, after: RingAfter, **fields: Any
) -> ReplicaMap:
    """The next map of a living topic, which is as it was but for these fields; else the first one.

    `after`: the ring then, of which the map shows the chain index.

    Raises:
        Rejection: it does not fit into a message.
    """
    topic, cluster_id = state.topics.get(name), state.cluster_id
    if topic is None:
        made = ReplicaMap(
            cluster_id=cluster_id, topic=name, revision=1, chain_index=None, cause=cause, **fields
        )
    else:
        before = map_of(cluster_id, name, topic)
        made = replace(before, revision=topic.revision + 1, cause=cause, **fields)
    check_size(made)
    index = shown_index(state, made.policy, after, ignore_rack=made.ignore_rack)
    return made if index is None else replace(made, chain_index=index)


def granted(state: ClusterState, event: TopicCreate | TopicGrow, given: Assignment) -> list[Record]:
    """The records of a request that is met: of a new topic, or of one that grows."""
    name, cause = event.topic, event.event_id
    moved = {} if given.order is None or given.chain is None else {given.order: given.chain}
    after = ring_filled(state, given.filled, moved)
    index = None if given.order is None else after.chain_index(state, given.order)
    if isinstance(event, TopicCreate):
        need = constraints = None
        if event.demand is not None or event.leader_demand is not None:
            need = Need.of(event.demand, event.leader_demand)
        if event.constraints is not None:
            constraints = given_constraints(event.constraints)
        made = ReplicaMap(
            cluster_id=state.cluster_id,
            topic=name,
            revision=1,
            policy=given.policy,
            replicas=given.replicas,
            cores=given.cores,
            chain_index=index,
            cause=cause,
            replication_factor=given.replicas.matrix.shape[1],
            ignore_rack=event.ignore_rack,
            need=need,
            constraints=constraints,
            reason=given.reason,
        )
        check_size(made)
    else:
        topic = state.topics[name]
        lengths = None
        if topic.wanted_lengths is not None:
            new = len(given.replicas) - len(topic.wanted_lengths)
            lengths = (*topic.wanted_lengths, *[topic.replication_factor] * new)
        made = next_map(
            state,
            name,
            cause,
            after,
            replicas=given.replicas,
            cores=given.cores,
            own_events=own_events_after(topic, cause),
            wanted_lengths=lengths,
            reason=given.reason,
        )
    return after.around(state, cause, made, status(state, name, Status.ASSIGNED, cause))


def revised(
    state: ClusterState,
    cause: str,
    mode: Mode,
    lists: Mapping[str, ReplicaLists],
    *answers: Record,
    moves: Mapping[str, Sequence[Move]] | None = None,
    **fields: Any,
) -> list[Record]:
    """The records of living topics that get these lists by these moves, or in another order.

    A reason lists the moves by partition, and no more than a message has room for. `fields`: what
    else changes in the maps, which the answers follow.
    """
    moves_of, more = moves or {}, Counter[int | None]()
    for move in chain.from_iterable(moves_of.values()):
        more[move.taken] += 1
        more[move.gone] -= 1
    after = ring_after(state, {i: count for i, count in more.items() if i is not None})
    ring = recorded_ring(state, Order.BALANCED)
    weights: dict[SpuId, list[int]] = dict(state.core_weights)
    maps: list[ReplicaMap] = []
    for name, replicas in lists.items():
        topic, cores = state.topics[name], None
        if topic.cores is not None:
            cores = cores_of(weights, topic, replicas)
            held = held_by_cores(replicas.matrix, cores.matrix)
            weights |= weights_after(weights, topic.held_by_cores(), held)
        reported = sorted(moves_of.get(name, ()), key=attrgetter("partition"))[:MOVES_REPORTED_MAX]
        reason = Reason(mode=mode, ring=ring, moves=tuple(reported))
        given = {"replicas": replicas, "cores": cores, "reason": reason, **fields}
        maps.append(next_map(state, name, cause, after, **given))
    return after.around(state, cause, *maps, *answers)


def cores_of(
    weights: Mapping[SpuId, list[int]], topic: Topic | None, replicas: ReplicaLists
) -> ReplicaLists:
    """The cores of the next lists of a topic: a replica that stays keeps its core, a new one takes
    the first of least weight."""
    known: list[dict[int, int]] = []
    if topic is not None and topic.cores is not None:
        pairs = zip(topic.replicas.lists().tolist(), topic.cores.lists().tolist(), strict=True)
        known = [dict(zip(row, cores, strict=True)) for row, cores in pairs]
    scratch: dict[SpuId, list[int]] = {}
    rows: list[list[int]] = []
    known += [{}] * (len(replicas) - len(known))
    for row, before in zip(replicas.tolist(), known[: len(replicas)], strict=True):
        new = {i: first_core(weights, scratch, SpuId(i)) for i in row if i not in before}
        rows.append([new[i] if i in new else before[i] for i in row])
    return ReplicaLists.of_lists(rows)
