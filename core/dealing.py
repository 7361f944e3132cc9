"""Many replica lists at once: deal, then mend.

The followers of all lists are dealt out like cards, each SPU evenly spread and in mixed order.
Where an SPU (or rack) comes twice in a list, it changes places with another of its kind, taken from
a list that does not have it. Swaps keep what each SPU gets and what each list has of each rack.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.ledger import CountArray
from spu_assigner.core.loads import MIX_FIRST, MIX_SECOND, NUMBER_BITS, WORD

PLACE_BITS: Final = 20  # of a card: where it lies, evenly spread
TIE_BITS: Final = 15  # of a card: mixed, between equal places; with two numbers, 63 bits
SWAPS_TRIED_MAX: Final = 128  # for a list; each succeeds with a chance of about a quarter or more

Matrix = NDArray[np.int64]


def dealt(counts: CountArray, groups: CountArray, seed: int) -> CountArray:
    """Each index as often as its count says, by group, evenly spread, equals in mixed order."""
    owners = np.repeat(np.arange(len(counts)), counts)
    turns = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    cards = ((2 * turns + 1) << PLACE_BITS) // (2 * counts[owners])
    ties = _mixed(owners << 32 | turns, seed) >> np.uint64(64 - TIE_BITS)
    cards = (cards << TIE_BITS | ties.astype(np.int64)) << NUMBER_BITS | owners
    cards |= groups[owners] << (PLACE_BITS + TIE_BITS + NUMBER_BITS)
    cards.sort()
    return np.asarray(cards & (2**NUMBER_BITS - 1))


def mended(rows: Matrix, groups: Matrix, seed: int) -> CountArray:
    """Swap followers until no row has a number twice; the first column stays.

    `groups` has the group of each follower: swaps are within one. Returns the rows that could not
    be mended.
    """
    width = rows.shape[1] - 1
    ordered = np.sort(rows, axis=1)
    bad = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    if not len(bad):
        return bad
    flat = groups.ravel()
    members = np.argsort(flat, kind="stable")
    sizes = np.bincount(flat)
    begins = np.cumsum(sizes) - sizes
    for attempt in range(SWAPS_TRIED_MAX):
        here = rows[bad]
        order = np.argsort(here, axis=1, kind="stable")  # so that the leader is the first of equals
        ordered = np.take_along_axis(here, order, axis=1)
        twice = ordered[:, 1:] == ordered[:, :-1]
        still = twice.any(axis=1)
        bad, here, order, twice = bad[still], here[still], order[still], twice[still]
        if not len(bad):
            break
        each = np.arange(len(bad))
        columns = order[each, twice.argmax(axis=1) + 1]
        group = groups[bad, columns - 1]
        drawn = _mixed(bad << 8 | attempt, seed) >> np.uint64(32)
        at = members[begins[group] + drawn.astype(np.int64) % sizes[group]]
        others, other_columns = at // width, at % width + 1
        given, taken = here[each, columns], rows[others, other_columns]
        fits = ~(rows[others] == given[:, np.newaxis]).any(axis=1)
        fits &= ~(here == taken[:, np.newaxis]).any(axis=1)
        is_bad = np.zeros(len(rows), dtype=np.bool_)
        is_bad[bad] = True
        fits &= ~is_bad[others]
        fitting = np.flatnonzero(fits)
        fitting = fitting[np.unique(others[fitting], return_index=True)[1]]
        rows[bad[fitting], columns[fitting]] = taken[fitting]
        rows[others[fitting], other_columns[fitting]] = given[fitting]
    return bad


def racks_apart(
    to_follow: CountArray, leading: CountArray, *, followers: int, seed: int
) -> Matrix | None:
    """For each row the racks of its followers, all different and not the leader's; None where
    swapping does not get there.

    Where a row has most of the racks, those that it has not are dealt.
    """
    lists, racks = len(leading), len(to_follow)
    absent = racks - 1 - followers
    wanted, width = to_follow, followers
    if absent < followers:
        wanted, width = lists - to_follow - np.bincount(leading, minlength=racks), absent
    none = np.zeros((lists, width), dtype=np.int64)
    cards = dealt(wanted, np.zeros_like(wanted), seed).reshape(lists, width)
    rows = np.column_stack((leading, cards))
    if len(mended(rows, none, seed)):
        return None
    if absent >= followers:
        return rows[:, 1:]
    is_there = np.ones((lists, racks), dtype=np.bool_)
    np.put_along_axis(is_there, rows, values=False, axis=1)
    present = np.nonzero(is_there)[1].reshape(lists, followers)
    turned = (np.arange(followers) + np.arange(lists)[:, np.newaxis]) % max(followers, 1)
    return np.take_along_axis(present, turned, axis=1)


def racks_shared(
    totals: CountArray, lower: CountArray, leading: CountArray, *, replicas: int, seed: int
) -> Matrix:
    """For each row the racks of its followers where a row has several SPUs of a rack: `lower` of
    each, and one more of some."""
    lists, racks = len(leading), len(totals)
    counts = np.tile(lower, (lists, 1))
    extra = np.repeat(np.arange(racks), totals - lists * lower)
    places = np.argsort(_mixed(np.arange(lists), seed), kind="stable")  # rows in mixed order
    np.add.at(counts, (places[np.arange(len(extra)) % lists], extra), 1)
    counts[np.arange(lists), leading] -= 1
    cells = np.repeat(np.tile(np.arange(racks), lists), counts.ravel())
    return np.asarray(cells.reshape(lists, replicas - 1))


def _mixed(numbers: CountArray, seed: int) -> NDArray[np.uint64]:
    word = numbers.astype(np.uint64) * np.uint64(MIX_FIRST)
    word ^= np.uint64(seed * MIX_SECOND & WORD)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(MIX_SECOND)
    return np.asarray(word ^ (word >> np.uint64(31)))
