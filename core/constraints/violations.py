"""Which rules of their topics lists break since labels or constraints changed.

Taints are not asked: what is there when an SPU is tainted stays, moves away, or no longer leads.
They are asked for what `min` of a level demands: it is of the values to which replicas may go.

One event looks at as much as `CHECK_LOOKS_MAX` permits, one topic at least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from spu_assigner.core.base.constraints import NO_CONSTRAINTS
from spu_assigner.core.base.records import SpuChanged
from spu_assigner.core.base.replica_lists import PADDING
from spu_assigner.core.constraints.rule_table import HardRule, RuleTable, bound, spu_labels
from spu_assigner.core.constraints.spu_labels import Flags, Numbers, SpuLabels
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.topic import Topic

# What a check takes in looks, by measurement.
CHECK_LOOKS_MAX: Final = 16_000_000  # of one event; 0.5 to 1.2 s
TOPIC_LOOKS: Final = 700
RULES_LOOKS: Final = 1_000  # of rules that no topic before it has, and of a topic that they name
PART_LOOKS: Final = 8  # of a character of a selector, or a taint, and
SPUS_A_LOOK: Final = 1_000  # one more for so many SPUs
LEVEL_PARTS: Final = 125  # for which a level counts
REPLICAS_A_LOOK: Final = 32  # replicas and a rule; and a replica alone counts for
PLACE_RULES: Final = 16  # so many

_Tables = dict[Hashable, RuleTable]  # many topics have the same
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
        has_min = any(level.min for level in (topic.constraints or NO_CONSTRAINTS).spread)
        return has_min or (is_other and topic.replicas.holds(after.spu_id))

    return sorted(filter(is_concerned, state.constrained)) if is_new or is_other else []


def violations(
    state: ClusterState, names: Sequence[str], spus_before: Collection[SpuChanged] | None
) -> Violations:
    """Of these topics the rules that lists of them break, where some rule is broken by more lists
    than before; `spus_before`: the SPUs as they were, None: the rules are new."""
    found, looks = Violations(), CHECK_LOOKS_MAX
    labels, tables, before = spu_labels(state), _Tables(), _Tables()
    labels_before: SpuLabels | None = None
    for number, name in enumerate(names):
        looks -= _looks(state, name, labels, is_new=_key(state.topics[name]) not in tables)
        if looks < 0 and number > 0:
            found.unchecked = names[number:]
            break
        broken, known = _broken(state, name, labels, tables), Counter[str]()
        if broken and spus_before is not None:
            labels_before = labels_before or SpuLabels(spus_before)
            known = _broken(state, name, labels_before, before)
        if broken - known:
            found.broken[name] = broken
    return found


def _broken(state: ClusterState, name: str, labels: SpuLabels, tables: _Tables) -> Counter[str]:
    """The rules that lists of a topic break on SPUs with these labels, each with the number of
    these."""
    topic = state.topics[name]
    if _key(topic) not in tables:
        constraints = topic.constraints or NO_CONSTRAINTS
        tables[_key(topic)] = RuleTable(labels, constraints, ignore_rack=topic.ignore_rack)
    rows, rules = topic.replicas.matrix(), bound(state, name, tables[_key(topic)]).hard
    places = np.where(rows == PADDING, PADDING, np.searchsorted(labels.ids, rows))
    return +Counter(
        {rule.name: int(breaking(rule, places).sum()) for rule in rules if rule.is_given}
    )


def _looks(state: ClusterState, name: str, labels: SpuLabels, *, is_new: bool) -> int:
    """What a topic takes; `is_new`: no topic before it has its rules."""
    topic, spus = state.topics[name], len(labels.ids)
    constraints = topic.constraints or NO_CONSTRAINTS
    selectors = (*constraints.require, *constraints.forbid)
    rules = len(selectors) + len(constraints.spread) * (1 + topic.columns)
    looks = TOPIC_LOOKS + _replicas(topic) * (PLACE_RULES + rules) // REPLICAS_A_LOOK
    others = (*constraints.apart_from, *constraints.together_with)
    for other in (*others, *state.apart_from.get(name, ())):
        looks += RULES_LOOKS + _replicas(state.topics.get(other))
    if is_new:
        parts = sum(map(len, selectors))
        taints = 2 * len(labels.taints) * (1 + len(constraints.tolerations))
        looks += RULES_LOOKS + PART_LOOKS * (parts + taints)
        looks += spus * (parts + LEVEL_PARTS * len(constraints.spread)) // SPUS_A_LOOK
    return 2 * looks  # where lists break rules, what they broke before is asked too


def _key(topic: Topic) -> Hashable:
    return topic.constraints, topic.ignore_rack


def _replicas(topic: Topic | None) -> int:
    return 0 if topic is None else len(topic.data) // topic.width


def breaking(rule: HardRule, places: Numbers) -> Flags:
    """The lists that break a rule, of which the SPUs' places are given, or padding."""
    is_there = places != PADDING
    if rule.level is None:
        return np.asarray((rule.excluded[places] & is_there).any(axis=1))
    cells = np.where(is_there, rule.level.groups[places] + rule.level.cells.start, PADDING)
    # The how many-th of its cell each replica is.
    found = [(cells[:, : at + 1] == cell[:, None]).sum(axis=1) for at, cell in enumerate(cells.T)]
    ranks = np.array(found).T
    if rule.max is not None:
        return np.asarray(((ranks > rule.max) & is_there).any(axis=1))
    least = np.zeros(rule.level.cells.stop, dtype=np.int64)
    least[[*rule.mins]] = [*rule.mins.values()]
    is_demanded = (ranks <= least[cells]) & is_there
    return np.asarray(is_demanded.sum(axis=1) < least.sum())
