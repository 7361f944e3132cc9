"""Lists where room is short: what must be in the next one so that those after it still fit."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.constraints.fitting import Fitting, Rooms, without
from spu_assigner.core.constraints.list_search import ListSearch, SpuKinds
from spu_assigner.core.constraints.rule_table import RuleTable
from spu_assigner.core.constraints.work import Work
from spu_assigner.core.placement.eligibility import BARRED, PlacementField
from spu_assigner.core.placement.new_lists import ListChooser
from spu_assigner.core.placement.preference import NEVER

# What is counted as looks, by measurement: at each SPU to count its room, of each kind for each
# replica that is dealt.
LOOKS_TO_COUNT = 2
LOOKS_TO_DEAL = 4

Row = list[int]  # places in the field


def slack(rooms: Sequence[int], lists: int, replicas: int) -> int:
    """What SPUs have room for beyond so many lists; below 0: they do not fit."""
    return sum([min(room, lists) for room in rooms]) - lists * replicas


class CriticalSpus:
    """The SPUs of a field that have room for all lists that are left, list after list."""

    def __init__(
        self, field: PlacementField, chooser: ListChooser, lists: int, replicas: int
    ) -> None:
        self._field = field
        self._chooser = chooser
        self._replicas = replicas
        self._lists = lists  # that are left
        self._rooms = chooser.rooms()
        self._slack = slack(self._rooms, lists, replicas)
        self._critical = [at for at, room in enumerate(self._rooms) if room >= lists]
        self._of_room: dict[int, set[int]] = {}  # the others, by their room
        for at, room in enumerate(self._rooms):
            if 0 < room < lists:
                self._of_room.setdefault(room, set()).add(at)

    def first(self) -> list[int] | None:
        """The critical SPUs that the next list begins with; None: the lists do not fit."""
        if self._slack < 0:
            return None
        forced: list[int] = []
        if len(self._critical) <= self._slack:
            return forced
        field, counts = self._field, [0] * len(self._field.maxes)
        while len(forced) < len(self._critical) - self._slack:
            *_, at = min(
                (field.cost(field.kinds[field.kind_of[at]], counts), self._chooser.key_at(at), at)
                for at in self._critical
                if at not in forced
            )
            forced.append(at)
            for cell in field.cells_at(at):
                counts[cell] += 1
        return forced

    def give(self, row: Sequence[int]) -> None:
        """Count a list that was given."""
        self._slack += self._replicas - len(self._critical)
        self._lists -= 1
        for at in row:
            before, room = self._rooms[at], self._chooser.room(at)
            self._rooms[at] = room
            if before > self._lists:  # It was critical, and counted for one of the slack.
                if room < self._lists:
                    self._critical.remove(at)
                    self._slack += room - self._lists
                    self._of_room.setdefault(room, set()).add(at)
                continue
            self._slack += room - before
            self._of_room[before].discard(at)
            if room > 0:
                self._of_room.setdefault(room, set()).add(at)
        self._critical += sorted(self._of_room.pop(self._lists, ()))


class ScarceLists:
    """Lists under hard levels, or where not every SPU may lead: counted, dealt or searched for."""

    def __init__(
        self,
        field: PlacementField,
        table: RuleTable,
        chooser: ListChooser,
        replicas: int,
        work: Work,
    ) -> None:
        self._field = field
        self._table = table
        self._chooser = chooser
        self._replicas = replicas
        self._work = work
        self.is_nested = table.is_nested
        self._place_of = [table.place[spu_id] for spu_id in field.id_list]

    def searched(self, row: Row | None) -> Row | None:
        """The best list, where levels cross, if one is found that is better than this one."""
        able = [at for at in range(self._field.size) if self._chooser.key_at(at) != NEVER]
        able.sort(key=self._chooser.key_at)
        barred = self._barred()
        loads = {self._place_of[at]: number for number, at in enumerate(able)}
        kinds = SpuKinds(self._table, [*loads], barred)
        search = ListSearch(self._table, kinds, np.array([*loads.values()], dtype=float), barred)
        known = None if row is None else [self._place_of[at] for at in row]
        found = search.search((), self._replicas, known, lambda _: True, self._work)
        return None if found is None else self._row(found)

    def instead_of(self, row: Row | None, lists: int) -> list[Row] | None:
        """The list if it leaves room for so many, itself included, or another, or all of them."""
        self._work.look(LOOKS_TO_COUNT * self._field.size)
        rooms = {
            self._place_of[at]: room for at, room in enumerate(self._chooser.rooms()) if room > 0
        }
        barred = self._barred()
        fitting = Fitting(self._table, barred, self._replicas, self._work)
        if row is not None:
            known = [self._place_of[at] for at in row]
            if fitting.by_count(without(rooms, known), lists - 1):
                return [row]
        whole = fitting.by_count(rooms, lists)
        if whole is False:
            return None
        if whole and self._table.is_nested and not any(barred >> place & 1 for place in rooms):
            return [self._row(each) for each in self._dealt(rooms, lists)]
        loads = {place: float(at) for at, place in enumerate(self._in_order(rooms))}
        found = fitting.leaving_room(rooms, lists, loads)
        return None if found is None else [self._row(found)]

    def _row(self, places: Sequence[int]) -> Row:
        return [self._field.at_of[self._table.ids[place]] for place in places]

    def _in_order(self, rooms: Rooms) -> list[int]:
        return sorted(rooms, key=lambda place: self._chooser.key_at(self._row([place])[0]))

    def _barred(self) -> int:
        """The SPUs that may not lead, or have no room for it; a bit for each."""
        field = self._field
        barred = 0
        for at, place in enumerate(self._place_of):
            is_barred = field.kinds[field.kind_of[at]].rank >= BARRED
            if is_barred or not self._chooser.can_lead(at):
                barred |= 1 << place
        return barred

    def _dealt(self, rooms: Rooms, lists: int) -> list[list[int]]:
        """So many lists at once, which must fit; levels must be nested, and any SPU may lead.

        Numbers of replicas first, each to the best SPU as if all were one list; then dealt in the
        order of the cells, so that each cell is as even over the lists as can be.
        """
        table, replicas = self._table, self._replicas
        quotas = dict.fromkeys(rooms, 0)
        counts = [0] * len(table.cell_maxes)
        # Of SPUs that are alike to the rules, the one with the fewest of these replicas first.
        alike: dict[tuple[tuple[int, ...], int, int], list[tuple[int, int, int]]] = {}
        for number, place in enumerate(self._in_order(rooms)):
            kind = table.cells[place], table.weights[place], table.ranks[place]
            heappush(alike.setdefault(kind, []), (0, number, place))
        self._work.look(lists * replicas * (LOOKS_TO_DEAL * (2 + len(alike))))
        for _ in range(lists * replicas):
            options = []
            for kind, members in alike.items():
                cells, weight, rank = kind
                if any(counts[cell] >= lists * table.cell_maxes[cell] for cell in cells):
                    continue
                met = sum(counts[cell] < lists * table.cell_mins[cell] for cell in cells)
                costs = [counts[cell] // lists for cell in cells]
                options.append((-met, costs, -weight, rank, members[0], kind))
            if not options:
                raise InvariantError(f"{lists} lists of {replicas} were said to fit, and do not")
            kind = min(options)[-1]
            _, number, place = heappop(alike[kind])
            quotas[place] += 1
            if quotas[place] < min(rooms[place], lists):
                heappush(alike[kind], (quotas[place], number, place))
            elif not alike[kind]:
                del alike[kind]
            for cell in kind[0]:
                counts[cell] += 1
        sizes = [level.size for level in table.levels]
        outermost = sorted(range(len(sizes)), key=lambda at: sizes[at])
        in_order = sorted(quotas, key=lambda i: ([table.cells[i][at] for at in outermost], i))
        sequence = [place for place in in_order for _ in range(quotas[place])]
        return [sequence[number::lists] for number in range(lists)]
