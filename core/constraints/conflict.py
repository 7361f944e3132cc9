"""Why no list can be given: the smallest set of rules that conflict.

Sets are tried by size, then in the order in which the rules were given. Where that would take more
than CHECKS_MAX looks, rules are left out one by one as long as the rest conflicts: then no rule of
the set can be spared, but another set may be smaller.

What `min` of a level demands is what all rules together make it: of no value that another rule
excludes. So no rule that is left out makes a set conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final, TypeVar

from spu_assigner.core.constraints.fitting import Fitting, Rooms
from spu_assigner.core.constraints.list_choice import Steps
from spu_assigner.core.constraints.rule_table import Level, RuleTable, SpuRule

CHECKS_MAX: Final = 2_000
NO_LEADERS: Final = "taints against leading"

_Rule = TypeVar("_Rule")


@dataclass(frozen=True, slots=True)
class HardRule:
    """A rule that a list must hold; one of the last three."""

    name: str
    excluded: int  # SPUs that it excludes alone, a bit for each
    level: Level | None = None  # of `spread`, with a `max` or with a `min`
    barred: int = 0  # SPUs that may not lead


@dataclass(frozen=True, slots=True)
class RuledRequest:
    """So many lists, on SPUs with so much room."""

    table: RuleTable
    rooms: Rooms
    partitions: int
    replicas: int

    def fits(self, rules: Sequence[HardRule]) -> bool:
        """Whether the lists can be given under these rules alone."""
        excluded = barred = 0
        for rule in rules:
            excluded |= rule.excluded
            barred |= rule.barred
        rooms = {place: room for place, room in self.rooms.items() if not excluded >> place & 1}
        lists = self.partitions
        if all(room >= lists for room in rooms.values()):
            lists = 1  # What can be given once can be given again.
        levels = [rule.level for rule in rules if rule.level is not None]
        table = self.table.with_levels(levels)
        fitting = Fitting(table, barred, self.replicas, Steps())
        found = fitting.by_count(rooms, lists)
        return fitting.leaving_room(rooms, lists) is not None if found is None else found


def hard_rules(table: RuleTable, of_topics: Sequence[SpuRule]) -> list[HardRule]:
    """All hard rules on a list, in the order given."""
    rules = [HardRule(rule.name, rule.excluded) for rule in table.rules]
    for at, level in enumerate(table.levels):
        if level.max is not None:
            at_most = replace(level, min=None, mins=())
            rules.append(HardRule(level.max_name(at), 0, level=at_most))
        if any(level.mins):
            rules.append(HardRule(level.min_name(at), 0, level=replace(level, max=None)))
    rules += [HardRule(rule.name, rule.excluded) for rule in of_topics]
    if table.barred_leaders:
        rules.append(HardRule(NO_LEADERS, 0, barred=table.barred_leaders))
    return rules


def smallest_conflict(request: RuledRequest, rules: Sequence[HardRule]) -> list[HardRule]:
    """The fewest rules under which the request does not fit; all of them together must conflict."""
    able = sum(1 << place for place in request.rooms)
    matter = [rule for rule in rules if rule.excluded & able or rule.level or rule.barred & able]
    checks = 0
    for size in range(len(matter) + 1):
        for chosen in combinations(matter, size):
            checks += 1
            if checks > CHECKS_MAX:
                return needed(matter, lambda kept: not request.fits(kept))
            if not request.fits(chosen):
                return list(chosen)
    return matter


def needed(rules: Sequence[_Rule], is_conflict: Callable[[Sequence[_Rule]], bool]) -> list[_Rule]:
    """Rules that conflict, without those that can be left out one by one, the last first."""
    kept = list(rules)
    for rule in reversed(rules):
        fewer = [each for each in kept if each is not rule]
        if is_conflict(fewer):
            kept = fewer
    return kept
