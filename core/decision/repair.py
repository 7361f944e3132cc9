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

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from spu_assigner.core.base.chains import Chain, Order
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.limits import MOVES_REPORTED_MAX
from spu_assigner.core.base.records import (
    Mode,
    Move,
    Reason,
    Record,
    ReplicaMap,
    RingChange,
    Status,
    Wait,
    Waiting,
    WaitingSettled,
)
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.constraints.kept_rules import barring_rules, leaving_spus
from spu_assigner.core.decision.answers import (
    Refusal,
    chains_changed,
    recorded_ring,
    ring_event,
    ring_without,
    status,
)
from spu_assigner.core.decision.assignment import refuse_size
from spu_assigner.core.decision.requests import shown_index
from spu_assigner.core.decision.shortage import what_lacks
from spu_assigner.core.placement.choose import binding_rules
from spu_assigner.core.placement.list_repair import SHARED_LOOKS, ListRepair, RepairRun
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.core_weights import first_core
from spu_assigner.core.state.ring import Ring
from spu_assigner.core.state.topic import Topic

# What repairs take in looks, by measurement.
TOPIC_LOOKS: Final = 400
EVICTING_LOOKS: Final = 50  # of a topic, at each SPU with replicas and a taint that evicts
REPLICA_LOOKS: Final = 35  # that moves, or cannot
RULED_REPLICA_LOOKS: Final = 150  # likewise under constraints, and a tenth for each SPU
RESOURCE_LOOKS: Final = 10  # of such a replica, for each resource that it needs


def repair(
    state: ClusterState, name: str, *, cause: str, is_retry: bool, run: RepairRun | None = None
) -> list[Record]:
    """What can be done for a topic that needs it.

    `is_retry`: the topic waits, and is answered only once it is whole. Gives no records where
    nothing changes then. Cost: O(partitions + moves * log(ring size)) without constraints, and
    O(ring size) for the first topic of a run.
    """
    run = run or RepairRun(state)
    topic = state.topics[name]
    leaving = leaving_spus(state, topic)
    chooser = run.chooser(name)
    choice = run.leaders(name) if state.demoted else None
    filling = ListRepair(state, leaving, chooser, choice)
    lists = topic.replicas.lists().tolist()
    lengths = topic.lengths_wanted(len(lists))
    moves: list[Move] = []
    open_rows: list[list[int]] = []
    only_copies: list[int] = []  # SPUs
    tried = left = 0  # lists
    run.looks -= TOPIC_LOOKS + sum(lengths)
    run.looks -= EVICTING_LOOKS * min(sum(lengths), len(state.evicting))
    each = _looks_of_replica(state, topic)
    for partition, (row, wanted) in enumerate(zip(list(lists), lengths, strict=True)):
        if len(row) == wanted and leaving.isdisjoint(row):
            continue
        if tried and run.looks <= 0:
            left += 1
            continue
        tried += 1
        repaired = filling.fill(partition, row, wanted)
        run.looks -= max(len(repaired.moves), 1) * each + chooser.take_looks()
        if repaired.moves:
            if repaired.row[0] != row[0]:
                choice = choice or run.leaders(name)
            settled = repaired.row if choice is None else choice.settle(repaired.row, row)
            lists[partition] = settled
            if settled[0] != row[0]:
                chooser.pass_lead(row[0], settled[0])
        moves += repaired.moves
        if len(repaired.row) < wanted or not leaving.isdisjoint(repaired.row):
            open_rows.append(repaired.row)
            only_copies += () if repaired.only_copy is None else (repaired.only_copy,)
    records: list[Record] = []
    replicas = ReplicaLists.of_lists(lists)
    too_large = None
    if moves:
        cores = None if topic.cores is None else replicas
        too_large = refuse_size(replicas, cores, topic.wanted_lengths)
    if too_large is not None:
        run.take_back()
        return outcome(state, name, lists, cause=cause, is_retry=is_retry, why=too_large)
    if moves:
        records += _changed(
            state, name, cause=cause, replicas=replicas, moves=moves, filled=chooser.filled
        )
    if left:
        return records + postpone(state, name, cause=cause, is_retry=is_retry, run=run, left=left)
    if open_rows:
        run.looks -= SHARED_LOOKS * len(state.spus)
    why = _only_copies(only_copies) if only_copies else None
    return records + outcome(state, name, open_rows, cause=cause, is_retry=is_retry, why=why)


