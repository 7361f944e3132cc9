"""How many replicas, or leaders, each SPU is to get: shares of capacity as even as bounds permit.

An SPU of capacity c that holds h gets its next replicas at the keys (2(h + j) - 1) / 2c, j = 1, 2 …
(Webster's method: half a replica past what it holds, as a share of its capacity). Replicas are
given in ascending order of key, as long as the bounds of each SPU and of each group of SPUs (a
rack) permit. The bounds are nested, so the greedy choice is optimal: no other choice has a smaller
sum of keys. Source: A. Federgruen, H. Groenevelt, "The greedy procedure for resource allocation
problems", Operations Research 34 (1986).

Keys are compared exactly: capacities are below 2**31, so two different keys differ by more than
2**-63, and a key is kept as an integer, its first 63 binary places. Instead of giving replicas one
by one, the level up to which all are given is searched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.ledger import CountArray

BoolArray = NDArray[np.bool_]

COARSE_BITS: Final = 31  # a level times a capacity fits in 62 bits, and an SPU has one key a level
FINE_BITS: Final = 32  # together all 63 that tell two keys apart
KEY_NONE: Final = 2**63 - 1  # after every key
SEARCH_CELLS: Final = 8_192  # looked at in one step of a search: numpy's calls cost as much as that


@dataclass(frozen=True, slots=True, kw_only=True)
class Takers:
    """Who may take how much; SPUs of one group stand together. Arrays have shape (n,) or (groups,).

    The bounds must admit `total`, and no limit may exceed capacity less what is held.
    """

    capacities: CountArray
    held: CountArray
    limits: CountArray  # what an SPU may take
    groups: CountArray  # the group of each SPU: 0 … without gaps, ascending
    starts: CountArray  # where each group begins
    lower: CountArray  # what a group must take
    upper: CountArray  # what a group may take
    total: int

    def sums(self, values: NDArray[np.int64]) -> CountArray:
        """Sums by group over the last axis."""
        if len(self.starts) == 1:
            return np.asarray(values.sum(axis=-1, keepdims=True))
        return np.asarray(np.add.reduceat(values, self.starts, axis=-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What each SPU gets for sure, and the choice that is left between equal keys.

    Each `tied` SPU may get one more. A group must choose `forced` of its own and may choose `room`;
    `free` are to be chosen beyond what is forced.
    """

    sure: CountArray  # (n,)
    tied: BoolArray  # (n,)
    forced: CountArray  # (groups,)
    room: CountArray  # (groups,)
    free: int
    groups: CountArray  # (n,)

    def choose(self, preferred: CountArray) -> CountArray:
        """Those of the tied SPUs, the most preferred first, that can all get one more."""
        if len(self.room) == 1:
            return preferred[: int(self.room[0])]
        forced, room, free = self.forced.tolist(), self.room.tolist(), self.free
        chosen = []
        for at, group in enumerate(self.groups[preferred].tolist()):
            if room[group] == 0 or (forced[group] == 0 and free == 0):
                continue
            room[group] -= 1
            if forced[group]:
                forced[group] -= 1
            else:
                free -= 1
            chosen.append(at)
        return preferred[chosen]

    def beyond(self, chosen: CountArray) -> BoolArray:
        """The tied SPUs that cannot be chosen too."""
        counts = np.bincount(self.groups[chosen], minlength=len(self.room))
        full = counts >= self.room
        if int(np.maximum(counts - self.forced, 0).sum()) == self.free:
            full |= counts >= self.forced
        unfit = self.tied & full[self.groups]
        unfit[chosen] = False
        return np.asarray(unfit)


