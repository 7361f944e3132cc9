"""Repair: replicas leave SPUs that are decommissioned or evict them, short lists are filled.

Nothing else is touched.

A replica goes to the best SPU of the ring that is not in its list (`candidates`); to a rack that no
other replica is on where distinct racks must stay distinct. Counts are up to date replica by
replica. Of a topic with constraints it is the SPU with which the list keeps them best
(`core.constraints`). A replica that is evicted stays until another can be had.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from spu_assigner.core.base.constraints import Constraints, TaintEffect, has_effect
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy, SpuId
from spu_assigner.core.base.limits import MOVES_REPORTED_MAX
from spu_assigner.core.base.records import (
    Mode,
    Move,
    Order,
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
from spu_assigner.core.constraints.refill import RuledCandidates
from spu_assigner.core.constraints.rule_table import binding_constraints
from spu_assigner.core.decision.answers import (
    Refusal,
    chains_changed,
    ring_event,
    ring_without,
    status,
)
from spu_assigner.core.decision.assignment import refuse_size, ring_resources, what_lacks
from spu_assigner.core.decision.requests import shown_index
from spu_assigner.core.state.candidates import Candidates
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.core_weights import first_core
from spu_assigner.core.state.leading import LeaderChoice
from spu_assigner.core.state.ring import Ring
from spu_assigner.core.state.topic import Topic


@dataclass(slots=True)
class Repaired:
    """A replica list on its way to being whole."""

    row: list[int]
    moves: list[Move]


class RepairRun:
    """Repairs of one topic after the other, each applied before the next.

    Topics that need no resources and have no constraints share their candidates: what the repair of
    one hands out is what the next finds.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._shared: Candidates | None = None

    def candidates(self, name: str) -> Candidates | RuledCandidates:
        """Who may get replicas of a topic."""
        if self._shared is not None and _is_plain(self._state, name):
            self._shared.filled.clear()
            return self._shared
        candidates = candidates_for(self._state, name)
        self._shared = None  # What is handed out now it would not know of.
        if isinstance(candidates, Candidates) and self._state.topics[name].need is None:
            self._shared = candidates
        return candidates

    def take_back(self) -> None:
        """What was handed out last is not applied."""
        self._shared = None


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
    candidates = run.candidates(name)
    lists = topic.replicas.lists().tolist()
    lengths = topic.lengths_wanted(len(lists))
    choice = LeaderChoice(state, topic.constraints) if state.demoted else None
    moves: list[Move] = []
    open_rows: list[list[int]] = []
    for partition, (row, wanted) in enumerate(zip(list(lists), lengths, strict=True)):
        if len(row) == wanted and leaving.isdisjoint(row):
            continue
        repaired = _repair_list(state, candidates, partition, row, wanted, leaving=leaving)
        lists[partition] = _led(choice, repaired)
        moves += repaired.moves
        if len(repaired.row) < wanted or not leaving.isdisjoint(repaired.row):
            open_rows.append(repaired.row)
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
            state, name, cause=cause, replicas=replicas, moves=moves, filled=candidates.filled
        )
    return records + outcome(state, name, open_rows, cause=cause, is_retry=is_retry)


def _led(choice: LeaderChoice | None, repaired: Repaired) -> list[int]:
    """The list, with another leader where it changed and a demoted SPU would lead it."""
    row = repaired.row
    if choice is None or not repaired.moves or row[0] not in choice.demoted:
        return row
    place = choice.place(row) or 0
    row[0], row[place] = row[place], row[0]
    return row


def leaving_spus(state: ClusterState, topic: Topic) -> set[int]:
    """The SPUs that replicas of a topic are to leave: decommissioned, or tainted so."""
    return {*state.leaving, *evicting_spus(state, topic)}


def evicting_spus(state: ClusterState, topic: Topic) -> set[int]:
    """The SPUs with a taint that evicts replicas of a topic."""
    tolerations = () if topic.constraints is None else topic.constraints.tolerations
    return {
        int(spu_id)
        for spu_id in state.evicting
        if has_effect(state.spus[spu_id].taints, TaintEffect.EVICT, tolerations)
    }


def _is_plain(state: ClusterState, name: str) -> bool:
    """Whether slots and racks alone decide who gets replicas of a topic."""
    return state.topics[name].need is None and _binding(state, name) is None


def _binding(state: ClusterState, name: str) -> Constraints | None:
    """The constraints that bind the replicas of a topic."""
    topic = state.topics[name]
    if topic.policy is Policy.BALANCED or topic.constraints is not None:
        return binding_constraints(state, name, topic.constraints)
    return None


def candidates_for(
    state: ClusterState,
    name: str,
    ring: Ring | None = None,
    changes: Mapping[int, int] | None = None,
) -> Candidates | RuledCandidates:
    """Who may get replicas of a living topic; of another ring, with counts that have changed."""
    topic, constraints = state.topics[name], _binding(state, name)
    if constraints is None:
        ring = state.ring if ring is None else ring
        resources = () if topic.need is None else ring_resources(state, ring, topic.need)
        return Candidates(state, ring, changes, resources)
    return RuledCandidates(
        state, constraints, topic.need, ignore_rack=topic.ignore_rack, changes=changes
    )