def postpone(
    state: ClusterState, name: str, *, cause: str, is_retry: bool, run: RepairRun, left: int | None
) -> list[Record]:
    """What is said of a topic of which so many lists, or all, are left to the next events."""
    run.is_cut = True
    lists = "its lists" if left is None else f"{left} of its lists"
    why = Refusal(
        Code.TOO_MANY_MOVES,
        f"{lists} are still to be repaired: one event moves no more; the next events of the "
        "cluster, whatever they are, go on",
    )
    return outcome(state, name, [[]], cause=cause, is_retry=is_retry, why=why)


def _looks_of_replica(state: ClusterState, topic: Topic) -> int:
    need = topic.need
    if topic.constraints is not None:
        return RULED_REPLICA_LOOKS + len(state.spus) // 10
    resources = 0 if need is None else len({*dict(need.demand), *dict(need.leader_demand)})
    return REPLICA_LOOKS + RESOURCE_LOOKS * resources


def _only_copies(spu_ids: Collection[int]) -> Refusal:
    named = ", ".join(map(str, sorted(set(spu_ids))))
    have = "1 list has its" if len(spu_ids) == 1 else f"{len(spu_ids)} lists have their"
    return Refusal(
        Code.SOURCE_OFFLINE,
        f"{have} only copy on SPU {named}, which was offline when it was to be left: there is "
        "nothing to copy from; join it again (and decommission it then), or delete the topic",
    )


def _changed(
    state: ClusterState,
    name: str,
    *,
    cause: str,
    replicas: ReplicaLists,
    moves: list[Move],
    filled: list[int],
) -> list[Record]:
    """The new map, and what the ring has lost by it."""
    ring, chains = state.ring, dict(state.chains)
    for spu_id in filled:
        ring, chains = ring_without(ring, chains, (spu_id,))
    records: list[Record] = [
        revised(
            state,
            name,
            cause=cause,
            replicas=replicas,
            mode=Mode.REPAIR,
            moves=moves,
            ring=ring,
            chains=chains,
        )
    ]
    records += [
        ring_event(state, spu_id, RingChange.SATURATED, ring.size, cause)
        for spu_id in sorted(filled)
    ]
    return records + chains_changed(state, chains)


def revised(
    state: ClusterState,
    name: str,
    *,
    cause: str,
    replicas: ReplicaLists,
    mode: Mode,
    moves: Iterable[Move] = (),
    ring: Ring | None = None,
    chains: Mapping[Order, Chain] | None = None,
    weights: Mapping[SpuId, list[int]] | None = None,
) -> ReplicaMap:
    """The next map of a living topic, some of whose replicas are elsewhere.

    Its reason lists the moves by partition, and no more than a message has room for. `ring`,
    `chains` and the `weights` of cores are those after it; None: they are as in the state.
    """
    topic = state.topics[name]
    ring = state.ring if ring is None else ring
    chains = state.chains if chains is None else chains
    cores = None
    if topic.cores is not None:
        cores = cores_of(state.core_weights if weights is None else weights, topic, replicas)
    reported = sorted(moves, key=lambda move: move.partition)[:MOVES_REPORTED_MAX]
    return ReplicaMap(
        cluster_id=state.cluster_id,
        topic=name,
        revision=topic.revision + 1,
        policy=topic.policy,
        replicas=replicas,
        cores=cores,
        chain_index=shown_index(state, topic.policy, ring, chains, ignore_rack=topic.ignore_rack),
        cause=cause,
        replication_factor=topic.replication_factor,
        ignore_rack=topic.ignore_rack,
        own_events=(topic.created_by, *topic.changed_by),
        pinned=topic.pinned,
        wanted_lengths=None if topic.wanted_lengths is None else tuple(topic.wanted_lengths),
        need=topic.need,
        constraints=topic.constraints,
        reason=Reason(
            mode=mode,
            ring=recorded_ring(state, Order.BALANCED),
            moves=tuple(reported),
        ),
    )


