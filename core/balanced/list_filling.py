"""Replica lists out of numbers: how many replicas and leaders each SPU is to get.

Any numbers within the bounds can be met, whoever leads a row. With N rows to fill, what must hold
is: no SPU has more than N replicas to get, nor more leaders than replicas, and what each rack has
to get is within N times its bounds. (The rows a rack permits are the bases of a matroid, and the
numbers a point of N times its base polytope.) A row that takes whoever has N to get, then those
with most to get, keeps it so.

Among equals a fixed mixing of ids, counts and seed decides, so that who meets whom varies.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.balanced.mixing import SORT_NUMBER_MASK, mixed_turns, sort_key
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
        one_by_one = _one_a_rack if int(task.upper.max()) == 1 else _several_a_rack
        return one_by_one(task, leading).astype(np.int16)
    rows, bad = _dealt_rows(task, leading)
    if len(bad):
        again = _enough_rows(task, rows, bad)
        quotas = np.bincount(rows[again].ravel(), minlength=len(task.ids))
        leaders = np.bincount(leading[again], minlength=len(task.ids))
        part = replace(task, quotas=quotas, leaders=leaders)
        rows[again] = _several_a_rack(part, interleaved(leaders, task.positions))
    return rows


def _dealt_rows(task: Task, leading: Numbers) -> tuple[NDArray[np.int16], CountArray]:
    """Rows as the numbers say, and which of them have an SPU twice."""
    rows = np.empty((len(leading), task.replicas), dtype=np.int16)
    rows[:, 0] = leading
    bad = np.zeros(0, dtype=np.int64)
    if int(task.upper.max()) == 1:
        racks = racks_of_columns(task, leading)
        if len(task.starts) == len(task.ids):  # Each SPU is a rack.
            _write_columns(rows, racks)
        else:
            _write_cells(task, rows, racks)
        return rows, bad
    leading_racks = task.racks.astype(np.int16).take(leading)
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
    racks = racks_of_columns(task, leading).T
    owners, turns, places = spread(to_follow)
    tie = mixed_turns(task.ids[owners], turns, task.seed)
    cells = np.empty(lists * followers, dtype=np.int64)
    by_rack = np.lexsort((tie, places, task.racks[owners]))
    cells[np.argsort(racks.ravel(), kind="stable")] = owners[by_rack]
    return np.column_stack((leading, cells.reshape(lists, followers)))


def racks_of_columns(task: Task, leading: Numbers) -> Columns:
    """For each row the racks of its followers, all different and not the leader's, as columns."""
    lists, followers = len(leading), task.replicas - 1
    leading_racks = task.racks.astype(np.int16).take(leading)
    if len(task.starts) == task.replicas:
        return _all_racks(leading_racks, followers, task.seed)
    by_rack = np.add.reduceat(task.quotas - task.leaders, task.starts)
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
    able = MostToGet(range(len(to_get)), to_get, to_follow, seed)
    rows: list[list[int]] = []
    for leader in leading:
        chosen = able.first(followers + 1)
        if leader in chosen:
            chosen.remove(leader)
        del chosen[followers:]
        able.take(chosen, leader)
        rows.append(chosen)
    return rows


class MostToGet:
    """SPUs, or racks, that have a row to follow in, those with most replicas to get first."""

    __slots__ = ("_keys", "_most", "_order", "_seed", "_to_follow", "_to_get")

    def __init__(self, numbers: range, to_get: list[int], to_follow: list[int], seed: int) -> None:
        self._to_get = to_get
        self._to_follow = to_follow
        self._most = max(to_get[number] for number in numbers)
        self._seed = seed
        self._keys = {number: self._key(number) for number in numbers if to_follow[number]}
        self._order = sorted(self._keys.values())

    def __len__(self) -> int:
        return len(self._order)

    def first(self, count: int) -> list[int]:
        """So many of them."""
        return [key & SORT_NUMBER_MASK for key in self._order[:count]]

    def remove(self, number: int) -> None:
        """It is chosen without regard to the order from now on."""
        self._order.remove(self._keys.pop(number))

    def take(self, chosen: list[int], leader: int | None) -> None:
        """Count a row."""
        to_follow, to_get, keys, order = self._to_follow, self._to_get, self._keys, self._order
        most, seed = self._most, self._seed
        for number in chosen:
            to_follow[number] -= 1
        for number in chosen if leader is None else (leader, *chosen):
            to_get[number] -= 1
            key = keys.get(number)
            if key is not None:
                order.remove(key)
                if to_follow[number]:
                    key = keys[number] = sort_key(number, most - to_get[number], seed)
                    insort(order, key)
                else:
                    del keys[number]

    def _key(self, number: int) -> int:
        return sort_key(number, self._most - self._to_get[number], self._seed)


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

    __slots__ = ("_able", "_must", "_to_follow", "_to_get", "lower", "total", "upper")

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
        self._must: list[int] = []  # who is in every row left; all others that can follow:
        self._able = MostToGet(spus, to_get, to_follow, seed)

    def bounds(self, left: int, leader: int | None) -> tuple[int, int]:
        """How many SPUs the next row may have of this rack, `left` rows with it still to fill.

        `leader` is the row's leader when it is of this rack.
        """
        while len(self._able) and self._to_get[spu := self._able.first(1)[0]] >= left:
            self._must.append(spu)
            self._able.remove(spu)
        must = len(self._must)
        able = len(self._able) + sum(self._to_follow[spu] > 0 for spu in self._must)
        if leader is not None:
            must += leader not in self._must
            able += self._to_follow[leader] == 0
        least = max(self.lower, self.total - (left - 1) * self.upper, must)
        return least, min(self.upper, self.total - (left - 1) * self.lower, able)

    def take(self, count: int, leader: int | None) -> list[int]:
        """The followers of the next row, `count` less the leader."""
        able = [spu for spu in (*self._must, *self._able.first(count)) if spu != leader]
        chosen = able[: count - (leader is not None)]
        self.total -= count
        self._able.take(chosen, leader)
        return chosen
