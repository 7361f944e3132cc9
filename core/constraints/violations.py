"""Which rules of their topics lists break since labels or constraints changed.

Taints are not asked: what is there when an SPU is tainted stays, moves away, or no longer leads.
They are asked for what `min` of a level demands: it is of the values to which replicas may go.

Topics with the same rules are looked at together. One event looks at as much as `CHECK_LOOKS_MAX`
permits, one topic at least.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from spu_assigner.core.base.constraints import NO_CONSTRAINTS
from spu_assigner.core.base.records import SpuChanged
from spu_assigner.core.base.replica_lists import PADDING
from spu_assigner.core.constraints.kept_rules import has_min
from spu_assigner.core.constraints.rule_table import (
    HardRule,
    RuleTable,
    bound,
    spu_labels,
)
from spu_assigner.core.constraints.spu_labels import Flags, Numbers, SpuLabels, flags_of
from spu_assigner.core.state.cluster_state import ClusterState

# What a check takes in looks, by measurement.
CHECK_LOOKS_MAX: Final = 16_000_000  # of one event; 0.5 to 1.2 s
TOPIC_LOOKS: Final = 100
RULES_LOOKS: Final = 1_000  # of rules that no topic before it has, and of a topic that they name
CHARACTER_LOOKS: Final = 8  # of a selector, and
SPUS_A_LOOK: Final = 1_000  # one more for so many SPUs
LEVELS_A_LOOK: Final = 8  # at an SPU
TAINT_LOOKS: Final = 16  # for each toleration
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
        spus, others = len(labels.ids), (*constraints.apart_from, *constraints.together_with)
        others += tuple(state.apart_from.get(name, ()))
        looks += RULES_LOOKS * (1 + len(others)) + sum(_replicas(state, each) for each in others)
        looks += spus * len(constraints.spread) // LEVELS_A_LOOK
        looks += sum(map(len, selectors)) * (CHARACTER_LOOKS + spus // SPUS_A_LOOK)
        looks += len(labels.taints) * (1 + len(constraints.tolerations)) * TAINT_LOOKS
    return 2 * looks  # where lists break rules, what they broke before is asked too


def _replicas(state: ClusterState, name: str) -> int:
    topic = state.topics.get(name)
    return 0 if topic is None else len(topic.data) // topic.width


def _broken(
    state: ClusterState, labels: SpuLabels, names: Sequence[str]
) -> Mapping[str, dict[str, int]]:
    """Of topics whose rules say the same the rules that some list breaks."""
    matrices = [state.topics[name].replicas.matrix() for name in names]
    owners = np.repeat(np.arange(len(names)), [len(each) for each in matrices])
    rows = np.full((len(owners), max(each.shape[1] for each in matrices)), PADDING, dtype=np.int32)
    begin = 0
    for each in matrices:
        rows[begin : begin + len(each), : each.shape[1]] = each
        begin += len(each)
    places = np.where(rows == PADDING, PADDING, np.searchsorted(labels.ids, rows))
    found: dict[str, dict[str, int]] = {name: {} for name in names}
    topic = state.topics[names[0]]
    constraints = topic.constraints or NO_CONSTRAINTS
    table = RuleTable(labels, constraints, ignore_rack=topic.ignore_rack)
    for rule in bound(state, names[0], table).hard:
        if not rule.is_given or not (rule.excluded or rule.level):
            continue
        counts = np.bincount(owners[_breaking(rule, places, labels)], minlength=len(names))
        for at in np.flatnonzero(counts).tolist():
            found[names[at]][rule.name] = int(counts[at])
    return found


def _breaking(rule: HardRule, places: Numbers, labels: SpuLabels) -> Flags:
    """The lists that break a rule, of which the SPUs' places are given."""
    is_there, found = places != PADDING, np.zeros(len(places), dtype=np.bool_)
    if rule.level is None:
        excluded = flags_of(rule.excluded, len(labels.ids))
        return np.asarray((excluded[places] & is_there).any(axis=1))
    groups = np.where(is_there, rule.level.groups[places], PADDING)
    if rule.max is not None:
        for column in groups.T:
            has_more = (groups == column[:, None]).sum(axis=1) > rule.max
            found |= has_more & (column != PADDING)
    elif sum(rule.mins.values()) > groups.shape[1]:
        found[:] = True
    else:
        for cell, least in rule.mins.items():
            found |= (groups == cell - rule.level.cells.start).sum(axis=1) < least
    return found
