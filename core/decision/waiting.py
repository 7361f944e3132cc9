"""What waits is tried again once there is room: short lists first, then creates, the oldest first.

Each is tried once; one that cannot be served blocks none behind it. One event tries as much as
`RETRY_LOOKS_MAX` permits, one at least; the cluster's next events, whatever they are, go on there.
Room that is made meanwhile lets all be tried once more, after those that are still to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from spu_assigner.core.base.constraints import Constraints, given_constraints
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy, SpuId, TopicCreate
from spu_assigner.core.base.limits import WAITING_MAX
from spu_assigner.core.base.records import (
    Mode,
    Reason,
    Record,
    ReplicaMap,
    Retries,
    RetriesChanged,
    RingChange,
    RingEvent,
    SpuChanged,
    SpuGone,
    TopicStatus,
    Wait,
    Waiting,
    WaitingSettled,
)
from spu_assigner.core.base.resources import Need
from spu_assigner.core.constraints.work import Work
from spu_assigner.core.decision.answers import Refusal, rejected
from spu_assigner.core.decision.assignment import Assignment, refuse_size
from spu_assigner.core.decision.repair import repair
from spu_assigner.core.decision.requests import automatic
from spu_assigner.core.decision.ring_changes import count_changes, granted
from spu_assigner.core.placement.list_repair import RepairRun
from spu_assigner.core.state.cluster_state import ClusterState

_GAINS: Final = (RingChange.JOINED, RingChange.RESTORED, RingChange.UNCORDONED)
TURNS: Final = (Wait.REPAIR, Wait.CREATE)
FIRST: Final = Retries(kind=Wait.REPAIR, sequence=0, again=False)


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
            case ReplicaMap():
                if record.topic in state.topics and _gives_back(state, record):
                    return True
            case TopicStatus():
                if record.moves:
                    return True
            case RingEvent():
                if record.change in _GAINS:
                    return True
            case SpuChanged():
                known = state.spus.get(SpuId(record.spu_id))
                if known is not None and record.online and _may_take_more(record, known):
                    return True
            case _:
                pass
    return False


def _gives_back(state: ClusterState, record: ReplicaMap) -> bool:
    """Whether a map of a living topic leaves more to others than the one before it."""
    topic = state.topics[record.topic]
    match record.replicas, record.reason:
        case None, _:
            return True
        case lists, Reason(mode=Mode.ADOPTED | Mode.REPLICATION):
            changes = count_changes(topic.replicas.lists(), lists)
            return min(changes.values(), default=0) < 0 or record.need != topic.need
        case _, Reason(mode=Mode.DEMAND):
            return True  # as a rule: what needs less leaves more to others
        case _:
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


def try_again(state: ClusterState, *, frees: bool, run: RepairRun) -> Iterator[Sequence[Record]]:
    """Try what waits; each part must be applied before the next.

    `frees`: the event has made room; else what earlier events have left is tried. `run`: of the
    repairs before these, which have taken looks.
    """
    due = state.retries
    if frees or run.is_cut:
        due = FIRST if due is None else replace(due, again=True)
    run.is_cut = False
    room: int | None = None  # free slots of the ring; None: they have to be counted
    rules: Constraints | None = None  # of the last create that was tried
    is_over = were_lists = False
    while due is not None and not is_over:
        for waiting in _in_turn(state, due):
            if run.looks <= 0:
                is_over = True
                due = replace(due, kind=waiting.kind, sequence=waiting.sequence)
                break
            if waiting.kind is Wait.REPAIR:
                records = repair(state, waiting.topic, cause=waiting.cause, is_retry=True, run=run)
                room, were_lists = None, True
                yield records
                if run.is_cut and records:
                    is_over = True
                    due = replace(due, kind=waiting.kind, sequence=waiting.sequence)
                    break
                continue
            if were_lists:
                yield from _gone(state)  # Lists come first, and leave SPUs.
                were_lists = False
            room = int(state.ledger.free(state.ring.ids).sum()) if room is None else room
            if _may_fit(state, waiting, room):
                work = Work()
                records = _served(state, waiting, work)
                run.looks -= _looks_of_create(state, waiting, rules) + work.done
                rules = waiting.constraints
                if records:
                    room = None
                    run.take_back()  # It has other candidates than repairs.
                    yield records
        else:
            due = FIRST if due.again else None
    yield from _gone(state)
    if due is None and run.has_leads_left:
        due = FIRST
    if due != state.retries:
        yield [RetriesChanged(cluster_id=state.cluster_id, retries=due)]


def _in_turn(state: ClusterState, due: Retries) -> Iterator[Waiting]:
    """What is still to be tried, the oldest of each kind first."""
    for kind in TURNS[TURNS.index(due.kind) :]:
        of_kind = [waiting for waiting in state.waiting.values() if waiting.kind is kind]
        for waiting in sorted(of_kind, key=lambda waiting: waiting.sequence):
            if kind is not due.kind or waiting.sequence >= due.sequence:
                yield waiting


def _gone(state: ClusterState) -> Iterator[Sequence[Record]]:
    """SPUs that were to leave and hold nothing any more."""
    for spu_id in sorted(state.leaving):
        if state.ledger.count(spu_id) == 0:
            yield [SpuGone(cluster_id=state.cluster_id, spu_id=spu_id)]


def _may_fit(state: ClusterState, waiting: Waiting, room: int) -> bool:
    """Whether there may be room for a create; `room`: free slots of the ring."""
    # `kraft` may place on offline SPUs too, a topic with constraints on SPUs that it tolerates.
    if waiting.policy is Policy.KRAFT or waiting.constraints is not None:
        return True
    replicas = waiting.replication_factor
    return replicas <= state.ring.size and waiting.partitions * replicas <= room


def _served(state: ClusterState, waiting: Waiting, work: Work) -> list[Record]:
    """The records of a create that waits, if it can be met now, or never."""
    request = request_of(waiting)
    if request.policy is None:
        return []
    assignment = automatic(state, request, request.policy, retry=work)
    settled = WaitingSettled(cluster_id=state.cluster_id, topic=waiting.topic)
    if isinstance(assignment, Assignment):
        too_large = refuse_size(assignment.replicas, assignment.cores)
        if too_large is None:
            return [*granted(state, request, assignment), settled]
        assignment = too_large
    if assignment.code in (Code.TOO_COMPLEX, Code.MAP_TOO_LARGE):
        return [rejected(state, waiting.topic, assignment, waiting.cause), settled]
    return []


def _looks_of_create(state: ClusterState, waiting: Waiting, before: Constraints | None) -> int:
    """What a create takes, by measurement, beside the work that is counted.

    `before`: the rules of the one that was tried before it.
    """
    rules, partitions, spus = waiting.constraints, waiting.partitions, len(state.spus)
    looks = 1_000 + 10 * partitions * waiting.replication_factor
    if rules is None:
        looks += state.ring.size
        if waiting.policy is Policy.RENDEZVOUS:
            looks += state.ring.size * partitions // 2
    elif rules == before:
        looks += 4 * spus
    else:
        looks += spus * (16 + 2 * (len(rules.require) + len(rules.forbid) + len(rules.prefer)))
    return looks


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
