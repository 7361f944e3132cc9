"""A search for the best list of SPUs under rules, where choosing SPU by SPU does not find it.

The score of a list, the smaller the better, level by level:
0. replicas that groups lack of what `min` of a level demands, over all levels;
1. for each level, in order of preference: the pairs of replicas in one group, so that a list is as
   even over the groups as can be;
2. less the weights of what is preferred;
3. the rank of the best leader: the first selector of `leaders` that an SPU of the list meets.

A branch and bound search through at most SEARCH_STEPS_MAX partial lists. All of it is counted: see
`work`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from spu_assigner.core.constraints.rule_table import RuleTable
from spu_assigner.core.constraints.work import Work
from spu_assigner.core.state.ledger import CountArray, FloatArray

Score = tuple[int, ...]
Row = list[int]  # places in the table


@dataclass(frozen=True, slots=True)
class SpuKind:
    """SPUs that are alike to the rules."""

    cells: tuple[int, ...]  # their group at each level, groups of all levels numbered on
    weight: int
    rank: int  # as a leader; of those that may not lead behind all others


class SpuKinds:
    """Some SPUs of a table by kind; `barred` ones (a bit for each) may not lead.

    `apart` separates SPUs that are alike to the rules but not to what accepts lists.
    """

    def __init__(
        self,
        table: RuleTable,
        places: Sequence[int],
        barred: int,
        apart: Mapping[int, int] | None = None,
    ) -> None:
        cells, weights, ranks = table.cells, table.weights, table.lead_ranks
        found = [
            (
                cells[place],
                -weights[place],
                2 * table.last_rank if barred >> place & 1 else ranks[place],
                0 if apart is None else apart[place],
            )
            for place in places
        ]
        number_of = {key: number for number, key in enumerate(sorted(set(found)))}
        self.places = np.array(places, dtype=np.int64)
        self.numbers: CountArray = np.array([number_of[key] for key in found], dtype=np.int64)
        self.kinds = [SpuKind(key[0], -key[1], key[2]) for key in number_of]
        self.sizes: list[int] = np.bincount(self.numbers, minlength=len(number_of)).tolist()


class ListSearch:
    """Searches lists among SPUs with room.

    `loads` of the SPUs of `kinds` decide between those that are alike to the rules, the smaller is
    the better.
    """

    def __init__(self, table: RuleTable, kinds: SpuKinds, loads: FloatArray, barred: int) -> None:
        self._table = table
        self._barred = barred
        self._last_rank = 2 * table.last_rank  # behind that of any SPU that may lead
        self._kinds = kinds.kinds
        self._maxes = table.cell_maxes
        order = np.lexsort((loads, kinds.numbers))
        in_order: list[int] = kinds.places[order].tolist()
        ends = np.cumsum(kinds.sizes).tolist()
        self._members = [in_order[i:j] for i, j in zip([0, *ends], ends, strict=False)]
        self._first_rank = min([kind.rank for kind in kinds.kinds], default=self._last_rank)
        self._most_weight = max([kind.weight for kind in kinds.kinds], default=0)

    def score(self, row: Sequence[int]) -> Score:
        """What lists are compared by."""
        return (sum(self.lacks(row)), *self._upper_score(row), self._leading_rank(row))

    def lacks(self, row: Sequence[int]) -> list[int]:
        """Of each level how many replicas its groups lack of what is demanded of them."""
        table = self._table
        if not table.has_min:
            return []
        counts, found, first = self._counted(row), [], 0
        for level in table.levels:
            of_level = counts[first : first + level.size]
            first += level.size
            each = zip(level.mins, of_level, strict=True) if level.mins else ()
            found.append(sum(max(least - count, 0) for least, count in each))
        return found

    def _rank(self, place: int) -> int:
        return self._last_rank if self._barred >> place & 1 else self._table.lead_ranks[place]

    def _leading_rank(self, row: Sequence[int]) -> int:
        return min(map(self._rank, row))

    def _upper_score(self, row: Sequence[int]) -> Score:
        counts = [0] * len(self._maxes)
        pairs = [0] * len(self._table.levels)
        for place in row:
            for level, cell in enumerate(self._table.cells[place]):
                pairs[level] += counts[cell]
                counts[cell] += 1
        return (*pairs, -sum([self._table.weights[place] for place in row]))

    def _counted(self, row: Sequence[int]) -> list[int]:
        """How many of a list are in each group."""
        counts = [0] * len(self._maxes)
        for place in row:
            for cell in self._table.cells[place]:
                counts[cell] += 1
        return counts

    def _is_open(self, kind: SpuKind, counts: Sequence[int]) -> bool:
        """Whether no hard level is full."""
        maxes = self._maxes
        return not self._table.has_max or all(counts[cell] < maxes[cell] for cell in kind.cells)

    def search(
        self,
        base: Sequence[int],
        length: int,
        found: Row | None,
        accept: Callable[[Row], bool],
        work: Work,
    ) -> Row | None:
        """The best list that is accepted, if it is better than the one that was found."""
        best, bound = found, None if found is None else self.score(found)
        taken = set(base)
        kinds, mins = self._kinds, self._table.cell_mins
        members = [[place for place in each if place not in taken] for each in self._members]
        # Partial lists, each with the number of its last kind and how many of that it has.
        stack: list[tuple[Row, int, int]] = [([*base], 0, 0)]
        while stack and work.steps > 0:
            row, kind_number, used = stack.pop()
            work.search(len(kinds) - kind_number)
            if bound is not None and self._least(row, length) >= bound:
                continue
            if self._least_lack(row, length):
                continue
            if len(row) == length:
                if self._leading_rank(row) < self._last_rank and accept(row):
                    best, bound = row, self.score(row)
                continue
            counts = self._counted(row)
            options = []
            for number in range(kind_number, len(kinds)):
                kind, start = kinds[number], used if number == kind_number else 0
                if start < len(members[number]) and self._is_open(kind, counts):
                    costs = [counts[cell] for cell in kind.cells]
                    met = sum([counts[cell] < mins[cell] for cell in kind.cells])
                    options.append(((-met, costs, -kind.weight), number, start))
            # The most promising is on top.
            for _, number, start in sorted(options, reverse=True):
                stack.append(([*row, members[number][start]], number, start + 1))
        return best

    def _least(self, row: Row, length: int) -> Score:
        """A bound: no list of this length that begins so scores less."""
        missing = length - len(row)
        upper = list(self._upper_score(row)) if row else [0] * (len(self._table.levels) + 1)
        counts, first = self._counted(row), 0
        for number, level in enumerate(self._table.levels):
            of_level = counts[first : first + level.size]
            first += level.size
            left, cost = missing, 0
            while left:
                room = sum(count <= cost for count in of_level)
                upper[number] += cost * min(left, room)
                left -= min(left, room)
                cost += 1
        if missing:
            upper[-1] -= missing * self._most_weight
        rank = min(map(self._rank, row), default=self._last_rank)
        rank = min(rank, self._first_rank) if missing else rank
        return (self._least_lack(row, length), *upper, rank)

    def _least_lack(self, row: Row, length: int) -> int:
        """A bound: no list of this length that begins so lacks fewer replicas."""
        missing = length - len(row)
        return sum([max(lack - missing, 0) for lack in self.lacks(row)])
