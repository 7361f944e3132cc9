"""How many replicas each SPU is to hold after a rebalance: its share by capacity, as lists permit.

- One level, replicas per slot, for all SPUs. The share of an SPU is level * capacity, but no less
  than it holds for good, and no more than it can hold: one of each list, its capacity.
- A set of racks that cannot hold what that level asks of it holds all that it can: of each list as
  much as its racks have room for. The others share the rest.
- All sets of up to `ALL_SETS_OF` racks are examined; of more racks those that ask for the most of
  what they can hold, which are all that matter while each rack has room for one of a list.
- A band is one replica on either side of the share (or, with a band of 0, the share rounded down
  and up), never above the capacity.

Source: Groenevelt, "Two algorithms for maximizing a separable concave function over a polymatroid
feasible region", 1991 (the decomposition); Bitran and Hax, "Disaggregation and resource allocation
using convex knapsack problems with bounded variables", 1981 (one level within bounds).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.rebalance.lists import ClusterLists
from spu_assigner.core.rebalance.ruled_lists import RuledLists
from spu_assigner.core.state.ledger import CountArray

ALL_SETS_OF: Final = 8  # racks

Table = NDArray[np.signedinteger[Any]]  # shape (kinds of lists, racks)
Shares = list[Fraction]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """How many replicas SPUs are to hold: floors[i] … ceilings[i]; one takes none at limits[i]."""

    floors: CountArray
    ceilings: CountArray
    limits: CountArray

    @classmethod
    def around(cls, shares: Shares, capacities: CountArray, band: int) -> Bands:
        """The bands of these shares."""
        highest = [floor(share + band) if band else ceil(share) for share in shares]
        lowest = [ceil(share - band) if band else floor(share) for share in shares]
        ceilings = np.minimum(np.array(highest, dtype=np.int64), capacities)
        floors = np.array(lowest, dtype=np.int64).clip(0, ceilings)
        return cls(floors=floors, ceilings=ceilings, limits=capacities)

    def moves(self, counts: CountArray) -> int:
        """How many replicas have to move at least to bring all SPUs into their bands."""
        above, below = counts - self.ceilings, self.floors - counts
        return max(int(above.clip(min=0).sum()), int(below.clip(min=0).sum()))

    def widest(self, counts: CountArray, *, moves: int) -> Bands:
        """The widest bands into which it takes no fewer moves than that."""
        widths = range(1, int(counts.max()) + 1)
        too_few = bisect_left(
            widths, x=True, key=lambda width: self._wider(width).moves(counts) < moves
        )
        return self._wider(too_few)  # The index of a width is the width before it.

    def _wider(self, width: int) -> Bands:
        ceilings = np.minimum(self.ceilings + width, self.limits)
        return Bands(floors=self.floors - width, ceilings=ceilings, limits=self.limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """The lists, those alike counted together; arrays have shape (kinds,)."""

    lists: CountArray
    units: CountArray  # that each list has to give
    room: Table  # for how many of them each rack has room


def kinds_of(lists: ClusterLists, ruled: RuledLists) -> tuple[Kinds, CountArray]:
    """Count the lists that are alike; and the kind of each list."""
    units, in_order = lists.is_movable.sum(axis=1), np.sort(lists.racks, axis=1)
    # Of those of one length that may go anywhere, from a rack for each replica, one stands for all.
    is_plain = ((in_order[:, 1:] != in_order[:, :-1]) | (in_order[:, 1:] < 0)).all(axis=1)
    is_plain &= (lists.is_movable | (lists.racks < 0)).all(axis=1)
    is_plain &= ~ruled.is_ruled
    keys = np.where(is_plain, -1 - units, np.arange(len(units)))
    _, rows, alike_to = np.unique(keys, return_index=True, return_inverse=True)
    table = np.column_stack((units[rows], lists.is_movable[rows, 0], ruled.room(rows)))
    keys = np.zeros(len(table), dtype=np.int64)  # numbers of rows that are alike
    for column in table.T:
        keys = np.unique(keys * (int(column.max(initial=0)) + 1) + column, return_inverse=True)[1]
    _, rows, kind_of = np.unique(keys, return_index=True, return_inverse=True)
    of = kind_of[alike_to]
    return Kinds(lists=np.bincount(of), units=table[rows, 0], room=table[rows, 2:]), of


def fair_shares(
    capacities: Sequence[int], fixed: Sequence[int], racks: CountArray, kinds: Kinds
) -> Shares:
    """The share of each SPU, in total what is held by all; less where there is no room for it.

    `fixed` is what each holds for good; racks are numbered 0 … without gaps.
    """
    members = [np.flatnonzero(racks == rack).tolist() for rack in range(kinds.room.shape[1])]
    gives = np.minimum(kinds.units[:, None], kinds.room) > 0
    lists = (kinds.lists @ gives).tolist()  # of which each rack can hold a unit
    rack_of: list[int] = racks.tolist()
    highs = [
        max(low, min(capacity, low + lists[rack]))
        for low, capacity, rack in zip(fixed, capacities, rack_of, strict=True)
    ]
    shares = [Fraction(0)] * len(highs)
    pending = [(np.arange(len(members)), kinds.units)]
    while pending:
        some, units = pending.pop()
        places = [place for rack in some.tolist() for place in members[rack]]
        lows = [fixed[place] for place in places]
        found = level_shares(
            sum(lows) + int(kinds.lists @ units),
            [capacities[place] for place in places],
            lows,
            [highs[place] for place in places],
        )
        asked = [Fraction(0)] * len(members)
        for place, low, share in zip(places, lows, found, strict=True):
            shares[place] = share
            asked[rack_of[place]] += share - low
        room = kinds.room[:, some]
        full = _most_beyond([asked[rack] for rack in some.tolist()], kinds.lists, units, room)
        if full.any():
            held = np.minimum(units, room[:, full].sum(axis=1))
            pending += [(some[full], held), (some[~full], units - held)]
    return shares


def level_shares(
    total: int, capacities: Sequence[int], lows: Sequence[int], highs: Sequence[int]
) -> Shares:
    """A total by capacity, each share within its bounds, or as near to it as these let it come."""
    spus = list(zip(capacities, lows, highs, strict=True))

    def beyond(level: Fraction) -> int:
        """How much more than the total that level gives, as a multiple of a fraction."""
        up, down = level.as_integer_ratio()
        given = sum(min(high * down, max(low * down, up * has)) for has, low, high in spus)
        return given - total * down

    turns = sorted({Fraction(end, has) for has, *ends in spus if has for end in ends})
    at = bisect_right(turns, 0, key=beyond)
    if at in (0, len(turns)):
        return [Fraction(low if at == 0 else high) for _, low, high in spus]
    level = turns[at - 1]
    rising = sum(has for has, low, high in spus if low <= level * has < high)
    level -= Fraction(beyond(level), level.denominator * rising)
    return [min(Fraction(high), max(Fraction(low), level * has)) for has, low, high in spus]


def _most_beyond(
    asked: Sequence[Fraction], lists: CountArray, units: CountArray, room: Table, /
) -> NDArray[np.bool_]:
    """The set of racks of which most is asked beyond what they can hold; none: nothing is."""
    count = len(asked)
    if count <= ALL_SETS_OF:
        numbers = np.arange(1, 2**count - 1)
        sets = (numbers[:, None] >> np.arange(count) & 1).astype(np.bool_)
    else:
        can_hold = (lists @ np.minimum(units[:, None], room)).tolist()
        order = sorted(range(count), key=lambda at: (-asked[at] / max(1, can_hold[at]), at))
        places = np.empty(count, dtype=np.int64)
        places[order] = np.arange(count)
        sets = places[None, :] < np.arange(1, count)[:, None]
    best, most = np.zeros(count, dtype=np.bool_), Fraction(0)
    for racks in sets:
        can_hold = int(lists @ np.minimum(units, room[:, racks].sum(axis=1)))
        beyond = sum((asked[at] for at in np.flatnonzero(racks).tolist()), Fraction(0)) - can_hold
        if beyond > most:
            best, most = racks, beyond
    return best
