"""What `balanced` and a rebalance weigh: SPUs as parallel arrays."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.limits import SPUS_MAX
from spu_assigner.core.base.replica_lists import IdArray
from spu_assigner.core.state.ledger import CountArray

NUMBER_BITS = SPUS_MAX.bit_length()  # of a packed integer: which SPU, or which rack
MIX_FIRST = 0x9E3779B97F4A7C15  # odd numbers of mixed bits, from splitmix64 (S. Vigna)
MIX_SECOND = 0xBF58476D1CE4E5B9
MIXED_BITS = 16
WORD = 2**64 - 1
# Arrays without dimensions: numpy takes them in half the time of a Python int.
_MIX_SECOND = np.array(MIX_SECOND, dtype=np.uint64)
_UNMIXED_BITS = np.array(64 - MIXED_BITS, dtype=np.uint64)
_UNMIXED_KEY_BITS = np.array(64 - MIXED_BITS - NUMBER_BITS, dtype=np.uint64)
_MIXED_MASK = np.array(2**MIXED_BITS - 1 << NUMBER_BITS, dtype=np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RackRule:
    """How many replicas of a list belong on each rack; shape (racks,)."""

    lower: list[int]  # at least
    upper: list[int]  # at most
    is_bound: bool  # the upper bounds together are just a list


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What `balanced` needs of a ring beside the loads: it changes with the ring alone.

    Arrays are by ascending id. Where all SPUs are on one rack, or each on its own, SPUs need only
    be distinct: they count as one rack of which a list takes any.
    """

    numbers: IdArray  # rack numbers as given
    capacities: CountArray
    capacity_of: list[int]  # the same
    capacity: int | None  # of all; None: they differ
    is_one: bool  # counted as one rack
    rack_of: list[int]  # 0 … without gaps
    racks: CountArray  # the same
    starts: list[int]  # where each rack begins when the SPUs are sorted by rack; and their number
    ranks: CountArray  # the SPUs sorted by rack: where each stands in its rack
    words: NDArray[np.uint64]  # mixed bits of each id
    turned: CountArray  # 0 … n - 1, twice
    rules: dict[int, RackRule] = field(default_factory=dict)  # by replication factor
    rack_rounds: dict[int, Any] = field(default_factory=dict)  # of `core.balanced`, likewise

    @classmethod
    def of(cls, ids: IdArray, racks: IdArray, capacities: CountArray) -> Layout:
        """Of SPUs by ascending id, at least one."""
        _, numbers, sizes = np.unique(racks, return_inverse=True, return_counts=True)
        is_one = len(sizes) in (1, len(ids))
        if is_one:
            numbers, sizes = np.zeros(len(ids), dtype=np.int64), np.array([len(ids)])
        starts = np.concatenate(([0], np.cumsum(sizes)))
        order = np.arange(len(ids))
        capacities = capacities.astype(np.int64)
        is_even = int(capacities.min()) == int(capacities.max())
        return cls(
            numbers=racks,
            capacities=capacities,
            capacity_of=capacities.tolist(),
            capacity=int(capacities[0]) if is_even else None,
            is_one=is_one,
            rack_of=numbers.tolist(),
            racks=numbers,
            starts=starts.tolist(),
            ranks=order - np.repeat(starts[:-1], sizes),
            words=ids.astype(np.uint64) * np.uint64(MIX_FIRST),
            turned=np.concatenate((order, order)),
        )

    def rule(self, replicas: int) -> RackRule:
        """Of lists of so many replicas, at most as many as there are SPUs."""
        known = self.rules.get(replicas)
        if known is None:
            sizes = np.diff(self.starts)
            at_most = 1
            while int(np.minimum(sizes, at_most).sum()) < replicas:
                at_most += 1
            lower, upper = np.minimum(sizes, at_most - 1), np.minimum(sizes, at_most)
            if self.is_one:
                lower = upper = np.array([replicas])
            known = self.rules[replicas] = RackRule(
                lower=lower.tolist(),
                upper=upper.tolist(),
                is_bound=int(upper.sum()) == replicas,
            )
        return known

    def positions(self, begin: int) -> CountArray:
        """Each SPU's place in the order by id, turned so that number `begin` is the first."""
        size = len(self.rack_of)
        return self.turned[size - begin : 2 * size - begin]

    def mixed(self, seed: int) -> CountArray:
        """16 bits for each SPU: another order for each seed."""
        return np.asarray((self._mixed_words(seed) >> _UNMIXED_BITS).astype(np.int64))

    def mixed_keys(self, seed: int) -> CountArray:
        """The same, above room for a number."""
        words = self._mixed_words(seed)
        words >>= _UNMIXED_KEY_BITS
        words &= _MIXED_MASK
        return words.view(np.int64)

    def _mixed_words(self, seed: int) -> NDArray[np.uint64]:
        word = seed * MIX_SECOND & WORD
        word = ((word ^ word >> 30) * MIX_FIRST) & WORD
        words = self.words ^ np.array(word, dtype=np.uint64)
        words *= _MIX_SECOND
        return words


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """SPUs by ascending id; every array has shape (n,) and is only read."""

    ids: IdArray
    racks: IdArray  # rack numbers, 0 … in name order; an SPU without a rack is on rack ""
    capacities: CountArray  # replica slots
    replicas: CountArray  # held now, over all topics
    leaders: CountArray  # lists led now, over all topics
    layout: Layout | None = None  # of these SPUs, where a ring has it at hand

    def without_racks(self) -> Loads:
        """The same SPUs as if none had a rack."""
        return replace(self, racks=np.zeros_like(self.racks), layout=None)
