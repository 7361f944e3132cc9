"""Fixed mixing in place of chance: bits that differ widely for numbers that are neighbours.

After splitmix64 (S. Vigna). The bits decide which replicas are in which list, so they must stay as
they are from release to release. `Layout.mixed` has the ones for the SPUs of a ring.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.state.ledger import CountArray
from spu_assigner.core.state.loads import MIX_FIRST, MIX_SECOND, WORD

MIX_THIRD: Final = 0x94D049BB133111EB
TIE_BITS: Final = 24  # of a sort key: mixed bits between equals
SORT_NUMBER_BITS: Final = 20  # of a sort key: which SPU, or which rack
SORT_NUMBER_MASK: Final = 2**SORT_NUMBER_BITS - 1


def mix(words: NDArray[np.uint64], seed: int) -> None:
    """Mix numbers that were multiplied by `MIX_FIRST`, in place; the first 31 bits are the best."""
    words ^= np.uint64(seed * MIX_SECOND & WORD)
    words ^= words >> np.uint64(30)
    words *= np.uint64(MIX_SECOND)


def mixed(numbers: CountArray, seed: int) -> NDArray[np.uint64]:
    """64 bits for each number."""
    words = numbers.astype(np.uint64)
    words *= np.uint64(MIX_FIRST)
    mix(words, seed)
    words ^= words >> np.uint64(31)
    return words


def mixed_turns(ids: CountArray, turns: CountArray, seed: int) -> NDArray[np.uint64]:
    """64 bits for each pair: another order of the ids for each turn and seed."""
    words = ids.astype(np.uint64) * np.uint64(MIX_FIRST)
    words += turns.astype(np.uint64) * np.uint64(MIX_THIRD)
    words += np.uint64(seed * MIX_SECOND & WORD)
    for factor in (MIX_SECOND, MIX_THIRD):
        words = (words ^ (words >> np.uint64(30))) * np.uint64(factor)
    return np.asarray(words ^ (words >> np.uint64(31)))


def sort_key(number: int, rank: int, seed: int) -> int:
    """Sorts by rank, then by `TIE_BITS` bits mixed of all three; the last bits are the number."""
    word = (number * MIX_FIRST + rank * MIX_THIRD + seed * MIX_SECOND) & WORD
    tie = ((word ^ word >> 30) * MIX_SECOND & WORD) >> (64 - TIE_BITS)
    return (rank << TIE_BITS | tie) << SORT_NUMBER_BITS | number
