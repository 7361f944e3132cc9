"""Which rules of their topics lists break since labels or constraints changed.

Taints are not asked: what is there when an SPU is tainted stays, moves away, or no longer leads.
They are asked for what `min` of a level demands: it is of the values to which replicas may go.

Topics with the same rules are looked at together. One event looks at as much as `CHECK_LOOKS_MAX`
permits, one topic at least.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from spu_assigner.core.base.constraints import (
    NO_CONSTRAINTS,
    Constraints,
    TaintEffect,
    untolerated,
)
from spu_assigner.core.base.records import SpuChanged
from spu_assigner.core.base.replica_lists import PADDING
from spu_assigner.core.constraints.kept_rules import has_min
from spu_assigner.core.constraints.rule_table import Level, rule_name, spu_labels
from spu_assigner.core.constraints.spu_labels import Flags, Numbers, SpuLabels
from spu_assigner.core.state.cluster_state import ClusterState

# What a check takes in looks, by measurement.
CHECK_LOOKS_MAX: Final = 16_000_000  # of one event; 0.5 to 1.2 s
TOPIC_LOOKS: Final = 100
RULES_LOOKS: Final = 1_000  # of rules that no topic before it has, and of a topic that they name
SELECTOR_LOOKS: Final = 50
CHARACTER_LOOKS: Final = 4  # of a selector, and
SPUS_A_LOOK: Final = 1_000  # one more for so many SPUs
LEVELS_A_LOOK: Final = 8  # at an SPU
TAINTED_LOOKS: Final = 8  # at an SPU, for each toleration
PLACE_LOOKS: Final = 16  # of a replica, and one for each rule; in
REPLICAS_A_LOOK: Final = 32  # parts of a look

Broken = Mapping[str, int]  # rules by name, each with the number of lists that break it


@dataclass(slots=True)
class Violations:
    """What an event did to the topics that it may make break a rule."""

    broken: dict[str, Broken] = field(default_factory=dict)  # of topics that break one more
    unchecked: Sequence[str] = ()  # they would take more looks than one event may


def topics_to_check(
    state: ClusterState, before: SpuChanged | None, after: SpuChanged | None
) -> list[str]:
    """The topics whose lists may break a rule since an SPU joined or changed; by name.

    Labels matter to those that the SPU holds. What makes it one of those that replicas may go to
    matters where a level demands replicas of each value.
    """
    if after is None or after is before:
        return []
    is_new = before is None or before.leaving or before.taints != after.taints
    is_other = before is not None and (before.rack, before.labels) != (after.rack, after.labels)

    def is_concerned(name: str) -> bool:
        topic = state.topics[name]
        if topic.constraints is not None and has_min(topic.constraints):
            return True
        return is_other and topic.replicas.holds(after.spu_id)

    return sorted(filter(is_concerned, state.constrained)) if is_new or is_other else []


def violations(
    state: ClusterState, names: Sequence[str], spus_before: Collection[SpuChanged] | None
) -> Violations:
    """Of these topics the rules that lists of them break, where some rule is broken by more lists
    than before; `spus_before`: the SPUs as they were, None: the rules are new."""
    found = Violations()
    alike: dict[Hashable, list[str]] = {}
    looks, labels = CHECK_LOOKS_MAX, spu_labels(state)
    for number, name in enumerate(names):
        topic, constraints = state.topics[name], state.topics[name].constraints
        if constraints is None:
            continue
        is_own = constraints.apart_from or constraints.together_with or name in state.apart_from
        together = alike.setdefault(name if is_own else (constraints, topic.ignore_rack), [])
        looks -= _looks(state, labels, name, is_first=not together)
        if looks < 0 and number > 0:
            found.unchecked = names[number:]
            break
        together.append(name)
    labels_before: SpuLabels | None = None
    for together in filter(None, alike.values()):
        broken = _broken(state, labels, together)
        breaking = [name for name in together if broken[name]]
        known: Mapping[str, Broken] = {}
        if breaking and spus_before is not None:
            labels_before = labels_before or SpuLabels(spus_before)
            known = _broken(state, labels_before, breaking)
        for name in breaking:
            before = known.get(name, {})
            if any(count > before.get(rule, 0) for rule, count in broken[name].items()):
                found.broken[name] = broken[name]
    return found


def _looks(state: ClusterState, labels: SpuLabels, name: str, *, is_first: bool) -> int:
    """What a topic takes; `is_first`: of those with its rules."""
    topic = state.topics[name]
    constraints = topic.constraints or NO_CONSTRAINTS
    selectors = (*constraints.require, *constraints.forbid)
    rules = len(selectors) + len(constraints.spread) * (1 + topic.columns)
    looks = TOPIC_LOOKS + _replicas(state, name) * (PLACE_LOOKS + rules) // REPLICAS_A_LOOK
    if is_first:
        spus = len(labels.spus)
        others = (
            *constraints.apart_from,
            *constraints.together_with,
            *state.apart_from.get(name, ()),
        )
        looks += RULES_LOOKS + spus * len(constraints.spread) // LEVELS_A_LOOK
        looks += len(selectors) * SELECTOR_LOOKS
        looks += sum(map(len, selectors)) * (CHARACTER_LOOKS + spus // SPUS_A_LOOK)
        looks += sum(RULES_LOOKS + _replicas(state, each) for each in others)
        if has_min(constraints):
            looks += len(labels.tainted) * (1 + len(constraints.tolerations)) * TAINTED_LOOKS
    return 2 * looks  # where lists break rules, what they broke before is asked too


def _replicas(state: ClusterState, name: str) -> int:
    topic = state.topics.get(name)
    return 0 if topic is None else len(topic.data) // topic.width


@dataclass(frozen=True, slots=True)
class _Rules:
    """The hard rules of a topic; arrays are by SPU, ascending ids."""

    single: Sequence[tuple[str, Flags]]  # on single SPUs: whom each excludes
    maxes: Sequence[tuple[str, Numbers, int]]  # of levels: the groups, and what each takes
    mins: Sequence[tuple[str, Numbers, Numbers]]  # likewise, and what each is to have


def _rules(state: ClusterState, labels: SpuLabels, name: str) -> _Rules:
    topic = state.topics[name]
    constraints = topic.constraints or NO_CONSTRAINTS
    single = [
        *(
            (rule_name("require", at, text), ~labels.holding(text))
            for at, text in enumerate(constraints.require)
        ),
        *(
            (rule_name("forbid", at, text), labels.holding(text))
            for at, text in enumerate(constraints.forbid)
        ),
        *_rules_on_topics(state, labels, constraints),
    ]
    maxes, mins = [], []
    admitted: Flags | None = None
    for at, given in enumerate(constraints.spread):
        groups, size = labels.groups(given.label)
        level = Level(given.label, (), size, given.max, given.min, index=at)
        if given.max is not None:
            maxes.append((level.max_name(), groups, given.max))
        if given.min is not None:
            if admitted is None:
                admitted = _admitted(state, labels, name, [excluded for _, excluded in single])
            least = np.zeros(size, dtype=np.int64)
            least[groups[admitted]] = given.min
            mins.append((level.min_name(), groups, least))
    return _Rules(single, maxes, mins)


def _rules_on_topics(
    state: ClusterState, labels: SpuLabels, constraints: Constraints
) -> Iterator[tuple[str, Flags]]:
    """The rules that name topics; one that is gone excludes nobody."""
    for at, other in enumerate(constraints.apart_from):
        if other in state.topics:
            yield rule_name("apart_from", at, other), _holders(state, labels, other)
    for at, other in enumerate(constraints.together_with):
        if other in state.topics:
            yield rule_name("together_with", at, other), ~_holders(state, labels, other)


def _holders(state: ClusterState, labels: SpuLabels, name: str) -> Flags:
    found = np.zeros(len(labels.ids), dtype=np.bool_)
    rows = state.topics[name].replicas.matrix()
    found[np.searchsorted(labels.ids, rows[rows != PADDING])] = True
    return found


def _admitted(
    state: ClusterState, labels: SpuLabels, name: str, excluded: Sequence[Flags]
) -> Flags:
    """The SPUs to which replicas of a topic may go as far as rules on single SPUs say."""
    constraints = state.topics[name].constraints or NO_CONSTRAINTS
    found = labels.staying.copy()
    for place in labels.tainted:
        taints = untolerated(labels.spus[place].taints, constraints.tolerations)
        if any(taint.effect is not TaintEffect.NO_LEADERS for taint in taints):
            found[place] = False
    for each in excluded:
        found &= ~each
    for other in state.apart_from.get(name, ()):
        found &= ~_holders(state, labels, other)
    return found


def _broken(
    state: ClusterState, labels: SpuLabels, names: Sequence[str]
) -> Mapping[str, dict[str, int]]:
    """Of topics whose rules say the same the rules that some list breaks."""
    rules = _rules(state, labels, names[0])
    matrices = [state.topics[name].replicas.matrix() for name in names]
    owners = np.repeat(np.arange(len(names)), [len(each) for each in matrices])
    rows = np.full((len(owners), max(each.shape[1] for each in matrices)), PADDING, dtype=np.int32)
    begin = 0
    for each in matrices:
        rows[begin : begin + len(each), : each.shape[1]] = each
        begin += len(each)
    places = np.where(rows == PADDING, PADDING, np.searchsorted(labels.ids, rows))
    found: dict[str, dict[str, int]] = {name: {} for name in names}
    for rule, breaks in _breaking(rules, places):
        counts = np.bincount(owners[breaks], minlength=len(names))
        for at in np.flatnonzero(counts).tolist():
            found[names[at]][rule] = int(counts[at])
    return found


def _breaking(rules: _Rules, places: Numbers) -> Iterator[tuple[str, Flags]]:
    """Of each rule the lists that break it, of which the SPUs' places are given."""
    is_there = places != PADDING
    for name, excluded in rules.single:
        if excluded.any():
            yield name, np.asarray((excluded[places] & is_there).any(axis=1))
    for name, groups, most in rules.maxes:
        yield name, _has_more(np.where(is_there, groups[places], PADDING), most)
    for name, groups, least in rules.mins:
        if least.any():
            yield name, _lacks(np.where(is_there, groups[places], PADDING), least)


def _has_more(groups: Numbers, most: int) -> Flags:
    """The lists with more replicas on one group."""
    found = np.zeros(len(groups), dtype=np.bool_)
    for column in groups.T:
        found |= ((groups == column[:, None]).sum(axis=1) > most) & (column != PADDING)
    return found


def _lacks(groups: Numbers, mins: Numbers) -> Flags:
    """The lists with too few replicas on a group that is to have some."""
    found = np.full(len(groups), mins.sum() > groups.shape[1], dtype=np.bool_)
    for group in () if found.all() else np.flatnonzero(mins).tolist():
        found |= (groups == group).sum(axis=1) < mins[group]
    return found
