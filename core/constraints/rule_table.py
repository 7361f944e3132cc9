"""What the rules of a topic say of each SPU of a cluster, whatever the SPUs hold.

Hard rules on single SPUs are bit masks of the SPUs that they exclude: bit i stands for the SPU of
the i-th lowest id. A level groups SPUs by the value of a label: first racks, where `spread` names
none, then those of `spread`. Levels are nested where, of any two, each group of the one lies within
a group of the other: then a list that is built from the best SPU each time is the best.

The `min` of a level is of each value that an SPU has to which replicas of the topic may go as far
as its other hard rules on single SPUs say; one that is offline or cordoned counts, one that leaves
the cluster does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from spu_assigner.core.base.constraints import (
    NO_CONSTRAINTS,
    Constraints,
    SpreadLevel,
    Taint,
    TaintEffect,
    untolerated,
)
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.limits import REPLICATION_FACTOR_MAX
from spu_assigner.core.base.replica_lists import IdArray
from spu_assigner.core.base.selectors import RACK
from spu_assigner.core.constraints.spu_labels import Flags, SpuLabels
from spu_assigner.core.state.cluster_state import ClusterState

TAINT: Final = "taint "  # what the names of rules of taints begin with
TAINT_RULES_MAX: Final = 64  # of a table; each costs time in each decision
TABLES_MAX: Final = 64  # of a cluster; one of 1,000 SPUs takes some 200 KB
LABELS: Final = "labels"  # the key of those of the SPUs, among the tables
KEPT_MAX: Final = (
    16  # of what follows from a table: sets of SPUs that topics leave, and their kinds
)


@dataclass(frozen=True, slots=True)
class SpuRule:
    """A hard rule on single SPUs."""

    name: str
    excluded: int  # a bit for each SPU


@dataclass(frozen=True, slots=True)
class Level:
    """SPUs grouped by a label."""

    label: str
    groups: Sequence[int]  # of each SPU: the number of its value, in order of value
    size: int  # groups
    max: int | None  # replicas of a list for each group, at most: a hard rule
    min: int | None = None  # at least, for the groups that the topic's other rules admit: likewise
    mins: Sequence[int] = ()  # of each group; none: not known yet, or there is no such rule
    index: int = 0  # in `spread`

    def max_name(self) -> str:
        """The name of its hard rule."""
        return f"spread[{self.index}] {self.label!r} max {self.max}"

    def min_name(self) -> str:
        """Likewise of the other one."""
        return f"spread[{self.index}] {self.label!r} min {self.min}"

    @property
    def is_hard(self) -> bool:
        """Whether it limits lists."""
        return self.max is not None or any(self.mins)

    def with_mins(self, admitted: int) -> Level:
        """The same, with what these SPUs make its `min` demand of each group."""
        if self.min is None:
            return self
        least = [0] * self.size
        for place in bits(admitted):
            least[self.groups[place]] = self.min
        return replace(self, mins=least)


@dataclass(frozen=True, slots=True)
class RuleTable:
    """The rules on the SPUs of a cluster; sequences are by ascending id, of all SPUs."""

    ids: Sequence[int]
    place: Mapping[int, int]  # of each id
    open: int  # online and not cordoned; a bit for each SPU
    staying: int  # not leaving the cluster; likewise
    rules: Sequence[SpuRule]  # in the order given, taints first
    barred_leaders: int  # tainted against leading; a bit for each SPU
    demoted: int  # likewise: lead nothing where another of the list can
    levels: Sequence[Level]  # in order of preference: the rack first, where `spread` names none
    weights: Sequence[int]  # sums of what is preferred
    ranks: Sequence[int]  # the first selector of `leaders` that holds, or how many there are
    is_nested: bool
    # Of each SPU its group at each level, groups of all levels numbered on; and of each group how
    # many replicas of a list it takes, and is to have.
    cells: Sequence[tuple[int, ...]]
    cell_maxes: Sequence[int]
    cell_mins: Sequence[int]
    has_max: bool  # a level limits what groups take
    has_min: bool  # a level demands replicas of its groups
    last_rank: int  # behind that of any SPU that may lead
    lead_ranks: Sequence[int]  # the ranks, of demoted SPUs behind all others
    id_array: IdArray
    kept: dict[Hashable, object] = field(init=False, default_factory=dict)  # what follows from it

    def with_levels(self, levels: Sequence[Level]) -> RuleTable:
        """The same with other levels."""
        return replace(self, **_facts_of(levels, len(self.ids)))

    def with_mins(self, of_topics: Iterable[SpuRule]) -> RuleTable:
        """The same, with what `min` demands of each group, given the rules that name topics."""
        if all(level.min is None for level in self.levels):
            return self
        admitted = self.staying
        for rule in (*self.rules, *of_topics):
            admitted &= ~rule.excluded
        known = self.kept.get(("mins", admitted))
        if not isinstance(known, RuleTable):
            known = self.with_levels([level.with_mins(admitted) for level in self.levels])
            self.keep(("mins", admitted), known)
        return known

    def keep(self, key: Hashable, value: object) -> None:
        """Keep what follows from the table, as long as it is one of the newest."""
        if len(self.kept) >= KEPT_MAX:
            del self.kept[next(iter(self.kept))]
        self.kept[key] = value

    def allowed(self, of_topics: Iterable[SpuRule]) -> int:
        """The open SPUs that no rule excludes, nor one of these that name topics."""
        mask = self.open
        for rule in (*self.rules, *of_topics):
            mask &= ~rule.excluded
        return mask


def rule_table(state: ClusterState, constraints: Constraints, *, ignore_rack: bool) -> RuleTable:
    """The table of a topic's rules but for those that name topics; kept until an SPU changes."""
    key = constraints, ignore_rack
    known = state.rule_tables.get(key)
    if not isinstance(known, RuleTable):
        table = _table(spu_labels(state), constraints, ignore_rack)
        known = state.rule_tables[key] = table
        if len(state.rule_tables) > TABLES_MAX:
            del state.rule_tables[next(iter(state.rule_tables))]
    return known


