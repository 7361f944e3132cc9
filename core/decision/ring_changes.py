"""The ring and its chains after a change, and the records that say so; the records of a grant.

An SPU that is full leaves the ring, one that has a free slot again comes back to its tail. One that
has used up another resource is reported and stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from spu_assigner.core.base.constraints import given_constraints
from spu_assigner.core.base.events import Policy, SpuId, TopicCreate, TopicGrow
from spu_assigner.core.base.records import (
    Chain,
    ChainsChanged,
    Order,
    Reason,
    Record,
    RecordedRing,
    ReplicaMap,
    RingChange,
    SpuChanged,
    Status,
)
from spu_assigner.core.base.replica_lists import IdMatrix, ReplicaLists, tally
from spu_assigner.core.base.resources import Need
from spu_assigner.core.base.structs import FrozenStruct
from spu_assigner.core.decision.answers import ring_event, status
from spu_assigner.core.decision.checks import check_size
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.memory import own_events_after
from spu_assigner.core.state.ring import Ring, members_text, ranges_text
from spu_assigner.core.state.topic import map_of


class Assignment(FrozenStruct, frozen=True, kw_only=True):
    """Where a topic goes."""

    policy: Policy
    replicas: ReplicaLists  # of a topic that grows, with those that it has
    cores: ReplicaLists | None = None
    order: Order | None = None  # whose chain index the record shows
    chain: Chain | None = None  # of that order after the request; None: it stays
    filled: tuple[int, ...] = ()  # SPUs that it saturates, by id
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RingAfter:
    """The ring after a change of counts, with what it takes to get there."""

    ring: Ring
    chains: Mapping[Order, Chain]
    described: Mapping[SpuId, SpuChanged]  # again; their records go before any map's
    registration: int  # the next one
    changes: tuple[tuple[SpuId, RingChange], ...]

    def around(self, state: ClusterState, cause: str, *records: Record) -> list[Record]:
        """The records of all of it, with the maps that change the counts and their answers."""
        return [
            *self.described.values(),
            *records,
            *[
                ring_event(state, spu_id, change, self.ring.size, cause)
                for spu_id, change in self.changes
            ],
            *chains_changed(state, self.chains, self.registration),
        ]


def count_changes(before: ReplicaLists | None, after: ReplicaLists) -> dict[int, int]:
    """How many replicas more or fewer each SPU holds with other lists; by id, only what differs."""
    changes: dict[int, int] = dict(zip(*tally(after.flat()), strict=True))
    if before is not None:
        for spu_id, count in zip(*tally(before.flat()), strict=True):
            changes[spu_id] = changes.get(spu_id, 0) - count
    return {spu_id: change for spu_id, change in sorted(changes.items()) if change}


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
    ring, chains, registration = state.ring, dict(state.chains), state.registration_next
    new = dict(described or {})
    left: list[SpuId] = []
    entered: list[SpuId] = []
    for spu_id in sorted({*map(SpuId, changes), *new}):
        spu, is_member = new.get(spu_id) or state.spus[spu_id], spu_id in ring
        is_open = spu.online and not spu.is_closed
        if (is_open and not is_full(state, spu, changes.get(spu_id, 0))) is not is_member:
            (left if is_member else entered).append(spu_id)
    if left:
        ring, chains = ring_without(ring, chains, tuple(left))
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
        chains={order: ring.chain_entered(order, chain) for order, chain in chains.items()},
        described=new,
        registration=max([registration, *[spu.registration + 1 for spu in new.values()]]),
        changes=(
            *[(spu_id, RingChange.SATURATED) for spu_id in left],
            *[(spu_id, RingChange.RESTORED) for spu_id in entered],
        ),
    )


def ring_without(
    ring: Ring, chains: Mapping[Order, Chain], gone: tuple[int, ...]
) -> tuple[Ring, dict[Order, Chain]]:
    """The ring and its chains after some members leave together."""
    return ring.without(gone), {
        order: ring.chain_without(order, chain, gone) for order, chain in chains.items()
    }


def chains_changed(
    state: ClusterState, chains: Mapping[Order, Chain], registration_next: int
) -> list[Record]:
    """The record of chains that differ from the state's; none if none does."""
    before = state.chains
    changed = tuple([pair for pair in chains.items() if pair[1] is not before[pair[0]]])
    if not changed and registration_next == state.registration_next:
        return []
    return [
        ChainsChanged(
            cluster_id=state.cluster_id, chains=changed, registration_next=registration_next
        )
    ]


