"""Failover counts per rack and SPU: how often each SPU is next behind the leaders of a rack.

When an SPU or a rack fails, the first replica that is left of a list leads it: the failover target,
the first follower on another rack than the leader's. `balanced` keeps these even (`failover`).

The counts are no part of the published state: they are made from the lists that there are when they
are first asked for, and kept up to date from then on.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import add
from typing import Final, NamedTuple

import numpy as np
from spu_assigner.core.base.replica_lists import (
    DENSE_MIN,
    DENSE_RATIO,
    PADDING,
    IdArray,
    IdMatrix,
    ReplicaLists,
)
from spu_assigner.core.state.ledger import CountArray

COUNTS_MAX: Final = 2**18  # racks times SPUs, for each of which there is a number
PAIRS_SPUS_MAX: Final = 128  # up to so many SPUs it is counted for each pair of them, too
PAIR_WEIGHT: Final = 2  # of what is taken over from one SPU, beside what is from its whole rack
WEIGHT: Final = 1_024  # of a list that is taken over by an SPU of the largest capacity
ONE_BY_ONE: Final = 2_048  # lists of a map up to which they are counted in plain Python
LATER_MIN: Final = 512  # lists of a map; more are counted when the counts are asked for,
LATER_CELLS_MAX: Final = 2**18  # replicas, or when there are so many to be counted: 1 MB
NEVER: Final = float("inf")  # what an SPU takes over from its own rack: it is never the least

Counts = list[float]  # what each SPU takes over, in the order in which they came


class Fairness(NamedTuple):
    """What it means that each takes over as much, or by capacity."""

    weights: list[int] | None  # of each SPU; None: 1
    factors: list[float]  # of each SPU: what is its own, too, of what is taken over from its rack
    others: list[int]  # of each rack: SPUs on other ones,
    means: list[float]  # and the mean of their weights


class Takeovers:
    """The counts of one cluster. SPUs and racks have numbers, as they came."""

    __slots__ = (
        "_fair",
        "_later",
        "_later_cells",
        "_rack_numbers",
        "_rack_sizes",
        "capacities",
        "from_racks",
        "from_spus",
        "ids",
        "nothing",
        "numbers",
        "rack_of",
        "rack_totals",
    )

    def __init__(
        self, spus: Iterable[tuple[int, str | None, int]], maps: Iterable[ReplicaLists]
    ) -> None:
        """Of SPUs with these racks and capacities, and of the maps of a cluster."""
        self._rack_numbers: dict[str | int, int] = {}
        self.numbers: dict[int, int] = {}  # of each SPU, by its id
        self.ids: list[int] = []  # and its id, by the number
        self.rack_of: list[int] = []
        self.capacities: list[int] = []
        self._fair: dict[bool, Fairness] = {}
        self.from_racks: list[Counts] = []
        self.from_spus: list[Counts] | None = []  # weighed; None: there are too many SPUs
        self.nothing: Counts = []  # then of each
        self.rack_totals: list[int] = []  # what all together take over from each rack
        self._rack_sizes: list[int] = []
        self._later: list[tuple[IdMatrix, int]] = []  # maps to be counted, and their sign
        self._later_cells = 0
        for spu_id, rack, capacity in spus:
            self.enter(spu_id, rack, capacity)
        for lists in maps:
            self.count(lists)

    @property
    def size(self) -> int:
        """Racks times SPUs."""
        return len(self.from_racks) * len(self.rack_of)

    def enter(self, spu_id: int, rack: str | None, capacity: int) -> None:
        """Enter an SPU that no list holds yet, or another capacity of one that is there.

        Without a rack it fails alone: it counts as a rack of its own.
        """
        known = self.numbers.get(spu_id)
        if known is not None:
            if self.capacities[known] != capacity:
                self.capacities[known] = capacity
                self._fair.clear()
            return
        self._fair.clear()
        number = self.numbers[spu_id] = len(self.rack_of)
        home = self._rack_numbers.setdefault(
            spu_id if rack is None else rack, len(self._rack_numbers)
        )
        if home == len(self.from_racks):
            self.from_racks.append([0] * number)
            self.rack_totals.append(0)
            self._rack_sizes.append(0)
        for other, counts in enumerate(self.from_racks):
            counts.append(NEVER if other == home else 0)
        self.ids.append(spu_id)
        self.rack_of.append(home)
        self.capacities.append(capacity)
        self.nothing.append(0)
        self._rack_sizes[home] += 1
        if number >= PAIRS_SPUS_MAX:
            self.from_spus = None
        if self.from_spus is not None:
            for counts in self.from_spus:
                counts.append(0)
            self.from_spus.append([0] * (number + 1))

    def count(self, lists: ReplicaLists, sign: int = 1) -> None:
        """Count a map, or, with -1, take it out."""
        matrix = lists.matrix
        if lists.ragged:  # A short list is padded with its leader, which takes nothing over.
            matrix = np.where(matrix == PADDING, matrix[:, :1], matrix)
        if len(matrix) <= LATER_MIN:
            self._add(matrix, sign)
            return
        self._later.append((matrix, sign))
        self._later_cells += matrix.size
        if self._later_cells > LATER_CELLS_MAX:
            self.settle()

    def settle(self) -> None:
        """Count the maps that were put off."""
        for matrix, sign in self._later:
            self._add(matrix, sign)
        self._later.clear()
        self._later_cells = 0

    def enough(self, fairness: Fairness) -> list[float]:
        """Of each rack: what an SPU takes over at the mean from it, weighed; where all are to take
        over as much also from an SPU of it, less half a list."""
        totals = zip(self.rack_totals, fairness.others, fairness.means, strict=True)
        if fairness.weights is not None:
            return [total / others * mean for total, others, mean in totals]
        pairs = PAIR_WEIGHT if self.from_spus is not None else 0
        return [
            int(total * (1 + pairs / size) / others - 0.5)
            for (total, others, _), size in zip(totals, self._rack_sizes, strict=True)
        ]

    def fairness(self, *, by_capacity: bool) -> Fairness:
        """Made again when an SPU came or got another capacity."""
        if by_capacity not in self._fair:
            capacities = np.maximum(
                self.capacities if by_capacity else 1, np.ones(len(self.rack_of))
            )
            whole, sizes = (
                np.bincount(self.rack_of, each, minlength=len(self._rack_sizes))
                for each in (capacities, None)
            )
            others = np.maximum(sizes.sum() - sizes, 1)
            unit = WEIGHT * capacities.max() if by_capacity else 1
            pairs = PAIR_WEIGHT if self.from_spus is not None else 0
            self._fair[by_capacity] = Fairness(
                factors=(1 + pairs * capacities / whole[self.rack_of]).tolist(),
                weights=(unit // capacities).astype(np.int64).tolist() if by_capacity else None,
                others=others.tolist(),
                means=(unit * others / np.maximum(whole.sum() - whole, 1)).tolist(),
            )
        return self._fair[by_capacity]

    def _add(self, matrix: IdMatrix, sign: int) -> None:
        """Count lists, all of one length."""
        if matrix.shape[1] == 1:
            return
        if len(matrix) > ONE_BY_ONE:
            self._add_many(matrix, sign)
            return
        numbers, rack_of, from_spus = self.numbers, self.rack_of, self.from_spus
        for leader_id, *others in matrix.tolist():
            leader = numbers[leader_id]
            of_rack = self.from_racks[rack_of[leader]]
            for other in others:
                target = numbers[other]
                if of_rack[target] != NEVER:
                    of_rack[target] += sign
                    self.rack_totals[rack_of[leader]] += sign
                    if from_spus is not None:
                        from_spus[leader][target] += sign * PAIR_WEIGHT
                    break

    def _add_many(self, matrix: IdMatrix, sign: int) -> None:
        """The same, vectorised."""
        racks, size = np.array(self.rack_of), len(self.rack_of)
        givers, giver_racks = self.numbers_of(matrix[:, 0]), racks
        if self.from_spus is None:
            givers, giver_racks = racks[givers], np.arange(len(self.from_racks))
        keys = givers * size
        keys += self.numbers_of(matrix[:, 1])
        is_own = (giver_racks[:, np.newaxis] == racks).reshape(-1)  # on the leader's rack
        counts = np.bincount(keys, minlength=len(is_own))
        for place in range(2, matrix.shape[1]):
            if not counts[is_own].any():
                break
            without = np.flatnonzero(is_own[keys])
            keys[without] += self.numbers_of(matrix[without, place]) - keys[without] % size
            counts = np.bincount(keys, minlength=len(is_own))
        counts[is_own] = 0
        counts *= sign
        more = counts.reshape(-1, size)
        if self.from_spus is not None:
            _add_to(self.from_spus, more * PAIR_WEIGHT)
            more = (np.arange(len(self.from_racks))[:, np.newaxis] == racks) @ more
        _add_to(self.from_racks, more)
        self.rack_totals[:] = map(add, self.rack_totals, more.sum(axis=1).tolist())

    def numbers_of(self, ids: IdArray | IdMatrix) -> CountArray:
        """The numbers of SPUs."""
        known = np.array(self.ids)
        numbers = np.arange(len(known))
        largest = int(known.max())
        if largest < DENSE_RATIO * len(ids) + DENSE_MIN:
            by_id = np.empty(largest + 1, dtype=np.int64)
            by_id[known] = numbers
            return np.asarray(by_id[ids])
        order = np.argsort(known)
        return np.asarray(order[np.searchsorted(known[order], ids)])


def _add_to(counts: list[Counts], more: CountArray) -> None:
    for own, of_giver in zip(counts, more.tolist(), strict=True):
        own[:] = map(add, own, of_giver)
