"""Whether so many lists fit on SPUs with so much room, under the hard rules.

Where hard levels are nested and all may lead that is a count: the groups form a tree of which each
takes at most so many replicas of a list, and what fits together can be divided into lists (integer
decomposition of laminar systems; Baum and Trotter 1978). Else lists are searched for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from spu_assigner.core.constraints.list_choice import ListChoice, Row, SpuKinds, Steps
from spu_assigner.core.constraints.rule_table import RuleTable, is_nested

LISTS_AHEAD_MAX: Final = 16  # that are searched for, where a count does not decide whether they fit

Rooms = Mapping[int, int]  # replicas that SPUs have room for; those without room are not there


@dataclass(frozen=True, slots=True)
class Fitting:
    """Lists of so many replicas under the rules of a table; `barred` SPUs do not lead."""

    table: RuleTable
    barred: int
    replicas: int
    steps: Steps

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
        hard = [level for level in self.table.levels if level.max is not None]
        if not hard:
            return True
        nested = is_nested(hard)
        for levels in [hard] if nested else [[level] for level in hard]:
            takes: dict[tuple[int, ...], int] = {}
            for place, room in rooms.items():
                groups = tuple([level.groups[place] for level in levels])
                takes[groups] = takes.get(groups, 0) + min(room, lists)
            for depth in range(len(levels), 0, -1):
                most = lists * (levels[depth - 1].max or 0)
                outer: dict[tuple[int, ...], int] = {}
                for groups, take in takes.items():
                    above = groups[: depth - 1]
                    outer[above] = outer.get(above, 0) + min(take, most)
                takes = outer
            if sum(takes.values()) < wanted:
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
            fits = self.by_count(left, lists - 1)
            if fits is None and 1 < lists <= LISTS_AHEAD_MAX:
                return self.leaving_room(left, lists - 1) is not None
            return fits is not False

        apart = {place: min(room, lists) for place, room in rooms.items()}
        kinds = SpuKinds(self.table, [*rooms], self.barred, apart)
        of_each = [-room if loads is None else loads[place] for place, room in rooms.items()]
        choice = ListChoice(self.table, kinds, np.array(of_each, dtype=np.float64), self.barred)
        return choice.search((), self.replicas, None, accept, self.steps)


def without(rooms: Rooms, row: Row) -> dict[int, int]:
    """The room that is left after a list."""
    return {place: left for place, room in rooms.items() if (left := room - (place in row))}