def spu_labels(state: ClusterState) -> SpuLabels:
    """The labels of all SPUs; kept until an SPU changes."""
    known = state.rule_tables.get(LABELS)
    if not isinstance(known, SpuLabels):
        known = state.rule_tables[LABELS] = SpuLabels(state.spus.values())
    return known


def bound_table(
    state: ClusterState, constraints: Constraints, *, ignore_rack: bool
) -> tuple[RuleTable, list[SpuRule]]:
    """The table with what follows from the rules that name topics, and these."""
    table = rule_table(state, constraints, ignore_rack=ignore_rack)
    of_topics = topic_rules(state, table, constraints)
    return table.with_mins(of_topics), of_topics


def topic_rules(state: ClusterState, table: RuleTable, constraints: Constraints) -> list[SpuRule]:
    """The rules that name topics, as the topics are now; a topic that is gone excludes nobody."""
    rules = []
    everybody = (1 << len(table.ids)) - 1
    for at, name in enumerate(constraints.apart_from):
        if name in state.topics:
            rules.append(SpuRule(rule_name("apart_from", at, name), _holders(state, table, name)))
    for at, name in enumerate(constraints.together_with):
        if name in state.topics:
            excluded = everybody & ~_holders(state, table, name)
            rules.append(SpuRule(rule_name("together_with", at, name), excluded))
    return rules


