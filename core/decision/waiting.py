"""What waits is looked at again: short lists first, then creates, the oldest first.

Each is tried once; one that cannot be served blocks none behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from spu_assigner.core.base.constraints import given_constraints
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy, SpuId, TopicCreate
from spu_assigner.core.base.limits import (
    LOOKS_EACH,
    PARTITIONS_MAX,
    RETRY_LOOKS_MAX,
    WAITING_MAX,
)
from spu_assigner.core.base.records import (
    Mode,
    Reason,
    Record,
    ReplicaMap,
    RingChange,
    RingEvent,
    SpuChanged,
    TopicStatus,
    Wait,
    Waiting,
)
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.base.resources import Need
from spu_assigner.core.decision.answers import Refusal
from spu_assigner.core.decision.ring_changes import count_changes
from spu_assigner.core.state.cluster_state import ClusterState


def may_wait(state: ClusterState) -> Refusal | None:
    """Why no further create may wait."""
    if len(state.waiting) < WAITING_MAX:
        return None
    creates = sum(waiting.kind is Wait.CREATE for waiting in state.waiting.values())
    if creates < WAITING_MAX:
        return None
    return Refusal(
        Code.TOO_MANY_WAITING,
        f"{creates} creates wait in cluster {state.cluster_id!r}, which is the limit; "
        "add SPUs or capacity, or withdraw some",
    )


def makes_room(state: ClusterState, records: Sequence[Record]) -> bool:
    """Whether, with these records, the ring gains a member or slots, compared with the state."""
    for record in records:
        match record:
            case RingEvent(change=RingChange.JOINED | RingChange.RESTORED | RingChange.UNCORDONED):
                return True
            case ReplicaMap(replicas=None):
                return True
            case ReplicaMap(
                topic=name,
                replicas=ReplicaLists() as lists,
                reason=Reason(mode=Mode.ADOPTED | Mode.REPLICATION),
            ) if name in state.topics:
                changes = count_changes(state.topics[name].replicas.lists(), lists)
                if min(changes.values(), default=0) < 0 or record.need != state.topics[name].need:
                    return True
            case ReplicaMap(reason=Reason(mode=Mode.DEMAND)):
                return True  # as a rule: what needs less leaves more to others
            case SpuChanged():
                known = state.spus.get(SpuId(record.spu_id))
                if known is not None and record.online and _may_take_more(record, known):
                    return True
            case TopicStatus(moves=int(moves)) if moves > 0:
                return True
            case _:
                pass
    return False


def _may_take_more(spu: SpuChanged, known: SpuChanged) -> bool:
    """Whether an SPU has more slots than before, more of a resource, or what rules ask for."""
    before = dict(known.resources)
    described = (spu.rack, spu.labels, spu.taints)
    return (
        spu.capacity > known.capacity
        or described != (known.rack, known.labels, known.taints)
        or any(amount > before.get(name, 0) for name, amount in spu.resources)
    )


def in_turn(state: ClusterState, kind: Wait) -> list[Waiting]:
    """What waits of this kind, the oldest first."""
    return sorted(
        (waiting for waiting in state.waiting.values() if waiting.kind is kind),
        key=lambda waiting: waiting.sequence,
    )


def servable(state: ClusterState) -> Iterator[Waiting]:
    """The creates for which there may be room, the oldest first; looks again after each.

    Ends early where very many were tried in vain: the others are looked at again another time.
    """
    creates = in_turn(state, Wait.CREATE)
    if not creates:
        return
    ring = state.ring
    free = int(state.ledger.free(ring.ids).sum())
    looks_left = RETRY_LOOKS_MAX
    failed: dict[Waiting, int] = {}  # partitions of which there are too many, of requests alike
    for waiting in creates:
        # `kraft` may place on offline SPUs too.
        # And a topic with constraints on SPUs that it tolerates.
        is_bound = waiting.policy is not Policy.KRAFT and waiting.constraints is None
        if is_bound and waiting.replication_factor > ring.size:
            continue
        if is_bound and waiting.partitions * waiting.replication_factor > free:
            continue
        alike = _but_for_partitions(waiting)
        if alike is not None and waiting.partitions >= failed.get(alike, PARTITIONS_MAX + 1):
            continue  # Fewer, or as many, were tried since anything was placed.
        yield waiting
        if waiting.topic not in state.waiting:  # It was served.
            ring = state.ring
            free = int(state.ledger.free(ring.ids).sum())
            failed.clear()
            continue
        if alike is not None:
            failed[alike] = waiting.partitions
        looks_left -= ring.size * LOOKS_EACH + waiting.partitions * waiting.replication_factor
        if looks_left < 0:
            return


def _but_for_partitions(waiting: Waiting) -> Waiting | None:
    """What of a request decides beside its partitions whether there is room; None: its name too."""
    if waiting.policy in (Policy.RENDEZVOUS, Policy.KRAFT) or waiting.constraints is not None:
        return None
    return replace(waiting, topic="", sequence=0, cause="", partitions=0)


def request_of(waiting: Waiting) -> TopicCreate:
    """The create that waits, as it came."""
    return TopicCreate(
        event_id=waiting.cause,
        cluster_id=waiting.cluster_id,
        topic=waiting.topic,
        partitions=waiting.partitions,
        replication_factor=waiting.replication_factor,
        policy=waiting.policy,
        ignore_rack=waiting.ignore_rack,
        start_index=waiting.start_index,
        shift=waiting.shift,
        demand=None if waiting.need is None else dict(waiting.need.demand),
        leader_demand=None if waiting.need is None else dict(waiting.need.leader_demand),
        constraints=waiting.constraints,
    )


def waiting_create(state: ClusterState, event: TopicCreate, policy: Policy) -> Waiting:
    """The record of a create that is to wait."""
    return Waiting(
        cluster_id=state.cluster_id,
        topic=event.topic,
        sequence=state.waiting_next(),
        kind=Wait.CREATE,
        cause=event.event_id,
        policy=policy,
        partitions=event.partitions,
        replication_factor=event.replication_factor,
        ignore_rack=event.ignore_rack,
        start_index=event.start_index,
        shift=event.shift,
        need=Need.of(event.demand, event.leader_demand),
        constraints=given_constraints(event.constraints),
    )
