"""Very many kinds of SPUs, such as racks of their own: heaps of the tops of their heaps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from spu_assigner.core.constraints.rule_table import Cells
from spu_assigner.core.placement.eligibility import PlacementField
from spu_assigner.core.placement.preference import NEVER

Front = Callable[[int, Collection[int]], int]  # the key of the best SPU of a kind, none of these


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
        self._finest = sizes.index(max(sizes)) if sizes else -1
        numbers: dict[tuple[object, ...], int] = {}
        self._group_of: list[int] = []
        self._kinds_in: dict[int, list[int]] = {}  # of each cell of that level
        for number, kind in enumerate(field.kinds):
            others = tuple(c for level, c in enumerate(kind.cells) if level != self._finest)
            self._group_of.append(numbers.setdefault((others, kind.weight), len(numbers)))
            if self._finest >= 0:
                self._kinds_in.setdefault(kind.cells[self._finest], []).append(number)
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
        shared = {cell for each in cells for cell in each} if self._finest >= 0 else set()
        special = {number for cell in shared for number in self._kinds_in.get(cell, ())}
        found = [(number, front(number, taken)) for number in sorted(special)]
        for tops in self._tops:
            top = self._top(tops, special, taken)
            if top is not None:
                found.append(top)
        options = [
            (cost, best)
            for number, best in found
            if best != NEVER and (cost := field.cost(field.kinds[number], counts)) is not None
        ]
        return min(options)[1] if options else None

    def _top(
        self, tops: list[int], special: Collection[int], taken: Collection[int]
    ) -> tuple[int, int] | None:
        """The best kind of a group that is not special, with its best SPU that is not taken."""
        front, aside, found = self._front, list[int](), None
        while tops and (found is None or tops[0] < found[1]):
            entered = tops[0]
            kind = self._field.kind_of[self._at_of_key(entered)]
            now = front(kind, ())
            if now == entered:
                aside.append(heappop(tops))
                best = NEVER if kind in special else front(kind, taken)
                if best != NEVER and (found is None or best < found[1]):
                    found = kind, best
            elif entered < now != NEVER:
                heapreplace(tops, now)
            else:
                heappop(tops)
        for each in aside:
            heappush(tops, each)
        return found
