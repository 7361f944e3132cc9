"""What a repair or rebalance moved: who went, who came, and who else could have come.

Where the state before the decision is at hand, the rule of a repair is applied again, move by move
with the counts as they became, and must choose the recorded SPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.limits import MOVES_REPORTED_MAX
from spu_assigner.core.base.records import Mode, Move, ReplicaMap
from spu_assigner.core.decision.repair import repair
from spu_assigner.core.decision.replication import ResizedLists, resize
from spu_assigner.core.decision.ring_changes import ring_after
from spu_assigner.core.explain.loads import Load
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ring import Ring

BEST_MAX: Final = 8  # candidates that are named
SHARE_BITS: Final = 32  # of the fraction by which shares of capacity are compared


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveStep:
    """One replica that went, came, or both. None: it does not apply, or is not known."""

    gone: int | None
    """The SPU that went."""
    is_leaving: bool
    """Whether it was decommissioned; else it went to even the loads, or none went."""
    is_resize: bool
    """Whether the list was to be longer or shorter."""
    taken: int | None
    """The SPU that came."""
    wants_new_rack: bool | None
    """Whether racks that the others are not on were preferred."""
    on_new_rack: bool | None
    """Whether the SPU that came is on one."""
    candidates: int | None
    """SPUs of the ring that did not hold the partition."""
    on_new_racks: int | None
    """Of these, on racks that the others are not on."""
    best: tuple[Load, ...]
    """The first of those among which the lowest share was sought."""
    is_as_ruled: bool | None
    """Whether the rule, applied again, chooses the SPU that came."""


def move_steps(
    moves: Sequence[Move],
    partitions: Container[int],
    *,
    mode: Mode,
    state: ClusterState,
    ring: Ring | None,
    racks: Mapping[int, str],
    lists: Sequence[list[int]],
    lists_before: Sequence[list[int]] | None,
    is_before: bool,
    replica_map: ReplicaMap,
) -> dict[int, list[MoveStep]]:
    """The moves of these partitions, in order.

    Args:
        moves: all of one map.
        ring: before the step; None: not known.
        racks: before the step, as far as they are certain.
        lists: that the map gave.
        lists_before: of the revision before; None: not retained.
        is_before: the state is the one that was decided on; else its counts are those of now.
        replica_map: where it names resources or constraints, they decide too, and nobody is named
            as next.
    """
    candidates = None
    is_plain = replica_map.need is None and replica_map.constraints is None
    if ring is not None and is_plain and mode in (Mode.REPAIR, Mode.REPLICATION):
        is_cut = mode is Mode.REPLICATION and len(moves) == MOVES_REPORTED_MAX
        candidates = _Candidates(state, ring, is_before=is_before and not is_cut)
        if mode is Mode.REPLICATION and candidates.is_before:
            candidates.free_first(state, moves)
    is_repeated = None  # of all moves at once: lists exchange SPUs where there are few
    name = replica_map.topic
    if mode is Mode.REPLICATION and is_before and name in state.topics:
        again = resize(state, name, max(map(len, lists)))
        is_repeated = isinstance(again, ResizedLists) and again.rows == list(lists)
    if mode is Mode.REPAIR and is_before and not is_plain and name in state.topics:
        is_repeated = _is_repaired_so(state, name, lists)
    rows: dict[int, list[int]] = {}  # where the revision before is retained: as the moves left them
    steps: dict[int, list[MoveStep]] = {}
    for move in moves:
        if move.partition in partitions:
            start = lists if lists_before is None else lists_before
            row = rows.get(move.partition, start[move.partition])
            others = [spu_id for spu_id in row if spu_id not in (move.gone, move.taken)]
            step = _step(move, mode, others, racks, candidates, is_exact=lists_before is not None)
            if candidates is None or mode is Mode.REPLICATION:
                step = replace(step, is_as_ruled=is_repeated)
            steps.setdefault(move.partition, []).append(step)
            if lists_before is not None:
                rows[move.partition] = [*others, *([] if move.taken is None else [move.taken])]
        if candidates is not None and move.taken is not None:
            candidates.add(move.taken)
    return steps


def _is_repaired_so(state: ClusterState, name: str, lists: Sequence[list[int]]) -> bool:
    """Whether the repair of a topic gives these lists."""
    return any(
        isinstance(record, ReplicaMap)
        and record.replicas is not None
        and record.replicas.tolist() == list(lists)
        for record in repair(state, name, cause="", is_retry=False)
    )


def _step(
    move: Move,
    mode: Mode,
    others: list[int],
    known: Mapping[int, str],
    candidates: _Candidates | None,
    *,
    is_exact: bool,
) -> MoveStep:
    held = [*others, *([] if move.gone is None else [move.gone])]
    racks = {known[spu_id] for spu_id in others} if all(each in known for each in held) else None
    is_repair, is_resize = mode is Mode.REPAIR, mode is Mode.REPLICATION
    wants_new_rack = on_new_rack = count = count_on_new = is_as_ruled = None
    best: tuple[Load, ...] = ()
    if is_resize and move.gone is not None:
        candidates = None  # Nobody is to come.
    elif mode is not Mode.REBALANCE and racks is not None:
        wants_new_rack = move.gone is None or known[move.gone] not in racks
    if racks is not None and move.taken is not None and move.taken in known:
        on_new_rack = known[move.taken] not in racks
    if candidates is not None:
        found = candidates.in_order(held)
        count = len(found)
        if racks is not None:
            on_new = found[~np.isin(candidates.racks[found], list(racks))]
            count_on_new = len(on_new)
            among = on_new if wants_new_rack and count_on_new else found
            best = tuple(candidates.load(int(at)) for at in among[:BEST_MAX])
        if candidates.is_before and is_exact:
            is_as_ruled = (best[0].spu_id if best else None) == move.taken
    return MoveStep(
        gone=move.gone,
        is_leaving=is_repair and move.gone is not None,
        is_resize=is_resize,
        taken=move.taken,
        wants_new_rack=wants_new_rack,
        on_new_rack=on_new_rack,
        candidates=count,
        on_new_racks=count_on_new,
        best=best,
        is_as_ruled=is_as_ruled,
    )


class _Candidates:
    """The members of the ring, by ascending id, with what they hold."""

    def __init__(self, state: ClusterState, ring: Ring, *, is_before: bool) -> None:
        self.is_before = is_before
        self.racks = ring.racks()
        self._ids = ring.ids
        known = [SpuId(spu_id) in state.spus for spu_id in ring.ids.tolist()]
        self._counts, self._capacities = np.zeros((2, ring.size), dtype=np.int64)
        self._counts[known] = state.ledger.counts(ring.ids[known])
        self._capacities[known] = state.ledger.capacities(ring.ids[known])

    def free_first(self, state: ClusterState, moves: Sequence[Move]) -> None:
        """Take off all that goes: SPUs that were full can take replicas then."""
        changes = Counter({move.gone: 0 for move in moves if move.gone is not None})
        changes.subtract(move.gone for move in moves if move.gone is not None)
        ring = ring_after(state, changes).ring
        self.racks, self._ids = ring.racks(), ring.ids
        self._capacities = state.ledger.capacities(ring.ids)
        more = [changes[spu_id] for spu_id in ring.ids.tolist()]
        self._counts = state.ledger.counts(ring.ids) + np.array(more, dtype=np.int64)

    def add(self, spu_id: int) -> None:
        """A replica more, where the state is the one before."""
        if self.is_before:
            self._counts[self._ids == spu_id] += 1

    def in_order(self, held: Sequence[int]) -> NDArray[np.intp]:
        """Where those stand that do not hold the partition: lowest share first, then lowest id."""
        free = ~np.isin(self._ids, held)
        if self.is_before:
            free &= self._counts < self._capacities
        shares = (self._counts << SHARE_BITS) // np.maximum(self._capacities, 1)
        order = np.argsort(shares, kind="stable")
        return order[free[order]]

    def load(self, at: int) -> Load:
        """One of them."""
        return Load(
            spu_id=int(self._ids[at]),
            count=int(self._counts[at]),
            capacity=int(self._capacities[at]),
        )
