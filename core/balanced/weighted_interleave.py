"""Sequences in which each SPU or rack comes as often as it is to, evenly spread, like dealt cards.

Sorting all cards would take most of the time, but they can be laid out nearly in order: all with
the same count have their cards at the same places, turn by turn. So only the cards of a turn are
sorted, and what comes of different counts is merged: numpy's stable sort finds such runs.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.balanced.mixing import mix, mixed
from spu_assigner.core.state.ledger import CountArray
from spu_assigner.core.state.loads import MIX_FIRST, NUMBER_BITS, WORD

PLACE_BITS: Final = 20  # of a card: where it lies, evenly spread
PLACE_BITS_FINE: Final = 33  # the same for leaders, who need no tie
TIE_BITS: Final = 15  # of a card: mixed, between equal places; then follows who it is
RUN_CELLS: Final = 512  # cards that one sort of all has sorted before numpy is called for a run
RUNS_BEGUN: Final = 8  # runs that cost as much as what is done for all groups together

IntArray = NDArray[np.signedinteger[Any]]
Numbers = NDArray[np.int16]  # of SPUs or racks, less than SPUS_MAX; shape (n,)
CARDS_AT_ONCE: Final = 16_384  # of 64 bits, so that they stay in a processor's cache
NUMBER_MASK: Final = 2**NUMBER_BITS - 1
CARD_BITS: Final = TIE_BITS + NUMBER_BITS


def interleaved(counts: CountArray, positions: CountArray) -> Numbers:
    """Each index as often as its count says, evenly spread, equals by position."""
    by_position = np.argsort(positions).astype(np.int16)
    counts = counts[by_position]
    if int(counts.min()) == int(counts.max()):
        return np.tile(by_position, int(counts[0]))
    order = _spread(counts, np.zeros_like(counts), PLACE_BITS_FINE, seed=None)
    return np.asarray(by_position[order])


def dealt(counts: CountArray, groups: CountArray, seed: int) -> Numbers:
    """Each index as often as its count says, by group, evenly spread, equals in mixed order.

    `groups` is ascending.
    """
    return _spread(counts, groups, PLACE_BITS, seed=seed)


def _spread(
    counts: CountArray, groups: CountArray, place_bits: int, *, seed: int | None
) -> Numbers:
    """Each index as often as its count says, by group, place, tie (none without a seed), index.

    The place of turn t = 0, 1 … of c is (2t + 1) / 2c, its first binary places.
    """
    total = int(counts.sum())
    if total <= (1 + RUNS_BEGUN) * RUN_CELLS:  # not even if all counts are the same
        return _spread_one_by_one(counts, groups, place_bits, seed)
    distinct = np.unique(counts[counts > 0]).tolist()
    ends = np.append(np.flatnonzero(groups[1:] != groups[:-1]) + 1, len(groups))
    if len(distinct) * (len(ends) + RUNS_BEGUN) * RUN_CELLS > total:
        return _spread_one_by_one(counts, groups, place_bits, seed)
    runs: list[list[IntArray]] = [[] for _ in ends]  # of each group
    for count in distinct:
        members = np.flatnonzero(counts == count)
        cards = _cards_of_turns(members, count, seed)
        turns = np.arange(count)[:, np.newaxis]
        places = ((2 * turns + 1) << place_bits) // (2 * count) << CARD_BITS
        begin = 0
        for own, end in zip(runs, np.searchsorted(members, ends).tolist(), strict=True):
            if begin < end:
                run = cards[:, begin:end]
                if seed is not None:
                    run.sort(axis=1)
                own.append(run if len(distinct) == 1 else places | run)
            begin = end
    sequence = np.empty(total, dtype=np.int16)
    done = 0
    for own in runs:
        size = sum(run.size for run in own)
        if len(own) == 1:
            part = sequence[done : done + size].reshape(own[0].shape)
            np.bitwise_and(own[0], NUMBER_MASK, out=part, casting="unsafe")
        elif own:
            cards = np.concatenate([run.reshape(-1) for run in own])
            cards.sort(kind="stable")
            np.bitwise_and(cards, NUMBER_MASK, out=sequence[done : done + size], casting="unsafe")
        done += size
    return sequence


def _spread_one_by_one(
    counts: CountArray, groups: CountArray, place_bits: int, seed: int | None
) -> Numbers:
    """The same by sorting all cards: for few, or very different counts.

    The cards of each are a run, and those of like counts stand together: the stable sort makes use
    of both.
    """
    total = int(counts.sum())
    order = np.lexsort((counts, groups))
    cards = np.empty(total, dtype=np.int64)
    step = max(1, CARDS_AT_ONCE * len(order) // max(total, 1))
    done = 0
    for begin in range(0, len(order), step):
        members = order[begin : begin + step]
        more = _cards_of(members, counts[members], groups[members], place_bits, seed)
        cards[done : done + len(more)] = more
        done += len(more)
    cards.sort(kind="stable")
    return np.asarray(cards & NUMBER_MASK, dtype=np.int16)


def _cards_of(
    members: CountArray,
    counts: CountArray,
    groups: CountArray,
    place_bits: int,
    seed: int | None,
) -> CountArray:
    """All cards of the members, as many as their counts say: group, place, tie, index.

    Places are divided as floats, which is exact: a quotient is an integer, or off one by 1 / 2c.
    """
    owners = np.repeat(members, counts)
    turns = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    cards = (((2 * turns + 1) << place_bits) / np.repeat(2 * counts, counts)).astype(np.int64)
    cards |= np.repeat(groups << place_bits, counts)
    cards <<= CARD_BITS
    cards |= owners
    if seed is not None:
        ties = mixed(owners << 32 | turns, seed) >> np.uint64(64 - TIE_BITS)
        cards |= ties.astype(np.int64) << NUMBER_BITS
    return np.asarray(cards)


def _cards_of_turns(members: CountArray, count: int, seed: int | None) -> NDArray[np.int32]:
    """Tie and index in one integer; shape (count, members)."""
    cards = np.empty((count, len(members)), dtype=np.int32)
    if seed is None:
        cards[:] = members
        return cards
    step = min(count, max(1, CARDS_AT_ONCE // len(members)))
    indexes = np.tile(members.astype(np.uint64), step)
    turns = np.repeat(np.arange(step, dtype=np.uint64), len(members))
    first = (indexes << np.uint64(32) | turns) * np.uint64(MIX_FIRST)
    flat = cards.reshape(-1)
    for begin in range(0, count, step):
        size = min(step, count - begin) * len(members)
        word = first[:size] + np.uint64(begin * MIX_FIRST & WORD)  # of the turns from there on
        mix(word, seed)
        word >>= np.uint64(64 - TIE_BITS)
        word <<= np.uint64(NUMBER_BITS)
        word |= indexes[:size]
        flat[begin * len(members) :][:size] = word
    return cards