def filled_by(state: ClusterState, lists: ReplicaLists) -> tuple[int, ...]:
    """The members of the ring that new lists leave no free slot, by id."""
    ids, counts = np.unique(lists.matrix, return_counts=True)
    is_full = (counts == state.ledger.free(ids)) & np.isin(ids, state.ring.ids)
    return tuple(ids[is_full].tolist())


def chain_after(
    ring: Ring, order: Order, index: int, matrix: IdMatrix, filled: Sequence[int]
) -> Chain:
    """The chain after a request: one further for each partition, re-based where the ring lost
    members on the way, those that the request has filled."""
    last = {spu_id: int(np.flatnonzero((matrix == spu_id).any(axis=1))[-1]) for spu_id in filled}
    done = 0
    for row in sorted({*last.values()}):
        gone = [spu_id for spu_id in filled if last[spu_id] == row]
        chain = ring.chain_at(order, index + row + 1 - done)
        chain = ring.chain_without(order, chain, gone)
        ring, done = ring.without(gone), row + 1
        if ring.size == 0:
            return chain
        index = ring.index(order, chain)
    return ring.chain_at(order, index + len(matrix) - done)


def granted(
    state: ClusterState, event: TopicCreate | TopicGrow, assignment: Assignment
) -> list[Record]:
    """The records of a request that is met: of a new topic, or of one that grows."""
    ring, order = state.ring, assignment.order
    moved: dict[Order, Chain] = {}
    if assignment.filled:
        ring, moved = ring_without(ring, state.chains, assignment.filled)
    if order is not None and assignment.chain is not None:
        moved[order] = assignment.chain
    index = None if order is None else ring.index(order, moved.get(order, state.chains[order]))
    if isinstance(event, TopicCreate):
        need = constraints = None
        if event.demand is not None or event.leader_demand is not None:
            need = Need.of(event.demand, event.leader_demand)
        if event.constraints is not None:
            constraints = given_constraints(event.constraints)
        replica_map = ReplicaMap(
            cluster_id=state.cluster_id,
            topic=event.topic,
            revision=1,
            policy=assignment.policy,
            replicas=assignment.replicas,
            cores=assignment.cores,
            chain_index=index,
            cause=event.event_id,
            replication_factor=assignment.replicas.matrix.shape[1],
            ignore_rack=event.ignore_rack,
            need=need,
            constraints=constraints,
            reason=assignment.reason,
        )
    else:
        topic = state.topics[event.topic]
        wanted_lengths = None
        if topic.wanted_lengths is not None:
            new = len(assignment.replicas) - len(topic.wanted_lengths)
            wanted_lengths = (*topic.wanted_lengths, *(topic.replication_factor,) * new)
        replica_map = replace(
            map_of(state.cluster_id, event.topic, topic),
            revision=topic.revision + 1,
            replicas=assignment.replicas,
            cores=assignment.cores,
            chain_index=index,
            cause=event.event_id,
            own_events=own_events_after(topic, event.event_id),
            wanted_lengths=wanted_lengths,
            reason=assignment.reason,
        )
    check_size(replica_map)
    cause = event.event_id
    return [
        replica_map,
        status(state, event.topic, Status.ASSIGNED, cause),
        *[
            ring_event(state, spu_id, RingChange.SATURATED, ring.size, cause)
            for spu_id in assignment.filled
        ],
        *chains_changed(state, moved, state.registration_next),
    ]


def recorded_ring(
    state: ClusterState,
    order: Order,
    *,
    is_weighted: bool = False,
    fenced: Mapping[int, str] | None = None,
) -> RecordedRing:
    """What a reason says of the ring; made once for each ring and order.

    Args:
        state: before the step.
        order: that the rule read.
        is_weighted: whether it read capacities too.
        fenced: the offline SPUs that `kraft` read too, each with its rack.
    """
    ring = state.ring
    key = RecordedRing, order, is_weighted
    known: RecordedRing | None = ring.kept.get(key)
    if known is None:
        outside = map(ranges_text, state.ledger.outside_ring())
        parts = dict(zip(("offline", "cordoned", "saturated"), outside, strict=True))
        known = RecordedRing(members=ring.text(order, is_weighted=is_weighted), **parts)
        ring.kept[key] = known
    if not fenced:
        return known
    racks = [*ring.racks_of_members().values(), *fenced.values()]
    number_of = {rack: number for number, rack in enumerate(sorted(set(racks)))}
    numbers = np.array([number_of[rack] for rack in racks], dtype=np.int32)
    return replace(
        known,
        members=members_text(ring.ids, numbers[: ring.size]),
        fenced=members_text(np.array([*fenced], dtype=np.int32), numbers[ring.size :]),
    )


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
