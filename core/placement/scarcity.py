"""Lists where room is short: what must be in the next one so that those after it still fit."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.constraints.rule_table import BARRED
from spu_assigner.core.constraints.work import Work
from spu_assigner.core.placement.eligibility import PlacementField
from spu_assigner.core.placement.list_search import ListSearch, Rooms, Row, without
from spu_assigner.core.placement.new_lists import ListChooser
from spu_assigner.core.placement.preference import NEVER

# What is counted as looks, by measurement: at each SPU to count its room, of each kind for each
# replica that is dealt.
LOOKS_TO_COUNT = 2
LOOKS_TO_DEAL = 4


def slack(rooms: Sequence[int], lists: int, replicas: int) -> int:
    """What SPUs have room for beyond so many lists; below 0: they do not fit."""
    return sum([min(room, lists) for room in rooms]) - lists * replicas


class CriticalSpus:
    """The SPUs of a field that have room for all lists that are left, list after list."""

    def __init__(self, field: PlacementField, chooser: ListChooser, replicas: int) -> None:
        self._field = field
        self._chooser = chooser
        self._replicas = replicas
        self._rooms = np.array(chooser.rooms(), dtype=np.int32)

    def first(self, lists: int) -> list[int] | None:
        """The critical SPUs that the next of so many lists begins with; None: they do not fit."""
        able = int(np.minimum(self._rooms, lists).sum()) - lists * self._replicas
        if able < 0:
            return None
        critical: list[int] = np.flatnonzero(self._rooms >= lists).tolist()
        field, forced = self._field, list[int]()
        while len(critical) > able:
            counts = field.counts_at(forced)
            *_, at = min(
                (field.cost(field.kind_at(at), counts), self._chooser.key_at(at), at)
                for at in critical
            )
            critical.remove(at)
            forced.append(at)
        return forced

    def give(self, row: Sequence[int]) -> None:
        """Count a list that was given."""
        self._rooms[row] = [self._chooser.room(at) for at in row]


class SearchedLists:
    """Lists where the best SPU for each place is not enough: levels cross, hard levels or leaders
    are short, or other members would lead better. They are counted, dealt or searched for."""

    def __init__(
        self, field: PlacementField, chooser: ListChooser, replicas: int, work: Work
    ) -> None:
        self._field, self._chooser = field, chooser
        self._replicas, self._work = replicas, work
        self._search = ListSearch(field, replicas, work, chooser.can_lead)
        is_ruled = field.is_limited or field.is_demanding or BARRED in field.ranks
        self.is_short = chooser.is_scarce and is_ruled
        self.is_needed = self.is_short or not field.is_nested

    def led_better(self, row: Row, first: Sequence[int]) -> Row | None:
        """A list, taken, as good at the levels above as this one, of which a better leader is a
        member. Where nobody in the list may lead: the best of those with one that may."""
        field, chooser = self._field, self._chooser
        rank = min(field.kind_at(at).rank for at in row)
        if rank == field.ranks[0] < BARRED:
            return row
        best = row if rank < BARRED else None
        least = None if best is None else self._search.bound(best)
        chooser.put_back(row)
        for number, kind in enumerate(field.kinds):
            top = chooser.front_at(number) if kind.rank < rank else None
            if top is None or top in first or len(first) == len(row):
                continue
            trial = chooser.take_list(len(row), self._work, [*first, top])
            if trial is not None:
                chooser.put_back(trial)
                score = self._search.bound(trial)
                if score is not None and (least is None or score < least):
                    best, least = trial, score
        if best is not None:
            chooser.take_out(best)
        return best

    def instead_of(self, row: Row | None, lists: int) -> list[Row] | None:
        """What is given of so many lists where the best by places is this one: it, or a better one,
        or another that leaves room for the others, or all of them; None: they do not fit."""
        work, search, field = self._work, self._search, self._field
        if not field.is_nested and work.steps > 0:
            row = search.best(dict.fromkeys(self._in_order(), 1), 1, row)
        if not self.is_short:
            return None if row is None else [row]
        work.look(LOOKS_TO_COUNT * field.size)
        rooms = {at: room for at, room in enumerate(self._chooser.rooms()) if room > 0}
        if row is not None and search.fits(without(rooms, row), lists - 1):
            return [row]
        whole = search.fits(rooms, lists)
        if whole is False:
            return None
        rooms = {at: rooms[at] for at in self._in_order()}
        if whole and field.is_nested:  # A count decides only where all may lead.
            return self._dealt(rooms, lists)
        found = search.best(rooms, lists)
        return None if found is None else [found]

    def _in_order(self) -> list[int]:
        """The SPUs with room, the best first."""
        able = [at for at in range(self._field.size) if self._chooser.key_at(at) != NEVER]
        return sorted(able, key=self._chooser.key_at)

    def _dealt(self, rooms: Rooms, lists: int) -> list[Row]:
        """So many lists at once, which must fit; levels must be nested, and any SPU may lead.

        Numbers of replicas first, each to the best SPU as if all were one list; then dealt in the
        order of the cells, so that each cell is as even over the lists as can be.
        """
        field, replicas = self._field, self._replicas
        quotas = dict.fromkeys(rooms, 0)
        counts = [0] * len(field.maxes)
        # Of SPUs that are alike to the rules, the one with the fewest of these replicas first.
        alike: dict[int, list[tuple[int, int, int]]] = {}
        for number, at in enumerate(rooms):
            heappush(alike.setdefault(field.kind_of[at], []), (0, number, at))
        self._work.look(lists * replicas * (LOOKS_TO_DEAL * (2 + len(alike))))
        for _ in range(lists * replicas):
            options = []
            for number, members in alike.items():
                kind = field.kinds[number]
                if any(counts[cell] >= lists * field.maxes[cell] for cell in kind.cells):
                    continue
                met = sum(counts[cell] < lists * field.mins[cell] for cell in kind.cells)
                costs = [counts[cell] // lists for cell in kind.cells]
                options.append((-met, costs, -kind.weight, kind.rank, members[0], number))
            if not options:
                raise InvariantError(f"{lists} lists of {replicas} were said to fit, and do not")
            kind_number = min(options)[-1]
            _, number, at = heappop(alike[kind_number])
            quotas[at] += 1
            if quotas[at] < min(rooms[at], lists):
                heappush(alike[kind_number], (quotas[at], number, at))
            elif not alike[kind_number]:
                del alike[kind_number]
            for cell in field.kind_at(at).cells:
                counts[cell] += 1
        outermost = sorted(range(len(field.levels)), key=lambda level: len(field.levels[level]))
        in_order = sorted(
            quotas, key=lambda at: ([field.kind_at(at).cells[i] for i in outermost], at)
        )
        sequence = [at for at in in_order for _ in range(quotas[at])]
        return [sequence[number::lists] for number in range(lists)]
