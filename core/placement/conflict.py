"""Why no list can be given: rules that conflict, of which none can be spared.

A rule that excludes too much by itself is named alone. Else rules are left out one by one, the last
given first, as long as it is sure that the rest conflicts; where `STEPS_MAX` ends first, some that
could be spared are named too. What `min` of a level demands stays what all rules together make it,
so no rule that is left out makes a set conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from spu_assigner.core.base.limits import REPLICATION_FACTOR_MAX
from spu_assigner.core.constraints.rule_table import BARRED, AlikeSpus, BoundRules, HardRule, union
from spu_assigner.core.constraints.work import SEARCH_STEPS_MAX, Work
from spu_assigner.core.placement.eligibility import PlacementField
from spu_assigner.core.placement.list_search import ListSearch, Rooms

STEPS_MAX: Final = 5 * SEARCH_STEPS_MAX  # of all looks for one conflict; some 1 s

_Rule = TypeVar("_Rule")


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
        table, excluded = self.rules.table, union(rules)
        barred = sum(rule.barred for rule in rules)
        maxes, mins = [REPLICATION_FACTOR_MAX] * table.size, [0] * table.size
        hard: set[int] = set()  # levels
        for rule in rules:
            for at, level in enumerate(table.levels):
                if rule.level is level:
                    hard.add(at)
                    for cell in level.cells:
                        maxes[cell] = min(maxes[cell], rule.max or maxes[cell])
                        mins[cell] = rule.mins.get(cell, mins[cell])
        places = [place for place in self.rooms if not excluded >> place & 1]
        kinds = []
        for place in places:
            cells = tuple([table.spus[place].cells[at] for at in sorted(hard)])
            rank = BARRED if barred >> place & 1 else 0
            kinds.append(AlikeSpus(cells, weight=0, rank=rank, is_last=False))
        field = PlacementField(
            [table.labels.spus[place] for place in places],
            kinds,
            levels=[table.levels[at].cells for at in sorted(hard)],
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
    able = sum(1 << place for place in request.rooms)
    rules = request.rules.hard
    matter = [rule for rule in rules if rule.excluded & able or rule.level or rule.barred & able]
    for rule in matter:
        if request.fits([rule]) is False:
            return [rule]
    return needed(matter, lambda kept: request.fits(kept) is False)


def needed(rules: Sequence[_Rule], is_conflict: Callable[[Sequence[_Rule]], bool]) -> list[_Rule]:
    """Rules that conflict, without those that can be left out one by one, the last first."""
    kept = list(rules)
    for rule in reversed(rules):
        fewer = [each for each in kept if each is not rule]
        if is_conflict(fewer):
            kept = fewer
    return kept
