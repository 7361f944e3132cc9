"""Why no list can be given: rules that conflict, of which none can be spared.

A rule that excludes too much by itself is named alone. Else rules are left out one by one, the last
given first, as long as it is sure that the rest conflicts. Another set may have fewer rules: to
find the fewest takes a look at every set. Where `STEPS_MAX` ends first, rules that could be spared
are named too.

What `min` of a level demands is what all rules together make it: of no value that another rule
excludes. So no rule that is left out makes a set conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from spu_assigner.core.constraints.fitting import Fitting, Rooms
from spu_assigner.core.constraints.rule_table import Level, RuleTable, SpuRule
from spu_assigner.core.constraints.work import SEARCH_STEPS_MAX, Work

STEPS_MAX: Final = 5 * SEARCH_STEPS_MAX  # of all looks for one conflict; some 1 s
NO_LEADERS: Final = "taints against leading"

_Rule = TypeVar("_Rule")


@dataclass(frozen=True, slots=True)
class HardRule:
    """A rule that a list must hold; one of the last three."""

    name: str
    excluded: int  # SPUs that it excludes alone, a bit for each
    level: Level | None = None  # of `spread`, with a `max` or with a `min`
    barred: int = 0  # SPUs that may not lead


@dataclass(slots=True)
class RuledRequest:
    """So many lists, on SPUs with so much room."""

    table: RuleTable
    rooms: Rooms
    partitions: int
    replicas: int
    steps: int = STEPS_MAX  # that are left
    _tables: dict[tuple[str, ...], RuleTable] = field(default_factory=dict)  # by rules on levels

    def fits(self, rules: Sequence[HardRule]) -> bool | None:
        """Whether the lists can be given under these rules alone; None: it takes too many steps."""
        work = Work(steps=min(self.steps, SEARCH_STEPS_MAX))
        allowed = work.steps
        work.search(len(self.rooms))
        table = self._with_levels([rule for rule in rules if rule.level is not None], work)
        found = self._fits(rules, table, work) if work.steps > 0 else None
        self.steps -= allowed - work.steps
        return found

    def _fits(self, rules: Sequence[HardRule], table: RuleTable, work: Work) -> bool | None:
        excluded = barred = 0
        for rule in rules:
            excluded |= rule.excluded
            barred |= rule.barred
        rooms = {place: room for place, room in self.rooms.items() if not excluded >> place & 1}
        lists = self.partitions
        if all(room >= lists for room in rooms.values()):
            lists = 1  # What can be given once can be given again.
        fitting = Fitting(table, barred, self.replicas, work)
        found = fitting.by_count(rooms, lists)
        if found is None:
            row = fitting.leaving_room(rooms, lists)
            found = None if row is None and work.steps <= 0 else row is not None
        return found

    def _with_levels(self, rules: Sequence[HardRule], work: Work) -> RuleTable:
        key = tuple([rule.name for rule in rules])
        known = self._tables.get(key)
        if known is None:
            work.search(len(self.table.ids) * (1 + len(rules)))
            levels = [rule.level for rule in rules if rule.level is not None]
            known = self._tables[key] = self.table.with_levels(levels)
        return known


def hard_rules(table: RuleTable, of_topics: Sequence[SpuRule]) -> list[HardRule]:
    """All hard rules on a list, in the order given."""
    rules = [HardRule(rule.name, rule.excluded) for rule in table.rules]
    for level in table.levels:
        if level.max is not None:
            at_most = replace(level, min=None, mins=())
            rules.append(HardRule(level.max_name(), 0, level=at_most))
        if any(level.mins):
            rules.append(HardRule(level.min_name(), 0, level=replace(level, max=None)))
    rules += [HardRule(rule.name, rule.excluded) for rule in of_topics]
    if table.barred_leaders:
        rules.append(HardRule(NO_LEADERS, 0, barred=table.barred_leaders))
    return rules


def conflict_of(request: RuledRequest, rules: Sequence[HardRule]) -> list[HardRule]:
    """Rules that conflict, of which none can be spared; all of them together must conflict."""
    able = sum(1 << place for place in request.rooms)
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