def cores_of(
    weights: Mapping[SpuId, list[int]], topic: Topic | None, replicas: ReplicaLists
) -> ReplicaLists:
    """The cores of the next lists of a topic: a replica that stays keeps its core, a new one takes
    the first of least weight."""
    known: list[dict[int, int]] = []
    if topic is not None and topic.cores is not None:
        pairs = zip(topic.replicas.lists().tolist(), topic.cores.lists().tolist(), strict=True)
        known = [dict(zip(row, cores, strict=True)) for row, cores in pairs]
    scratch: dict[SpuId, list[int]] = {}
    rows: list[list[int]] = []
    known += [{}] * (len(replicas) - len(known))
    for row, before in zip(replicas.tolist(), known[: len(replicas)], strict=True):
        new = {i: first_core(weights, scratch, SpuId(i)) for i in row if i not in before}
        rows.append([new[i] if i in new else before[i] for i in row])
    return ReplicaLists.of_lists(rows)


def outcome(
    state: ClusterState,
    name: str,
    open_rows: list[list[int]],
    *,
    cause: str,
    is_retry: bool,
    why: Refusal | None = None,
) -> list[Record]:
    """What is said of a topic that waits on, waits now, or is whole again."""
    known = state.waiting.get(name)
    if not open_rows:
        if known is None:
            return []
        settled = WaitingSettled(cluster_id=state.cluster_id, topic=name)
        return [status(state, name, Status.ASSIGNED, known.cause), settled]
    if is_retry:
        return []
    refusal = why or _shortage(state, name, open_rows)
    waiting = Waiting(
        cluster_id=state.cluster_id,
        topic=name,
        sequence=state.waiting_next() if known is None else known.sequence,
        kind=Wait.REPAIR,
        cause=cause,
    )
    return [status(state, name, Status.WAITING, cause, refusal=refusal), waiting]


def _shortage(state: ClusterState, name: str, open_rows: list[list[int]]) -> Refusal:
    """What keeps the lists open: rules, slots, or a resource; counted for the first of them."""
    topic, first = state.topics[name], open_rows[0]
    online = [spu_id for spu_id in sorted(state.spus) if state.spus[spu_id].online]
    others = [spu_id for spu_id in online if spu_id not in first]
    left = [spu_id for spu_id in others if not state.spus[spu_id].is_closed]
    found = [f"{len(others) - len(left)} cordoned or tainted"] if len(left) < len(others) else []
    code = Code.INSUFFICIENT_CAPACITY
    constraints = binding_rules(state, name)
    if constraints is not None:
        leaving = leaving_spus(state, topic)
        staying = [spu_id for spu_id in first if spu_id not in leaving]
        wanted = max(topic.replication_factor, len(first))
        barring = barring_rules(state, name, constraints, staying, wanted)
        found, left = [*barring.rules], [SpuId(i) for i in barring.left if i not in first]
        code = code if left else Code.UNSATISFIABLE
    free = [spu_id for spu_id in left if state.ledger.count(spu_id) < state.spus[spu_id].capacity]
    if len(free) < len(left):
        found.append(f"{len(left) - len(free)} without a free slot")
    lacks = what_lacks(state, free, topic.need).strip(" ()")
    found += [lacks] if lacks else []
    if not any(spu_id not in row for row in open_rows for spu_id in online):
        code = Code.INSUFFICIENT_SPUS
    are = "1 list is" if len(open_rows) == 1 else f"{len(open_rows)} lists are"
    why = f" ({', '.join(found)})" if found else ""
    return Refusal(
        code,
        f"{are} short, or on SPUs to be left: no other SPU can take the replicas{why}; tried "
        "again when the ring grows or room is freed",
    )
