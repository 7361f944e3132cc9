"""What waits is tried again once there is room: short lists first, then creates, the oldest first.

Each is tried once; one that cannot be served blocks none behind it. One event tries as much as
`RETRY_LOOKS_MAX` permits, one at least; the cluster's next events, whatever they are, go on there.
Room that is made meanwhile lets all be tried once more, after those that are still to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final

from spu_assigner.core.base.constraints import given_constraints
from spu_assigner.core.base.errors import Code, Rejection
from spu_assigner.core.base.events import Policy, SpuId, TopicCreate
from spu_assigner.core.base.limits import WAITING_MAX
from spu_assigner.core.base.records import (
    Record,
    ReplicaMap,
    Retries,
    RetriesChanged,
    RingChange,
    RingEvent,
    SpuChanged,
    SpuGone,
    Status,
    Wait,
    Waiting,
    WaitingSettled,
)
from spu_assigner.core.base.resources import Need
from spu_assigner.core.constraints.work import Work
from spu_assigner.core.decision.answers import status
from spu_assigner.core.decision.repair import repair, settled
from spu_assigner.core.decision.requests import automatic, create_of
from spu_assigner.core.decision.ring_changes import granted
from spu_assigner.core.placement.list_repair import RepairRun
from spu_assigner.core.state.cluster_state import ClusterState

_GAINS: Final = (RingChange.JOINED, RingChange.RESTORED, RingChange.UNCORDONED)
# What an SPU has for those that wait.
_offer: Final = attrgetter("rack", "labels", "taints", "capacity", "resources")
RULED_LOOKS: Final = 32  # at each SPU, for what rules say of it; by measurement
FIRST: Final = Retries(kind=Wait.REPAIR, sequence=0, again=False)


def wait(
    state: ClusterState, event: TopicCreate, policy: Policy, shortage: Rejection
) -> list[Record]:
    """The records of a create that waits for what it lacks."""
    if len(state.waiting) >= WAITING_MAX:
        creates = sum(waiting.kind is Wait.CREATE for waiting in state.waiting.values())
        if creates >= WAITING_MAX:
            raise Rejection(
                Code.TOO_MANY_WAITING,
                f"{creates} creates wait in cluster {state.cluster_id!r}, which is the limit; "
                "add SPUs or capacity, or withdraw some",
            )
    waiting = Waiting(
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
    return [status(state, event.topic, Status.WAITING, event.event_id, why=shortage), waiting]


def makes_room(state: ClusterState, records: Sequence[Record]) -> bool:
    """Whether what waits may fit after these records, where it did not on the state before."""
    for record in records:
        match record:
            case ReplicaMap(reason=reason) if record.topic in state.topics:
                if reason is None or reason.first_partition == 0:  # A grow alone leaves no more.
                    return True
            case RingEvent(change=change) if change in _GAINS:
                return True
            case SpuChanged(online=True):
                known = state.spus.get(SpuId(record.spu_id))
                if known is not None and _offer(record) != _offer(known):
                    return True
            case _:
                pass
    return False


def try_again(state: ClusterState, *, frees: bool, run: RepairRun) -> Iterator[Sequence[Record]]:
    """Try what waits; each part must be applied before the next.

    `frees`: the event has made room; else what earlier events have left is tried. `run`: of the
    repairs before these, which have taken looks.
    """
    due, left = state.retries, None
    if frees or run.is_cut:
        due = FIRST if due is None else replace(due, again=True)
    run.is_cut = False
    room: int | None = None  # free slots of the ring; None: they have to be counted
    for turn, waiting in _in_turn(state, due):
        if run.looks <= 0:
            left = turn
            break
        records: list[Record] = []
        if waiting.kind is Wait.REPAIR:
            records = repair(state, waiting.topic, cause=waiting.cause, run=run)
        else:
            room = int(state.ledger.free(state.ring.ids).sum()) if room is None else room
            size = waiting.replication_factor
            # `kraft` places on offline SPUs too, rules on SPUs outside the ring that they tolerate.
            is_beyond = waiting.policy is Policy.KRAFT or waiting.constraints is not None
            if is_beyond or (size <= state.ring.size and waiting.partitions * size <= room):
                records = _served(state, waiting, run)
        if records:
            room = None
            yield records
            if run.is_cut:
                left = turn
                break
    for spu_id in sorted(state.leaving):
        if state.ledger.count(spu_id) == 0:
            yield [SpuGone(cluster_id=state.cluster_id, spu_id=spu_id)]
    if left is None and run.has_leads_left:
        left = FIRST
    if left != state.retries:
        yield [RetriesChanged(cluster_id=state.cluster_id, retries=left)]


def _in_turn(state: ClusterState, due: Retries | None) -> Iterator[tuple[Retries, Waiting]]:
    """What is to be tried, the oldest of each kind first; and all once more where that is due."""
    while due is not None:
        for waiting in sorted(state.waiting.values(), key=_turn):
            if _turn(waiting) >= _turn(due):
                again = due.again
                yield Retries(kind=waiting.kind, sequence=waiting.sequence, again=again), waiting
        due = FIRST if due.again else None


def _turn(each: Waiting | Retries) -> tuple[bool, int]:
    return each.kind is Wait.CREATE, each.sequence


def _served(state: ClusterState, waiting: Waiting, run: RepairRun) -> list[Record]:
    """The records of a create that waits, if it can be met now, or never."""
    request, work = request_of(waiting), Work()
    name, cause, policy = waiting.topic, waiting.cause, waiting.policy or Policy.BALANCED
    records: list[Record] = []
    try:
        assignment = automatic(state, request, policy, retry=work)
        records = granted(state, request, assignment)
        records.append(WaitingSettled(cluster_id=state.cluster_id, topic=name))
    except Rejection as why:
        if why.code in (Code.TOO_COMPLEX, Code.MAP_TOO_LARGE):
            records = settled(state, name, cause, why)
    # What it takes by measurement, beside the work that is counted.
    each = 1 if waiting.constraints is None else RULED_LOOKS
    each += waiting.partitions // 2 if waiting.policy is Policy.RENDEZVOUS else 0
    replicas = waiting.partitions * waiting.replication_factor
    run.looks -= 1_000 + 10 * replicas + len(state.spus) * each + work.done
    if records:
        run.take_back()  # It has other candidates than repairs.
    return records


def request_of(waiting: Waiting) -> TopicCreate:
    """The create that waits, as it came."""
    request = create_of(waiting, waiting, waiting.cause, waiting.partitions)
    return replace(request, start_index=waiting.start_index, shift=waiting.shift)