def _online(state: ClusterState, row: list[int]) -> list[int]:
    return [spu_id for spu_id in row if state.spus[SpuId(spu_id)].online]


def _repair_list(
    state: ClusterState,
    candidates: Candidates | RuledCandidates,
    partition: int,
    row: list[int],
    wanted: int,
    *,
    leaving: Collection[int],
) -> Repaired:
    moves: list[Move] = []
    for gone in sorted(spu_id for spu_id in row if spu_id in leaving):
        survivors = [spu_id for spu_id in row if spu_id != gone]
        taken = candidates.replace(row, gone, leaving, wanted)
        online = _online(state, survivors)
        if taken is None and (not online or SpuId(gone) not in state.leaving):
            continue  # It keeps its place: nobody else could serve, or would hold, this partition.
        lead = None
        if not online:
            lead = taken
        elif row[0] == gone:
            lead = online[0]
        row = survivors if taken is None else [*survivors, taken]
        if lead is not None:
            row = [lead, *[spu_id for spu_id in row if spu_id != lead]]
        moves.append(Move(partition=partition, gone=gone, taken=taken))
    while len(row) < wanted:
        taken = candidates.fill(row, wanted)
        if taken is None:
            break
        row = [*row, taken] if _online(state, row) else [taken, *row]
        moves.append(Move(partition=partition, gone=None, taken=taken))
    return Repaired(row, moves)


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
    topic = state.topics[name]
    ring, chains = state.ring, dict(state.chains)
    for spu_id in filled:
        ring, chains = ring_without(ring, chains, (spu_id,))
    records: list[Record] = [
        revised(
            state,
            name,
            cause=cause,
            replicas=replicas,
            cores=moved_cores(state.core_weights, topic, replicas),
            chain_index=shown_index(
                state, topic.policy, ring, chains, ignore_rack=topic.ignore_rack
            ),
            mode=Mode.REPAIR,
            moves=moves,
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
    cores: ReplicaLists | None,
    chain_index: int | None,
    mode: Mode,
    moves: Iterable[Move],
) -> ReplicaMap:
    """The next map of a living topic, some of whose replicas are elsewhere.

    Its reason lists the moves by partition, and no more than a message has room for.
    """
    topic, ring = state.topics[name], state.ring
    reported = sorted(moves, key=lambda move: move.partition)[:MOVES_REPORTED_MAX]
    return ReplicaMap(
        cluster_id=state.cluster_id,
        topic=name,
        revision=topic.revision + 1,
        policy=topic.policy,
        replicas=replicas,
        cores=cores,
        chain_index=chain_index,
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
            ring_size=ring.size,
            ring_fingerprint=ring.fingerprint(Order.BALANCED),
            offline=len(state.spus) - state.online_count,
            saturated=state.saturated_count,
            moves=tuple(reported),
        ),
    )


def moved_cores(
    weights: Mapping[SpuId, list[int]], topic: Topic, replicas: ReplicaLists
) -> ReplicaLists | None:
    """The cores of changed lists: a replica that stays keeps its core, a new one takes the first
    of least weight."""
    if topic.cores is None:
        return None
    scratch: dict[SpuId, list[int]] = {}
    rows: list[list[int]] = []
    before = zip(topic.replicas.lists().tolist(), topic.cores.lists().tolist(), strict=True)
    for row, (old_row, old_cores) in zip(replicas.tolist(), before, strict=True):
        core_of = dict(zip(old_row, old_cores, strict=True))
        for spu_id in row:
            if spu_id not in core_of:
                core_of[spu_id] = first_core(weights, scratch, SpuId(spu_id))
        rows.append([core_of[spu_id] for spu_id in row])
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
    online = [spu_id for spu_id in sorted(state.spus) if state.spus[spu_id].online]
    is_full = any(spu_id not in row for row in open_rows for spu_id in online)
    code = Code.INSUFFICIENT_CAPACITY if is_full else Code.INSUFFICIENT_SPUS
    lacks = what_lacks(state, state.ring.ids.tolist(), state.topics[name].need)
    are = "1 list is" if len(open_rows) == 1 else f"{len(open_rows)} lists are"
    refusal = why or Refusal(
        code,
        f"{are} short, or on SPUs to be left: no other SPU can take the replicas{lacks}; tried "
        "again when the ring grows or room is freed",
    )
    waiting = Waiting(
        cluster_id=state.cluster_id,
        topic=name,
        sequence=state.waiting_next() if known is None else known.sequence,
        kind=Wait.REPAIR,
        cause=cause,
    )
    return [status(state, name, Status.WAITING, cause, refusal=refusal), waiting]
