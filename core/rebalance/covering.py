"""The items of the least size that together cover an amount: a knapsack the other way round.

Sums of items are kept as a front: a sum that is no smaller than another, or than the best cover
found, and leaves as much to be covered, is left out. A front that grows too long is thinned out
evenly: then the cover found is near the least.

Source: S. Martello and P. Toth, "Knapsack Problems", 1990, section 2.6 (dynamic programming).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

SUMS_MAX: Final = 32  # that are kept at once


class Item(NamedTuple):
    """Things that are alike."""

    amount: int  # > 0
    size: int
    copies: int


class _Sum(NamedTuple):
    size: int
    left: int  # to be covered
    number: int = 0  # the item that was added last,
    times: int = 0  # so often,
    before: _Sum | None = None  # to this


def least_cover(items: Sequence[Item], amount: int) -> list[int] | None:
    """How many of each item to take; None: all together do not cover it."""
    front, best = [_Sum(0, amount)], None
    for number, times in _portions(items, amount):
        more, less = times * items[number].size, times * items[number].amount
        added = [_Sum(each.size + more, each.left - less, number, times, each) for each in front]
        sums, front = sorted(front + added, key=lambda each: each[:2]), []
        for each in sums:
            if best is not None and each.size >= best.size:
                break
            if each.left <= 0:
                best = each
                break
            if not front or each.left < front[-1].left:
                front.append(each)
        if len(front) > SUMS_MAX:
            front = [front[at * (len(front) - 1) // (SUMS_MAX - 1)] for at in range(SUMS_MAX)]
    if best is None:
        return None
    counts, taken = [0] * len(items), best
    while taken.before is not None:
        counts[taken.number] += taken.times
        taken = taken.before
    return counts


def _portions(items: Sequence[Item], amount: int) -> Iterator[tuple[int, int]]:
    """Items in ones, twos, fours …, which come to any number of them; the largest size first."""
    for number in sorted(range(len(items)), key=lambda at: (-items[at].size, at)):
        left, times = min(items[number].copies, -(-amount // items[number].amount)), 1
        while left:
            times = min(times, left)
            yield number, times
            left, times = left - times, times * 2
