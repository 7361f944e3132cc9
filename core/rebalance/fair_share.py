"""What each SPU is to hold after a rebalance: its share by capacity, as the lists permit it.

Rules:
- One level, units per slot of capacity, for all SPUs. The share of an SPU is level * capacity, but
  no less than it holds for good, and no more than it can hold: a unit of each list, its capacity.
- A set of racks that cannot hold as much as that level asks of it has a level of its own: the one
  at which it holds all that it can. The other racks, which must hold the rest, share that at
  another. So on, until each set of racks can hold what its level asks.
- What a set of racks can hold: of each list as much as the racks of the set have room for in it,
  but never more than the list has to give.
- All sets of up to `ALL_SETS_OF` racks are looked at. Of more racks only those are that ask for the
  most of what they can hold: these are all that matter while each rack has room for one of a list.
- Shares are exact fractions. Where nothing is in the way they are total * capacity / capacities.

Source: Groenevelt, "Two algorithms for maximizing a separable concave function over a polymatroid
feasible region", 1991 (the decomposition); Bitran and Hax, "Disaggregation and resource allocation
using convex knapsack problems with bounded variables", 1981 (one level within bounds).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.replica_lists import IdMatrix
from spu_assigner.core.rebalance.flow import Flags
from spu_assigner.core.rebalance.ruled_lists import Zones
from spu_assigner.core.state.ledger import CountArray

ALL_SETS_OF: Final = 8  # racks

Table = NDArray[np.signedinteger[Any]]  # shape (kinds of lists, racks)
Shares = list[Fraction]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holders:
    """The SPUs, by position."""

    capacities: list[int]
    fixed: list[int]  # what each holds for good
    racks: CountArray  # 0 … without gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """The lists, those alike counted together; arrays have shape (kinds,)."""

    lists: CountArray
    units: CountArray  # that each list has to give
    room: Table  # for how many of them each rack has room


def free_of(places: IdMatrix, racks: IdMatrix, rack_of: CountArray) -> IdMatrix:
    """For how many replicas of each list each rack has room, beside those that stay; shape (lists,
    racks). See `kinds_of`."""
    sizes, stays = np.bincount(rack_of), places == len(rack_of)
    free = np.empty((len(places), len(sizes)), dtype=np.int32)
    for rack, size in enumerate(sizes.tolist()):
        here = racks == rack
        room = np.maximum(1, here.sum(axis=1)) - (here & stays).sum(axis=1)
        free[:, rack] = np.minimum(room, size)
    return free


def kinds_of(
    places: IdMatrix, racks: IdMatrix, rack_of: CountArray, zones: Zones | None = None
) -> Kinds:
    """Count the lists that are alike.

    `places`: positions of the members, len(rack_of) for those that stay and for padding; `racks`:
    their rack numbers, -1 for padding; `rack_of`: that of each position, 0 … without gaps.
    With zones these are in place of racks.
    """
    spus, sizes = len(rack_of), np.bincount(rack_of)
    units = (places < spus).sum(axis=1)
    if zones is not None:
        rooms = zones.rooms(free_of(places, racks, rack_of))
        alike, lists = np.unique(np.column_stack((units, rooms)), axis=0, return_counts=True)
        return Kinds(lists=lists, units=alike[:, 0], room=alike[:, 1:])
    in_order = np.sort(racks, axis=1)
    is_plain = ((in_order[:, 1:] != in_order[:, :-1]) | (in_order[:, 1:] < 0)).all(axis=1)
    is_plain &= ((places < spus) | (racks < 0)).all(axis=1)
    plain, lists = np.unique(units[is_plain], return_counts=True)
    room = np.ones((len(plain), len(sizes)), dtype=np.int64)
    others = ~is_plain & (units > 0)
    if not others.any():
        return Kinds(lists=lists, units=plain, room=room)
    table = np.empty((int(others.sum()), 1 + len(sizes)), dtype=np.int16)
    table[:, 0] = units[others]
    table[:, 1:] = free_of(places[others], racks[others], rack_of)
    table, further = np.unique(table, axis=0, return_counts=True)
    return Kinds(
        lists=np.concatenate((lists, further)),
        units=np.concatenate((plain, table[:, 0])),
        room=np.concatenate((room, table[:, 1:])),
    )


def fair_shares(holders: Holders, kinds: Kinds) -> Shares:
    """The share of each SPU, in total what is held by all.

    It is less where the capacities do not hold it all.
    """
    members: list[list[int]] = [[] for _ in range(kinds.room.shape[1])]
    for place, rack in enumerate(holders.racks.tolist()):
        members[rack].append(place)
    gives = np.minimum(kinds.units[:, None], kinds.room) > 0
    lists = (kinds.lists @ gives).tolist()  # of which each rack can hold a unit
    rack_of = holders.racks.tolist()
    highs = [
        max(fixed, min(capacity, fixed + lists[rack]))
        for fixed, capacity, rack in zip(holders.fixed, holders.capacities, rack_of, strict=True)
    ]
    shares = [Fraction(0)] * len(highs)
    pending = [(np.arange(len(members)), kinds.units)]
    while pending:
        racks, units = pending.pop()
        places = [place for rack in racks.tolist() for place in members[rack]]
        lows = [holders.fixed[place] for place in places]
        found = level_shares(
            sum(lows) + int(kinds.lists @ units),
            [holders.capacities[place] for place in places],
            lows,
            [highs[place] for place in places],
        )
        asked = [Fraction(0)] * len(members)
        for place, low, share in zip(places, lows, found, strict=True):
            shares[place] = share
            asked[rack_of[place]] += share - low
        room = kinds.room[:, racks]
        full = _most_beyond([asked[rack] for rack in racks.tolist()], kinds.lists, units, room)
        if full.any():
            held = np.minimum(units, room[:, full].sum(axis=1))
            pending += [(racks[full], held), (racks[~full], units - held)]
    return shares


def level_shares(
    total: int, capacities: Sequence[int], lows: Sequence[int], highs: Sequence[int]
) -> Shares:
    """A total by capacity, each share within its bounds, or as near to it as these let it come."""
    shares = [Fraction(low) for low in lows]
    free = list(range(len(capacities)))
    rest = total
    while free:
        slots = sum(capacities[at] for at in free)
        if slots == 0:
            break
        above = [at for at in free if rest * capacities[at] > highs[at] * slots]
        below = [at for at in free if rest * capacities[at] < lows[at] * slots]
        more = sum(rest * capacities[at] - highs[at] * slots for at in above)
        less = sum(lows[at] * slots - rest * capacities[at] for at in below)
        bounds = (highs if more >= less else lows), (above if more >= less else below)
        for at in bounds[1]:
            shares[at] = Fraction(bounds[0][at])
            rest -= bounds[0][at]
        if not bounds[1]:
            for at in free:
                shares[at] = Fraction(rest * capacities[at], slots)
            break
        done = frozenset(bounds[1])
        free = [at for at in free if at not in done]
    return shares


def _most_beyond(
    asked: Sequence[Fraction], lists: CountArray, units: CountArray, room: Table, /
) -> Flags:
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
