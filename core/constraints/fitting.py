"""Whether so many lists fit on SPUs with so much room, under the hard rules.

Where hard levels are nested and all may lead that is a count: the groups form a tree of which each
takes at most so many replicas of a list and is to have so many, and what fits together can be
divided into lists (integer decomposition of laminar systems; Baum and Trotter 1978). Else lists are
searched for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from spu_assigner.core.constraints.list_search import ListSearch, Row, SpuKinds
from spu_assigner.core.constraints.rule_table import Level, RuleTable, is_nested
from spu_assigner.core.constraints.work import Work

LISTS_AHEAD_MAX: Final = 16  # that are searched for, where a count does not decide whether they fit

Rooms = Mapping[int, int]  # replicas that SPUs have room for; those without room are not there


@dataclass(frozen=True, slots=True)
class Fitting:
    """Lists of so many replicas under the rules of a table; `barred` SPUs do not lead."""

    table: RuleTable
    barred: int
    replicas: int
    work: Work

    def by_count(self, rooms: Rooms, lists: int) -> bool | None:
        """Whether so many lists fit; None: a count does not decide it."""
        wanted = lists * self.replicas
        leading = following = 0
        for place, room in rooms.items():
            if self.barred >> place & 1:
                following += min(room, lists)
            else:
                leading += min(room, lists)
        if leading < lists or leading + min(following, wanted - lists) < wanted:
            return False
        hard = [level for level in self.table.levels if level.is_hard]
        hard.sort(key=lambda level: level.size)  # outermost first, where they are nested
        if not hard:
            return True
        nested = is_nested(hard)
        for levels in [hard] if nested else [[level] for level in hard]:
            if not _holds(levels, rooms, lists, wanted):
                return False
        return True if nested and not following else None

    def leaving_room(
        self, rooms: Rooms, lists: int, loads: Mapping[int, float] | None = None
    ) -> Row | None:
        """The best list after which the others still fit; None: there is none, or none was found.

        `loads` decide between lists that are as good; None: who has most room is preferred.
        """

        def accept(row: Row) -> bool:
            left = without(rooms, row)
            self.work.search(len(rooms))
            fits = self.by_count(left, lists - 1)
            if fits is None and 1 < lists <= LISTS_AHEAD_MAX:
                self.work.search(4 * len(rooms))  # to have them by kind
                return self.leaving_room(left, lists - 1) is not None
            return fits is not False

        apart = {place: min(room, lists) for place, room in rooms.items()}
        kinds = SpuKinds(self.table, [*rooms], self.barred, apart)
        of_each = [-room if loads is None else loads[place] for place, room in rooms.items()]
        search = ListSearch(self.table, kinds, np.array(of_each, dtype=np.float64), self.barred)
        return search.search((), self.replicas, None, accept, self.work)


def _holds(levels: Sequence[Level], rooms: Rooms, lists: int, wanted: int) -> bool:
    """Whether the groups of nested levels can have so many replicas together."""
    takes: dict[tuple[int, ...], tuple[int, int]] = {}  # at most, and at least
    for place, room in rooms.items():
        groups = tuple([level.groups[place] for level in levels])
        takes[groups] = takes.get(groups, (0, 0))[0] + min(room, lists), 0
    for depth in range(len(levels), 0, -1):
        level = levels[depth - 1]
        found = {groups[-1] for groups in takes}
        if lists and any(least and group not in found for group, least in enumerate(level.mins)):
            return False
        outer: dict[tuple[int, ...], tuple[int, int]] = {}
        for groups, (able, due) in takes.items():
            most = able if level.max is None else min(able, lists * level.max)
            least = max(due, lists * level.mins[groups[-1]]) if level.mins else due
            if least > most:
                return False
            able_above, due_above = outer.get(groups[:-1], (0, 0))
            outer[groups[:-1]] = able_above + most, due_above + least
        takes = outer
    most, least = takes.get((), (0, 0))
    return least <= wanted <= most


def without(rooms: Rooms, row: Row) -> dict[int, int]:
    """The room that is left after a list."""
    return {place: left for place, room in rooms.items() if (left := room - (place in row))}
