"""What the rules of a topic say of the SPUs of a cluster, whatever these hold.

A rule on single SPUs says which of them it excludes. A level groups SPUs by the value of a
label: first racks, where `spread` names none, then those of `spread`. Such a group is a *cell*;
cells of all levels are numbered on.

The `min` of a level is of each value that an SPU has to which replicas of the topic may go as far
as its other hard rules on single SPUs say; one that is offline or cordoned counts, one that leaves
the cluster does not.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from functools import cached_property, reduce
from operator import or_
from typing import Final, NamedTuple

import numpy as np
from spu_assigner.core.base.constraints import (
    NO_CONSTRAINTS,
    Constraints,
    SpreadLevel,
    TaintEffect,
    untolerated,
)
from spu_assigner.core.base.limits import REPLICATION_FACTOR_MAX
from spu_assigner.core.base.selectors import RACK
from spu_assigner.core.constraints.spu_labels import Flags, Numbers, SpuLabels
from spu_assigner.core.state.cluster_state import ClusterState

TAINT_RULES_MAX: Final = 64  # of a table; each costs time in each decision
TABLES_MAX: Final = 64  # of a cluster; one of 1,000 SPUs takes some 200 KB
LABELS: Final = "labels"  # the key of those of the SPUs, among the tables
BARRED: Final = 2**20  # the rank of an SPU that may not lead
NO_LEADERS: Final = "taints against leading"

Cells = tuple[int, ...]


class AlikeSpus(NamedTuple):
    """SPUs that are alike to the rules."""

    cells: Cells  # of each level, in order of preference
    weight: int  # the sum of what is preferred
    rank: int  # as a leader, 0 first; a demoted SPU is behind all others


class Level(NamedTuple):
    """SPUs grouped by a label."""

    label: str
    groups: Numbers  # of each SPU: the number of its value, in order of value
    cells: range  # of these groups
    max: int | None  # replicas of a list in each cell, at most,
    min: int | None  # and at least, in the cells that the topic's other rules admit
    name: str  # `spread[0] 'zone'`


class HardRule(NamedTuple):
    """A rule that lists must hold: on single SPUs, on a level, or on leaders."""

    name: str
    excluded: Flags  # SPUs
    level: Level | None = None
    max: int | None = None  # replicas of a list in each cell of the level, at most
    mins: Mapping[int, int] = {}  # in cells of it, at least
    barred: Flags | None = None  # SPUs that may not lead
    is_given: bool = True  # by the topic itself, not by taints or other topics


class RuleTable:
    """The rules of a topic but for those that name topics; sequences are by ascending id."""

    def __init__(self, labels: SpuLabels, constraints: Constraints, *, ignore_rack: bool) -> None:
        self.labels = labels
        self.constraints = constraints
        self.barred = labels.nobody.copy()  # SPUs that are tainted against leading
        self.rules = self._taint_rules()  # on single SPUs
        for at, text in enumerate(constraints.require):
            self.rules.append(HardRule(f"require[{at}] {text!r}", ~labels.holding(text)))
        for at, text in enumerate(constraints.forbid):
            self.rules.append(HardRule(f"forbid[{at}] {text!r}", labels.holding(text)))
        spread = [
            (each, f"spread[{at}] {each.label!r}") for at, each in enumerate(constraints.spread)
        ]
        is_named = any(each.label == RACK for each in constraints.spread)
        if not ignore_rack and not is_named and labels.groups(RACK)[1] > 1:
            spread.insert(0, (SpreadLevel(RACK), ""))
        self.levels: list[Level] = []  # in order of preference
        self.size = 0  # cells
        for each, name in spread:
            groups, size = labels.groups(each.label)
            cells = range(self.size, self.size + size)
            self.levels.append(Level(each.label, groups, cells, each.max, each.min, name))
            self.size += size
        self.excluded = union(self.rules, labels)
        self.fields: dict[Hashable, object] = {}  # of `placement.eligibility`

    def _taint_rules(self) -> list[HardRule]:
        """A rule for each taint against replicas; of very many the last ones are one rule."""
        taints, against = self.labels.taints, list[tuple[str, list[int]]]()
        for taint in sorted(untolerated([*taints], self.constraints.tolerations)):
            if taint.effect is TaintEffect.NO_LEADERS:
                self.barred[taints[taint]] = True
            else:
                name = f"taint {taint.key}={taint.value}:{taint.effect.value}"
                against.append((name, taints[taint]))
        others = against[TAINT_RULES_MAX:]
        if others:
            places = [place for _, own in others for place in own]
            against[TAINT_RULES_MAX:] = [(f"taint … and {len(others)} others", places)]
        rules = []
        for name, places in against:
            excluded = self.labels.nobody.copy()
            excluded[places] = True
            rules.append(HardRule(name, excluded, is_given=False))
        return rules

    @cached_property
    def maxes(self) -> list[int]:
        """Of each cell the replicas of a list that it takes."""
        return [
            REPLICATION_FACTOR_MAX if level.max is None else level.max
            for level in self.levels
            for _ in level.cells
        ]

    @cached_property
    def ranks(self) -> Numbers:
        """The first selector of `leaders` that holds, or how many there are."""
        selectors = self.constraints.leaders
        found = np.full(len(self.labels.ids), len(selectors))
        for rank, text in reversed([*enumerate(selectors)]):
            found[self.labels.holding(text)] = rank
        return found

    @property
    def last_rank(self) -> int:
        """Of an SPU that leads nothing where another can, and stands last in lists, or behind."""
        return len(self.constraints.leaders) + 1

    @cached_property
    def columns(self) -> tuple[Numbers, Numbers, Numbers]:
        """Of each SPU its cells, shape (SPUs, levels), its weight and its rank."""
        size = len(self.labels.ids)
        weights = np.zeros(size, dtype=np.int64)
        for each in self.constraints.prefer:
            weights[self.labels.holding(each.select)] += each.weight
        ranks = np.where(self.barred, BARRED, self.ranks + self.labels.demoted * self.last_rank)
        cells = np.zeros((size, len(self.levels)), dtype=np.int64)
        for at, level in enumerate(self.levels):
            cells[:, at] = level.groups + level.cells.start
        return cells, weights, ranks

    @cached_property
    def spus(self) -> list[AlikeSpus]:
        """What the rules say of each SPU."""
        cells, weights, ranks = self.columns
        return [*map(AlikeSpus, map(tuple, cells.tolist()), weights.tolist(), ranks.tolist())]

    @cached_property
    def alone(self) -> BoundRules:
        """The rules of a topic whose rules name no topic."""
        return BoundRules(self, ())


class BoundRules:
    """All rules of a topic."""

    def __init__(self, table: RuleTable, of_topics: Sequence[HardRule]) -> None:
        labels = table.labels
        self.table = table
        self._of_topics = of_topics
        self.excluded = table.excluded | union(of_topics, labels)
        self.allowed = labels.open & ~self.excluded  # SPUs
        self.admitted = labels.staying & ~self.excluded  # of whose values `min` is

    @cached_property
    def mins(self) -> list[int]:
        """Of each cell the replicas of a list that it is to have."""
        found = [0] * self.table.size
        for level in self.table.levels:
            if level.min is not None:
                for group in np.flatnonzero(np.bincount(level.groups[self.admitted])).tolist():
                    found[level.cells[group]] = level.min
        return found

    @cached_property
    def hard(self) -> list[HardRule]:
        """All hard rules, in the order given."""
        rules, nobody = [*self.table.rules], self.table.labels.nobody
        for level in self.table.levels:
            if level.max is not None:
                rules.append(HardRule(f"{level.name} max {level.max}", nobody, level, level.max))
            if level.min is not None:
                mins = {cell: level.min for cell in level.cells if self.mins[cell]}
                if mins:
                    rules.append(
                        HardRule(f"{level.name} min {level.min}", nobody, level, mins=mins)
                    )
        rules += self._of_topics
        if self.table.barred.any():
            rules.append(HardRule(NO_LEADERS, nobody, barred=self.table.barred, is_given=False))
        return rules

    def cells(self, row: Sequence[int]) -> Counter[int]:
        """How many replicas of a list are in each cell."""
        places = [self.table.labels.place[spu_id] for spu_id in row]
        return Counter(
            level.cells[group]
            for level in self.table.levels
            for group in level.groups[places].tolist()
        )

    def broken(self, row: Sequence[int]) -> dict[str, int]:
        """Of each rule that a list breaks how many replicas do, or are lacking; taints are none:
        what was there when an SPU was tainted may stay."""
        counts, place = self.cells(row), self.table.labels.place
        found = {}
        for rule in self.hard:
            count = sum(bool(rule.excluded[place[spu_id]]) for spu_id in row)
            count += sum(max(least - counts[cell], 0) for cell, least in rule.mins.items())
            if rule.level is not None and rule.max is not None:
                count += sum(max(counts[cell] - rule.max, 0) for cell in rule.level.cells)
            if count and rule.is_given:
                found[rule.name] = count
        return found

    def worsened(self, before: Sequence[int], row: Sequence[int]) -> list[str]:
        """The rules that a list breaks by more than the one before it."""
        known = self.broken(before)
        return [name for name, count in self.broken(row).items() if count > known.get(name, 0)]


def spu_labels(state: ClusterState) -> SpuLabels:
    """The labels of all SPUs; kept until an SPU changes."""
    known = state.rule_tables.get(LABELS)
    if not isinstance(known, SpuLabels):
        known = state.rule_tables[LABELS] = SpuLabels(state.spus.values())
    return known


def rule_table(state: ClusterState, constraints: Constraints, *, ignore_rack: bool) -> RuleTable:
    """The table of a topic's rules; kept until an SPU changes."""
    key = constraints, ignore_rack
    known = state.rule_tables.get(key)
    if not isinstance(known, RuleTable):
        known = RuleTable(spu_labels(state), constraints, ignore_rack=ignore_rack)
        state.rule_tables[key] = known
        if len(state.rule_tables) > TABLES_MAX:
            del state.rule_tables[next(iter(state.rule_tables))]
    return known


