"""Replica lists out of numbers: how many replicas and leaders each SPU is to get.

Any numbers within the bounds can be met, whoever leads a row. With N rows to fill, what must hold
is: no SPU has more than N replicas to get, nor more leaders than replicas, and what each rack has
to get is within N times its bounds. (The rows a rack permits are the bases of a matroid, and the
numbers a point of N times its base polytope.) A row that takes whoever has N to get, then those
with most to get, keeps it so.

Among equals a fixed mixing of ids, counts and seed decides, so that who meets whom varies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.balanced.mixing import (
    ENTRY_NUMBER_MASK,
    ENTRY_RANK_SHIFT,
    heap_entry,
    mixed_turns,
)
from spu_assigner.core.balanced.swap_repair import (
    Columns,
    by_number,
    racks_apart,
    racks_shared,
    repaired,
)
from spu_assigner.core.balanced.weighted_interleave import Numbers, dealt, interleaved
from spu_assigner.core.state.ledger import CountArray

DEALT_CELLS_MIN: Final = 512  # fewer are not worth the calls of numpy


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the rows are to hold. SPUs are sorted by rack; arrays have shape (n,) or (racks,)."""

    ids: CountArray
    racks: CountArray  # 0 … without gaps, ascending
    starts: CountArray  # where each rack begins
    lower: CountArray  # SPUs of a rack in a row: at least
    upper: CountArray  # at most: as many, or one more
    quotas: CountArray  # replicas to get, leaders included
    leaders: CountArray  # rows to lead; their sum is the number of rows
    positions: CountArray  # who leads first, among equals
    replicas: int
    seed: int  # 0 … 2**32 - 1


def fill_rows(task: Task) -> NDArray[np.int16]:
    """Rows of positions in `ids`, shape (rows, replicas), leader first.

    Many rows are dealt; few, and those that cannot be repaired, are made one by one.
    """
    leading = interleaved(task.leaders, task.positions)
    if len(leading) * task.replicas < DEALT_CELLS_MIN:
        return _with_care(task, leading).astype(np.int16)
    rows, bad = _dealt_rows(task, leading)
    if len(bad):
        again = _enough_rows(task, rows, bad)
        quotas = np.bincount(rows[again].ravel(), minlength=len(task.ids))
        leaders = np.bincount(leading[again], minlength=len(task.ids))
        part = replace(task, quotas=quotas, leaders=leaders)
        rows[again] = _with_care(part, interleaved(leaders, task.positions))
    return rows


def _with_care(task: Task, leading: Numbers) -> NDArray[np.int64]:
    """Rows one by one: O(cells log cells) in plain Python, times the number of racks where a row
    has several SPUs of one."""
    if int(task.upper.max()) > 1:
        return _several_a_rack(task, leading)
    return _one_a_rack(task, leading)


def _dealt_rows(task: Task, leading: Numbers) -> tuple[NDArray[np.int16], CountArray]:
    """Rows as the numbers say, and which of them have an SPU twice."""
    leading_racks = task.racks.astype(np.int16).take(leading)
    to_follow = task.quotas - task.leaders
    rows = np.empty((len(leading), task.replicas), dtype=np.int16)
    rows[:, 0] = leading
    bad = np.zeros(0, dtype=np.int64)
    if int(task.upper.max()) == 1:
        racks = _racks_of_columns(task, to_follow, leading_racks)
        if len(task.starts) == len(task.ids):  # Each SPU is a rack.
            _write_columns(rows, racks)
        else:
            _write_cells(task, rows, racks)
        return rows, bad
    totals = np.add.reduceat(task.quotas, task.starts)
    racks = racks_shared(totals, task.lower, leading_racks, replicas=task.replicas, seed=task.seed)
    _write_cells(task, rows, racks)
    columns = np.ascontiguousarray(rows.T)
    bad = repaired(columns, racks, task.seed)
    _write_columns(rows, columns[1:])
    return rows, bad


def _write_columns(rows: NDArray[np.int16], followers: Columns) -> None:
    for at, column in enumerate(followers, 1):
        rows[:, at] = column


def _write_cells(task: Task, rows: NDArray[np.int16], racks: Columns) -> None:
    """Deal out the SPUs of each rack to its cells, row by row."""
    cells = np.empty(racks.size, dtype=np.int16)
    sequence = dealt(task.quotas - task.leaders, task.racks, task.seed)
    cells[by_number(np.ascontiguousarray(racks.T).reshape(-1))] = sequence
    rows[:, 1:] = cells.reshape(len(rows), -1)