def bits(mask: int) -> Iterator[int]:
    """The places of a mask's bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _table(labels: SpuLabels, constraints: Constraints, ignore_rack: bool) -> RuleTable:
    spus, ids = labels.spus, labels.ids.tolist()
    taints = [untolerated(spu.taints, constraints.tolerations) for spu in spus]
    rules = _taint_rules(taints)
    for at, text in enumerate(constraints.require):
        rules.append(SpuRule(rule_name("require", at, text), _mask(~labels.holding(text))))
    for at, text in enumerate(constraints.forbid):
        rules.append(SpuRule(rule_name("forbid", at, text), _mask(labels.holding(text))))
    levels = [_level(labels, each, at) for at, each in enumerate(constraints.spread)]
    if not ignore_rack and all(level.label != RACK for level in levels):
        levels.insert(0, _level(labels, SpreadLevel(RACK), -1))
    weights = np.zeros(len(ids), dtype=np.int64)
    for each in constraints.prefer:
        weights[labels.holding(each.select)] += each.weight
    ranks, last_rank = np.full(len(ids), len(constraints.leaders)), len(constraints.leaders) + 1
    for rank, text in reversed([*enumerate(constraints.leaders)]):
        ranks[labels.holding(text)] = rank
    is_demoted = _flags(spu.demoted for spu in spus)
    lead_ranks = (ranks + is_demoted * last_rank).tolist()
    return RuleTable(
        ids=ids,
        place={spu_id: at for at, spu_id in enumerate(ids)},
        open=_mask(_flags(spu.online and not spu.cordoned for spu in spus)),
        staying=_mask(_flags(not spu.leaving for spu in spus)),
        rules=rules,
        barred_leaders=_mask(
            _flags(any(taint.effect is TaintEffect.NO_LEADERS for taint in each) for each in taints)
        ),
        demoted=_mask(is_demoted),
        weights=weights.tolist(),
        ranks=ranks.tolist(),
        last_rank=last_rank,
        lead_ranks=lead_ranks,
        id_array=labels.ids,
        **_facts_of(levels, len(ids)),
    )


def rule_name(kind: str, at: int, text: str) -> str:
    """The name of a rule of this kind, the one at this index."""
    return f"{kind}[{at}] {text!r}"


def _taint_rules(taints: Sequence[Sequence[Taint]]) -> list[SpuRule]:
    """A rule for each taint against replicas, of the taints of each SPU; a cluster that has very
    many gets the last ones together in one rule."""
    excluded: dict[Taint, int] = {}
    for place, each in enumerate(taints):
        for taint in each:
            if taint.effect is not TaintEffect.NO_LEADERS:
                excluded[taint] = excluded.get(taint, 0) | 1 << place
    rules = [
        SpuRule(f"{TAINT}{taint.key}={taint.value}:{taint.effect.value}", excluded[taint])
        for taint in sorted(excluded)
    ]
    others = rules[TAINT_RULES_MAX:]
    if others:
        together = 0
        for rule in others:
            together |= rule.excluded
        rules[TAINT_RULES_MAX:] = [SpuRule(f"{TAINT}… and {len(others)} others", together)]
    return rules


def _facts_of(levels: Sequence[Level], spus: int) -> dict[str, Any]:
    """The fields of a table that depend on its levels alone."""
    first = [sum(level.size for level in levels[:at]) for at in range(len(levels))]
    cells = [
        tuple([start + level.groups[place] for start, level in zip(first, levels, strict=True)])
        for place in range(spus)
    ]
    maxes = [
        REPLICATION_FACTOR_MAX if level.max is None else level.max
        for level in levels
        for _ in range(level.size)
    ]
    return {
        "levels": levels,
        "cells": cells,
        "cell_maxes": maxes,
        "cell_mins": [least for level in levels for least in level.mins or (0,) * level.size],
        "has_max": any(level.max is not None for level in levels),
        "has_min": any(any(level.mins) for level in levels),
        "is_nested": is_nested(levels),
    }


def is_nested(levels: Sequence[Level]) -> bool:
    """Whether of any two levels each group of the one lies within one group of the other."""
    return all(
        len(set(zip(one.groups, other.groups, strict=True))) <= max(one.size, other.size)
        for one, other in itertools.combinations(levels, 2)
    )


def _flags(flags: Iterable[bool]) -> Flags:
    return np.fromiter(flags, dtype=np.bool_)


def _mask(flags: Flags) -> int:
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def _level(labels: SpuLabels, given: SpreadLevel, index: int) -> Level:
    groups, size = labels.groups(given.label)
    return Level(given.label, groups.tolist(), size, given.max, given.min, index=index)


def _holders(state: ClusterState, table: RuleTable, name: str) -> int:
    mask = 0
    for spu_id in set(state.topics[name].replicas.lists().flat().tolist()):
        mask |= 1 << table.place[SpuId(spu_id)]
    return mask


def binding_constraints(
    state: ClusterState, topic: str, given: Constraints | None
) -> Constraints | None:
    """The rules for new replicas of a topic: its own, to be apart from those that want to be apart
    from it, and not to be led by tainted SPUs; None: replicas may go to the ring as it is."""
    apart_from = state.apart_from.get(topic)
    if apart_from:
        given = given or NO_CONSTRAINTS
        missing = tuple(name for name in sorted(apart_from) if name not in given.apart_from)
        return replace(given, apart_from=given.apart_from + missing)
    if given is None or given == NO_CONSTRAINTS:
        is_barred = any(spu_id in state.ring for spu_id in state.barred)
        return NO_CONSTRAINTS if is_barred else None
    return given
