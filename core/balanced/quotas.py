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

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.state.ledger import CountArray

BoolArray = NDArray[np.bool_]

COARSE_BITS: Final = 31  # a level times a capacity fits in 62 bits, and an SPU has one key a level
FINE_BITS: Final = 32  # together all 63 that distinguish two keys
KEY_NONE: Final = 2**63 - 1  # after every key
KEYS_BETWEEN: Final = 2  # of an SPU, about, between levels that a search leaves


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
        """Sums by group."""
        return np.asarray(np.add.reduceat(values, self.starts))


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

    Cost: a search of at most 34 steps in O(n), most often of two, and O(n log n) at its end.
    """
    if int(takers.upper.sum()) == takers.total:
        bound, targets = np.ones(len(takers.starts), dtype=np.bool_), takers.upper
        last = _last_keys(takers, targets)
    else:
        shared = _shared_last_key(takers)
        last = np.full(len(takers.starts), shared)
        below, through = _given(takers, last)
        short = takers.sums(through) < takers.lower
        bound = short | (takers.sums(below) > takers.upper)
        targets = np.where(short, takers.lower, takers.upper)
        if bound.any():
            last = np.where(bound, _last_keys(takers, np.where(bound, targets, 0)), shared)
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


def _last_keys(takers: Takers, targets: CountArray) -> CountArray:
    """For each group the key at which it has its target; -1 where that is 0."""
    any_wanted = targets > 0

    def is_short(levels: CountArray) -> BoolArray:
        return np.asarray(takers.sums(_below(takers, levels[takers.groups])) < targets)

    held, capacity = takers.sums(takers.held), takers.sums(takers.capacities)
    guesses = _guesses(held + targets, capacity, np.bincount(takers.groups))
    high = np.where(any_wanted, 2**COARSE_BITS, 1)
    low, high = _search(takers, high, is_short, guesses)
    below = _below(takers, low[takers.groups])
    owners, between = _keys_between(takers, below, high[takers.groups])
    last = _nth_smallest(takers.groups[owners], between, targets - takers.sums(below))
    return np.asarray(np.where(any_wanted, last, -1))


def _shared_last_key(takers: Takers) -> int:
    """The key at which all groups together, each within its bounds, have the total."""
    lower, upper, total = takers.lower, takers.upper, takers.total
    if int(lower.sum()) == total:
        return -1

    def is_short(levels: CountArray) -> BoolArray:
        given = np.clip(takers.sums(_below(takers, levels)), lower, upper)
        return np.asarray(given.sum(keepdims=True) < total)

    held, capacity = takers.held.sum(keepdims=True), takers.capacities.sum(keepdims=True)
    guesses = _guesses(held + total, capacity, np.array([len(takers.held)]))
    low, high = _search(takers, np.array([2**COARSE_BITS]), is_short, guesses)
    below = _below(takers, low)
    owners, between = _keys_between(takers, below, high)
    given = takers.sums(below)
    candidates = np.unique(between)

    def is_enough(key: int) -> bool:
        taken = takers.groups[owners[between <= key]]
        through = np.clip(given + np.bincount(taken, minlength=len(given)), lower, upper)
        return int(through.sum()) >= total

    return int(candidates[bisect_left(candidates[:-1], True, key=is_enough)])


def _keys_between(
    takers: Takers, below: CountArray, high: CountArray
) -> tuple[CountArray, CountArray]:
    """The keys of all SPUs past those that are given (`below`) and below the level `high`, and
    whose they are, by SPU."""
    counts = _below(takers, high) - below
    owners = np.repeat(np.arange(len(counts)), counts)
    turns = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    numbers = takers.held[owners] + below[owners] + 1 + turns
    return owners, keys(takers.capacities[owners], numbers)


def _nth_smallest(groups: CountArray, values: CountArray, nth: CountArray) -> CountArray:
    """For each group its nth smallest value, counted from 1, which must be there; any number where
    nth is 0. `groups` is ascending."""
    if not len(values):
        return np.full(len(nth), KEY_NONE)
    if len(nth) == 1:
        at = np.maximum(nth, 1) - 1
        return np.asarray(np.partition(values, at)[at])
    starts = np.searchsorted(groups, np.arange(len(nth)))
    at = np.minimum(starts + np.maximum(nth, 1), len(values)) - 1
    return np.asarray(values[np.lexsort((values, groups))][at])


def _guesses(numbers: CountArray, capacities: CountArray, spus: CountArray) -> CountArray:
    """Two levels for each column: between them `numbers` are reached if no limit is in the way.

    Then an SPU has level times capacity, rounded: all together are off by half of one each.
    """
    slack = spus // 2 + 1
    levels = np.array([numbers - slack, numbers + slack]) / capacities * 2.0**COARSE_BITS
    return np.clip(levels, 0, 2.0**COARSE_BITS).astype(np.int64)


def _search(
    takers: Takers,
    high: CountArray,
    is_short: Callable[[CountArray], BoolArray],
    guesses: CountArray,
) -> tuple[CountArray, CountArray]:
    """Levels for each column, the first short, the second not, with few keys of an SPU between.

    Level 0 is short and `high` is not, or both are next to each other. Looks at the guesses first,
    which halves the time of requests of 400 lists, then halves what is left.
    """
    near = max((KEYS_BETWEEN << COARSE_BITS) // int(takers.capacities.max()), 1)
    low = np.zeros_like(high)
    guessed = iter(guesses)
    while int((high - low).max()) > near:
        level = np.clip(next(guessed, (low + high) // 2), low, high)
        short = is_short(level)
        low, high = np.where(short, level, low), np.where(short, high, level)
    return low, high