def _enough_rows(task: Task, rows: NDArray[np.int16], bad: CountArray) -> CountArray:
    """Rows with the bad ones, so many that no SPU has more replicas in them than there are rows."""
    is_in = np.zeros(len(rows), dtype=np.bool_)
    is_in[bad] = True
    good = np.flatnonzero(~is_in)
    count = len(bad)
    while True:
        again = np.concatenate((bad, good[:count]))
        most = int(np.bincount(rows[again].ravel(), minlength=len(task.ids)).max())
        if most <= len(again) or count >= len(good):
            return np.sort(again)
        count *= 2


def spread(counts: CountArray) -> tuple[CountArray, CountArray, CountArray]:
    """Each index as often as its count says; how often it was there before; its place, evenly."""
    owners = np.repeat(np.arange(len(counts)), counts)
    turns = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    return owners, turns, ((2 * turns + 1) << 32) // counts[owners]


def _one_a_rack(task: Task, leading: Numbers) -> NDArray[np.int64]:
    """Rows whose racks differ: first the racks of each row, then SPUs to each rack's cells."""
    lists, followers = len(leading), task.replicas - 1
    to_follow = task.quotas - task.leaders
    racks = _racks_of_columns(task, to_follow, task.racks.astype(np.int16)[leading]).T
    owners, turns, places = spread(to_follow)
    tie = mixed_turns(task.ids[owners], turns, task.seed)
    cells = np.empty(lists * followers, dtype=np.int64)
    by_rack = np.lexsort((tie, places, task.racks[owners]))
    cells[np.argsort(racks.ravel(), kind="stable")] = owners[by_rack]
    return np.column_stack((leading, cells.reshape(lists, followers)))


def _racks_of_columns(task: Task, to_follow: CountArray, leading_racks: Numbers) -> Columns:
    """For each row the racks of its followers, all different and not the leader's, as columns."""
    lists, followers = len(leading_racks), task.replicas - 1
    if len(task.starts) == task.replicas:
        return _all_racks(leading_racks, followers, task.seed)
    by_rack = np.add.reduceat(to_follow, task.starts)
    if lists * task.replicas >= DEALT_CELLS_MIN:
        apart = racks_apart(by_rack, leading_racks, followers=followers, seed=task.seed)
        if apart is not None:
            return apart[1:]
    chosen = choose_racks(
        np.add.reduceat(task.quotas, task.starts).tolist(),
        by_rack.tolist(),
        leading_racks.tolist(),
        followers=followers,
        seed=task.seed,
    )
    return np.array(chosen, dtype=np.int16).reshape(lists, followers).T


def _all_racks(leading_racks: Numbers, followers: int, seed: int) -> Columns:
    """Racks when a row has all: those after the leader's, turned by one from row to row."""
    racks = np.empty((followers, len(leading_racks)), dtype=np.int16)
    for turn in range(followers):
        own = leading_racks[turn::followers]
        for at in range(followers):
            after = own + np.int16(1 + (seed + turn + at) % followers)
            after -= (after > followers) * np.int16(followers + 1)
            racks[at, turn::followers] = after
    return racks


def choose_racks(
    to_get: list[int], to_follow: list[int], leading: list[int], *, followers: int, seed: int
) -> list[list[int]]:
    """For each row the racks of its followers, those with most replicas to get.

    A rack never has more to get than there are rows left, so those that must be taken come first.
    """
    most = max(to_get)

    def entry(rack: int) -> int:
        return heap_entry(rack, most - to_get[rack], seed)

    heap = [entry(rack) for rack in range(len(to_get)) if to_follow[rack]]
    heapify(heap)
    rows: list[list[int]] = []
    for leader in leading:
        chosen: list[int] = []
        leads = False
        while len(chosen) < followers:
            top = heappop(heap)
            rack = top & ENTRY_NUMBER_MASK
            if rack == leader:
                leads = True
            elif top >> ENTRY_RANK_SHIFT != most - to_get[rack]:  # It has led since.
                heappush(heap, entry(rack))
            else:
                chosen.append(rack)
        to_get[leader] -= 1
        if leads:
            heappush(heap, entry(leader))
        for rack in chosen:
            to_get[rack] -= 1
            to_follow[rack] -= 1
            if to_follow[rack]:
                heappush(heap, entry(rack))
        rows.append(chosen)
    return rows


