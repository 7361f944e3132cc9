"""Many replica lists at once: dealt, then repaired.

Where an SPU (or rack) comes twice in a list, it changes places with another of its kind, taken from
a list that does not have it. Swaps keep what each SPU gets and what each list has of each rack.

Lists are kept column by column: numpy compares columns many times faster than it sorts short rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.balanced.mixing import mixed
from spu_assigner.core.balanced.weighted_interleave import Numbers, dealt
from spu_assigner.core.state.ledger import CountArray

SWAPS_TRIED_MAX: Final = 128  # for a list; each succeeds with a chance of about a quarter or more
NUMBER_END: Final = 2**15 - 1  # after every SPU and rack

Columns = NDArray[np.int16]  # shape (cells of a list, lists): the first of each, the second, …


def repaired(columns: Columns, groups: Columns | None, seed: int) -> CountArray:
    """Swap followers until no list has a number twice; the first column stays.

    `groups` has the group of each follower, and swaps are within one; None: all are of one group.
    Returns the lists that could not be repaired.
    """
    bad = np.flatnonzero(_has_equals(columns))
    if not len(bad):
        return bad
    lists = columns.shape[1]
    partners = Partners(groups, lists=lists, width=len(columns) - 1)
    cells = columns.reshape(-1)
    is_bad = np.zeros(lists, dtype=np.bool_)
    is_bad[bad] = True
    claims = np.empty(lists, dtype=np.int32)
    here = columns.take(bad, axis=1)
    column, given = _second_of_equals(here)
    for attempt in range(SWAPS_TRIED_MAX):
        drawn = (mixed(bad << 8 | attempt, seed) >> np.uint64(32)).astype(np.uint32)
        others, other_column = partners.at(bad, column, drawn)
        other_cells = other_column * lists + others
        taken = cells.take(other_cells)
        unfit = is_bad.take(others)
        for mine, theirs in zip(here, columns, strict=True):
            unfit |= mine == taken
            unfit |= theirs.take(others) == given
        fitting = np.flatnonzero(~unfit)
        asked = others.take(fitting)
        claims[asked[::-1]] = fitting[::-1]  # What is written last stays: who asked first.
        fitting = fitting[claims.take(asked) == fitting]
        cells[column.take(fitting) * lists + bad.take(fitting)] = taken.take(fitting)
        cells[other_cells.take(fitting)] = given.take(fitting)
        if attempt + 1 == SWAPS_TRIED_MAX:
            break
        is_left = np.ones(len(bad), dtype=np.bool_)
        is_left[fitting] = False
        swapped = columns.take(bad.take(fitting), axis=1)
        again = np.flatnonzero(_has_equals(swapped))
        if len(again):
            swapped, fitting = swapped[:, again], fitting[again]
            is_left[fitting] = True
            here[:, fitting] = swapped
            column[fitting], given[fitting] = _second_of_equals(swapped)
        is_bad[bad.take(np.flatnonzero(~is_left))] = False
        left = np.flatnonzero(is_left)
        bad, here = bad.take(left), here.take(left, axis=1)
        column, given = column.take(left), given.take(left)
        if not len(bad):
            break
    return bad


class Partners:
    """The followers of all lists by group: with whom one may change places."""

    __slots__ = ("_begins", "_groups", "_members", "_sizes", "_width")

    def __init__(self, groups: Columns | None, *, lists: int, width: int) -> None:
        self._width = np.uint32(width)
        self._groups = groups
        self._sizes = np.array([lists * width], dtype=np.uint32)
        if groups is not None:
            by_list = np.ascontiguousarray(groups.T).reshape(-1)
            self._members = by_number(by_list).astype(np.uint32)
            sizes = np.bincount(by_list)
            self._begins = np.cumsum(sizes) - sizes
            self._sizes = sizes.astype(np.uint32)

    def at(
        self, lists: CountArray, column: CountArray, drawn: NDArray[np.uint32]
    ) -> tuple[CountArray, CountArray]:
        """For a cell in each of these lists the list and the column of another, as drawn."""
        if self._groups is None:
            size = self._sizes[0]
            place = drawn - drawn // size * size  # several times faster than %
        else:
            group = self._groups[column - 1, lists]
            place = self._members[self._begins[group] + drawn % self._sizes[group]]
        others = place // self._width
        other_column = place - others * self._width + np.uint32(1)
        return others.astype(np.intp), other_column.astype(np.intp)


def _has_equals(columns: Columns) -> NDArray[np.bool_]:
    """Which lists have a number twice."""
    has = np.zeros(columns.shape[1], dtype=np.bool_)
    for at in range(1, len(columns)):
        for earlier in columns[:at]:
            has |= earlier == columns[at]
    return has


def _second_of_equals(columns: Columns) -> tuple[CountArray, Numbers]:
    """The column in which a number comes for the second time, and that number, the smallest.

    `NUMBER_END` where all differ.
    """
    column = np.zeros(columns.shape[1], dtype=np.int16)
    number = np.full(columns.shape[1], NUMBER_END, dtype=np.int16)
    for at in range(1, len(columns)):
        again = columns[at] == columns[0]
        for earlier in columns[1:at]:
            again |= columns[at] == earlier
        again &= columns[at] < number
        column += again * (np.int16(at) - column)  # several times faster than np.where
        number += again * (columns[at] - number)
    return column.astype(np.intp), number


def by_number(numbers: Numbers) -> CountArray:
    """Where each number is, number by number: a stable sort, in linear time."""
    narrow = np.uint8 if int(numbers.max(initial=0)) <= np.iinfo(np.uint8).max else np.uint16
    return np.argsort(numbers.astype(narrow), kind="stable")


def racks_apart(
    to_follow: CountArray, leading: Numbers, *, followers: int, seed: int
) -> Columns | None:
    """For each list its leader's rack and the racks of its followers, all different; None where
    swapping does not get there.

    Where a list has most of the racks, those that it has not are dealt.
    """
    lists, racks = len(leading), len(to_follow)
    absent = racks - 1 - followers
    if absent >= followers:
        return _apart(to_follow, leading, followers, seed)
    away = lists - to_follow - np.bincount(leading, minlength=racks)
    columns = _apart(away, leading, absent, seed)
    return None if columns is None else _all_others(columns, racks)


def _apart(wanted: CountArray, first: Numbers, width: int, seed: int) -> Columns | None:
    columns = np.empty((1 + width, len(first)), dtype=np.int16)
    columns[0] = first
    columns[1:] = dealt(wanted, np.zeros_like(wanted), seed).reshape(len(first), width).T
    return None if len(repaired(columns, None, seed)) else columns


def _all_others(columns: Columns, racks: int) -> Columns:
    """For each list its first number and all that it has not, turned by one from list to list."""
    lists, followers = columns.shape[1], racks - len(columns)
    away = _ordered(columns)
    turned = np.empty((1 + followers, lists), dtype=np.int16)
    turned[0] = columns[0]
    for number in range(followers):
        present = np.full(lists, number, dtype=np.int16)
        for gone in away:
            present += gone <= present
        for turn in range(followers):
            at = (number - turn) % followers
            turned[1 + at, turn::followers] = present[turn::followers]
    return turned


def _ordered(columns: Columns) -> list[Numbers]:
    """The columns sorted within each list, by exchanges of neighbours."""
    ordered = list(columns)
    for end in range(len(ordered) - 1, 0, -1):
        for at in range(end):
            one, other = ordered[at], ordered[at + 1]
            ordered[at], ordered[at + 1] = np.minimum(one, other), np.maximum(one, other)
    return ordered


def racks_shared(
    totals: CountArray, lower: CountArray, leading: Numbers, *, replicas: int, seed: int
) -> Columns:
    """For each list the racks of its followers where a list has several SPUs of a rack: `lower` of
    each, and one more of some."""
    lists = len(leading)
    each = np.arange(lists)
    counts = np.repeat(lower.astype(np.int16)[:, np.newaxis], lists, axis=1)
    order = np.argsort(mixed(each, seed), kind="stable")
    begin = 0
    for own, more in zip(counts, (totals - lists * lower).tolist(), strict=True):
        own[order.take(np.arange(begin, begin + more), mode="wrap")] += 1
        begin += more
    counts[leading, each] -= 1
    columns = np.empty((replicas - 1, lists), dtype=np.int16)
    cells = columns.reshape(-1)
    next_cell = each
    for rack, own in enumerate(counts):
        for turn in range(int(own.max())):
            more = np.flatnonzero(own > turn)
            cells[next_cell.take(more) + turn * lists] = rack
        next_cell = next_cell + own * np.intp(lists)
    return columns