def topic_rules(
    state: ClusterState, name: str, constraints: Constraints, *, ignore_rack: bool
) -> BoundRules:
    """All rules of a topic with these constraints."""
    return bound(state, name, rule_table(state, constraints, ignore_rack=ignore_rack))


def bound(state: ClusterState, name: str, table: RuleTable) -> BoundRules:
    """The rules of a topic with this table, and those that name topics, as these are now; one that
    is gone excludes no SPU."""
    constraints, labels, of_topics = table.constraints, table.labels, list[HardRule]()
    wanting = sorted(state.apart_from.get(name, ()))  # topics that are to be apart from it
    missing = [other for other in wanting if other not in constraints.apart_from]
    for at, other in enumerate((*constraints.apart_from, *missing)):
        if other in state.topics:
            rule = f"apart_from[{at}] {other!r}"
            is_given = at < len(constraints.apart_from)
            of_topics.append(HardRule(rule, holders(state, labels, other), is_given=is_given))
    for at, other in enumerate(constraints.together_with):
        if other in state.topics:
            rule = f"together_with[{at}] {other!r}"
            of_topics.append(HardRule(rule, ~holders(state, labels, other)))
    return BoundRules(table, of_topics) if of_topics else table.alone


def holders(state: ClusterState, labels: SpuLabels, name: str) -> Flags:
    """The SPUs that a topic is on."""
    return np.isin(labels.ids, state.topics[name].replicas.lists().flat())


def are_nested(kinds: Collection[AlikeSpus], levels: Sequence[int]) -> bool:
    """Whether of any two levels each cell of the one lies within one cell of the other: then a list
    that is built from the best SPU each time is the best."""
    return all(
        len({(kind.cells[one], kind.cells[other]) for kind in kinds})
        <= max(len({kind.cells[level] for kind in kinds}) for level in (one, other))
        for one, other in itertools.combinations(levels, 2)
    )


def union(rules: Iterable[HardRule], labels: SpuLabels) -> Flags:
    """The SPUs that some of these rules exclude."""
    return reduce(or_, (rule.excluded for rule in rules), labels.nobody)


def binding_constraints(
    state: ClusterState, topic: str, given: Constraints | None
) -> Constraints | None:
    """The constraints for new replicas of a topic: its own, or none where other topics are to be
    apart from it, or tainted SPUs not to lead it; None: replicas may go to the ring as it is."""
    if given is not None and given != NO_CONSTRAINTS:
        return given
    is_barred = any(spu_id in state.ring for spu_id in state.barred)
    return NO_CONSTRAINTS if is_barred or state.apart_from.get(topic) else None
