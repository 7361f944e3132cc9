"""Very many kinds of SPUs, such as racks of their own: heaps of the tops of their heaps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from spu_assigner.core.constraints.rule_table import Cells
from spu_assigner.core.placement.eligibility import PlacementField
from spu_assigner.core.placement.preference import NEVER

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
        self, field: PlacementField, front: Front, at_of_key: Callable[[int], int]
    ) -> None:
        self._field = field
        self._front = front
        self._at_of_key = at_of_key
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

    def best(
        self, counts: Sequence[int], cells: Iterable[Cells], taken: Collection[int]
    ) -> int | None:
        """The key of the best SPU for a list that has these counts, and is in these cells."""
        field, front = self._field, self._front
        shared = {cell for each in cells for cell in each}
        special = {number for cell in shared for number in self._kinds_in.get(cell, ())}

        def offer_of(top: int) -> int:
            kind = self._kind_of(top)
            return NEVER if kind in special else front(kind, taken)

        found = [front(kind, taken) for kind in special]
        found += [best_offer(tops, self._now, offer_of) for tops in self._tops]
        options = [
            (cost, key)
            for key in found
            if key != NEVER
            and (cost := field.cost(field.kinds[self._kind_of(key)], counts)) is not None
        ]
        return min(options)[1] if options else None

    def _kind_of(self, key: int) -> int:
        return self._field.kind_of[self._at_of_key(key)]

    def _now(self, top: int) -> int:
        return self._front(self._kind_of(top), ())
