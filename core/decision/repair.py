"""Repair: replicas leave SPUs that are decommissioned or evict them, short lists are filled; who
leads after an SPU is demoted or undemoted.

Where replicas go, `list_repair` says; one that is evicted stays until another can be had. A lost
leader is succeeded by one that is online and has data, as `leading` chooses; where there is none
the order stays. What comes goes to the end: it has no data. The only copy of a partition stays on
an SPU that is offline.

Where an SPU is demoted or undemoted no data move. Demoted SPUs stand last in their lists, manual
ones too, and lead nothing that another can. One that is undemoted takes back lists that it is in,
until it leads its share: from the SPU that leads most of its capacity, of the topic in which that
leads the most more; but none of those placed by hand, pinned, or whose leader rules prefer.

One event does as much as `RETRY_LOOKS_MAX` permits, one list at least. What is left waits, and the
cluster's next events go on with it (`waiting`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from operator import ne
from typing import Final

import numpy as np
from spu_assigner.core.base.errors import Code, Rejection
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import (
    Mode,
    Move,
    Record,
    RingChange,
    RingEvent,
    Status,
    Wait,
    Waiting,
    WaitingSettled,
)
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.constraints.kept_rules import leaving_spus
from spu_assigner.core.decision.answers import status
from spu_assigner.core.decision.ring_changes import revised
from spu_assigner.core.decision.shortage import short_of_repairs
from spu_assigner.core.placement.list_repair import SHARED_LOOKS, ListRepair, RepairRun, lead_rank
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.leading import LeaderChoice

# What repairs take in looks, by measurement.
TOPIC_LOOKS: Final = 400
SWAP_LOOKS: Final = 20  # of each list that gets another leader
REPLICA_LOOKS: Final = 75  # of each that moves, or cannot, and needs some resources
RULED_LOOKS: Final = 150  # likewise under constraints, and a tenth for each SPU


def repair(
    state: ClusterState, name: str, *, cause: str, run: RepairRun | None = None
) -> list[Record]:
    """What can be done for a topic that needs it.

    One that waits for this cause is tried again, and answered only once it is whole. Cost:
    O(partitions + moves * log(ring size)) without constraints, and O(ring size) once a run.
    """
    run = run or RepairRun(state)
    if run.looks <= 0:
        return _postponed(state, name, "its", cause, run)
    topic = state.topics[name]
    leaving = leaving_spus(state, topic)
    chooser = run.chooser(name)
    choice = run.leaders(name)
    filling = ListRepair(state, leaving, chooser, choice)
    lists = topic.replicas.lists().tolist()
    lengths = topic.lengths_wanted(len(lists))
    moves: list[Move] = []
    open_rows: list[list[int]] = []
    only_copies: list[int] = []  # SPUs
    run.looks -= TOPIC_LOOKS + sum(lengths)
    each = REPLICA_LOOKS if topic.constraints is None else RULED_LOOKS + len(state.spus) // 10
    to_do = [
        (partition, row, wanted)
        for partition, (row, wanted) in enumerate(zip(lists, lengths, strict=True))
        if len(row) != wanted or not leaving.isdisjoint(row)
    ]
    left = 0  # lists
    for tried, (partition, row, wanted) in enumerate(to_do):
        if tried and run.looks <= 0:
            left = len(to_do) - tried
            break
        filled, made, only_copy = filling.fill(partition, row, wanted)
        run.looks -= max(len(made), 1) * each + chooser.take_looks()
        if made:
            lists[partition] = choice.settle(filled, row)
            if lists[partition][0] != row[0]:
                chooser.pass_lead(row[0], lists[partition][0])
        moves += made
        if len(filled) < wanted or not leaving.isdisjoint(filled):
            open_rows.append(filled)
            only_copies += () if only_copy is None else (only_copy,)
    records: list[Record] = []
    if moves:
        changed = {name: ReplicaLists.of_lists(lists)}
        try:
            records = revised(state, cause, Mode.REPAIR, changed, moves={name: moves})
        except Rejection as too_large:
            run.take_back()
            return outcome(state, name, lists, cause=cause, why=too_large)
    if left:
        return records + _postponed(state, name, f"{left} of its", cause, run)
    if open_rows:
        run.looks -= SHARED_LOOKS * len(state.spus)
    why = _only_copies(only_copies) if only_copies else None
    return records + outcome(state, name, open_rows, cause=cause, why=why)


def _postponed(
    state: ClusterState, name: str, which: str, cause: str, run: RepairRun
) -> list[Record]:
    """The answer for a topic of which some lists are left to the next events."""
    run.is_cut = True
    why = Rejection(
        Code.TOO_MANY_MOVES,
        f"{which} lists are still to be repaired: one event moves no more; the next events of the "
        "cluster, whatever they are, go on",
    )
    return outcome(state, name, [[]], cause=cause, why=why)


def _only_copies(spu_ids: Collection[int]) -> Rejection:
    named = ", ".join(map(str, sorted(set(spu_ids))))
    have = "1 list has its" if len(spu_ids) == 1 else f"{len(spu_ids)} lists have their"
    return Rejection(
        Code.SOURCE_OFFLINE,
        f"{have} only copy on SPU {named}, which was offline when it was to be left: there is "
        "nothing to copy from; join it again (and decommission it then), or delete the topic",
    )


def outcome(
    state: ClusterState,
    name: str,
    open_rows: Sequence[Sequence[int]],
    *,
    cause: str,
    why: Rejection | None = None,
) -> list[Record]:
    """The answer for a topic that waits on (none), waits now, or is whole again."""
    known = state.waiting.get(name)
    if not open_rows:
        return [] if known is None else settled(state, name, known.cause)
    if known is not None and known.cause == cause:
        return []
    waiting = Waiting(
        cluster_id=state.cluster_id,
        topic=name,
        sequence=state.waiting_next() if known is None else known.sequence,
        kind=Wait.REPAIR,
        cause=cause,
    )
    why = why or short_of_repairs(state, name, open_rows)
    return [status(state, name, Status.WAITING, cause, why=why), waiting]


def settled(
    state: ClusterState, name: str, cause: str, why: Rejection | None = None
) -> list[Record]:
    """What waits under a name waits no more: it is met, or `why` it is rejected."""
    answer = Status.ASSIGNED if why is None else Status.REJECTED
    return [
        status(state, name, answer, cause, why=why),
        WaitingSettled(cluster_id=state.cluster_id, topic=name),
    ]


def frees_leaders(state: ClusterState, records: Sequence[Record]) -> bool:
    """Whether, after these records, lists may be to be put in another order."""
    changes = {record.change for record in records if isinstance(record, RingEvent)}
    if not changes.isdisjoint((RingChange.DEMOTED, RingChange.UNDEMOTED)):
        return True
    if not state.demoted or state.retries is not None:
        return bool(state.demoted)
    demoted = np.array(sorted(state.demoted), dtype=np.int32)
    return RingChange.JOINED in changes and bool(state.ledger.leaders(demoted).any())


def put_in_order(
    state: ClusterState, cause: str, run: RepairRun, records: Sequence[Record]
) -> Iterator[Sequence[Record]]:
    """After these records, the next map of each topic of which a list changes.

    Each must be applied before the next.
    """
    yield from _demoted_last(state, cause, run)
    for record in records:
        if not isinstance(record, RingEvent) or record.change is not RingChange.UNDEMOTED:
            continue
        spu_id = record.spu_id
        taken = _lists_to_lead(state, spu_id, run)
        run.take_back()  # It counts other leaders.
        for name in sorted(taken):
            lists = state.topics[name].replicas.lists().tolist()
            for at in taken[name]:
                lists[at].remove(spu_id)
                lists[at].insert(0, spu_id)
            yield revised(state, cause, Mode.DEMOTION, {name: ReplicaLists.of_lists(lists)})


def _demoted_last(state: ClusterState, cause: str, run: RepairRun) -> Iterator[Sequence[Record]]:
    """By name. Cost: a look at the replicas of all topics, beside what is counted."""
    for name in sorted(state.topics) if state.demoted else ():
        topic = state.topics[name]
        if state.demoted.isdisjoint(topic.replicas.ids()):
            continue
        lists, choice = topic.replicas.lists().tolist(), run.leaders(name)
        settled = [
            row if state.demoted.isdisjoint(row) else choice.settle(row, row) for row in lists
        ]
        changed = sum(map(ne, settled, lists))
        if not changed:  # Where a demoted SPU leads on, it is looked at with each event.
            continue
        if run.looks <= 0:
            run.has_leads_left = True
            run.take_back()
            return
        run.looks -= TOPIC_LOOKS + changed * SWAP_LOOKS + len(topic.data) // topic.width
        yield revised(state, cause, Mode.DEMOTION, {name: ReplicaLists.of_lists(settled)})


def _lists_to_lead(state: ClusterState, spu_id: int, run: RepairRun) -> dict[str, list[int]]:
    """The partitions of each topic that an SPU takes back, until it leads its share."""
    choice, taken = LeaderChoice(state), defaultdict[str, list[int]](list)
    if not choice.can_lead(spu_id):
        return taken
    led, ways = _lists_of_others(state, spu_id, choice, run)
    twice = {name: 2 * choice.capacities[spu_id] * of.total() for name, of in led.items()}
    leaders = [(-choice.key_now(leader), leader) for leader in ways]
    heapify(leaders)
    while leaders and run.looks > 0:
        leader = leaders[0][1]
        if choice.key_now(spu_id) >= choice.last(leader):  # SPUs lead evenly by capacity.
            break
        run.looks -= SWAP_LOOKS + len(ways[leader])
        orders = [
            (led[name][spu_id] - led[name][leader], name)
            for name, lists in ways[leader].items()
            if lists and led[name][spu_id] * choice.whole < twice[name]
        ]
        if not orders:
            heappop(leaders)
            continue
        _, name = min(orders)
        led[name].update({spu_id: 1, leader: -1})
        choice.count(spu_id, leader)
        heapreplace(leaders, (-choice.key_now(leader), leader))
        taken[name].append(ways[leader][name].pop())
    return taken


def _lists_of_others(
    state: ClusterState, spu_id: int, choice: LeaderChoice, run: RepairRun
) -> tuple[dict[str, Counter[int]], dict[int, dict[str, list[int]]]]:
    """By topic the lists that SPUs lead; by leader and topic what an SPU could, last one first."""
    led: dict[str, Counter[int]] = {}
    ways: dict[int, dict[str, list[int]]] = {}
    for name in sorted(state.topics):
        topic = state.topics[name]
        is_fixed = topic.policy is Policy.MANUAL or topic.pinned
        if run.looks <= 0 or is_fixed or not topic.replicas.holds(spu_id):
            continue
        run.looks -= TOPIC_LOOKS + len(topic.data) // topic.width
        led[name], rank = Counter(topic.replicas.leaders()), lead_rank(state, name)
        matrix = topic.replicas.matrix()
        for at in np.flatnonzero((matrix[:, 1:] == spu_id).any(axis=1)).tolist()[::-1]:
            leader = int(matrix[at, 0])
            if choice.can_lead(leader) and (rank is None or rank(spu_id) <= rank(leader)):
                ways.setdefault(leader, {}).setdefault(name, []).append(at)
    return led, ways