def keys(capacities: CountArray, numbers: CountArray) -> CountArray:
    """The key of the number-th replica on each SPU: its first 63 binary places."""
    coarse, rest = np.divmod((2 * numbers - 1) << (COARSE_BITS - 1), capacities)
    return np.asarray(coarse << FINE_BITS | (rest << FINE_BITS) // capacities)


def even_shares(takers: Takers) -> Shares:
    """Divide the total so that the sum of keys is the smallest that the bounds permit.

    Cost: O(n log n), and a search of at most 31 steps in O(n).
    """
    first = np.where(takers.limits > 0, keys(takers.capacities, takers.held + 1), KEY_NONE)
    if int(takers.upper.sum()) == takers.total:
        bound, targets = np.ones(len(takers.starts), dtype=np.bool_), takers.upper
        last = _last_keys(takers, first, targets)
    else:
        shared = _shared_last_key(takers, first)
        last = np.full(len(takers.starts), shared)
        below, through = _given(takers, last)
        short = takers.sums(through) < takers.lower
        bound = short | (takers.sums(below) > takers.upper)
        targets = np.where(short, takers.lower, takers.upper)
        if bound.any():
            last = np.where(bound, _last_keys(takers, first, np.where(bound, targets, 0)), shared)
    sure, through = _given(takers, last)
    tied = through > sure
    given, choices = takers.sums(sure), takers.sums(tied.astype(np.int64))
    forced = np.where(bound, targets - given, np.maximum(takers.lower - given, 0))
    room = np.where(bound, targets - given, np.minimum(takers.upper - given, choices))
    return Shares(
        sure=sure,
        tied=tied,
        forced=forced,
        room=room,
        free=takers.total - int(given.sum()) - int(forced.sum()),
        groups=takers.groups,
    )


def _below(takers: Takers, levels: CountArray) -> CountArray:
    """What each SPU gets at keys below the level, in units of 2**-31.

    A number k is below level t when (2k - 1) * 2**30 < t * capacity.
    """
    reached = (levels * takers.capacities + (2 ** (COARSE_BITS - 1) - 1)) >> COARSE_BITS
    return np.asarray(np.minimum(np.maximum(reached - takers.held, 0), takers.limits))


def _given(takers: Takers, last: CountArray) -> tuple[CountArray, CountArray]:
    """What each SPU gets at keys below the last one of its group, and at keys up to it."""
    last_key = last[takers.groups]
    level = last_key >> FINE_BITS
    below = _below(takers, level)
    has_next = _below(takers, level + 1) > below
    next_key = np.where(has_next, keys(takers.capacities, takers.held + below + 1), KEY_NONE)
    return below + (next_key < last_key), below + (next_key <= last_key)


def _last_keys(takers: Takers, first: CountArray, targets: CountArray) -> CountArray:
    """For each group the key at which it has its target; -1 where that is 0."""
    any_wanted = targets > 0
    high = _level_after(_nth_smallest(takers, first, targets))
    low = np.where(any_wanted, np.minimum.reduceat(first, takers.starts) >> FINE_BITS, 0)
    high = np.where(any_wanted, high, 1)

    def is_short(levels: CountArray) -> BoolArray:
        return np.asarray(takers.sums(_below(takers, levels[:, takers.groups])) < targets)

    level = _search(low, high, is_short, fan=SEARCH_CELLS // len(takers.groups))
    below = _below(takers, level[takers.groups])
    has_next = _below(takers, level[takers.groups] + 1) > below
    next_key = np.where(has_next, keys(takers.capacities, takers.held + below + 1), KEY_NONE)
    last = _nth_smallest(takers, next_key, targets - takers.sums(below))
    return np.asarray(np.where(any_wanted, last, -1))


def _shared_last_key(takers: Takers, first: CountArray) -> int:
    """The key at which all groups together, each within its bounds, have the total."""
    lower, upper, total = takers.lower, takers.upper, takers.total
    if int(lower.sum()) == total:
        return -1
    order = np.lexsort((first, takers.groups))
    rank = np.arange(len(order)) - takers.starts[takers.groups]
    ones = np.sort(
        first[order][rank < upper[takers.groups]]
    )  # one replica an SPU is one way to do it
    enough = ones[total - 1 : total] if total <= len(ones) else np.array([KEY_NONE])

    def is_short(levels: CountArray) -> BoolArray:
        given = np.clip(takers.sums(_below(takers, levels)), lower, upper)
        return np.asarray(given.sum(axis=-1, keepdims=True) < total)

    low = np.array([int(first.min()) >> FINE_BITS])
    level = _search(low, _level_after(enough), is_short, fan=SEARCH_CELLS // len(order))
    below = _below(takers, level)
    has_next = np.flatnonzero(_below(takers, level + 1) > below)
    next_key = keys(takers.capacities, takers.held + below + 1)[has_next]
    given = takers.sums(below)
    candidates = np.unique(next_key)
    low_at, high_at = -1, len(candidates) - 1  # the last one is enough
    while high_at - low_at > 1:
        middle = (low_at + high_at) // 2
        taken = takers.groups[has_next[next_key <= candidates[middle]]]
        through = np.clip(given + np.bincount(taken, minlength=len(given)), lower, upper)
        if int(through.sum()) < total:
            low_at = middle
        else:
            high_at = middle
    return int(candidates[high_at])


def _nth_smallest(takers: Takers, values: CountArray, nth: CountArray) -> CountArray:
    """For each group its nth smallest value, counted from 1; `KEY_NONE` where it has fewer."""
    sizes = np.bincount(takers.groups)
    at = takers.starts + np.clip(nth, 1, sizes) - 1
    if len(sizes) == 1:
        ordered = np.partition(values, at)
    else:
        ordered = values[np.lexsort((values, takers.groups))]
    return np.asarray(np.where(nth <= sizes, ordered[at], KEY_NONE))


def _level_after(key: CountArray) -> CountArray:
    """The first level that a key is below; all are below 2**31."""
    return np.asarray(np.minimum((key >> FINE_BITS) + 1, 2**COARSE_BITS))


def _search(
    low: CountArray, high: CountArray, is_short: Callable[[CountArray], BoolArray], *, fan: int
) -> CountArray:
    """The last level that is short, for each column; `low` is short and `high` is not.

    Looks at `fan` levels between them at once; `is_short` gets an array of shape (levels, columns).
    """
    parts = np.arange(1, max(fan, 2))[:, np.newaxis]
    columns = np.arange(len(low))
    while int((high - low).max()) > 1:
        levels = low + (high - low) * parts // (len(parts) + 1)
        edges = np.concatenate((low[np.newaxis], levels, high[np.newaxis]))
        shorts = is_short(levels).sum(axis=0)
        low, high = edges[shorts, columns], edges[shorts + 1, columns]
    return low
