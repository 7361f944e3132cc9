"""Who would take over what: how often each SPU comes right behind the leaders of each rack.

When an SPU or a rack fails, the first replica that is left of a list leads it. `balanced` keeps
these numbers even: of a list's followers on other racks than the leader's, that one comes first who
would take over the least from this leader and from its rack.

The counts are no part of the published state: they are made from the lists that there are when they
are first asked for, and kept up to date from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.records import SpuChanged
from spu_assigner.core.base.replica_lists import PADDING, IdMatrix, ReplicaLists
from spu_assigner.core.state.ledger import CountArray

PAIRS_SPUS_MAX: Final = 128  # up to so many SPUs it is counted for each pair of them, too
PAIR_WEIGHT: Final = 2  # of what is taken over from one SPU, beside what is from its whole rack
# Lists of a map, its last, that are put in order; in those before, chance evens out most.
ONE_BY_ONE: Final = 2_048

Counts = dict[int, list[int]]  # of a rack, or a leader: what each SPU takes over from it


class Takeovers:
    """The counts of one cluster. SPUs and racks have numbers, as they came."""

    __slots__ = (
        "_from_racks",
        "_from_spus",
        "_newest",
        "_number_of",
        "_rack_numbers",
        "_rack_of",
    )

    def __init__(self, racks: Iterable[tuple[int, str]], maps: Iterable[ReplicaLists]) -> None:
        """Of SPUs with these racks, and of the maps of a cluster."""
        self._rack_numbers: dict[str, int] = {}
        self._number_of: dict[int, int] = {}  # of each SPU, by its id
        self._rack_of: list[int] = []
        self._from_racks: Counts = {}
        self._from_spus: Counts | None = {}  # None: there are too many SPUs
        # The last map that was ordered, and the counts that change with it.
        self._newest: tuple[IdMatrix, Counts, Counts] | None = None
        for spu_id, rack in racks:
            self.enter(spu_id, rack)
        for lists in maps:
            self.count(lists)

    def enter(self, spu_id: int, rack: str) -> None:
        """Enter an SPU that no list holds yet."""
        self._newest = None
        self._number_of[spu_id] = len(self._rack_of)
        self._rack_of.append(self._rack_numbers.setdefault(rack, len(self._rack_numbers)))
        if len(self._rack_of) > PAIRS_SPUS_MAX:
            self._from_spus = None
        for counts in (self._from_racks, self._from_spus or {}):
            for own in counts.values():
                own.append(0)

    def count(self, lists: ReplicaLists, sign: int = 1) -> None:
        """Count a map, or, with -1, take it out."""
        matrix, newest, self._newest = lists.matrix, self._newest, None
        if newest is not None and newest[0] is matrix and sign == 1:
            _, from_racks, of_spus = newest
            self._from_racks.update(from_racks)
            if self._from_spus is not None:
                self._from_spus.update(of_spus)
            return
        if matrix.shape[1] == 1:
            return
        if len(matrix) > ONE_BY_ONE:
            self._count_many(matrix, sign, self._from_racks, self._from_spus)
            return
        numbers, rack_of, from_spus = self._number_of, self._rack_of, self._from_spus
        size = len(rack_of)
        for leader_id, *others in lists.tolist():
            leader = numbers[leader_id]
            rack = rack_of[leader]
            for other in others:
                heir = numbers[other]
                if rack_of[heir] != rack:
                    _own(self._from_racks, rack, size)[heir] += sign
                    if from_spus is not None:
                        _own(from_spus, leader, size)[heir] += sign
                    break

    def order(self, matrix: IdMatrix, spus: Mapping[SpuId, SpuChanged] | None) -> None:
        """Put the heir right behind the leader of each list of a new map, in its array.

        What SPUs take over is weighed by the capacity of these; None: that is equal. Among equals
        the list stays as it is. Cost: O(cells), of the last `ONE_BY_ONE` lists in plain Python.
        """
        from_racks: Counts = {}  # with what this map adds
        from_spus: Counts = {}
        size = len(self._rack_of)
        begin = max(len(matrix) - ONE_BY_ONE, 0)
        if begin:
            from_racks = {number: list(own) for number, own in self._from_racks.items()}
            from_spus = {number: list(own) for number, own in (self._from_spus or {}).items()}
            has_pairs = self._from_spus is not None
            self._count_many(matrix[:begin], 1, from_racks, from_spus if has_pairs else None)
        numbers, rack_of, pairs = self._number_of, self._rack_of, self._from_spus
        of_spu = [0] * size
        for row, (leader_id, *others) in enumerate(matrix[begin:].tolist(), begin):
            leader = numbers[leader_id]
            rack = rack_of[leader]
            of_rack = from_racks.get(rack)
            if of_rack is None:
                of_rack = from_racks[rack] = list(_own(self._from_racks, rack, size))
            if pairs is not None:
                if leader not in from_spus:
                    from_spus[leader] = list(_own(pairs, leader, size))
                of_spu = from_spus[leader]
            least, chosen, heir = float("inf"), 0, 0
            for place, other in enumerate(others):
                number = numbers[other]
                if rack_of[number] != rack:
                    taken: float = of_rack[number] + PAIR_WEIGHT * of_spu[number]
                    if spus is not None:
                        taken = (taken + 1) / spus[SpuId(other)].capacity
                    if taken < least:
                        least, chosen, heir = taken, place, number
            if least < float("inf"):
                of_rack[heir] += 1
                if pairs is not None:
                    of_spu[heir] += 1
                if chosen:
                    matrix[row, 1], matrix[row, 1 + chosen] = others[chosen], others[0]
        self._newest = matrix, from_racks, from_spus

    def _count_many(
        self, matrix: IdMatrix, sign: int, from_racks: Counts, from_spus: Counts | None
    ) -> None:
        size, racks = len(self._rack_of), np.array(self._rack_of)
        numbers = self._numbers(matrix)
        home, others = racks[numbers[:, 0]], numbers[:, 1:]
        is_heir = (racks[others] != home[:, np.newaxis]) & (matrix[:, 1:] != PADDING)
        first, has_heir = is_heir.argmax(axis=1), is_heir.any(axis=1)
        heirs = others[np.arange(len(matrix)), first]
        for counts, givers in ((from_racks, home), (from_spus, numbers[:, 0])):
            if counts is None:
                continue
            keys = (givers * size + heirs)[has_heir]
            rows = int(keys.max(initial=0)) // size + 1
            more = np.bincount(keys, minlength=rows * size).reshape(rows, size)
            for giver in np.flatnonzero(more.any(axis=1)).tolist():
                total = np.array(_own(counts, giver, size)) + sign * more[giver]
                counts[giver] = total.tolist()

    def _numbers(self, matrix: IdMatrix) -> CountArray:
        """The numbers of SPUs; of padding any."""
        ids = np.array(list(self._number_of))
        order = np.argsort(ids)
        return np.asarray(order[np.searchsorted(ids[order], matrix)])


def _own(counts: Counts, number: int, size: int) -> list[int]:
    """The counts of one rack or leader."""
    own = counts.get(number)
    if own is None:
        own = counts[number] = [0] * size
    return own
