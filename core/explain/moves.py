"""What a repair or rebalance moved: who went, who came, and who else could have come.

Where the state before the decision is at hand, the rule of a repair is applied anew, move by move
with the counts as they became, and must choose the recorded SPU.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.records import Mode, Move
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ring import Ring

BEST_MAX: Final = 8  # candidates that are named
SHARE_BITS: Final = 32  # of the fraction by which shares of capacity are compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What an SPU holds of what it can."""

    spu_id: int
    count: int
    capacity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveStep:
    """One replica that went, came, or both. None: it does not apply, or is not known."""

    gone: int | None
    is_leaving: bool  # who went was decommissioned; else it went to even the loads, or nobody did
    taken: int | None
    wants_new_rack: bool | None  # racks that the others are not on were to be preferred
    on_new_rack: bool | None  # who came is on one
    candidates: int | None  # SPUs of the ring that did not hold the partition
    on_new_racks: int | None  # of these, on racks that the others are not on
    best: tuple[Load, ...]  # the first of those among whom the lowest share was sought
    is_as_ruled: bool | None  # the rule, applied anew, chooses who came


class MoveExplanations:
    """All moves of one map.

    Args:
        ring: before the step; None: not known.
        racks: before the step, as far as they are certain.
        lists: that the map gave.
        lists_before: of the revision before; None: not retained.
        is_before: the state is the one that was decided on; else its counts are those of now.
    """

    def __init__(
        self,
        state: ClusterState,
        ring: Ring | None,
        racks: Mapping[int, str],
        moves: Sequence[Move],
        *,
        mode: Mode,
        lists: Sequence[list[int]],
        lists_before: Sequence[list[int]] | None,
        is_before: bool,
    ) -> None:
        self._state = state
        self._mode = mode
        self._lists = lists
        self._lists_before = lists_before
        self._is_before = is_before
        self._racks = racks
        self._in_order = moves
        self._moves: dict[int, list[Move]] = {}
        self._firsts: dict[int, int] = {}  # by partition, among all moves
        for number, move in enumerate(moves):
            self._firsts.setdefault(move.partition, number)
            self._moves.setdefault(move.partition, []).append(move)
        self._counted = 0  # moves whose takers are in `_came`
        self._came: dict[int, int] = {}
        self._candidates = None
        if ring is not None and mode is Mode.REPAIR:
            self._candidates = _Candidates(state, ring)

    def of(self, partition: int) -> tuple[MoveStep, ...]:
        """The moves of one partition, in order."""
        moves = self._moves.get(partition)
        if moves is None:
            return ()
        before = self._lists_before
        row = None if before is None else list(before[partition])
        counted = self._came_before(self._firsts[partition])
        steps = []
        for move in moves:
            others = [
                spu_id
                for spu_id in (self._lists[partition] if row is None else row)
                if spu_id not in (move.gone, move.taken)
            ]
            steps.append(self._step(move, others, counted, is_exact=row is not None))
            if move.taken is not None:
                counted[move.taken] = counted.get(move.taken, 0) + 1
            row = None if row is None else [*others, *([] if move.taken is None else [move.taken])]
        return tuple(steps)

    def _came_before(self, number: int) -> dict[int, int]:
        """How many replicas each SPU was given by the moves before this one."""
        if number < self._counted:  # Usually they are asked for in order.
            self._counted, self._came = 0, {}
        for move in self._in_order[self._counted : number]:
            if move.taken is not None:
                self._came[move.taken] = self._came.get(move.taken, 0) + 1
        self._counted = number
        return dict(self._came)

    def _step(
        self, move: Move, others: list[int], counted: Mapping[int, int], *, is_exact: bool
    ) -> MoveStep:
        known = self._racks
        is_known = all(spu_id in known for spu_id in (*others, move.gone) if spu_id is not None)
        racks = {known[spu_id] for spu_id in others} if is_known else None
        is_repair = self._mode is Mode.REPAIR
        wants_new = None
        if is_repair and racks is not None:
            wants_new = move.gone is None or known[move.gone] not in racks
        count = on_new = None
        best: tuple[Load, ...] = ()
        is_as_ruled = None
        if self._candidates is not None:
            added = counted if self._is_before else {}
            held = others if move.gone is None else [*others, move.gone]
            found = self._candidates.seek(held, racks or (), added)
            count = len(found.everyone)
            if racks is not None:
                on_new = len(found.on_new_racks)
                among = found.on_new_racks if wants_new and on_new else found.everyone
                best = tuple(self._candidates.load(int(at), added) for at in among[:BEST_MAX])
            if self._is_before and is_exact:
                is_as_ruled = (best[0].spu_id if best else None) == move.taken
        on_new_rack = None
        if move.taken is not None and move.taken in known and racks is not None:
            on_new_rack = known[move.taken] not in racks
        return MoveStep(
            gone=move.gone,
            is_leaving=is_repair and move.gone is not None,
            taken=move.taken,
            wants_new_rack=wants_new,
            on_new_rack=on_new_rack,
            candidates=count,
            on_new_racks=on_new,
            best=best,
            is_as_ruled=is_as_ruled,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _CandidateOrder:
    """Positions in the ring by ascending id, the lowest share first, then the lowest id."""

    everyone: NDArray[np.intp]
    on_new_racks: NDArray[np.intp]


class _Candidates:
    """The members of the ring with what they hold."""

    def __init__(self, state: ClusterState, ring: Ring) -> None:
        self._ids = ring.ids
        ids: list[int] = ring.ids.tolist()
        spus = [state.spus.get(SpuId(spu_id)) for spu_id in ids]
        self._racks = ring.racks()
        self._capacities = np.array(
            [0 if spu is None else spu.capacity for spu in spus], dtype=np.int64
        )
        self._counts = np.array(
            [
                0 if spu is None else state.ledger.count(spu_id)
                for spu_id, spu in zip(ids, spus, strict=True)
            ],
            dtype=np.int64,
        )

    def seek(
        self, held: Collection[int], racks: Collection[str], added: Mapping[int, int]
    ) -> _CandidateOrder:
        """Those that do not hold the partition and have a slot free."""
        counts = self._counts_with(added)
        shares = (counts << SHARE_BITS) // np.maximum(self._capacities, 1)
        free = ~np.isin(self._ids, list(held))
        if added:
            free &= counts < self._capacities
        in_order = np.argsort(shares, kind="stable")
        in_order = in_order[free[in_order]]
        is_new = ~np.isin(self._racks, list(racks))
        return _CandidateOrder(everyone=in_order, on_new_racks=in_order[is_new[in_order]])

    def load(self, at: int, added: Mapping[int, int]) -> Load:
        """One of them."""
        return Load(
            spu_id=int(self._ids[at]),
            count=int(self._counts_with(added)[at]),
            capacity=int(self._capacities[at]),
        )

    def _counts_with(self, added: Mapping[int, int]) -> NDArray[np.int64]:
        if not added:
            return self._counts
        counts = self._counts.copy()
        for spu_id, count in added.items():
            at = int(np.searchsorted(self._ids, spu_id))
            if at < len(self._ids) and self._ids[at] == spu_id:
                counts[at] += count
        return counts
