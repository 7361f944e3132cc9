"""The items of the least size that together cover an amount: a knapsack the other way round.

Sums of items are kept as a front: of two sums the one that is larger and covers no more is left
out, as is what is no smaller than the best cover found. Where the front grows too long it is
thinned out evenly: then the cover found is near the least.

Source: S. Martello and P. Toth, "Knapsack Problems", 1990, section 2.6 (dynamic programming).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

SIZE_MAX: Final = 2**62  # of all items together


class Item(NamedTuple):
    """Things that are alike."""

    amount: int
    size: int
    copies: int


def least_cover(items: Sequence[Item], amount: int, *, sums_max: int) -> list[int] | None:
    """How many of each item to take; None: all together do not cover it.

    Cost: O(items * log(copies) * sums_max).
    """
    if sum(item.amount * item.copies for item in items) < amount:
        return None
    if sum(item.size * item.copies for item in items) >= SIZE_MAX:
        return None
    amounts = sizes = np.zeros(1, dtype=np.int64)
    stages: list[tuple[int, int, Any, Any]] = []  # item, times; of each sum: before, with these
    best, last, stage, at = SIZE_MAX, (0, 0), 0, 0
    for number, times in _portions(items, amount):
        more_amounts = amounts + times * items[number].amount
        more_sizes = sizes + times * items[number].size
        covers = more_amounts >= amount
        covering = np.where(covers, more_sizes, SIZE_MAX)
        if covering.min() < best:
            at = int(covering.argmin())
            best, last, stage = int(covering[at]), (number, times), len(stages)
        left, more = np.flatnonzero(sizes < best), np.flatnonzero(~covers & (more_sizes < best))
        before = np.concatenate((left, more))
        if len(before) == 0:
            break
        amounts = np.concatenate((amounts[left], more_amounts[more]))
        sizes = np.concatenate((sizes[left], more_sizes[more]))
        order = np.lexsort((-amounts, sizes))
        largest = np.maximum.accumulate(amounts[order])
        kept = order[np.diff(largest, prepend=-1) > 0]
        if len(kept) > sums_max:
            kept = kept[np.linspace(0, len(kept) - 1, sums_max).astype(np.int64)]
        stages.append((number, times, before[kept], kept >= len(left)))
        amounts, sizes = amounts[kept], sizes[kept]
    taken = [0] * len(items)
    taken[last[0]] += last[1]
    for number, times, parents, is_taken in reversed(stages[:stage]):
        taken[number] += times * bool(is_taken[at])
        at = int(parents[at])
    return taken


def _portions(items: Sequence[Item], amount: int) -> Iterator[tuple[int, int]]:
    """Items in ones, twos, fours …, which come to any number of them; the largest size first."""
    for number in sorted(range(len(items)), key=lambda at: (-items[at].size, at)):
        item = items[number]
        left = min(item.copies, -(-amount // item.amount)) if item.amount else 0
        times = 1
        while left:
            times = min(times, left)
            yield number, times
            left, times = left - times, times * 2
