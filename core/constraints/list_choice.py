"""The best list of SPUs under rules: a search through lists, of which the first is mostly the best.

The score of a list, the smaller the better, level by level:
0. replicas that groups lack of what `min` of a level demands, over all levels;
1. for each level, the outermost first: the pairs of replicas in one group, so that a list is as
   even over the groups as can be;
2. less the weights of what is preferred;
3. the rank of the best leader: the first selector of `leaders` that an SPU of the list meets.

A list is built SPU by SPU, each the one that adds the least, then the one with the lowest dominant
share, then the lowest id. Where levels are nested that gives the best score for 0, 1 and 2: the
groups form a tree, the costs are convex (a laminar matroid; Federgruen and Groenevelt, as in
`balanced`), also those of 0: the first replicas of a group cost less than the others.
For 3 each SPU that could lead better is tried as the first. Where levels cross, a branch and bound
search looks for a better one, through at most SEARCH_STEPS_MAX partial lists. All of it is counted:
see `work`.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

import numpy as np
from spu_assigner.core.constraints.rule_table import RuleTable
from spu_assigner.core.constraints.work import Work
from spu_assigner.core.state.ledger import CountArray
from spu_assigner.core.state.resource_use import FloatArray

TURNS_MAX: Final = 2**18  # kinds that are kept in order for the next SPU of lists that have some
# What is counted as looks, by measurement: how many kinds are compared in the time of one, and of
# how many that is for a replica, besides those that are compared for it.
KINDS_A_REPLICA: Final = 32
KINDS_A_LOOK: Final = 4

NO_ROOM: Final = math.inf  # the load of an SPU that has to give what it has not

Score = tuple[int, ...]
Row = list[int]  # places in the table
Member = tuple[float, int, int]  # load, place, and number of its kind
NOBODY: Final[Member] = (NO_ROOM, -1, -1)  # behind every member


@dataclass(frozen=True, slots=True)
class SpuKind:
    """SPUs that are alike to the rules."""

    cells: tuple[int, ...]  # their group at each level, groups of all levels numbered on
    weight: int
    rank: int  # as a leader; of those that may not lead behind all others


@dataclass(slots=True)
class Turn:
    """Whose turn it is where a list has so many SPUs of each group."""

    counts: tuple[int, ...]
    # Of all kinds that may follow, the best ones first: how many are as good as each other, and
    # what takes their first members.
    tiers: list[tuple[int, itemgetter[Any]]]
    after: dict[int, Turn] = field(default_factory=dict)  # an SPU of a kind
    mark: object = None  # of the last request that has counted it


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
        cells, weights, ranks = table.cells, table.weights, table.ranks
        found = [
            (
                cells[place],
                -weights[place],
                table.last_rank if barred >> place & 1 else ranks[place],
                0 if apart is None else apart[place],
            )
            for place in places
        ]
        number_of = {key: number for number, key in enumerate(sorted(set(found)))}
        self.places = np.array(places, dtype=np.int64)
        self.numbers: CountArray = np.array([number_of[key] for key in found], dtype=np.int64)
        self.kinds = [SpuKind(key[0], -key[1], key[2]) for key in number_of]
        self.sizes: list[int] = np.bincount(self.numbers, minlength=len(number_of)).tolist()
        self._table = table
        self._turns: dict[tuple[int, ...], Turn] = {}
        self.first_turn = self.turn((0,) * len(table.cell_maxes))

    def turn(self, counts: tuple[int, ...]) -> Turn:
        """Kinds of which no hard level is full: those that cost least first."""
        known = self._turns.get(counts)
        if known is None:
            table = self._table
            maxes, has_max = table.cell_maxes, table.has_max
            mins = table.cell_mins if table.has_min else None
            alike: dict[tuple[tuple[int, ...], int], list[int]] = {}
            for number, kind in enumerate(self.kinds):
                costs = tuple([counts[cell] for cell in kind.cells])
                if mins is not None:  # The most groups at once that have too few.
                    costs = (-sum([counts[cell] < mins[cell] for cell in kind.cells]), *costs)
                if not has_max or all(counts[cell] < maxes[cell] for cell in kind.cells):
                    alike.setdefault((costs, -kind.weight), []).append(number)
            # A single index gives no tuple, so it is asked for twice.
            tiers: list[tuple[int, itemgetter[Any]]] = [
                (len(alike[key]), itemgetter(*alike[key], alike[key][-1])) for key in sorted(alike)
            ]
            if len(self._turns) * len(self.kinds) > TURNS_MAX:
                self._turns.clear()
            known = self._turns[counts] = Turn(counts, tiers)
        return known

    def turn_after(self, turn: Turn, number: int) -> Turn:
        """The next one, where an SPU of this kind is taken."""
        known = turn.after.get(number)
        if known is None:
            counts = list(turn.counts)
            for cell in self.kinds[number].cells:
                counts[cell] += 1
            known = turn.after[number] = self.turn(tuple(counts))
        return known

    def count(self, turn: Turn, work: Work) -> None:
        """Count a turn once for each request, as if it were made for it."""
        turn.mark = work.mark
        if turn.counts not in work.seen:
            work.seen.add(turn.counts)
            work.look(len(self.kinds) * (1 + len(self._table.levels)))


def spu_kinds(table: RuleTable, mask: int, places: Sequence[int], barred: int) -> SpuKinds:
    """The kinds of these SPUs; kept with the table."""
    key = "kinds", mask, barred
    known = table.kept.get(key)
    if not isinstance(known, SpuKinds):
        known = SpuKinds(table, places, barred)
        table.keep(key, known)
    return known


class ListChoice:
    """Chooses lists among SPUs with room; where there is none it says so by None.

    `loads` of the SPUs of `kinds` decide between those that are alike to the rules, the smaller is
    the better, and `NO_ROOM` is not chosen. With `taken_max`, no more SPUs than that will be asked
    for.
    """

    def __init__(
        self,
        table: RuleTable,
        kinds: SpuKinds,
        loads: FloatArray,
        barred: int,
        *,
        taken_max: int | None = None,
    ) -> None:
        self._table = table
        self._barred = barred
        self._last_rank = table.last_rank
        self._kinds = kinds
        self._maxes = table.cell_maxes
        order = np.lexsort((loads, kinds.numbers))
        columns = (
            loads[order].tolist(),
            kinds.places[order].tolist(),
            kinds.numbers[order].tolist(),
        )
        everybody = list(zip(*columns, strict=True))
        self._members: list[list[Member]] = []  # of each kind, ascending
        begin = 0
        for count in kinds.sizes:
            # Who is asked for grows heavier, so no more than the lightest can come to be chosen.
            end = begin + (count if taken_max is None else min(count, taken_max))
            members = everybody[begin:end]
            while members and members[-1][0] == NO_ROOM:
                members.pop()
            self._members.append(members)
            begin += count
        self._first = [members[0] if members else NOBODY for members in self._members]
        self._member_of = dict(zip(columns[1], everybody, strict=True))
        present = [
            kind
            for kind, first in zip(kinds.kinds, self._first, strict=True)
            if first is not NOBODY
        ]
        ranks = {kind.rank for kind in present}
        self._first_rank = min(ranks, default=self._last_rank)
        self._most_weight = max((kind.weight for kind in present), default=0)
        self._best_rank = min(self._first_rank, self._last_rank - 1)
        # Then no list is led better than another.
        self._lead_alike = ranks == {self._best_rank}

    def reload(self, places: Sequence[int], loads: Sequence[float]) -> None:
        """Let SPUs that were chosen have other loads; `NO_ROOM`: they are not chosen again."""
        member_of, fronts = self._member_of, self._first
        for place, load in zip(places, loads, strict=True):
            member = member_of[place]
            number = member[2]
            members = self._members[number]
            del members[0 if members[0] is member else bisect_left(members, member)]
            if load != NO_ROOM:
                member = member_of[place] = load, place, number
                insort(members, member)
            fronts[number] = members[0] if members else NOBODY

    def best(
        self, base: Sequence[int], length: int, work: Work, *, is_whole: bool = False
    ) -> Row | None:
        """The best list of this length that begins with `base`, whichever SPUs those are.

        The others are in the order in which they were chosen. `is_whole`: no group may lack what
        is demanded of it. None: there is none, or none was found in so many steps.

        Raises:
            TooMuchWorkError: it takes more looks than are left.
        """
        found = self._greedy(base, length, None, work)
        if (
            found is not None
            and not self._lead_alike
            and self._leading_rank(found) > self._best_rank
        ):
            found = self._led_better(base, length, found, work)
        if is_whole and found is not None and self._table.has_min and any(self.lacks(found)):
            found = None
        if self._table.is_nested:
            return found
        return self.search(base, length, found, lambda _: True, work, is_whole=is_whole)

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

    def _greedy(
        self, base: Sequence[int], length: int, first: int | None, work: Work
    ) -> Row | None:
        row = [*base] if first is None else [*base, first]
        looked = (length - len(row)) * (KINDS_A_REPLICA + length)
        kinds, fronts = self._kinds, self._first.copy()
        is_empty, mark = not row, work.mark
        for place in row:
            member = self._member_of.get(place)
            if member is not None:
                fronts[member[2]] = self._front(member[2], row)
        turn = kinds.turn(tuple(self._counted(row))) if row else kinds.first_turn
        for missing in range(length - len(row), 0, -1):
            if turn.mark is not mark:
                kinds.count(turn, work)
            for size, tier in turn.tiers:
                looked += size
                best = min(tier(fronts))
                if best is not NOBODY:
                    break
            else:
                work.look(looked // KINDS_A_LOOK)
                return None
            _, place, number = best
            row.append(place)
            if missing > 1:
                members = self._members[number]
                if is_empty and best is members[0]:  # None of its kind was taken before.
                    fronts[number] = members[1] if len(members) > 1 else NOBODY
                else:
                    fronts[number] = self._front(number, row)
                turn = turn.after.get(number) or kinds.turn_after(turn, number)
        work.look(looked // KINDS_A_LOOK)
        return row

    def _front(self, number: int, row: Row) -> Member:
        """The first SPU of a kind that the list has not yet."""
        for member in self._members[number]:
            if member[1] not in row:
                return member
        return NOBODY

    def _is_open(self, kind: SpuKind, counts: Sequence[int]) -> bool:
        """Whether no hard level is full."""
        maxes = self._maxes
        return not self._table.has_max or all(counts[cell] < maxes[cell] for cell in kind.cells)

    def _led_better(self, base: Sequence[int], length: int, found: Row, work: Work) -> Row | None:
        """A list as good at the levels above, of which a better leader is a member.

        Where nobody in the list may lead: the best of those with one who may.
        """
        leads = self._leading_rank(found) < self._last_rank
        best = found if leads else None
        for kind, members in zip(self._kinds.kinds, self._members, strict=True):
            if kind.rank >= (self._leading_rank(found) if leads else self._last_rank):
                continue
            first = next((place for _, place, _ in members if place not in base), None)
            trial = None if first is None else self._greedy(base, length, first, work)
            if trial is not None and (best is None or self.score(trial) < self.score(best)):
                best = trial
        return best

    def search(
        self,
        base: Sequence[int],
        length: int,
        found: Row | None,
        accept: Callable[[Row], bool],
        work: Work,
        *,
        is_whole: bool = True,
    ) -> Row | None:
        """The best list that is accepted, if it is better than the one that was found."""
        best, bound = found, None if found is None else self.score(found)
        taken = set(base)
        kinds, mins = self._kinds.kinds, self._table.cell_mins
        members = [[place for _, place, _ in each if place not in taken] for each in self._members]
        # Partial lists, each with the number of its last kind and how many of that it has.
        stack: list[tuple[Row, int, int]] = [([*base], 0, 0)]
        while stack and work.steps > 0:
            row, kind_number, used = stack.pop()
            work.search(len(kinds) - kind_number)
            if bound is not None and self._least(row, length) >= bound:
                continue
            if is_whole and self._least_lack(row, length):
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
