"""The order of preference: which SPU is the best for one more replica of a list.

Only SPUs that all hard rules admit are compared (`eligibility`). The first level that differs
decides, and on each the smaller value is the better:

| level | value |
| --- | --- |
| 1 `lacks` | 0 − the levels of `spread` whose `min` the replica helps to meet |
| 2 `spread` | replicas of the list on the SPU's rack, then on its value of each level of `spread` |
| 3 `prefer` | 0 − the sum of the weights that the SPU meets |
| 4 twofold | 1 if it holds twice its fair share of the topic's replicas (rounded up), else 0 |
| 5 share | its dominant share with the replica; of slots alone see `slot_share` |
| 6 topic | replicas of the topic on it |
| 7 position | from the chain index on |
| 8 id | its id |

Example: racks a: 0, 1, 2 and b: 3, 4, 5, capacity 10 each; SPU 5 holds 2 replicas, the others 1.
The list `[0, 1, 4]` is to have one more. Rack a has 2 of its replicas, rack b 1, so level 2 leaves
3 and 5. Neither holds twice its fair share. 3 would hold 2 ÷ 10, 5 would hold 3 ÷ 10: 3 takes it.

Levels 4 to 8 are one integer, the *key* of an SPU, so that a heap of them compares in one step. It
does not depend on the list; what does are the levels above, which are equal within one *kind* of
SPUs (`eligibility`).
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import Final

import numpy as np
from spu_assigner.core.state.ledger import CountArray

# The key, from its lowest bit: position, replicas of the topic, share, twofold.
POSITION_BITS: Final = 14
TOPIC_BITS: Final = 16
SHARE_BITS: Final = 32
FRACTION_BITS: Final = 31  # a share of 1 is 2**31; up to twice as much can be said
POSITION_MASK: Final = 2**POSITION_BITS - 1
TOPIC_MAX: Final = 2**TOPIC_BITS - 1
SHARE_MAX: Final = 2**SHARE_BITS - 1
SHARE_SHIFT: Final = POSITION_BITS + TOPIC_BITS
TWOFOLD: Final = 1 << SHARE_SHIFT + SHARE_BITS
NEVER: Final = 2**63 - 1  # the key of an SPU without room
STRIDES_MAX: Final = 64  # in turn
GOLDEN: Final = 0.6180339887498949
_NARROW_MAX: Final = 2**32  # numbers below it can be shifted by FRACTION_BITS in 64 bits
_STEPS: Final = (10, 10, 10, 1)  # FRACTION_BITS; numbers below 2**53 can be shifted by each


def share(used: int, capacity: int) -> int:
    """A part of a capacity, at least of 1, in units of 2**-31, rounded down."""
    return min((used << FRACTION_BITS) // (capacity if capacity > 0 else 1), SHARE_MAX)


def slot_share(count: int, capacity: int) -> int:
    """The share of the middle of the last of so many replicas, or lists led: (2n - 1) / 2c.

    By the share with the whole replica large SPUs would get too many, by the one without it too
    few (Webster's method is between those of Jefferson and Adams; M. Balinski and H. Young, "Fair
    Representation", 1982).
    """
    return share(2 * count - 1, 2 * capacity)


def slot_shares(counts: CountArray, capacities: CountArray) -> CountArray:
    """The same of each SPU."""
    return shares(2 * counts - 1, 2 * capacities)


def shares(used: CountArray, capacities: CountArray) -> CountArray:
    """The same of each SPU; numbers are below 2**53."""
    divisors = np.maximum(capacities, 1)
    if used.size and used.max() >= _NARROW_MAX:  # 64 bits do not hold the product.
        found, rest = np.divmod(used, divisors)
        for bits in _STEPS:
            digits, rest = np.divmod(rest << bits, divisors)
            found = (np.minimum(found, SHARE_MAX) << bits) + digits
    else:
        found = (used << FRACTION_BITS) // divisors
    return np.minimum(found, SHARE_MAX)


def chain_positions(count: int, start: int, turn: int = 0) -> CountArray:
    """The position of each of so many SPUs by ascending id, for a chain that stands at an index.

    The SPU at the index modulo the count is the first. In each cycle of the chain, and `turn` of a
    long request, another stride leads to the next, so that other SPUs are neighbours.
    """
    modulo = max(count, 1)
    cycle, first = divmod(start, modulo)
    of_count = strides(modulo)
    positions = np.arange(-first, count - first)
    positions *= of_count[(cycle + turn) % len(of_count)]
    positions %= modulo
    return positions


class Positions:
    """The SPUs of a field in an order: by these levels, the most important first, then by these
    positions."""

    __slots__ = ("array", "at", "of")

    def __init__(self, positions: CountArray, *levels: CountArray) -> None:
        """Every array has shape (SPUs,)."""
        if len(levels) == 1:
            order = ((levels[0] << POSITION_BITS) + positions).argsort()
        else:
            order = np.lexsort((positions, *reversed(levels)))
        self.at: list[int] = order.tolist()  # the SPU at each position
        self.array = np.empty_like(positions)
        self.array[order] = np.arange(len(order))
        self.of: list[int] = self.array.tolist()  # of each SPU


@lru_cache(maxsize=64)
def strides(count: int) -> list[int]:
    """Numbers up to half of the count without a common divisor with it, 1 first; then by the
    golden section, so that cycles close to each other have strides that are not."""
    found = [each for each in range(1, max(count // 2, 1) + 1) if gcd(each, count) == 1]
    found = found[:: max(len(found) // STRIDES_MAX, 1)]
    return found[:1] + sorted(found[1:], key=lambda each: each * GOLDEN % 1)