def _several_a_rack(task: Task, leading: Numbers) -> NDArray[np.int64]:
    """Rows with several SPUs of a rack, made one by one; there are fewer racks than replicas."""
    to_get, to_follow = task.quotas.tolist(), (task.quotas - task.leaders).tolist()
    edges = [*task.starts.tolist(), len(to_get)]
    racks = [
        RackToFill(
            spus=range(edges[number], edges[number + 1]),
            to_get=to_get,
            to_follow=to_follow,
            lower=int(task.lower[number]),
            upper=int(task.upper[number]),
            seed=task.seed,
        )
        for number in range(len(task.starts))
    ]
    rack_of = task.racks.tolist()
    rows: list[list[int]] = []
    for row, leader in enumerate(leading.tolist()):
        left = len(leading) - row
        home = racks[rack_of[leader]]
        bounds = [rack.bounds(left, leader if rack is home else None) for rack in racks]
        counts = [least for least, _ in bounds]
        turn = (row + task.seed) % len(racks)
        by_need = sorted(
            (left * rack.lower - rack.total, (number - turn) % len(racks), number)
            for number, rack in enumerate(racks)
            if bounds[number][0] < bounds[number][1]
        )
        for _, _, number in by_need[: task.replicas - sum(counts)]:
            counts[number] += 1
        cells = [leader]
        for step in range(len(racks)):
            number = (turn + step) % len(racks)
            rack = racks[number]
            cells += rack.take(counts[number], leader if rack is home else None)
        rows.append(cells)
    return np.array(rows, dtype=np.int64)


class RackToFill:
    """A rack that gives each row `lower` … `upper` SPUs, `upper` being `lower` or one more."""

    __slots__ = (
        "_able",
        "_heap",
        "_most",
        "_must",
        "_seed",
        "_to_follow",
        "_to_get",
        "lower",
        "total",
        "upper",
    )

    def __init__(
        self,
        *,
        spus: range,
        to_get: list[int],
        to_follow: list[int],
        lower: int,
        upper: int,
        seed: int,
    ) -> None:
        self.lower = lower
        self.upper = upper
        self.total = sum(to_get[spu] for spu in spus)  # replicas to get by the rack
        self._to_get = to_get
        self._to_follow = to_follow
        self._seed = seed
        self._most = max(to_get[spu] for spu in spus)
        self._able = sum(to_follow[spu] > 0 for spu in spus)  # who has a row to follow in
        self._must: list[int] = []  # who is in every row left
        self._heap = [self._entry(spu) for spu in spus if to_follow[spu]]
        heapify(self._heap)

    def bounds(self, left: int, leader: int | None) -> tuple[int, int]:
        """How many SPUs the next row may have of this rack, `left` rows with it still to fill.

        `leader` is the row's leader when it is of this rack.
        """
        self._find_who_must(left)
        must, able = len(self._must), self._able
        if leader is not None:
            must += leader not in self._must
            able += self._to_follow[leader] == 0
        least = max(self.lower, self.total - (left - 1) * self.upper, must)
        return least, min(self.upper, self.total - (left - 1) * self.lower, able)

    def take(self, count: int, leader: int | None) -> list[int]:
        """The followers of the next row, `count` less the leader."""
        chosen = [spu for spu in self._must if spu != leader]
        aside = []
        while len(chosen) + (leader is not None) < count:
            spu = self._pop()
            if spu == leader:
                aside.append(spu)
            else:
                chosen.append(spu)
        self.total -= count
        if leader is not None:
            self._to_get[leader] -= 1
        for spu in chosen:
            self._to_get[spu] -= 1
            self._to_follow[spu] -= 1
            self._able -= self._to_follow[spu] == 0
            if self._to_follow[spu] and spu not in self._must:
                aside.append(spu)
        for spu in aside:
            heappush(self._heap, self._entry(spu))
        return chosen

    def _entry(self, spu: int) -> int:
        return heap_entry(spu, self._most - self._to_get[spu], self._seed)

    def _pop(self) -> int:
        """Who has most replicas to get, out of those that have a row to follow in."""
        while True:
            top = heappop(self._heap)
            spu = top & ENTRY_NUMBER_MASK
            if top >> ENTRY_RANK_SHIFT == self._most - self._to_get[spu]:
                return spu
            heappush(self._heap, self._entry(spu))  # It has led since.

    def _find_who_must(self, left: int) -> None:
        while self._heap:
            spu = self._pop()
            if self._to_get[spu] < left:
                heappush(self._heap, self._entry(spu))
                return
            self._must.append(spu)
