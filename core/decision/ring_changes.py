"""The next maps of topics, the ring and its chains after them, and the records that say so.

An SPU that is full leaves the ring, one that has a free slot again comes back to its tail. One that
has used up another resource is reported and stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from spu_assigner.core.base.constraints import given_constraints
from spu_assigner.core.base.events import Policy, SpuId, TopicCreate, TopicGrow
from spu_assigner.core.base.limits import MOVES_REPORTED_MAX
from spu_assigner.core.base.records import (
    Chain,
    ChainsChanged,
    Mode,
    Move,
    Order,
    Reason,
    Record,
    ReplicaMap,
    RingChange,
    SpuChanged,
    Status,
)
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.base.resources import Need
from spu_assigner.core.decision.answers import ring_event, status
from spu_assigner.core.decision.checks import check_size
from spu_assigner.core.decision.requests import KRAFT_ORDER, Assignment, recorded_ring, rule_of
from spu_assigner.core.policies.cursor import RULES
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.core_weights import cores_of, weights_after
from spu_assigner.core.state.memory import own_events_after
from spu_assigner.core.state.ring import Ring
from spu_assigner.core.state.topic import map_of


class RingAfter(NamedTuple):
    """The ring after a change of counts, with what it takes to get there."""

    ring: Ring
    chains: Mapping[Order, Chain]  # those that may differ
    registration: int  # the next one
    described: Mapping[SpuId, SpuChanged] = {}  # again; their records go before any map's
    changes: Sequence[tuple[int, RingChange]] = ()

    def chain_index(self, state: ClusterState, order: Order) -> int:
        """Where the next assignment of an order starts."""
        return self.ring.index(order, self.chains.get(order) or state.chains[order])

    def around(self, state: ClusterState, cause: str, *records: Record) -> list[Record]:
        """The records of all of it, with the maps that change the counts and their answers."""
        ring, chains, registration, described, changes = self
        found, before, size = [*described.values(), *records], state.chains, ring.size
        found += [ring_event(state, spu_id, change, size, cause) for spu_id, change in changes]
        moved = tuple([pair for pair in chains.items() if pair[1] is not before[pair[0]]])
        if moved or registration != state.registration_next:
            chain_record = ChainsChanged(
                cluster_id=state.cluster_id, chains=moved, registration_next=registration
            )
            found.append(chain_record)
        return found


def is_full(state: ClusterState, spu: SpuChanged, more: int = 0) -> bool:
    """Whether an SPU has no free slot with so many replicas more; it may be new."""
    spu_id = SpuId(spu.spu_id)
    return (state.ledger.count(spu_id) if spu_id in state.spus else 0) + more >= spu.capacity


def ring_after(
    state: ClusterState,
    changes: Mapping[int, int],
    described: Mapping[SpuId, SpuChanged] | None = None,
) -> RingAfter:
    """The ring once SPUs hold so many replicas more or fewer, or are described again.

    All that are to leave it leave together. Those that enter come last in order of registration.
    """
    new = dict(described or {})
    left: list[SpuId] = []
    entered: list[SpuId] = []
    for spu_id in sorted({*map(SpuId, changes), *new}):
        spu, is_member = new.get(spu_id) or state.spus[spu_id], spu_id in state.ring
        is_open = spu.online and not spu.is_closed
        if (is_open and not is_full(state, spu, changes.get(spu_id, 0))) is not is_member:
            (left if is_member else entered).append(spu_id)
    ring, chains, registration, _, gone = ring_filled(state, left, {})
    for spu_id in entered:
        spu = new.get(spu_id) or state.spus[spu_id]
        new[spu_id] = replace(spu, registration=registration)
        registration += 1
    members = [spu_id for spu_id in new if spu_id in ring or spu_id in entered]
    if members:
        ids = np.array(sorted({*ring.ids.tolist(), *members}), dtype=np.int32)
        ring = Ring(ids, {**state.spus, **new})
    return RingAfter(
        ring=ring,
        chains={
            order: ring.chain_entered(order, chains.get(order) or chain)
            for order, chain in state.chains.items()
        },
        registration=max([registration, *[spu.registration + 1 for spu in new.values()]]),
        described=new,
        changes=[*gone, *[(spu_id, RingChange.RESTORED) for spu_id in entered]],
    )


def ring_filled(
    state: ClusterState, filled: Sequence[int], moved: Mapping[Order, Chain]
) -> RingAfter:
    """The ring once these members of it, by id, have no free slot left; with chains that moved."""
    ring, registration = state.ring, state.registration_next
    if not filled:
        return RingAfter(ring, moved, registration)
    chains = {
        order: moved.get(order) or ring.chain_without(order, chain, filled)
        for order, chain in state.chains.items()
    }
    changes = [(spu_id, RingChange.SATURATED) for spu_id in filled]
    return RingAfter(ring.without(filled), chains, registration, changes=changes)


def resource_changes(state: ClusterState, cause: str) -> list[Record]:
    """Of which resources SPUs have nothing left now, or something again, since the last look."""
    return [
        ring_event(
            state,
            spu_id,
            RingChange.SATURATED if is_full else RingChange.RESTORED,
            state.ring.size,
            cause,
            resource=resource,
        )
        for spu_id, resource, is_full in state.ledger.look()
    ]


def shown_index(
    state: ClusterState, policy: Policy, after: RingAfter, *, ignore_rack: bool
) -> int | None:
    """The index that a record of a living topic shows: of its policy's order; None: it has none.

    While racks are incomplete that is the order by id.
    """
    match policy:
        case Policy.BALANCED:
            order = Order.BALANCED
        case Policy.MANUAL:
            return None
        case Policy.KRAFT:
            order = KRAFT_ORDER
        case _:
            mode = rule_of(state, policy, ignore_rack=ignore_rack)
            order = Order.ID if mode is None else RULES[mode].order
            if mode is not None and RULES[mode].is_scored:
                return None
    return after.chain_index(state, order)


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
        index = shown_index(state, fields["policy"], after, ignore_rack=False)
        made = ReplicaMap(
            cluster_id=cluster_id, topic=name, revision=1, chain_index=index, cause=cause, **fields
        )
    else:
        before, policy = map_of(cluster_id, name, topic), fields.get("policy", topic.policy)
        index = shown_index(state, policy, after, ignore_rack=topic.ignore_rack)
        revision = topic.revision + 1
        made = replace(before, revision=revision, chain_index=index, cause=cause, **fields)
    check_size(made)
    return made


def granted(state: ClusterState, event: TopicCreate | TopicGrow, given: Assignment) -> list[Record]:
    """The records of a request that is met: of a new topic, or of one that grows."""
    name, cause = event.topic, event.event_id
    moved = {} if given.order is None or given.chain is None else {given.order: given.chain}
    after = ring_filled(state, given.filled, moved)
    index = None if given.order is None else after.chain_index(state, given.order)
    if isinstance(event, TopicCreate):
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
            need=Need.of(event.demand, event.leader_demand),
            constraints=given_constraints(event.constraints),
            reason=given.reason,
        )
        check_size(made)
    else:
        topic = state.topics[name]
        fields: dict[str, Any] = {"own_events": own_events_after(topic, cause)}
        if topic.wanted_lengths is not None:
            new = len(given.replicas) - len(topic.wanted_lengths)
            fields["wanted_lengths"] = (*topic.wanted_lengths, *[topic.replication_factor] * new)
        fields |= {"replicas": given.replicas, "cores": given.cores, "reason": given.reason}
        made = next_map(state, name, cause, after, **fields)
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
    after, moves_of = ring_filled(state, (), {}), moves or {}
    if moves_of:
        more: Counter[int | None] = Counter()
        for move in chain.from_iterable(moves_of.values()):
            more[move.taken] += 1
            more[move.gone] -= 1
        after = ring_after(state, {i: count for i, count in more.items() if i is not None})
    ring, spus = recorded_ring(state, Order.BALANCED), state.spus
    maps: list[ReplicaMap] = []
    for name, replicas in lists.items():
        topic, cores = state.topics[name], None
        if topic.cores is not None:
            cores = cores_of(spus, topic, replicas)
        reported = sorted(moves_of.get(name, ()), key=attrgetter("partition"))[:MOVES_REPORTED_MAX]
        reason = Reason(mode=mode, ring=ring, moves=tuple(reported))
        given = {"replicas": replicas, "cores": cores, "reason": reason}
        maps.append(next_map(state, name, cause, after, **given, **fields))
        if cores is not None:  # The next one starts from what this one leaves.
            spus = spus | weights_after(spus, topic, maps[-1])
    return after.around(state, cause, *maps, *answers)
