"""Who would take over what: how often each SPU comes right behind the leaders of each rack.

When an SPU or a rack fails, the first replica that is left of a list leads it. `balanced` keeps
these numbers even: of a list's followers on other racks than the leader's, that one comes first who
would take over the least from this leader and from its rack.

The counts are no part of the published state: they are made from the lists that there are when they
are first asked for, and kept up to date from then on. A map counts when it is ordered, and is taken
out again if what is counted next is another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import add
from typing import Final

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
# Lists of a map, its last, that are put in order; in those before, chance evens out most.
ONE_BY_ONE: Final = 2_048
NEVER: Final = float("inf")  # what an SPU takes over from its own rack: it is never the least

Counts = list[float]  # what each SPU takes over, in the order in which they came


class Takeovers:
    """The counts of one cluster. SPUs and racks have numbers, as they came."""

    __slots__ = (
        "_capacities",
        "_from_racks",
        "_from_spus",
        "_newest",
        "_number_of",
        "_rack_numbers",
        "_rack_of",
    )

    def __init__(self, spus: Iterable[tuple[int, str, int]], maps: Iterable[ReplicaLists]) -> None:
        """Of SPUs with these racks and capacities, and of the maps of a cluster."""
        self._rack_numbers: dict[str, int] = {}
        self._number_of: dict[int, int] = {}  # of each SPU, by its id
        self._rack_of: list[int] = []
        self._capacities: list[int] = []
        self._from_racks: list[Counts] = []
        self._from_spus: list[Counts] | None = []  # weighed; None: there are too many SPUs
        self._newest: IdMatrix | None = None  # counted as it was ordered, maybe not granted
        for spu_id, rack, capacity in spus:
            self.enter(spu_id, rack, capacity)
        for lists in maps:
            self.count(lists)

    @property
    def size(self) -> int:
        """Racks times SPUs."""
        return len(self._from_racks) * len(self._rack_of)

    def enter(self, spu_id: int, rack: str, capacity: int) -> None:
        """Enter an SPU that no list holds yet, or another capacity of one that is there."""
        known = self._number_of.get(spu_id)
        if known is not None:
            self._capacities[known] = capacity
            return
        number = self._number_of[spu_id] = len(self._rack_of)
        home = self._rack_numbers.setdefault(rack, len(self._rack_numbers))
        if home == len(self._from_racks):
            self._from_racks.append([0] * number)
        for other, counts in enumerate(self._from_racks):
            counts.append(NEVER if other == home else 0)
        self._rack_of.append(home)
        self._capacities.append(capacity)
        if number >= PAIRS_SPUS_MAX:
            self._from_spus = None
        if self._from_spus is not None:
            for counts in self._from_spus:
                counts.append(0)
            self._from_spus.append([0] * (number + 1))

    def count(self, lists: ReplicaLists, sign: int = 1) -> None:
        """Count a map, or, with -1, take it out."""
        matrix, newest, self._newest = lists.matrix, self._newest, None
        if newest is not None:
            if newest is matrix and sign == 1:
                return
            self._add(newest, -1)
        if lists.ragged:  # A short list goes on with its leader, who is no heir of its own.
            matrix = np.where(matrix == PADDING, matrix[:, :1], matrix)
        self._add(matrix, sign)

    def order(self, matrix: IdMatrix, *, by_capacity: bool) -> None:
        """Put the heir right behind the leader of each list of a new map, in its array.

        `by_capacity`: what SPUs take over is weighed by their capacity. Among equals the list stays
        as it is. Cost: O(cells), of the last `ONE_BY_ONE` lists in plain Python.
        """
        if self._newest is not None:
            self._add(self._newest, -1)
        begin = max(len(matrix) - ONE_BY_ONE, 0)
        if begin:
            self._add_many(matrix[:begin], 1)
        numbers, rack_of, capacities = self._number_of, self._rack_of, self._capacities
        from_racks, from_spus = self._from_racks, self._from_spus
        of_spu: Counts = [0] * len(rack_of)
        places = range(2, matrix.shape[1])
        for row, ids in enumerate(matrix[begin:].tolist(), begin):
            leader, heir = numbers[ids[0]], numbers[ids[1]]
            of_rack = from_racks[rack_of[leader]]
            if from_spus is not None:
                of_spu = from_spus[leader]
            least, chosen = of_rack[heir] + of_spu[heir], 1
            if by_capacity:
                least = (least + 1) / capacities[heir]
            for place in places:
                other = numbers[ids[place]]
                taken = of_rack[other] + of_spu[other]
                if by_capacity:
                    taken = (taken + 1) / capacities[other]
                if taken < least:
                    least, chosen, heir = taken, place, other
            if least != NEVER:
                of_rack[heir] += 1
                if from_spus is not None:
                    of_spu[heir] += PAIR_WEIGHT
                if chosen > 1:
                    matrix[row, 1], matrix[row, chosen] = ids[chosen], ids[1]
        self._newest = matrix

    def _add(self, matrix: IdMatrix, sign: int) -> None:
        """Count lists, all of one length."""
        if matrix.shape[1] == 1:
            return
        if len(matrix) > ONE_BY_ONE:
            self._add_many(matrix, sign)
            return
        numbers, rack_of, from_spus = self._number_of, self._rack_of, self._from_spus
        for leader_id, *others in matrix.tolist():
            leader = numbers[leader_id]
            of_rack = self._from_racks[rack_of[leader]]
            for other in others:
                heir = numbers[other]
                if of_rack[heir] != NEVER:
                    of_rack[heir] += sign
                    if from_spus is not None:
                        from_spus[leader][heir] += sign * PAIR_WEIGHT
                    break

    def _add_many(self, matrix: IdMatrix, sign: int) -> None:
        """The same, vectorised."""
        racks, size = np.array(self._rack_of), len(self._rack_of)
        givers, giver_racks = self._numbers(matrix[:, 0]), racks
        if self._from_spus is None:
            givers, giver_racks = racks[givers], np.arange(len(self._from_racks))
        keys = givers * size
        keys += self._numbers(matrix[:, 1])
        is_own = (giver_racks[:, np.newaxis] == racks).reshape(-1)  # on the leader's rack
        counts = np.bincount(keys, minlength=len(is_own))
        for place in range(2, matrix.shape[1]):
            if not counts[is_own].any():
                break
            without = np.flatnonzero(is_own[keys])
            keys[without] += self._numbers(matrix[without, place]) - keys[without] % size
            counts = np.bincount(keys, minlength=len(is_own))
        counts[is_own] = 0
        counts *= sign
        more = counts.reshape(-1, size)
        if self._from_spus is not None:
            _add_to(self._from_spus, more * PAIR_WEIGHT)
            more = np.zeros((len(self._from_racks), size), dtype=np.int64)
            np.add.at(more, racks, counts.reshape(-1, size))
        _add_to(self._from_racks, more)

    def _numbers(self, ids: IdArray) -> CountArray:
        """The numbers of SPUs."""
        known = np.array(list(self._number_of))
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
