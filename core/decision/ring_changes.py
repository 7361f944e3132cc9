"""The ring and its chains after a change, and the records that say so.

An SPU that is full leaves the ring, one that has a free slot again comes back to its tail. One that
has used up another resource is reported and stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from spu_assigner.core.base.events import Policy, SpuId
from spu_assigner.core.base.records import (
    Chain,
    ChainsChanged,
    Order,
    Reason,
    Record,
    RecordedRing,
    RingChange,
    SpuChanged,
)
from spu_assigner.core.base.replica_lists import IdMatrix, ReplicaLists
from spu_assigner.core.base.structs import FrozenStruct
from spu_assigner.core.decision.answers import ring_event
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ring import Ring, members_text, ranges_text


class Assignment(FrozenStruct, frozen=True, kw_only=True):
    """Where a topic goes."""

    policy: Policy
    replicas: ReplicaLists  # of a topic that grows, with those that it has
    cores: ReplicaLists | None = None
    order: Order | None = None  # whose chain index the record shows
    chain: Chain | None = None  # of that order after the request; None: it stays
    filled: tuple[int, ...] = ()  # SPUs that it saturates, by id
    reason: Reason


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
        size, before = self.ring.size, state.chains
        found = [*self.described.values(), *records]
        found += [ring_event(state, spu_id, each, size, cause) for spu_id, each in self.changes]
        moved = tuple([pair for pair in self.chains.items() if pair[1] is not before[pair[0]]])
        if moved or self.registration != state.registration_next:
            found.append(
                ChainsChanged(
                    cluster_id=state.cluster_id, chains=moved, registration_next=self.registration
                )
            )
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
    ring, chains, registration, *_ = ring_filled(state, left, {})
    chains = {**state.chains, **chains}
    for spu_id in entered:
        spu = new.get(spu_id) or state.spu_entry(spu_id)
        new[spu_id] = replace(spu, registration=registration)
        registration += 1
    members = [spu_id for spu_id in new if spu_id in ring or spu_id in entered]
    if members:
        ring = ring.with_members(members, {**state.spus, **new})
    return RingAfter(
        ring=ring,
        chains={order: ring.chain_entered(order, chain) for order, chain in chains.items()},
        registration=max([registration, *[spu.registration + 1 for spu in new.values()]]),
        described=new,
        changes=[
            *[(spu_id, RingChange.SATURATED) for spu_id in left],
            *[(spu_id, RingChange.RESTORED) for spu_id in entered],
        ],
    )


def ring_filled(
    state: ClusterState, filled: Sequence[int], moved: Mapping[Order, Chain]
) -> RingAfter:
    """The ring once these members of it, by id, have no free slot left; with chains that moved."""
    ring, chains = state.ring, moved
    if filled:
        chains = {
            order: moved.get(order) or ring.chain_without(order, chain, filled)
            for order, chain in state.chains.items()
        }
        ring = ring.without(filled)
    changes = [(spu_id, RingChange.SATURATED) for spu_id in filled]
    return RingAfter(ring, chains, state.registration_next, changes=changes)


def filled_by(state: ClusterState, lists: ReplicaLists) -> tuple[int, ...]:
    """The members of the ring that new lists leave no free slot, by id."""
    if state.ledger.free_floor(len(lists)) > len(lists):
        return ()
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
