"""The decision: `decide` reads the state and an event and returns records, `step` applies them too.

`decide` writes nothing, so an event that is rejected, or raises, leaves the state as it was. What
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
    broken rules      labels, taints or constraints changed, or a    TopicStatus VIOLATED, with
                      topic with constraints was adopted (of more    TOO_COMPLEX
                      topics than one event may check)
    other leaders     an SPU is demoted or undemoted, or can lead    ReplicaMap
                      what a demoted one leads
    repair            decommission, a taint that evicts; room for    ReplicaMap, TopicStatus,
                      a short list; adopted on leaving SPUs          Waiting
    removal           no list holds a leaving SPU any more           SpuGone
    waiting create    the ring gained a member or a slot             as met, WaitingSettled
    forgetting        no SPU, topic or waiting request is left       ClusterGone
    retries           more waits than one event may try              RetriesChanged
    full resource     an SPU has nothing left of one, or has again   RingEvent with the resource
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from spu_assigner.core.base.errors import Code, Rejection
from spu_assigner.core.base.events import (
    ClusterRebalance,
    Event,
    LeaveMode,
    OnShortage,
    Policy,
    SpuEvent,
    SpuId,
    SpuJoined,
    SpuLeft,
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
    RingChange,
    RingEvent,
    SpuChanged,
    Status,
    TopicStatus,
)
from spu_assigner.core.constraints.kept_rules import leaving_spus
from spu_assigner.core.constraints.violations import Violations, topics_to_check, violations
from spu_assigner.core.decision import membership
from spu_assigner.core.decision.adoption import adopt, forget, redescribe
from spu_assigner.core.decision.answers import CLUSTER_TOPIC, counted, ring_event, status
from spu_assigner.core.decision.checks import check_create
from spu_assigner.core.decision.repair import frees_leaders, put_in_order, repair
from spu_assigner.core.decision.replication import change_replication
from spu_assigner.core.decision.requests import automatic, place_grow, place_manual
from spu_assigner.core.decision.ring_changes import granted, resource_changes
from spu_assigner.core.decision.waiting import makes_room, try_again, wait
from spu_assigner.core.placement.list_repair import RepairRun
from spu_assigner.core.state.cluster_state import ClusterState, evolve
from spu_assigner.core.state.memory import event_hash

# Nothing follows from these where nothing waits, leaves or is demoted.
_STILL: Final = frozenset((TopicCreate, TopicGrow, TopicDelete, TopicRelease))
Witness = Callable[[ClusterState, Sequence[Record]], None]
# What a create can wait for.
SHORTAGES = (Code.INSUFFICIENT_SPUS, Code.INSUFFICIENT_CAPACITY, Code.UNSATISFIABLE)


def step(
    state: ClusterState,
    event: Event,
    *,
    default_policy: Policy,
    reserved_names: frozenset[str] = PRODUCT_NAMES,
    witness: Witness | None = None,
) -> tuple[Record, ...]:
    """Decide and apply, and what follows too, in the order of application.

    An event that was seen before gives no records and changes nothing.

    Args:
        state: of the event's cluster.
        event: what came in.
        default_policy: of creates that name none.
        reserved_names: the product's own topics, with the prefix that they have.
        witness: is given the records that were decided together, on the state before they apply.
    """
    full = state.ledger
    if full.is_stale:  # The state was restored: what is so now was reported.
        full.look()
    records = decide(state, event, default_policy=default_policy, reserved_names=reserved_names)
    if not records:
        return ()
    records = _with_following(state, event, records, witness)
    if not state.spus and state.is_empty:
        gone = ClusterGone(cluster_id=state.cluster_id)
        evolve(state, gone)
        records = (*records, gone)
    return (*records, *resource_changes(state, event.event_id)) if full.is_stale else records


def decide(
    state: ClusterState,
    event: Event,
    *,
    default_policy: Policy,
    reserved_names: frozenset[str] = PRODUCT_NAMES,
) -> tuple[Record, ...]:
    """The records of the event itself, the memory of its id last; not yet what follows from it."""
    hashed = event_hash(event.event_id)
    if hashed in state.memory.known or _is_of_topic(state, event, hashed):
        return ()
    try:
        records = _decided(state, event, default_policy, reserved_names)
    except Rejection as why:
        if isinstance(event, SpuEvent):
            size, cause = state.ring.size, event.event_id
            records = [ring_event(state, event.spu_id, RingChange.IGNORED, size, cause, why=why)]
        else:
            topic = CLUSTER_TOPIC if isinstance(event, ClusterRebalance) else event.topic
            records = [status(state, topic, Status.REJECTED, event.event_id, why=why)]
    return (*records, EventSeen(cluster_id=state.cluster_id, event_hash=hashed))


def _decided(
    state: ClusterState, event: Event, default_policy: Policy, reserved_names: frozenset[str]
) -> list[Record]:
    match event:
        case TopicCreate():
            return _create(state, event, default_policy, reserved_names)
        case TopicGrow():
            return granted(state, event, place_grow(state, event))
        case TopicDelete() | TopicRelease():
            return forget(state, event)
        case TopicAdopted():
            return adopt(state, event, default_policy, reserved_names)
        case TopicReplication():
            return change_replication(state, event)
        case TopicDemand() | TopicConstraints():
            return redescribe(state, event)
        case ClusterRebalance():
            # Imported when it is asked for: few commands do, and each would start later.
            from spu_assigner.core.decision.rebalance import rebalance

            return rebalance(state, event)
        case SpuJoined():
            return membership.join(state, event)
        case SpuLeft():
            return membership.leave(state, event)
        case _:
            return membership.set_flag(state, event)


def _create(
    state: ClusterState, event: TopicCreate, default_policy: Policy, reserved_names: frozenset[str]
) -> list[Record]:
    policy = event.policy or (default_policy if event.replicas is None else Policy.MANUAL)
    policy = policy if type(policy) is Policy else policy_of(policy)
    check_create(state, event, policy, reserved_names)
    try:
        is_placed = event.replicas is not None
        given = place_manual(state, event) if is_placed else automatic(state, event, policy)
        records = granted(state, event, given)
    except Rejection as why:
        may_wait = event.on_shortage is OnShortage.WAIT and not event.validate_only
        if not may_wait or policy is Policy.MANUAL or why.code not in SHORTAGES:
            raise
        return wait(state, event, policy, why)
    if event.validate_only:
        lists, topic, cause = given.replicas, event.topic, event.event_id
        return [status(state, topic, Status.VALIDATED, cause, replicas=lists)]
    return records


def _is_of_topic(state: ClusterState, event: Event, hashed: int) -> bool:
    """Whether the event made its topic, or what waits so, or is one of the last that changed it."""
    name = getattr(event, "topic", CLUSTER_TOPIC)  # Events of SPUs and of the cluster have none.
    topic, waiting = state.topics.get(name), state.waiting.get(name)
    if topic is not None:
        return hashed == topic.created_by or hashed in topic.changed_by
    return waiting is not None and event_hash(waiting.cause) == hashed


def _with_following(
    state: ClusterState, event: Event, records: tuple[Record, ...], witness: Witness | None
) -> tuple[Record, ...]:
    """The records of an event, and what follows from them; all are applied."""
    if witness is not None:
        witness(state, records)
    is_calm = not (state.waiting or state.leaving or state.demoted) and state.retries is None
    if is_calm and type(event) in _STILL:
        for record in records:
            evolve(state, record)
        return records
    frees = makes_room(state, records)
    before = state.spus.get(SpuId(event.spu_id)) if isinstance(event, SpuJoined) else None
    for record in records:
        evolve(state, record)
    following: list[Record] = []
    for more in _following(state, event, records, before, frees=frees):
        if witness is not None:
            witness(state, more)
        for record in more:
            evolve(state, record)
        following += more
    if not following:
        return records
    size = state.ring.size  # after the whole event
    return tuple(
        replace(record, ring_size=size) if isinstance(record, RingEvent) else record
        for record in (*records, *following)
    )


def _following(
    state: ClusterState,
    event: Event,
    records: Sequence[Record],
    before: SpuChanged | None,
    *,
    frees: bool,
) -> Iterator[Sequence[Record]]:
    """What follows from an event that was applied; each part must be applied before the next.

    `before`: the SPU that joined, as it was.
    """
    match records[0]:
        case TopicStatus(status=Status.REJECTED) | RingEvent(change=RingChange.IGNORED):
            broken: list[str] = []
        case _:
            broken = _topics_to_repair(state, event, records)
            yield _violated(state, event, before)
    run = RepairRun(state)
    if frees_leaders(state, records):
        yield from put_in_order(state, event.event_id, run, records)
    for name in broken:
        yield repair(state, name, cause=event.event_id, run=run)
    yield from try_again(state, frees=frees, run=run)


def _topics_to_repair(state: ClusterState, event: Event, records: Sequence[Record]) -> list[str]:
    """The topics that an event has left on SPUs that they are to leave; by name."""
    match event:
        case SpuLeft(mode=LeaveMode.DECOMMISSION) | SpuJoined():
            spu_id = SpuId(event.spu_id)
            if spu_id not in state.leaving and spu_id not in state.evicting:
                return []
            return sorted(
                name
                for name, topic in state.topics.items()
                if topic.replicas.holds(spu_id) and spu_id in leaving_spus(state, topic)
            )
        case TopicAdopted() | TopicConstraints():
            is_changed = any(isinstance(record, ReplicaMap) for record in records)
            topic = state.topics[event.topic]
            stays = leaving_spus(state, topic).isdisjoint(topic.replicas.ids())
            return [event.topic] if is_changed and not stays else []
        case _:
            return []


def _violated(state: ClusterState, event: Event, before: SpuChanged | None) -> list[Record]:
    """The answers for topics of which an event made lists break rules that they kept."""
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
        new = [f"{rule} ({counted(count, 'list')})" for rule, count in broken.items()]
        message = f"lists break {', '.join(new)}; they stay as they are"
        records.append(status(state, name, Status.VIOLATED, event.event_id, message=message))
    unchecked = Rejection(
        Code.TOO_COMPLEX,
        "lists were not checked: with the topics before it by name, it is more than one event may "
        "check; send a TopicConstraints with the same rules, which checks this topic alone",
    )
    for name in found.unchecked:
        records.append(status(state, name, Status.VIOLATED, event.event_id, why=unchecked))
    return records
