"""SPUs join, change and leave: what follows for the ring.

What follows for topics (repair, requests that waited) is in `machine` and `repair`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from msgspec.structs import astuple
from spu_assigner.core.base.constraints import taint_faults
from spu_assigner.core.base.errors import Code, Rejection, bounded_repr, long_repr
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
from spu_assigner.core.base.limits import RACK_LENGTH_MAX, SPUS_MAX, default_capacity
from spu_assigner.core.base.records import Record, RingChange, SpuChanged
from spu_assigner.core.base.resources import amounts_fault, amounts_of
from spu_assigner.core.decision.answers import ring_event
from spu_assigner.core.decision.checks import check_ranges
from spu_assigner.core.decision.ring_changes import is_full, ring_after
from spu_assigner.core.rules import redpanda
from spu_assigner.core.state.cluster_state import ClusterState

DROPPED_NAMED: Final = 8  # in the answer to a join


def join(state: ClusterState, event: SpuJoined) -> list[Record]:
    """An SPU is there: new, changed, or back.

    It describes the SPU whole: the answer names what the SPU had and this join does not name. A
    decommission that is under way ends with it; a cordon or a demotion does not.
    """
    _check_join(state, event)
    spu_id = SpuId(event.spu_id)
    before = state.spus.get(spu_id)
    was_online = before is not None and before.online
    weights = redpanda.initial_weights(event.cores)
    if before is not None:
        weights = redpanda.shrink_weights(before.core_weights, event.cores)
    spu = SpuChanged(
        cluster_id=state.cluster_id,
        spu_id=spu_id,
        online=True,
        rack=event.rack,
        cores=event.cores,
        capacity=default_capacity(event.cores) if event.capacity is None else event.capacity,
        labels=tuple(sorted((event.labels or {}).items())),
        registration=before.registration if before and was_online else state.registration_next,
        core_weights=tuple(weights),
        cordoned=before is not None and before.cordoned,
        demoted=before is not None and before.demoted,
        resources=amounts_of(event.resources),
        taints=tuple(sorted(event.taints)),
    )
    was_closed = before is not None and before.is_closed
    led_not = before is not None and (before.demoted or before.is_barred)
    was_full = before is not None and was_online and not was_closed and is_full(state, before)
    closed, full, leads_not = spu.is_closed, is_full(state, spu), spu.demoted or spu.is_barred
    changes = [RingChange.UPDATED if was_online else RingChange.JOINED]
    if closed is not was_closed:
        changes.append(RingChange.CORDONED if closed else RingChange.UNCORDONED)
    if full is not was_full and not closed:
        changes.append(RingChange.SATURATED if full else RingChange.RESTORED)
    if leads_not is not led_not:
        changes.append(RingChange.DEMOTED if leads_not else RingChange.UNDEMOTED)
    dropped = None if before is None else _dropped(before, spu, event)
    return _described(state, spu, changes, event.event_id, dropped)


def _described(
    state: ClusterState,
    spu: SpuChanged,
    changes: Sequence[RingChange],
    cause: str,
    dropped: str | None = None,
) -> list[Record]:
    """The records of an SPU that is described again, which may enter or leave the ring by it."""
    after = ring_after(state, {}, {SpuId(spu.spu_id): spu})
    size = after.ring.size
    events = [ring_event(state, spu.spu_id, each, size, cause) for each in changes]
    events[0] = replace(events[0], message=dropped)
    return [*events, *after._replace(changes=()).around(state, cause)]


def _dropped(before: SpuChanged, after: SpuChanged, event: SpuJoined) -> str | None:
    """What the SPU had, and no longer has because the join does not name it; None: nothing."""
    gone: list[str] = []
    if event.cores == 1 < before.cores:  # What an event has that names none.
        gone.append(f"{before.cores} cores (1 now)")
    if event.capacity is None and before.capacity != default_capacity(before.cores):
        gone.append(f"capacity {before.capacity} ({after.capacity} now)")
    named = _named(after)
    gone += [said for name, said in _named(before).items() if name not in named]
    if not gone:
        return None
    more = f" and {len(gone) - DROPPED_NAMED} more" if len(gone) > DROPPED_NAMED else ""
    return f"no longer has {', '.join(gone[:DROPPED_NAMED])}{more}: a join describes its SPU whole"


def _named(spu: SpuChanged) -> dict[tuple[str, ...], str]:
    """What an SPU has by name, in words."""
    named: dict[tuple[str, ...], str] = {}
    if spu.rack is not None:
        named["rack",] = f"rack {long_repr(spu.rack)}"
    for name, value in spu.labels:
        named["label", name] = f"label {long_repr(f'{name}={value}')}"
    named |= {("resource", name): f"{name} {amount}" for name, amount in spu.resources}
    for key, value, effect in map(astuple, spu.taints):
        named["taint", key, effect] = f"taint {long_repr(f'{key}={value}:{effect}')}"
    return named


def _check_join(state: ClusterState, event: SpuJoined) -> None:
    check_ranges(event, "spu_id", "cores", "capacity")
    if event.rack is not None and not 1 <= len(event.rack) <= RACK_LENGTH_MAX:
        raise Rejection(
            Code.INVALID_RACK,
            f"rack has {len(event.rack)} characters; expected 1 to {RACK_LENGTH_MAX}, or none for "
            "no rack",
        )
    if (fault := amounts_fault("resources", event.resources)) is not None:
        raise Rejection(Code.INVALID_RESOURCES, fault)
    if (fault := next(taint_faults(event.taints), None)) is not None:
        raise Rejection(Code.INVALID_TAINTS, fault)
    if SpuId(event.spu_id) not in state.spus and len(state.spus) >= SPUS_MAX:
        raise Rejection(Code.TOO_MANY_SPUS, f"the cluster has {SPUS_MAX} SPUs, which is the limit")


def _known(state: ClusterState, event: SpuEvent) -> SpuChanged:
    if event.spu_id not in state.spus:
        found = f"no SPU {bounded_repr(event.spu_id)} in cluster {state.cluster_id!r}"
        raise Rejection(Code.SPU_UNKNOWN, found)
    return state.spus[SpuId(event.spu_id)]


def leave(state: ClusterState, event: SpuLeft) -> list[Record]:
    """An SPU is gone, for a while or, with DECOMMISSION, as soon as no list holds it."""
    spu = _known(state, event)
    is_decommissioned = event.mode is LeaveMode.DECOMMISSION
    leaving = spu.leaving or is_decommissioned
    was_there = spu.online or (spu.leaving and is_decommissioned)
    unreachable = leaving and (spu.unreachable or not was_there)
    gone = replace(spu, online=False, leaving=leaving, unreachable=unreachable)
    return _described(state, gone, [RingChange.LEFT], event.event_id)


def set_flag(
    state: ClusterState, event: SpuCordon | SpuUncordon | SpuDemote | SpuUndemote
) -> list[Record]:
    """An SPU is cordoned or demoted, online or not, or no longer.

    A cordoned one leaves the ring and keeps what it holds; a demoted one keeps its place in the
    ring. What a taint says stays so.
    """
    spu = _known(state, event)
    is_set = isinstance(event, SpuCordon | SpuDemote)
    stays: RingChange | None = None  # what keeps it out of the ring, or from leading
    if isinstance(event, SpuCordon | SpuUncordon):
        name, changed = "cordoned", replace(spu, cordoned=is_set)
        change = RingChange.CORDONED if is_set else RingChange.UNCORDONED
        if changed.is_closed:
            stays = RingChange.CORDONED
        elif spu.online and is_full(state, spu):
            stays = RingChange.SATURATED
    else:
        name, changed = "demoted", replace(spu, demoted=is_set)
        change = RingChange.DEMOTED if is_set else RingChange.UNDEMOTED
        stays = RingChange.DEMOTED if changed.is_barred else None
    if changed == spu:
        found = f"is {name} already" if is_set else f"is not {name}"
        raise Rejection(Code.SPU_UNCHANGED, f"SPU {spu.spu_id} {found}: nothing to change")
    changes = [change] if is_set or stays is None else [change, stays]
    return _described(state, changed, changes, event.event_id)
