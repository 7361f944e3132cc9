"""SPUs join, change and leave: what follows for the ring.

What follows for topics (repair, requests that waited) is in `machine` and `repair`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, assert_never

from spu_assigner.core.base.bounded_repr import bounded_repr, long_repr
from spu_assigner.core.base.constraints import taints_fault
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import (
    LeaveMode,
    SpuCordon,
    SpuDemote,
    SpuEvent,
    SpuId,
    SpuJoined,
    SpuLeft,
    SpuUncordon,
    SpuUndemote,
)
from spu_assigner.core.base.limits import (
    CAPACITY_MAX,
    CORES_MAX,
    RACK_LENGTH_MAX,
    SPU_ID_MAX,
    SPUS_MAX,
    default_capacity,
)
from spu_assigner.core.base.records import Record, RingChange, RingEvent, SpuChanged
from spu_assigner.core.base.resources import amounts_fault, amounts_of
from spu_assigner.core.decision.answers import (
    Refusal,
    chains_changed,
    ignored,
    ring_event,
    ring_with,
    ring_without,
)
from spu_assigner.core.rules import redpanda
from spu_assigner.core.state.cluster_state import ClusterState

DROPPED_NAMED: Final = 8  # in the answer to a join


def change(state: ClusterState, event: SpuEvent) -> list[Record]:
    """What an event of `spu-events` changes, or the answer that it is ignored."""
    if not isinstance(event, SpuJoined) and event.spu_id not in state.spus:
        found = f"no SPU {bounded_repr(event.spu_id)} in cluster {state.cluster_id!r}"
        return [ignored(state, event.spu_id, Refusal(Code.SPU_UNKNOWN, found), event.event_id)]
    match event:
        case SpuJoined():
            return join(state, event)
        case SpuLeft():
            return leave(state, event)
        case SpuCordon():
            return cordon(state, event)
        case SpuUncordon():
            return uncordon(state, event)
        case SpuDemote() | SpuUndemote():
            return set_demoted(state, event)
        case _:
            assert_never(event)


def join(state: ClusterState, event: SpuJoined) -> list[Record]:
    """An SPU is there: new, changed, or back.

    It describes the SPU whole: the answer names what the SPU had and this join does not name. A
    decommission that is under way ends with it; a cordon or a demotion does not.
    """
    refusal = _refuse_join(state, event)
    if refusal is not None:
        return [ignored(state, event.spu_id, refusal, event.event_id)]
    spu_id = SpuId(event.spu_id)
    before = state.spus.get(spu_id)
    weights = (
        redpanda.initial_weights(event.cores)
        if before is None
        else redpanda.shrink_weights(state.core_weights[spu_id], event.cores)
    )
    cordoned = before is not None and before.cordoned
    was_in_ring = before is not None and spu_id in state.ring
    was_closed = before is not None and before.is_closed
    was_full = before is not None and before.online and not was_in_ring and not was_closed
    capacity = default_capacity(event.cores) if event.capacity is None else event.capacity
    count = 0 if before is None else state.ledger.count(spu_id)
    full = count >= capacity
    spu = SpuChanged(
        cluster_id=state.cluster_id,
        spu_id=spu_id,
        online=True,
        rack=event.rack,
        cores=event.cores,
        capacity=capacity,
        labels=tuple(sorted((event.labels or {}).items())),
        registration=state.registration_next,
        core_weights=tuple(weights),
        cordoned=cordoned,
        demoted=before is not None and before.demoted,
        resources=amounts_of(event.resources),
        taints=tuple(sorted(event.taints)),
    )
    closed = spu.is_closed
    if before is not None and before.online and (was_in_ring or full or closed):
        # An update keeps the place; a return, or a freed slot, goes to the tail.
        spu = replace(spu, registration=before.registration)
    ring, chains = state.ring, dict(state.chains)
    if was_in_ring and (full or closed):
        ring, chains = ring_without(ring, chains, (spu_id,))
    entering = [] if full or was_in_ring or closed else [spu_id]
    ring, chains = ring_with(state, {spu_id: spu}, entering, ring, chains)
    is_update = before is not None and before.online
    changes = [RingChange.UPDATED if is_update else RingChange.JOINED]
    if closed is not was_closed:
        changes.append(RingChange.CORDONED if closed else RingChange.UNCORDONED)
    if full and not was_full and not closed:
        changes.append(RingChange.SATURATED)
    elif was_full and not full and not closed:
        changes.append(RingChange.RESTORED)
    leads_not = spu.demoted or spu.is_barred
    if leads_not is not (before is not None and (before.demoted or before.is_barred)):
        changes.append(RingChange.DEMOTED if leads_not else RingChange.UNDEMOTED)
    found = [ring_event(state, spu_id, each, ring.size, event.event_id) for each in changes]
    if before is not None:
        found[0] = replace(found[0], message=_dropped(before, spu, event))
    records: list[Record] = [*found, spu]
    records += chains_changed(state, chains, max(state.registration_next, spu.registration + 1))
    return records


def _dropped(before: SpuChanged, after: SpuChanged, event: SpuJoined) -> str | None:
    """What the SPU had, and no longer has because the join does not name it; None: nothing."""
    gone: list[str] = []
    if before.rack is not None and after.rack is None:
        gone.append(f"rack {long_repr(before.rack)}")
    if event.cores == 1 < before.cores:  # What an event has that names none.
        gone.append(f"{before.cores} cores (1 now)")
    if event.capacity is None and before.capacity != default_capacity(before.cores):
        gone.append(f"capacity {before.capacity} ({after.capacity} now)")
    labels = dict(after.labels)
    gone += [
        f"label {long_repr(f'{name}={value}')}"
        for name, value in before.labels
        if name not in labels
    ]
    resources = dict(after.resources)
    gone += [f"{name} {amount}" for name, amount in before.resources if name not in resources]
    taints = {(taint.key, taint.effect) for taint in after.taints}
    gone += [
        f"taint {long_repr(f'{taint.key}={taint.value}:{taint.effect}')}"
        for taint in before.taints
        if (taint.key, taint.effect) not in taints
    ]
    if not gone:
        return None
    more = f" and {len(gone) - DROPPED_NAMED} more" if len(gone) > DROPPED_NAMED else ""
    return f"no longer has {', '.join(gone[:DROPPED_NAMED])}{more}: a join describes its SPU whole"


def _refuse_join(state: ClusterState, event: SpuJoined) -> Refusal | None:
    if not 0 <= event.spu_id <= SPU_ID_MAX:
        return Refusal(
            Code.INVALID_SPU_ID,
            f"spu_id is {bounded_repr(event.spu_id)}; expected 0 to {SPU_ID_MAX}",
        )
    if not 1 <= event.cores <= CORES_MAX:
        return Refusal(
            Code.INVALID_CORES, f"cores is {bounded_repr(event.cores)}; expected 1 to {CORES_MAX}"
        )
    if event.capacity is not None and not 0 <= event.capacity <= CAPACITY_MAX:
        return Refusal(
            Code.INVALID_CAPACITY,
            f"capacity is {bounded_repr(event.capacity)}; expected 0 to {CAPACITY_MAX}",
        )
    if event.rack is not None and not 1 <= len(event.rack) <= RACK_LENGTH_MAX:
        found = f"rack has {len(event.rack)} characters"
        return Refusal(
            Code.INVALID_RACK, f"{found}; expected 1 to {RACK_LENGTH_MAX}, or none for no rack"
        )
    fault = amounts_fault("resources", event.resources)
    if fault is not None:
        return Refusal(Code.INVALID_RESOURCES, fault)
    fault = taints_fault(event.taints)
    if fault is not None:
        return Refusal(Code.INVALID_TAINTS, fault)
    if SpuId(event.spu_id) not in state.spus and len(state.spus) >= SPUS_MAX:
        return Refusal(Code.TOO_MANY_SPUS, f"the cluster has {SPUS_MAX} SPUs, which is the limit")
    return None


def leave(state: ClusterState, event: SpuLeft) -> list[Record]:
    """An SPU is gone, for a while or, with DECOMMISSION, as soon as no list holds it."""
    spu_id = SpuId(event.spu_id)
    spu = state.spu_entry(spu_id)
    leaving = spu.leaving or event.mode is LeaveMode.DECOMMISSION
    was_there = spu.online or (spu.leaving and event.mode is LeaveMode.DECOMMISSION)
    unreachable = leaving and (spu.unreachable or not was_there)
    ring, chains = ring_without(state.ring, state.chains, (spu_id,))
    return [
        ring_event(state, spu_id, RingChange.LEFT, ring.size, event.event_id),
        replace(spu, online=False, leaving=leaving, unreachable=unreachable),
        *chains_changed(state, chains),
    ]


def cordon(state: ClusterState, event: SpuCordon) -> list[Record]:
    """An SPU leaves the ring and stays online: it keeps what it holds and takes nothing new.

    One that is offline or leaving may be cordoned too: it will not be in the ring when it is back.
    """
    spu_id = SpuId(event.spu_id)
    spu = state.spu_entry(spu_id)
    if spu.cordoned:
        return [_unchanged(state, spu_id, "is cordoned already", event.event_id)]
    ring, chains = ring_without(state.ring, state.chains, (spu_id,))
    return [
        ring_event(state, spu_id, RingChange.CORDONED, ring.size, event.event_id),
        replace(spu, cordoned=True),
        *chains_changed(state, chains),
    ]


def uncordon(state: ClusterState, event: SpuUncordon) -> list[Record]:
    """An SPU may take new replicas again; in the order of registration it comes last, as one that
    is back."""
    spu_id = SpuId(event.spu_id)
    spu = state.spu_entry(spu_id)
    if not spu.cordoned:
        return [_unchanged(state, spu_id, "is not cordoned", event.event_id)]
    opened = replace(spu, cordoned=False)
    is_full = state.ledger.count(spu_id) >= spu.capacity
    changes = [RingChange.UNCORDONED]
    entering = [spu_id] if spu.online and not is_full and not opened.is_closed else []
    if opened.is_closed:  # A taint keeps it closed.
        changes.append(RingChange.CORDONED)
    elif spu.online and is_full:
        changes.append(RingChange.SATURATED)
    registration = state.registration_next if entering else spu.registration
    opened = replace(opened, registration=registration)
    ring, chains = ring_with(state, {spu_id: opened}, entering, state.ring, state.chains)
    records: list[Record] = [
        ring_event(state, spu_id, change, ring.size, event.event_id) for change in changes
    ]
    registration_next = max(state.registration_next, registration + 1)
    return [*records, opened, *chains_changed(state, chains, registration_next)]


def set_demoted(state: ClusterState, event: SpuDemote | SpuUndemote) -> list[Record]:
    """An SPU is demoted or undemoted; its place in the ring stays as it is."""
    spu_id = SpuId(event.spu_id)
    spu = state.spu_entry(spu_id)
    demoted = isinstance(event, SpuDemote)
    if spu.demoted is demoted:
        found = "is demoted already" if demoted else "is not demoted"
        return [_unchanged(state, spu_id, found, event.event_id)]
    changed = replace(spu, demoted=demoted)
    changes = [RingChange.DEMOTED if demoted else RingChange.UNDEMOTED]
    if not demoted and changed.is_barred:  # A taint keeps it from leading.
        changes.append(RingChange.DEMOTED)
    return [
        *[ring_event(state, spu_id, each, state.ring.size, event.event_id) for each in changes],
        changed,
    ]


def _unchanged(state: ClusterState, spu_id: int, found: str, cause: str) -> RingEvent:
    refusal = Refusal(Code.SPU_UNCHANGED, f"SPU {spu_id} {found}: nothing to change")
    return ignored(state, spu_id, refusal, cause)
