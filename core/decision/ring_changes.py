"""What becomes of the ring when SPUs come to hold more replicas or fewer; what a grant consists of.

An SPU that is full then leaves the ring, one that has a free slot again comes back to its tail. One
that has used up another resource is reported and stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from spu_assigner.core.base.chains import Chain, Order
from spu_assigner.core.base.constraints import given_constraints
from spu_assigner.core.base.events import SpuId, TopicCreate, TopicGrow
from spu_assigner.core.base.records import Record, ReplicaMap, RingChange, SpuChanged, Status
from spu_assigner.core.base.replica_lists import ReplicaLists, tally
from spu_assigner.core.base.resources import Need
from spu_assigner.core.decision.answers import (
    chains_changed,
    ring_event,
    ring_with,
    ring_without,
    status,
)
from spu_assigner.core.decision.assignment import Assignment
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.memory import own_events_after
from spu_assigner.core.state.ring import Ring


@dataclass(frozen=True, slots=True, kw_only=True)
class RingAfter:
    """The ring after a change of counts, with what it takes to get there."""

    ring: Ring
    chains: Mapping[Order, Chain]
    described: Mapping[SpuId, SpuChanged]  # that come back; their records go before any map's
    registration: int  # the next one
    changes: tuple[tuple[SpuId, RingChange], ...]

    def records(self, state: ClusterState, cause: str) -> list[Record]:
        """The ring events and the chains: they go behind the maps."""
        return [
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


def ring_after(state: ClusterState, changes: Mapping[int, int]) -> RingAfter:
    """The ring once SPUs hold so many replicas more or fewer; all that fill up leave together."""
    counts = {SpuId(spu_id): state.ledger.count(spu_id) for spu_id in sorted(changes)}
    ring, chains = state.ring, dict(state.chains)
    filled = tuple(
        spu_id
        for spu_id, count in counts.items()
        if spu_id in ring and count + changes[spu_id] >= state.spus[spu_id].capacity
    )
    restored = tuple(
        spu_id
        for spu_id, count in counts.items()
        if state.spus[spu_id].online
        and not state.spus[spu_id].is_closed
        and count >= state.spus[spu_id].capacity > count + changes[spu_id]
    )
    if filled:
        ring, chains = ring_without(ring, chains, filled)
    described: dict[SpuId, SpuChanged] = {}
    registration = state.registration_next
    for spu_id in restored:
        described[spu_id] = replace(state.spu_entry(spu_id), registration=registration)
        registration += 1
    ring, chains = ring_with(state, described, restored, ring, chains)
    return RingAfter(
        ring=ring,
        chains=chains,
        described=described,
        registration=registration,
        changes=(
            *[(spu_id, RingChange.SATURATED) for spu_id in filled],
            *[(spu_id, RingChange.RESTORED) for spu_id in restored],
        ),
    )


def granted(
    state: ClusterState, event: TopicCreate | TopicGrow, assignment: Assignment
) -> list[Record]:
    """The records of a request that is met: of a new topic, or of one that grows."""
    ring, order = state.ring, assignment.order
    moved: dict[Order, Chain] = {}
    for gone in assignment.departed:
        ring, moved = ring_without(ring, moved or state.chains, gone)
    if order is not None and assignment.chain is not None:
        moved[order] = assignment.chain
    index = None if order is None else ring.index(order, moved.get(order, state.chains[order]))
    revision = 1
    own: tuple[int, ...] = ()
    pinned, wanted_lengths = False, None
    if isinstance(event, TopicCreate):
        replication_factor = assignment.replicas.matrix.shape[1]
        ignore_rack = event.ignore_rack
        need = constraints = None
        if event.demand is not None or event.leader_demand is not None:
            need = Need.of(event.demand, event.leader_demand)
        if event.constraints is not None:
            constraints = given_constraints(event.constraints)
    else:
        topic = state.topics[event.topic]
        revision = topic.revision + 1
        replication_factor, ignore_rack = topic.replication_factor, topic.ignore_rack
        need, constraints = topic.need, topic.constraints
        own, pinned = own_events_after(topic, event.event_id), topic.pinned
        if topic.wanted_lengths is not None:
            new = len(assignment.replicas) - len(topic.wanted_lengths)
            wanted_lengths = (*topic.wanted_lengths, *(replication_factor,) * new)
    records: list[Record] = [
        ReplicaMap(
            cluster_id=state.cluster_id,
            topic=event.topic,
            revision=revision,
            policy=assignment.policy,
            replicas=assignment.replicas,
            cores=assignment.cores,
            chain_index=index,
            cause=event.event_id,
            replication_factor=replication_factor,
            ignore_rack=ignore_rack,
            own_events=own,
            pinned=pinned,
            wanted_lengths=wanted_lengths,
            need=need,
            constraints=constraints,
            reason=assignment.reason,
        ),
        status(state, event.topic, Status.ASSIGNED, event.event_id),
    ]
    if assignment.departed:
        for spu_id in sorted(spu_id for gone in assignment.departed for spu_id in gone):
            filled = ring_event(state, spu_id, RingChange.SATURATED, ring.size, event.event_id)
            records.append(filled)
    records += chains_changed(state, moved)
    return records


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
