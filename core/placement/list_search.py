"""A search for lists where choosing SPU by SPU does not find them, and whether so many lists fit.

The score of a list, the smaller the better, level by level:
1. for each level, in order of preference: the pairs of replicas in one cell, so that a list is as
   even over the cells as can be;
2. less the weights of what is preferred;
3. the rank of the best leader.

Where hard levels are nested and all may lead, whether lists fit is a count: the cells form a tree
of which each takes at most so many replicas of a list and is to have so many, and what fits
together can be divided into lists (integer decomposition of laminar systems; Baum and Trotter
1978). Else one list is searched for after the other, by branch and bound.

Of rules that conflict none can be spared: one that excludes too much is named alone, else they are
left out one by one, the last given first, as long as the rest surely conflicts. Where `STEPS_MAX`
ends first, some that could be spared are named too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spu_assigner.core.base.limits import REPLICATION_FACTOR_MAX
from spu_assigner.core.constraints.rule_table import (
    BARRED,
    AlikeSpus,
    BoundRules,
    Cells,
    HardRule,
    union,
)
from spu_assigner.core.constraints.work import SEARCH_STEPS_MAX, Work
from spu_assigner.core.placement.eligibility import PlacementField

STEPS_MAX: Final = 5 * SEARCH_STEPS_MAX  # of all looks for one conflict; some 1 s

Rooms = Mapping[int, int]  # replicas that SPUs have room for; those without room are not there
Row = list[int]  # places in the field


class ListSearch:
    """Lists of so many replicas on the SPUs of a field; `can_lead`: those with room to lead, if
    not all have."""

    def __init__(
        self,
        field: PlacementField,
        replicas: int,
        work: Work,
        can_lead: Callable[[int], bool] | None = None,
    ) -> None:
        self._field, self._replicas, self._work, self._can_lead = field, replicas, work, can_lead

    def fits(self, rooms: Rooms, lists: int) -> bool | None:
        """Whether so many lists fit; None: a count does not decide it."""
        field, wanted = self._field, lists * self._replicas
        able = {at: min(room, lists) for at, room in rooms.items()}
        leading = sum(room for at, room in able.items() if self.rank(at) < BARRED)
        following = sum(able.values()) - leading
        if leading < lists or leading + min(following, wanted - lists) < wanted:
            return False
        for levels in [field.hard] if field.is_counted else [[level] for level in field.hard]:
            if not self._holds(levels, able, lists):
                return False
        return True if field.is_counted and not following else None

    def best(self, rooms: Rooms, lists: int, known: Row | None = None) -> Row | None:
        """The best list after which the others of so many still fit, if it is better than a known
        one; None: there is none, or the work ended. Of SPUs that are alike the first is taken, of
        kinds that are the one with most room."""
        field, work, alike = self._field, self._work, dict[tuple[int, int, int], Row]()
        for at, room in rooms.items():
            alike.setdefault((field.kind_of[at], self.rank(at), min(room, lists)), []).append(at)
        kinds = [(field.kinds[kind], -room, row) for (kind, _, room), row in alike.items()]
        best, least = known, None if known is None else self.bound(known)
        # Partial lists, each with the number of its last kind and how many of that it has.
        stack: list[tuple[Row, int, int]] = [([], 0, 0)]
        while stack and work.steps > 0:
            row, first, used = stack.pop()
            work.search(len(kinds) - first)
            bound = self.bound(row)
            if bound is None or (least is not None and bound >= least):
                continue
            if len(row) == self._replicas:
                if bound[-1] < BARRED:
                    work.search(len(rooms))
                    if lists == 1 or self.fits(without(rooms, row), lists - 1) is not False:
                        best, least = row, bound
                continue
            counts, options = field.counts(map(field.kind_at, row)), []
            for number in range(first, len(kinds)):
                kind, room, members = kinds[number]
                start = used if number == first else 0
                cost = field.cost(kind, counts) if start < len(members) else None
                if cost is not None:
                    options.append((cost, room, number, start))
            # The most promising is on top.
            for *_, number, start in sorted(options, reverse=True):
                stack.append(([*row, kinds[number][2][start]], number, start + 1))
        return best

    def bound(self, row: Row) -> tuple[int, ...] | None:
        """The score of a list; no list that begins so has a smaller one. None: none has what `min`
        demands."""
        field, missing = self._field, self._replicas - len(row)
        counts, pairs, weight, rank = [0] * len(field.maxes), [0] * len(field.levels), 0, BARRED
        for at in row:
            kind = field.kind_at(at)
            for level, cell in enumerate(kind.cells):
                pairs[level] += counts[cell]
                counts[cell] += 1
            weight += kind.weight
            rank = min(rank, self.rank(at))
        for level, cells in enumerate(field.levels):
            if field.is_demanding:
                lacks = sum([max(field.mins[cell] - counts[cell], 0) for cell in cells])
                if lacks > missing:
                    return None
            pairs[level] += _pairs(counts[cells.start : cells.stop], missing)
        if missing:
            weight += missing * field.most_weight
            rank = min(rank, *field.ranks)
        return *pairs, -weight, rank

    def rank(self, at: int) -> int:
        """Of an SPU as a leader."""
        is_able = self._can_lead is None or self._can_lead(at)
        return self._field.kind_at(at).rank if is_able else BARRED

    def _holds(self, levels: Sequence[int], able: Rooms, lists: int) -> bool:
        """Whether the cells of nested levels can have so many replicas together."""
        field, takes = self._field, dict[Cells, tuple[int, int]]()  # at most, and at least
        for at, room in able.items():
            cells = tuple([field.kind_at(at).cells[level] for level in levels])
            takes[cells] = takes.get(cells, (0, 0))[0] + room, 0
        there = {cell for cells in takes for cell in cells}
        if lists and any(field.mins[i] and i not in there for n in levels for i in field.levels[n]):
            return False
        for _ in levels:
            outer: dict[Cells, tuple[int, int]] = {}
            for cells, (able_below, due) in takes.items():
                most = min(able_below, lists * field.maxes[cells[-1]])
                least = max(due, lists * field.mins[cells[-1]])
                if least > most:
                    return False
                above = outer.get(cells[:-1], (0, 0))
                outer[cells[:-1]] = above[0] + most, above[1] + least
            takes = outer
        most, least = takes.get((), (0, 0))
        return least <= lists * self._replicas <= most


def _pairs(counts: Sequence[int], more: int) -> int:
    """The fewest pairs in one cell that so many more replicas make."""
    pairs = cost = 0
    while more:
        taken = min(sum([count <= cost for count in counts]), more)
        pairs, more, cost = pairs + cost * taken, more - taken, cost + 1
    return pairs


def without(rooms: Rooms, row: Row) -> dict[int, int]:
    """The room that is left after a list."""
    return {at: left for at, room in rooms.items() if (left := room - (at in row))}


@dataclass(slots=True)
class RuledRequest:
    """So many lists, on SPUs (by place in the table) with so much room."""

    rules: BoundRules
    rooms: Rooms
    partitions: int
    replicas: int
    steps: int = STEPS_MAX  # that are left

    def fits(self, rules: Sequence[HardRule]) -> bool | None:
        """Whether the lists can be given under these rules alone; None: it takes too many steps."""
        work = Work(steps=min(self.steps, SEARCH_STEPS_MAX))
        self.steps -= work.steps
        work.search(len(self.rooms) * (1 + sum(rule.level is not None for rule in rules)))
        found = self._found(rules, work) if work.steps > 0 else None
        self.steps += work.steps
        return found

    def _found(self, rules: Sequence[HardRule], work: Work) -> bool | None:
        table, excluded = self.rules.table, union(rules, self.rules.table.labels)
        barred = [rule.barred for rule in rules if rule.barred is not None]
        maxes, mins = [REPLICATION_FACTOR_MAX] * table.size, [0] * table.size
        for rule in rules:
            for cell in () if rule.level is None else rule.level.cells:
                maxes[cell] = min(maxes[cell], rule.max or maxes[cell])
                mins[cell] = rule.mins.get(cell, mins[cell])
        limiting = [rule.level for rule in rules]
        hard = [
            at for at, level in enumerate(table.levels) if any(level is each for each in limiting)
        ]
        places = [place for place in self.rooms if not excluded[place]]
        kinds = []
        for place in places:
            cells = tuple([table.spus[place].cells[at] for at in hard])
            rank = BARRED if any(each[place] for each in barred) else 0
            kinds.append(AlikeSpus(cells, weight=0, rank=rank))
        field = PlacementField(
            table,
            places,
            kinds,
            levels=[table.levels[at].cells for at in hard],
            maxes=maxes,
            mins=mins,
        )
        search = ListSearch(field, self.replicas, work)
        rooms = {at: self.rooms[place] for at, place in enumerate(places)}
        is_ample = all(room >= self.partitions for room in rooms.values())
        lists = 1 if is_ample else self.partitions  # What can be given once can be given again.
        found = search.fits(rooms, lists)
        if found is None:
            row = search.best(rooms, lists)
            found = None if row is None and work.steps <= 0 else row is not None
        return found


def conflict_of(request: RuledRequest) -> list[HardRule]:
    """Rules that conflict, of which none can be spared; all of them together must conflict."""
    able = [*request.rooms]
    matter = [
        rule
        for rule in request.rules.hard
        if rule.level
        or any(each[able].any() for each in (rule.excluded, rule.barred) if each is not None)
    ]
    for rule in matter:
        if request.fits([rule]) is False:
            return [rule]
    kept = matter
    for rule in reversed(matter):
        fewer = [each for each in kept if each is not rule]
        if request.fits(fewer) is False:
            kept = fewer
    return kept
