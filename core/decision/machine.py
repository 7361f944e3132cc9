"""The decision: `decide` reads the state and an event and returns records, `step` applies them too.

`decide` writes nothing, so an event that is refused, or raises, leaves the state as it was. What
follows from an event that was granted (repairs, requests that waited) is decided in the same way,
one after the other, each on the state that the one before it left.

The records of one event come in the order in which they apply; `answers` puts those for users in
their fixed order. Each event also leaves an `EventSeen`, and a chain that moved a `ChainsChanged`.

    event             met                                            else
    TopicCreate       ReplicaMap, TopicStatus, a RingEvent per       TopicStatus; with WAITING
                      SPU filled                                     a Waiting
    TopicAdopted      ReplicaMap as found, TopicStatus; RingEvent    TopicStatus
                      per SPU filled or freed, SpuChanged per freed
    TopicGrow         as a create                                    TopicStatus
    TopicReplication  as an adoption                                 TopicStatus
    TopicDemand,      ReplicaMap with the same lists, TopicStatus    TopicStatus
    TopicConstraints
    TopicDelete,      ReplicaMap without lists, TopicStatus; per     TopicStatus
    TopicRelease      SPU freed RingEvent and SpuChanged
    SpuJoined         RingEvent JOINED or UPDATED, SpuChanged        RingEvent IGNORED
    SpuLeft           RingEvent LEFT, SpuChanged                     RingEvent IGNORED
    SpuCordon, …      RingEvent CORDONED, …, SpuChanged              RingEvent IGNORED
    SpuDemote, …      RingEvent DEMOTED, …, SpuChanged               RingEvent IGNORED
    ClusterRebalance  a ReplicaMap per topic that moves,             TopicStatus
                      TopicStatus with the number of moves

    what follows      when                                           records
    broken rules      labels, taints or constraints changed, or a      TopicStatus VIOLATED, with
                      topic with constraints was adopted (of more      TOO_COMPLEX
                      topics than one event may check)
    other leaders     an SPU is demoted or undemoted, or can lead    ReplicaMap
                      what a demoted one leads
    repair            decommission, a taint that evicts; room for    ReplicaMap, TopicStatus,
                      a short list; adopted on leaving SPUs          Waiting
    removal           no list holds a leaving SPU any more           SpuGone
    waiting create    the ring gained a member or a slot             as met, WaitingSettled
    forgetting        no SPU, topic or waiting request is left         ClusterGone
    retries           more waits than one event may try              RetriesChanged
    full resource     an SPU has nothing left of one, or has again   RingEvent with the resource
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, assert_never

import numpy as np
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import (
    ClusterRebalance,
    Event,
    LeaveMode,
    OnShortage,
    Policy,
    SpuCordon,
    SpuDemote,
    SpuId,
    SpuJoined,
    SpuLeft,
    SpuUncordon,
    SpuUndemote,
    TopicAdopted,
    TopicConstraints,
    TopicCreate,
    TopicDelete,
    TopicDemand,
    TopicGrow,
    TopicRelease,
    TopicReplication,
    policy_of,
)
from spu_assigner.core.base.limits import PRODUCT_NAMES
from spu_assigner.core.base.records import (
    ClusterGone,
    EventSeen,
    Record,
    ReplicaMap,
    SpuChanged,
    Status,
    TopicStatus,
)
from spu_assigner.core.constraints.kept_rules import (
    evicts,
    leaving_spus,
)
from spu_assigner.core.constraints.violations import Violations, topics_to_check, violations
from spu_assigner.core.decision import membership
from spu_assigner.core.decision.adoption import adopt, redescribe
from spu_assigner.core.decision.answers import (
    Refusal,
    rejected,
    status,
    with_final_size,
)
from spu_assigner.core.decision.assignment import Assignment
from spu_assigner.core.decision.demotion import frees_leaders, put_in_order, undemoted_spus
from spu_assigner.core.decision.removal import forget
from spu_assigner.core.decision.repair import postpone, repair
from spu_assigner.core.decision.replication import change_replication
from spu_assigner.core.decision.requests import decide_grow, place_create, refuse_create
from spu_assigner.core.decision.ring_changes import granted, resource_changes
from spu_assigner.core.decision.waiting import (
    makes_room,
    may_wait,
    try_again,
    waiting_create,
)
from spu_assigner.core.placement.list_repair import RepairRun
from spu_assigner.core.state.cluster_state import ClusterState, evolve
from spu_assigner.core.state.memory import event_hash

# Of a living topic.
TopicChange = TopicAdopted | TopicGrow | TopicReplication | TopicDemand | TopicConstraints

LOOKS_A_WAIT: Final = 20  # of a topic whose repair is left to the next events; by measurement

# Nothing follows from these where nothing waits, leaves or is demoted.
_STILL: Final = frozenset((TopicCreate, TopicGrow, TopicDelete, TopicRelease))
# What a create can wait for.
SHORTAGES = (Code.INSUFFICIENT_SPUS, Code.INSUFFICIENT_CAPACITY, Code.UNSATISFIABLE)


def step(
    state: ClusterState,
    event: Event,
    *,
    default_policy: Policy,
    reserved_names: frozenset[str] = PRODUCT_NAMES,
) -> tuple[Record, ...]:
    """Decide and apply, and what follows too, in the order of application.

    An event that was seen before gives no records and changes nothing.

    Args:
        state: of the event's cluster.
        event: what came in.
        default_policy: of creates that name none.
        reserved_names: the product's own topics, with the prefix that they have.
    """
    full = state.ledger
    if full.is_stale:  # The state was restored: what is so now was reported.
        full.look()
    records = decide(state, event, default_policy=default_policy, reserved_names=reserved_names)
    if records:
        records = _with_following(state, event, records)
    if not (state.spus or not records) and state.is_empty:
        gone = ClusterGone(cluster_id=state.cluster_id)
        evolve(state, gone)
        records = (*records, gone)
    return (*records, *resource_changes(state, event.event_id)) if full.is_stale else records


def _with_following(
    state: ClusterState, event: Event, records: tuple[Record, ...]
) -> tuple[Record, ...]:
    """The records of an event, and what follows from them; all are applied."""
    is_calm = not (state.waiting or state.leaving or state.demoted) and state.retries is None
    if is_calm and type(event) in _STILL:
        for record in records:
            evolve(state, record)
        return records
    # With other constraints, what waits may fit where it did not.
    frees = makes_room(state, records) or isinstance(event, TopicConstraints)
    before = state.spus.get(SpuId(event.spu_id)) if isinstance(event, SpuJoined) else None
    for record in records:
        evolve(state, record)
    broken = _broken(state, event, records)
    violated = [] if _is_refused(event, records) else _violated(state, event, before)
    leaves = isinstance(event, SpuLeft) and event.mode is LeaveMode.DECOMMISSION
    leads = frees_leaders(state, records)
    waits = (frees and (state.waiting or state.leaving)) or state.retries is not None
    if not (leaves or broken or leads or violated or waits):
        return records
    following: list[Record] = [*violated]
    undemoted = undemoted_spus(records)
    for more in _following(state, event, broken, undemoted, frees=frees, leads=leads):
        for record in more:
            evolve(state, record)
        following += more
    if not following:
        return records
    return with_final_size((*records, *following), state.ring.size)


def decide(
    state: ClusterState,
    event: Event,
    *,
    default_policy: Policy,
    reserved_names: frozenset[str] = PRODUCT_NAMES,
) -> tuple[Record, ...]:
    """The records of the event itself, the memory of its id last; not yet what follows from it."""
    hashed = event_hash(event.event_id)
    if hashed in state.memory.known:
        return ()
    records: list[Record]
    match event:
        case TopicCreate():
            policy = event.policy or (default_policy if event.replicas is None else Policy.MANUAL)
            policy = policy if type(policy) is Policy else policy_of(policy)
            refusal = refuse_create(state, event, policy, reserved_names)
            if refusal is not None and _has_made(state, event.topic, hashed):
                return ()
            records = _create(state, event, policy, refusal)
        case TopicDelete():
            records = forget(state, event, Status.DELETED)
        case TopicRelease():
            records = forget(state, event, Status.RELEASED)
        case TopicAdopted() | TopicGrow() | TopicReplication() | TopicDemand() | TopicConstraints():
            if _has_changed(state, event, hashed):
                return ()
            records = _change(state, event, default_policy, reserved_names)
        case SpuJoined() | SpuLeft() | SpuCordon() | SpuUncordon() | SpuDemote() | SpuUndemote():
            records = membership.change(state, event)
        case ClusterRebalance():
            # Imported when it is asked for: few commands do, and each would start later.
            from spu_assigner.core.decision.rebalance import rebalance

            records = rebalance(state, event)
        case _:
            assert_never(event)
    return (*records, EventSeen(cluster_id=state.cluster_id, event_hash=hashed))


def _has_made(state: ClusterState, name: str, hashed: int) -> bool:
    """Whether the event made the topic, or what waits under its name: that is never forgotten."""
    topic, waiting = state.topics.get(name), state.waiting.get(name)
    if topic is not None:
        return topic.created_by == hashed
    return waiting is not None and event_hash(waiting.cause) == hashed


def _has_changed(state: ClusterState, event: TopicChange, hashed: int) -> bool:
    """Whether the event made the topic, or is one of the last that changed it."""
    topic = state.topics.get(event.topic)
    if topic is None:
        return False
    return hashed in topic.changed_by or (
        topic.created_by == hashed and not isinstance(event, TopicGrow)  # It makes none.
    )


def _broken(state: ClusterState, event: Event, records: Sequence[Record]) -> list[str]:
    """The topics that an event has left on leaving SPUs, once it is applied; by name."""
    match event:
        case SpuLeft(mode=LeaveMode.DECOMMISSION) if event.spu_id in state.leaving:
            spu_id = SpuId(event.spu_id)
            return sorted(
                name for name, each in state.topics.items() if each.replicas.holds(spu_id)
            )
        case TopicAdopted() | TopicConstraints() if any(
            isinstance(record, ReplicaMap) for record in records
        ):
            topic = state.topics[event.topic]
            leaving = leaving_spus(state, topic)
            held = topic.replicas.lists().flat() if leaving else ()
            return [event.topic] if not leaving.isdisjoint(np.unique(held).tolist()) else []
        case SpuJoined() if event.spu_id in state.evicting and any(
            isinstance(record, SpuChanged) for record in records
        ):
            spu_id = SpuId(event.spu_id)
            return sorted(
                name
                for name, each in state.topics.items()
                if each.replicas.holds(spu_id) and evicts(state, spu_id, each)
            )
        case _:
            return []


def _is_refused(event: Event, records: Sequence[Record]) -> bool:
    return any(
        isinstance(record, TopicStatus)
        and (record.status, record.cause) == (Status.REJECTED, event.event_id)
        for record in records
    )


def _violated(state: ClusterState, event: Event, before: SpuChanged | None) -> list[Record]:
    """What is said of topics of which an event made lists break rules that they kept.

    `before`: the SPU that joined, as it was.
    """
    spus_before: list[SpuChanged] | None = None
    match event:
        case SpuJoined() if state.constrained:
            after = state.spus.get(SpuId(event.spu_id))
            names = topics_to_check(state, before, after)
            spus_before = [spu for spu in state.spus.values() if spu is not after]
            spus_before += [] if before is None else [before]
        case TopicConstraints() | TopicAdopted() if event.topic in state.topics:
            names = [event.topic]
        case _:
            return []
    found = violations(state, names, spus_before) if names else Violations()
    records: list[Record] = []
    for name, broken in sorted(found.broken.items()):
        new = [
            f"{rule} ({count} list{'' if count == 1 else 's'})" for rule, count in broken.items()
        ]
        message = f"lists break {', '.join(new)}; they stay as they are"
        answer = status(state, name, Status.VIOLATED, event.event_id)
        records.append(replace(answer, message=message))
    unchecked = Refusal(
        Code.TOO_COMPLEX,
        "lists were not checked: with the topics before it by name, it is more than one event may "
        "check; send a TopicConstraints with the same rules, which checks this topic alone",
    )
    for name in found.unchecked:
        records.append(status(state, name, Status.VIOLATED, event.event_id, refusal=unchecked))
    return records


def _following(
    state: ClusterState,
    event: Event,
    broken: Sequence[str],
    undemoted: Sequence[int],
    *,
    frees: bool,
    leads: bool,
) -> Iterator[Sequence[Record]]:
    """What follows from an event that was applied; each part must be applied before the next."""
    run = RepairRun(state)
    if leads:
        yield from put_in_order(state, event.event_id, run, undemoted)
    run.looks -= min(len(broken) * LOOKS_A_WAIT, run.looks // 2)  # to postpone them
    for name in broken:
        if run.looks > 0:
            yield repair(state, name, cause=event.event_id, is_retry=False, run=run)
        elif name not in state.waiting:
            yield postpone(state, name, cause=event.event_id, is_retry=False, run=run, left=None)
    yield from try_again(state, frees=frees, run=run)


def _create(
    state: ClusterState, event: TopicCreate, policy: Policy, refusal: Refusal | None
) -> list[Record]:
    """The records of a create; `refusal`: why it is refused before it is placed."""
    assignment = place_create(state, event, policy) if refusal is None else refusal
    if isinstance(assignment, Assignment):
        if not event.validate_only:
            return granted(state, event, assignment)
        lists, topic, cause = assignment.replicas, event.topic, event.event_id
        return [status(state, topic, Status.VALIDATED, cause, replicas=lists)]
    if _may_wait(event, policy, assignment):
        return _wait(state, event, policy, assignment)
    return [rejected(state, event.topic, assignment, event.event_id)]


def _may_wait(event: TopicCreate, policy: Policy, refusal: Refusal) -> bool:
    """Whether a create that is refused is one that waits until there is room."""
    return (
        event.on_shortage is OnShortage.WAIT
        and not event.validate_only
        and policy is not Policy.MANUAL
        and refusal.code in SHORTAGES
    )


def _wait(
    state: ClusterState, event: TopicCreate, policy: Policy, shortage: Refusal
) -> list[Record]:
    too_many = may_wait(state)
    if too_many is not None:
        return [rejected(state, event.topic, too_many, event.event_id)]
    return [
        status(state, event.topic, Status.WAITING, event.event_id, refusal=shortage),
        waiting_create(state, event, policy),
    ]


def _change(
    state: ClusterState,
    event: TopicChange,
    default_policy: Policy,
    reserved_names: frozenset[str],
) -> list[Record]:
    match event:
        case TopicAdopted():
            return adopt(state, event, default_policy, reserved_names)
        case TopicReplication():
            return change_replication(state, event)
        case TopicDemand() | TopicConstraints():
            return redescribe(state, event)
        case TopicGrow():
            assignment = decide_grow(state, event)
            if isinstance(assignment, Assignment):
                return granted(state, event, assignment)
            return [rejected(state, event.topic, assignment, event.event_id)]
        case _:
            assert_never(event)
