"""Repair: replicas leave SPUs that are decommissioned or evict them, short lists are filled.

Nothing else is touched.

A replica goes to the best SPU for its list by the order of preference (`core.placement`), beside
the replicas that stay; to one that may lead, where none of these can. A replica that is evicted
stays until another can be had.

A lost leader is succeeded by one that is online and has data, as `leading` chooses; where there is
none the order stays. What comes goes to the end: it has no data. The only copy of a partition stays
on an SPU that is offline: there is nothing to copy it from.

One event does as much as `RETRY_LOOKS_MAX` permits, one list at least. What is left waits, and the
cluster's next events go on with it (`waiting`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from spu_assigner.core.base.errors import Code, Rejection
from spu_assigner.core.base.records import (
    Mode,
    Move,
    Record,
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
from spu_assigner.core.placement.list_repair import SHARED_LOOKS, ListRepair, RepairRun
from spu_assigner.core.state.cluster_state import ClusterState

# What repairs take in looks, by measurement.
TOPIC_LOOKS: Final = 400
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
        repaired = filling.fill(partition, row, wanted)
        run.looks -= max(len(repaired.moves), 1) * each + chooser.take_looks()
        if repaired.moves:
            lists[partition] = choice.settle(repaired.row, row)
            if lists[partition][0] != row[0]:
                chooser.pass_lead(row[0], lists[partition][0])
        moves += repaired.moves
        if len(repaired.row) < wanted or not leaving.isdisjoint(repaired.row):
            open_rows.append(repaired.row)
            only_copies += () if repaired.only_copy is None else (repaired.only_copy,)
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
