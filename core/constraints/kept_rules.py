"""What the rules of a living topic say of one list, and which SPUs its replicas are to leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set

import numpy as np
from spu_assigner.core.base.constraints import Constraints, TaintEffect, has_effect
from spu_assigner.core.base.events import Policy, SpuId
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.core.constraints.rule_table import BoundRules, binding_constraints, topic_rules
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.topic import Topic


def kept_rules(state: ClusterState, name: str) -> BoundRules | None:
    """The rules of a living topic; None: it has none of its own."""
    topic = state.topics[name]
    if topic.constraints is None:
        return None
    return topic_rules(state, name, topic.constraints, ignore_rack=topic.ignore_rack)


def leaving_spus(state: ClusterState, topic: Topic) -> Set[int]:
    """The SPUs that replicas of a topic are to leave: decommissioned, or tainted so.

    Whether SPUs that hold none of them are among these is left open.
    """
    if not state.evicting:  # There may be as many leaving SPUs as topics to look at.
        return state.leaving
    rule = TaintEffect.EVICT, () if topic.constraints is None else topic.constraints.tolerations
    held = map(SpuId, np.unique(topic.replicas.matrix()).tolist())
    return {
        i
        for i in held
        if i in state.leaving or (i in state.evicting and has_effect(state.spus[i].taints, *rule))
    }


def describe_rules(
    state: ClusterState, replica_map: ReplicaMap, row: Sequence[int]
) -> Iterator[str]:
    """What the rules that bind a topic say on the state: whom each excludes, how a list scores."""
    if replica_map.policy is not Policy.BALANCED:
        return
    constraints = binding_constraints(state, replica_map.topic, replica_map.constraints)
    if constraints is None:
        return
    rules = topic_rules(state, replica_map.topic, constraints, ignore_rack=replica_map.ignore_rack)
    table, labels = rules.table, rules.table.labels
    for rule in rules.hard:
        if rule.level is None:
            excluded = rule.excluded if rule.barred is None else rule.barred
            ids = ", ".join(map(str, labels.ids[excluded & labels.open].tolist()))
            yield f"{rule.name}: excludes {f'SPU {ids}' if ids else 'no SPU that is online'}"
    known = [spu_id for spu_id in row if spu_id in labels.place]
    counts = rules.cells(known)
    for level in table.levels:
        of_level = [counts[cell] for cell in level.cells if counts[cell]]
        limits = "" if level.max is None else f", at most {level.max} allowed"
        if demanding := sum(rules.mins[cell] > 0 for cell in level.cells):
            limits += f", at least {level.min} on each of {demanding} demanded"
        yield (
            f"spread over {level.label!r}: {len(of_level)} values, "
            f"{max(of_level, default=0)} replicas on one{limits}"
        )
    places = [labels.place[spu_id] for spu_id in known]
    if constraints.prefer:
        yield f"prefer: the list scores {sum(table.spus[place].weight for place in places)}"
    if constraints.leaders and places:
        rank = int(table.ranks[places[0]])
        name = "none" if rank == len(constraints.leaders) else f"leaders[{rank}]"
        yield f"leaders: SPU {known[0]} meets {name}"


def barring_rules(
    state: ClusterState, name: str, constraints: Constraints, staying: Sequence[int], wanted: int
) -> tuple[list[str], list[int]]:
    """Why a list that keeps what is `staying` gets none of the other SPUs: the rules, each with the
    number of SPUs that it excludes; and the ids of those that none excludes."""
    rules = topic_rules(state, name, constraints, ignore_rack=state.topics[name].ignore_rack)
    labels = rules.table.labels
    counts, found = rules.cells(staying), []
    others = left = labels.open & ~np.isin(labels.ids, staying)
    for rule in rules.hard:
        excluded = rule.excluded
        if rule.level is not None:
            cells, lacks = rule.level.cells, Counter(rule.mins) - counts
            closed = [cell for cell in cells if counts[cell] >= (rule.max or wanted)]
            if rule.mins and lacks.total() >= wanted - len(staying):  # All that come are demanded.
                closed = [cell for cell in cells if cell not in lacks]
            excluded = np.isin(rule.level.groups + cells.start, closed)
        left = left & ~excluded
        if count := int((excluded & others).sum()):
            found.append(f"{rule.name} excludes {count}")
    return found, labels.ids[left].tolist()
