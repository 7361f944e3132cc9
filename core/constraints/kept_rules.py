"""What the rules of a living topic say of one list, and which SPUs its replicas are to leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

import numpy as np
from spu_assigner.core.base.constraints import Constraints, TaintEffect, has_effect
from spu_assigner.core.base.events import Policy, SpuId
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.core.constraints.rule_table import (
    Level,
    RuleTable,
    binding_constraints,
    bits,
    bound_table,
)
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.topic import Topic


@dataclass(frozen=True, slots=True)
class Demands:
    """What `min` of levels demands of the lists of a topic."""

    _table: RuleTable

    @property
    def levels(self) -> Sequence[Level]:
        """The levels, with what each demands."""
        return self._table.levels

    def broken(self, row: Sequence[int]) -> dict[str, int]:
        """Of each rule that a list breaks how many replicas its values lack."""
        counts = self._counts(row)
        lacks = {
            level.min_name(): sum(
                max(least - counts[at][group], 0) for group, least in enumerate(level.mins)
            )
            for at, level in enumerate(self._table.levels)
        }
        return {name: lack for name, lack in lacks.items() if lack}

    def beyond(self, replicas: int) -> Iterator[tuple[int, int]]:
        """The levels, by index, that demand more replicas than a list has, with how many."""
        for level in self._table.levels:
            if sum(level.mins) > replicas:
                yield level.index, sum(level.mins)

    def can_spare(self, row: Sequence[int], spu_id: int) -> bool:
        """Whether no value of that SPU has too few replicas of a list without it."""
        place = self._table.place[SpuId(spu_id)]
        for level, counts in zip(self._table.levels, self._counts(row), strict=True):
            group = level.groups[place]
            if level.mins and counts[group] <= level.mins[group]:
                return False
        return True

    def _counts(self, row: Sequence[int]) -> list[Counter[int]]:
        places = [self._table.place[SpuId(spu_id)] for spu_id in row]
        return [Counter(level.groups[each] for each in places) for level in self._table.levels]


def demands_on(state: ClusterState, name: str) -> Demands | None:
    """What `min` of levels demands of the lists of a living topic; None: nothing."""
    topic = state.topics[name]
    if topic.constraints is None or not has_min(topic.constraints):
        return None
    binding = binding_constraints(state, name, topic.constraints) or topic.constraints
    table, _ = bound_table(state, binding, ignore_rack=topic.ignore_rack)
    return Demands(table)


def has_min(constraints: Constraints) -> bool:
    """Whether a level demands replicas of each value."""
    return any(level.min is not None for level in constraints.spread)


def leaving_spus(state: ClusterState, topic: Topic) -> Set[int]:
    """The SPUs that replicas of a topic are to leave: decommissioned, or tainted so.

    Whether SPUs that hold none of them are among these is left open.
    """
    if not state.evicting:  # There may be as many leaving SPUs as topics to look at.
        return state.leaving
    held = np.unique(topic.replicas.matrix()).tolist()
    return {
        i
        for i in held
        if i in state.leaving or (i in state.evicting and evicts(state, SpuId(i), topic))
    }


def evicts(state: ClusterState, spu_id: SpuId, topic: Topic) -> bool:
    """Whether an SPU has a taint that evicts replicas of a topic."""
    tolerations = () if topic.constraints is None else topic.constraints.tolerations
    return has_effect(state.spus[spu_id].taints, TaintEffect.EVICT, tolerations)


def describe_rules(
    state: ClusterState, replica_map: ReplicaMap, row: Sequence[int]
) -> Iterator[str]:
    """What the rules that bind a topic say on the state: whom each excludes, how a list scores."""
    if replica_map.policy is not Policy.BALANCED:
        return
    constraints = binding_constraints(state, replica_map.topic, replica_map.constraints)
    if constraints is None:
        return
    table, of_topics = bound_table(state, constraints, ignore_rack=replica_map.ignore_rack)
    for rule in (*table.rules, *of_topics):
        ids = ", ".join(str(table.ids[place]) for place in bits(rule.excluded & table.open))
        yield f"{rule.name}: excludes {f'SPU {ids}' if ids else 'no SPU that is online'}"
    places = [table.place[SpuId(spu_id)] for spu_id in row if SpuId(spu_id) in table.place]
    for level in table.levels:
        counts = Counter(level.groups[place] for place in places)
        limits = "" if level.max is None else f", at most {level.max} allowed"
        if any(level.mins):
            demanding = sum(map(bool, level.mins))
            limits += f", at least {level.min} on each of {demanding} demanded"
        yield (
            f"spread over {level.label!r}: {len(counts)} values, "
            f"{max(counts.values(), default=0)} replicas on one{limits}"
        )
    if constraints.prefer:
        yield f"prefer: the list scores {sum(table.weights[place] for place in places)}"
    if constraints.leaders and places:
        rank = table.ranks[places[0]]
        name = "none" if rank == len(constraints.leaders) else f"leaders[{rank}]"
        yield f"leaders: SPU {table.ids[places[0]]} meets {name}"
    barred = ", ".join(str(table.ids[place]) for place in bits(table.barred_leaders & table.open))
    if barred:
        yield f"tainted against leading: SPU {barred}"


@dataclass(frozen=True, slots=True)
class Barring:
    """Why a list of a topic gets no SPU, as far as rules go."""

    rules: Sequence[str]  # each with the number of SPUs that it excludes
    left: Sequence[int]  # ids of the SPUs that none excludes


def barring_rules(
    state: ClusterState, name: str, constraints: Constraints, staying: Sequence[int], wanted: int
) -> Barring:
    """What these rules say of the SPUs outside a list that is to have so many replicas.

    `staying`: what the list keeps.
    """
    ignore_rack = state.topics[name].ignore_rack
    table, of_topics = bound_table(state, constraints, ignore_rack=ignore_rack)
    places = [table.place[SpuId(spu_id)] for spu_id in staying]
    others = left = table.open & ~sum(1 << place for place in places)
    found = [(rule.name, rule.excluded) for rule in (*table.rules, *of_topics)]
    for level in table.levels:
        counts = Counter(level.groups[place] for place in places)
        group_of, mins = level.groups, level.mins or (0,) * level.size
        lacks = [max(least - counts[group], 0) for group, least in enumerate(mins)]
        if level.max is not None:
            full = [place for place in bits(others) if counts[group_of[place]] >= level.max]
            found.append((level.max_name(), sum(1 << place for place in full)))
        if sum(lacks) >= wanted - len(places):  # All that come are demanded.
            spare = [place for place in bits(others) if not lacks[group_of[place]]]
            found.append((level.min_name(), sum(1 << place for place in spare)))
    for _, excluded in found:
        left &= ~excluded
    rules = [
        f"{rule} excludes {(excluded & others).bit_count()}"
        for rule, excluded in found
        if excluded & others
    ]
    return Barring(rules, [table.ids[place] for place in bits(left)])
