"""The best list of SPUs under rules: a search through lists, of which the first is mostly the best.

The score of a list, the smaller the better, level by level:
1. for each level, the outermost first: the pairs of replicas in one group, so that a list is as
   even over the groups as can be;
2. less the weights of what is preferred;
3. the rank of the best leader: the first selector of `leaders` that an SPU of the list meets.

A list is built SPU by SPU, each the one that adds the least, then the one with the lowest dominant
share, then the lowest id. Where levels are nested that gives the best score for 1 and 2: the groups
form a tree, the costs are convex (a laminar matroid; Federgruen and Groenevelt, as in `balanced`).
For 3 each SPU that could lead better is tried as the first. Where levels cross, a branch and bound
search looks for a better one, through at most SEARCH_STEPS_MAX partial lists.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spu_assigner.core.constraints.rule_table import RuleTable

SEARCH_STEPS_MAX: Final = 20_000  # partial lists looked at for one request; some 0.2 s

NO_ROOM: Final = math.inf  # the load of an SPU that has to give what it has not

Score = tuple[int, ...]
Row = list[int]  # places in the table


@dataclass(slots=True)
class Steps:
    """How many partial lists a request may still look at."""

    left: int = SEARCH_STEPS_MAX


@dataclass(slots=True)
class SpuKind:
    """SPUs that are alike to the rules."""

    cells: tuple[int, ...]  # their group at each level, groups of all levels numbered on
    weight: int
    rank: int  # as a leader; of those that may not lead behind all others
    members: list[tuple[float, int]]  # load and place, ascending


class ListChoice:
    """Chooses lists among SPUs with room; where there is none it says so by None.

    `loads` decide between SPUs that are alike to the rules, the smaller is the better. `barred`
    SPUs (a bit for each) may not lead. `apart` separates SPUs that are alike to the rules but not
    to what accepts lists. With `taken_max`, no more SPUs than that will be asked for.
    """

    def __init__(
        self,
        table: RuleTable,
        loads: Mapping[int, float],
        barred: int,
        *,
        apart: Mapping[int, int] | None = None,
        taken_max: int | None = None,
    ) -> None:
        self._table = table
        self._barred = barred
        self._last_rank = table.last_rank
        kinds: dict[tuple[tuple[int, ...], int, int, int], list[tuple[float, int]]] = {}
        cells, weights = table.cells, table.weights
        for place, load in loads.items():
            key = (
                cells[place],
                -weights[place],
                self._rank(place),
                0 if apart is None else apart[place],
            )
            members = kinds.get(key)
            if members is None:
                kinds[key] = [(load, place)]
            else:
                members.append((load, place))
        self._kinds: list[SpuKind] = []
        self._kind_of: dict[int, SpuKind] = {}
        for key in sorted(kinds):
            # Who is asked for grows heavier, so no more than the lightest can come to be chosen.
            members = sorted(kinds[key])[:taken_max]
            kind = SpuKind(key[0], -key[1], key[2], members)
            self._kinds.append(kind)
            self._kind_of.update((place, kind) for _, place in members)
        self._first_rank = min((kind.rank for kind in self._kinds), default=self._last_rank)
        self._maxes = table.cell_maxes

    def reload(self, place: int, load: float) -> None:
        """Let an SPU that was chosen have another load; `NO_ROOM`: it is not chosen again."""
        members = self._kind_of[place].members
        at = next(at for at, member in enumerate(members) if member[1] == place)
        del members[at]
        if load != NO_ROOM:
            insort(members, (load, place))

    def best(self, base: Sequence[int], length: int, steps: Steps) -> Row | None:
        """The best list of this length that begins with `base`, whichever SPUs those are.

        The others are in the order in which they were chosen. None: there is none, or none was
        found in so many steps.
        """
        found = self._greedy(base, length, None)
        best_rank = min(self._first_rank, self._last_rank - 1)
        if found is not None and self._leading_rank(found) > best_rank:
            found = self._led_better(base, length, found)
        if self._table.is_nested:
            return found
        return self.search(base, length, found, lambda _: True, steps)

    def score(self, row: Sequence[int]) -> Score:
        """What lists are compared by."""
        return (*self._upper_score(row), self._leading_rank(row))

    def _rank(self, place: int) -> int:
        return self._last_rank if self._barred >> place & 1 else self._table.ranks[place]

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

    def _greedy(self, base: Sequence[int], length: int, first: int | None) -> Row | None:
        row = [*base] if first is None else [*base, first]
        counts = self._counted(row)
        heads = [0] * len(self._kinds)
        while len(row) < length:
            best: tuple[list[int], int, tuple[float, int], int] | None = None
            for number, kind in enumerate(self._kinds):
                members, head = kind.members, heads[number]
                while head < len(members) and members[head][1] in row:
                    head += 1
                heads[number] = head
                if head == len(members):
                    continue
                costs = [counts[cell] for cell in kind.cells]
                if best is not None and costs > best[0]:
                    continue
                option = costs, -kind.weight, members[head], number
                if (best is None or option < best) and self._is_open(kind, counts):
                    best = option
            if best is None:
                return None
            row.append(best[2][1])
            for cell in self._kinds[best[3]].cells:
                counts[cell] += 1
        return row

    def _is_open(self, kind: SpuKind, counts: Sequence[int]) -> bool:
        """Whether no hard level is full."""
        maxes = self._maxes
        return not self._table.is_hard or all(counts[cell] < maxes[cell] for cell in kind.cells)

    def _led_better(self, base: Sequence[int], length: int, found: Row) -> Row | None:
        """A list as good at the levels above, of which a better leader is a member.

        Where nobody in the list may lead: the best of those with one who may.
        """
        leads = self._leading_rank(found) < self._last_rank
        best = found if leads else None
        for kind in self._kinds:
            if kind.rank >= (self._leading_rank(found) if leads else self._last_rank):
                continue
            first = next((place for _, place in kind.members if place not in base), None)
            trial = None if first is None else self._greedy(base, length, first)
            if trial is not None and (best is None or self.score(trial) < self.score(best)):
                best = trial
        return best

    def search(
        self,
        base: Sequence[int],
        length: int,
        found: Row | None,
        accept: Callable[[Row], bool],
        steps: Steps,
    ) -> Row | None:
        """The best list that is accepted, if it is better than the one that was found."""
        best, bound = found, None if found is None else self.score(found)
        taken = set(base)
        members = [
            [place for _, place in kind.members if place not in taken] for kind in self._kinds
        ]
        # Partial lists, each with the number of its last kind and how many of that it has.
        stack: list[tuple[Row, int, int]] = [([*base], 0, 0)]
        while stack and steps.left:
            steps.left -= 1
            row, kind_number, used = stack.pop()
            if bound is not None and self._least(row, length) >= bound:
                continue
            if len(row) == length:
                if self._leading_rank(row) < self._last_rank and accept(row):
                    best, bound = row, self.score(row)
                continue
            counts = self._counted(row)
            options = []
            for number in range(kind_number, len(self._kinds)):
                kind, start = self._kinds[number], used if number == kind_number else 0
                if start < len(members[number]) and self._is_open(kind, counts):
                    costs = [counts[cell] for cell in kind.cells]
                    options.append(((costs, -kind.weight), number, start))
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
            upper[-1] -= missing * max(kind.weight for kind in self._kinds)
        rank = min(map(self._rank, row), default=self._last_rank)
        return (*upper, min(rank, self._first_rank) if missing else rank)
