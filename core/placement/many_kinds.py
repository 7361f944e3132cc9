"""Very many kinds of SPUs: which has the best one for a list, without a look at each by itself.

Kinds that are alike but for one level, such as racks of their own, have heaps of the tops of their
heaps. Kinds that differ on several levels are compared in arrays, level by level.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

import numpy as np
from spu_assigner.core.placement.eligibility import PlacementField
from spu_assigner.core.placement.preference import NEVER

GROUPS_MAX: Final = 16  # of more, an array takes less time
LOOKS_A_GROUP: Final = 24  # that take as long as one place from a group,
KINDS_A_LOOK: Final = 16  # and how many kinds of an array take as long as a look

Front = Callable[[int, Collection[int]], int]  # the key of the best SPU of a kind, none of these


def best_offer(
    heap: list[int], now_of: Callable[[int], int], offer_of: Callable[[int], int]
) -> int:
    """The least that a heap of keys offers; `NEVER`: it offers none.

    Args:
        heap: keys as they were entered; those that have risen are corrected on the way.
        now_of: the key that was entered, as it is now.
        offer_of: what it stands for, no less than the key itself; `NEVER`: for nothing here.
    """
    aside, found = list[int](), NEVER
    while heap and heap[0] < found:
        entered = heap[0]
        now = now_of(entered)
        if now == entered:
            aside.append(heappop(heap))
            found = min(found, offer_of(entered))
        elif entered < now != NEVER:
            heapreplace(heap, now)
        else:
            heappop(heap)
    for each in aside:
        heappush(heap, each)
    return found


class KindGroups:
    """Kinds that differ in the cell of the finest level alone, group by group."""

    def __init__(
        self, field: PlacementField, front: Front, kind_of_key: Callable[[int], int]
    ) -> None:
        self._field, self._front, self._kind_of = field, front, kind_of_key
        by_level = list(zip(*(kind.cells for kind in field.kinds), strict=True))
        sizes = [len({*cells}) for cells in by_level]
        finest = sizes.index(max(sizes)) if sizes else -1
        numbers: dict[tuple[object, ...], int] = {}
        self._group_of: list[int] = []
        self._kinds_in: dict[int, list[int]] = {}  # of each cell of that level
        for number, kind in enumerate(field.kinds):
            others = tuple(c for level, c in enumerate(kind.cells) if level != finest)
            self._group_of.append(numbers.setdefault((others, kind.weight), len(numbers)))
            if finest >= 0:
                self._kinds_in.setdefault(kind.cells[finest], []).append(number)
        self.looks = len(numbers) * LOOKS_A_GROUP  # of each place
        self.is_apt = len(numbers) <= GROUPS_MAX and not field.is_demanding
        self._tops: list[list[int]] = [[] for _ in numbers]
        for number, group in enumerate(self._group_of):
            top = front(number, ())
            if top != NEVER:
                self._tops[group].append(top)
        for tops in self._tops:
            heapify(tops)

    def enter(self, kind: int, top: int) -> None:
        """A kind may have a better SPU than before."""
        heappush(self._tops[self._group_of[kind]], top)

    def best(self, counts: Sequence[int], cells: Sequence[int], taken: Collection[int]) -> int:
        """The key of the best SPU, none of these, for a list that has these counts; or `NEVER`.

        `cells`: those of each replica of the list.
        """
        field, front = self._field, self._front
        special = {number for cell in cells for number in self._kinds_in.get(cell, ())}

        def now_of(top: int) -> int:
            return front(self._kind_of(top), ())

        def offer_of(top: int) -> int:
            kind = self._kind_of(top)
            return NEVER if kind in special else front(kind, taken)

        found = [front(kind, taken) for kind in special]
        found += [best_offer(tops, now_of, offer_of) for tops in self._tops]
        options = [
            (cost, key)
            for key in found
            if key != NEVER
            and (cost := field.cost(field.kinds[self._kind_of(key)], counts)) is not None
        ]
        return min(options)[1] if options else NEVER


class KindTable:
    """Kinds that differ on several levels."""

    def __init__(self, field: PlacementField, front: Front) -> None:
        self.looks = len(field.kinds) // KINDS_A_LOOK
        self._front, self._field = front, field
        self._cells = np.array([kind.cells for kind in field.kinds], dtype=np.int64).T.copy()
        self._weights = np.array([kind.weight for kind in field.kinds], dtype=np.int64)
        self._maxes, self._mins = np.array(field.maxes), np.array(field.mins)
        # Of each kind no more than the key of its best SPU: what has risen is corrected in `best`.
        self._keys = np.array([front(kind, ()) for kind in range(len(field.kinds))], dtype=np.int64)

    def enter(self, kind: int, top: int) -> None:
        """A kind may have a better SPU than before."""
        self._keys[kind] = min(top, self._keys[kind])

    def best(self, _: Sequence[int], cells: Sequence[int], taken: Collection[int]) -> int:
        """The key of the best SPU, as above."""
        counts = np.zeros(len(self._maxes), dtype=np.int64)
        np.add.at(counts, np.array(cells, dtype=np.int64), 1)
        keys, levels = self._keys.copy(), counts[self._cells]
        if self._field.is_limited:
            keys[(levels >= self._maxes[self._cells]).any(axis=0)] = NEVER
        met = (levels < self._mins[self._cells]).sum(axis=0)
        values = (-met, *levels, -self._weights)
        left = np.flatnonzero(keys != NEVER)
        while len(left):
            tier = left
            for value in values:
                of_tier = value[tier]
                tier = tier[of_tier == of_tier.min()]
            while (entered := keys[kind := int(tier[keys[tier].argmin()])]) != NEVER:
                self._keys[kind] = self._front(kind, ())
                keys[kind] = found = self._front(kind, taken)
                if found == entered:
                    return found
            left = left[keys[left] != NEVER]
        return NEVER
