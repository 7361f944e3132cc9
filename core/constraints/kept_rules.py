"""Whether the lists of a living topic keep its rules, and what the rules say of one list.

Taints are not asked: what is there when an SPU is tainted stays, moves away, or no longer leads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.events import Policy, SpuId
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.core.constraints.rule_table import (
    RuleTable,
    SpuRule,
    binding_constraints,
    bits,
    rule_table,
    topic_rules,
)
from spu_assigner.core.state.cluster_state import ClusterState

Broken = Mapping[str, int]  # rules by name, each with the number of lists that break it


def topics_on(state: ClusterState, spu_id: int) -> list[str]:
    """The topics with constraints that have replicas on an SPU, by name."""
    held = (name for name in state.constrained if state.topics[name].replicas.holds(spu_id))
    return sorted(held)


def broken_rules(state: ClusterState, names: Collection[str]) -> dict[str, Broken]:
    """Of each of these topics that has constraints the rules that some list breaks."""
    found: dict[str, Broken] = {}
    for name in names:
        topic = state.topics[name]
        if topic.constraints is not None:
            lists = topic.replicas.lists().tolist()
            found[name] = _broken(state, topic.constraints, lists, ignore_rack=topic.ignore_rack)
    return found


def describe_rules(
    state: ClusterState, replica_map: ReplicaMap, row: Sequence[int]
) -> Iterator[str]:
    """What the rules that bind a topic say on the state: whom each excludes, how a list scores."""
    if replica_map.policy is not Policy.BALANCED:
        return
    constraints = binding_constraints(state, replica_map.topic, replica_map.constraints)
    if constraints is None:
        return
    table = rule_table(state, constraints, ignore_rack=replica_map.ignore_rack)
    for rule in (*table.rules, *topic_rules(state, table, constraints)):
        ids = ", ".join(str(table.ids[place]) for place in bits(rule.excluded & table.open))
        yield f"{rule.name}: excludes {f'SPU {ids}' if ids else 'no SPU that is online'}"
    places = [table.place[SpuId(spu_id)] for spu_id in row if SpuId(spu_id) in table.place]
    for level in table.levels:
        counts = Counter(level.groups[place] for place in places)
        most = "" if level.max is None else f", at most {level.max} allowed"
        yield (
            f"spread over {level.label!r}: {len(counts)} values, "
            f"{max(counts.values(), default=0)} replicas on one{most}"
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


def _broken(
    state: ClusterState, constraints: Constraints, lists: list[list[int]], *, ignore_rack: bool
) -> Broken:
    table = rule_table(state, constraints, ignore_rack=ignore_rack)
    rules = [rule for rule in table.rules if not rule.name.startswith("taint ")]
    rules += topic_rules(state, table, constraints)
    found: Counter[str] = Counter()
    for row in lists:
        found.update(_broken_by(table, rules, [table.place[SpuId(each)] for each in row]))
    return found


def _broken_by(table: RuleTable, rules: Sequence[SpuRule], places: Sequence[int]) -> Iterator[str]:
    mask = sum(1 << place for place in places)
    for rule in rules:
        if rule.excluded & mask:
            yield rule.name
    for at, level in enumerate(table.levels):
        if level.max is not None:
            counts = Counter(level.groups[place] for place in places)
            if max(counts.values(), default=0) > level.max:
                yield level.rule_name(at)
