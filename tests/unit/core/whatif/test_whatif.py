"""What a failure costs, beside a brute force in plain Python, on hundreds of random clusters."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import networkx
import pytest
from spu_assigner.core.base.constraints import Taint, TaintEffect
from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.whatif.failure import (
    FailureAnalysis,
    FailureOutcome,
    sweep_racks,
    sweep_spus,
)
from support.events.builders import Events
from support.events.one_cluster import OneCluster

SEEDS = 300
# What failures are compared by, the most important first.
MEASURES = (
    *("lost", "without_slot", "over_capacity"),
    *("leaders_lost", "under_replicated", "leaders_most"),
)


def random_cluster(draw: random.Random) -> ClusterState:
    """Offline, cordoned and tainted SPUs, lists of any length, little room, up to two resources."""
    count = draw.randint(1, 9)
    ids = sorted(draw.sample(range(40), count))
    names: list[str | None] = draw.choice([[None], ["a", "b"], ["a", "b", "c"], ["a", None]])
    kinds: tuple[str, ...] = draw.choice([(), ("cpu",), ("cpu", "disk")])
    width = draw.randint(1, min(4, count))
    lists = [
        draw.sample(ids, draw.choice([width, width, draw.randint(1, width)]))
        for _ in range(draw.randint(0, 25))
    ]
    held, spare = Counter(spu for each in lists for spu in each), draw.choice([1, 4, 20])
    life = OneCluster()
    for spu in ids:
        has = {name: draw.randint(0, 40) for name in kinds}
        slots = max(0, held[spu] + draw.randint(-1, spare))
        taints = (Taint("k", "", draw.choice(list(TaintEffect)[:2])),) * (draw.random() < 0.2)
        life.join(spu, rack=draw.choice(names), capacity=slots, resources=has, taints=taints)
    cut = len(lists) // 2
    for topic, rows in (("a", lists[:cut]), ("b", lists[cut:])):
        needs = {name: draw.randint(0, 5) for name in kinds}
        leaders = {name: draw.choice([0, 2, 9]) for name in kinds}
        if rows:
            life.adopt(topic, *rows)
            life.apply(life.build.demand(topic, demand=needs, leader_demand=leaders))
    for spu in ids:
        if draw.random() < 0.1:
            life.cordon(spu)
        if draw.random() < 0.15:
            life.leave(spu)
    return life.state


class PlainCluster:
    def __init__(self, state: ClusterState) -> None:
        spus = state.spus
        self.ids = [int(spu) for spu in sorted(spus)]
        self.racks = {spu: spus[spu].rack for spu in self.ids}
        self.online = {spu: spus[spu].online for spu in self.ids}
        self.cordoned = {spu: spus[spu].cordoned or spus[spu].is_closed for spu in self.ids}
        self.capacity = {spu: spus[spu].capacity for spu in self.ids}
        self.has = {spu: dict(spus[spu].resources) for spu in self.ids}
        self.lists: list[list[int]] = []
        self.needs: list[dict[str, tuple[int, int]]] = []  # of each list, a follower and a leader
        for _, topic in sorted(state.topics.items()):
            rows = topic.replicas.lists().tolist()
            named = () if topic.need is None else topic.need.by_name()
            self.lists += rows
            self.needs += [{name: (own, leader) for name, own, leader in named}] * len(rows)
        self.held = Counter(spu for each in self.lists for spu in each)

    def used(self, failed: set[int]) -> dict[int, Counter[str]]:
        """By those that are online and remain."""
        used: dict[int, Counter[str]] = {spu: Counter() for spu in self.ids}
        for row, members in enumerate(self.lists):
            after = [spu for spu in members if self.online[spu] and spu not in failed]
            for name, (follower, leader) in self.needs[row].items():
                for place, spu in enumerate(after):
                    used[spu][name] += follower if place else leader
        return used

    def over(self, failed: set[int]) -> list[tuple[int, str]]:
        """Who is over capacity by the failover, and of what."""
        before, after = self.used(set()), self.used(failed)
        return [
            (spu, name)
            for spu, has in self.has.items()
            for name in has
            if spu not in failed and after[spu][name] > max(has[name], before[spu][name])
        ]

    def takers(self, failed: set[int]) -> list[int]:
        return [
            spu
            for spu in self.ids
            if self.online[spu] and not self.cordoned[spu] and spu not in failed
        ]

    def cost(self, failed: set[int]) -> dict[str, Any]:
        found: dict[str, Any] = dict.fromkeys(MEASURES, 0) | {"lost_rows": [], "replicas": 0}
        leaders: Counter[int] = Counter()
        takers, unfillable = self.takers(failed), 0
        for row, members in enumerate(self.lists):
            before = [spu for spu in members if self.online[spu]]
            after = [spu for spu in before if spu not in failed]
            gone = len(before) - len(after)
            leaders.update(after[:1])
            found["leaders_lost"] += before[:1] != after[:1]
            found["under_replicated"] += bool(gone and after)
            found["replicas"] += gone
            if gone and not after:
                found["lost_rows"].append(row)
            unfillable += max(0, gone - len({*takers} - {*after}))
        found["lost"] = len(found["lost_rows"])
        free = sum(max(0, self.capacity[spu] - self.held[spu]) for spu in takers)
        found["without_slot"] = max(0, found["replicas"] - free, unfillable)
        found["leaders_most"] = max(leaders.values(), default=0)
        found["leaders"] = [leaders[spu] for spu in self.ids]
        found["over_capacity"] = len({spu for spu, _ in self.over(failed)})
        return found

    def placeable(self, failed: set[int], *, added: int = 0, capacity: int = 0) -> int:
        """How many replicas can have a slot at most: a flow from partitions to SPUs."""
        flow = networkx.DiGraph()
        flow.add_nodes_from(["source", "sink"])
        slots = {spu: max(0, self.capacity[spu] - self.held[spu]) for spu in self.takers(failed)}
        slots |= {-1 - number: capacity for number in range(added)}
        for row, members in enumerate(self.lists):
            kept = {spu for spu in members if self.online[spu] and spu not in failed}
            gone = len([spu for spu in members if self.online[spu] and spu in failed])
            flow.add_edge("source", ("row", row), capacity=gone)
            for spu in slots:
                if spu not in kept:
                    flow.add_edge(("row", row), spu, capacity=1)
        for spu, free in slots.items():
            flow.add_edge(spu, "sink", capacity=free)
        return int(networkx.maximum_flow_value(flow, "source", "sink"))


def online(cluster: PlainCluster) -> list[int]:
    return [spu for spu in cluster.ids if cluster.online[spu]]


def expected(cluster: PlainCluster, cases: list[list[int]]) -> dict[str, Any]:
    costs = [cluster.cost({*case}) for case in cases]
    ranked = [tuple(cost[name] for name in MEASURES) for cost in costs]
    return {
        "cases": len(cases),
        "losing": sum(cost["lost"] > 0 for cost in costs),
        "over_capacity": sum(cost["without_slot"] > 0 for cost in costs),
        "over_resources": sum(cost["over_capacity"] > 0 for cost in costs),
        "failed": cases[ranked.index(max(ranked))] if cases else [],
    }


def drawn() -> Iterator[tuple[random.Random, PlainCluster, FailureAnalysis]]:
    for seed in range(SEEDS):
        draw = random.Random(seed)
        state = random_cluster(draw)
        yield draw, PlainCluster(state), FailureAnalysis(state)


def test_a_failure_costs_what_going_through_the_partitions_counts() -> None:
    for draw, cluster, analysis in drawn():
        failed = draw.sample(cluster.ids, draw.randint(0, len(cluster.ids)))
        found = analysis.outcome(failed)
        cost = cluster.cost({*failed})
        assert found.badness() == tuple(cost[name] for name in MEASURES)
        assert analysis.ids[found.failed].tolist() == [
            spu for spu in online(cluster) if spu in {*failed}
        ]
        assert found.lost_rows.tolist() == cost["lost_rows"]
        assert found.leaders.tolist() == cost["leaders"]
        assert found.replicas == cost["replicas"]
        check_resources(cluster, analysis, found, {*failed})


def check_resources(
    cluster: PlainCluster, analysis: FailureAnalysis, found: FailureOutcome, failed: set[int]
) -> None:
    after, takers = cluster.used(failed), cluster.takers(failed)
    over = cluster.over(failed)
    for row, name in enumerate(analysis.resources):
        remain = [spu for spu in online(cluster) if spu not in failed]
        used = dict(zip(cluster.ids, found.used[row].tolist(), strict=True))
        assert {spu: used[spu] for spu in remain} == {spu: after[spu][name] for spu in remain}
        is_over = dict(zip(cluster.ids, found.exceeds[row].tolist(), strict=True))
        assert [spu for spu in remain if is_over[spu]] == [
            spu for spu, named in over if named == name
        ]
        needed = sum(
            after[spu][name] - cluster.has[spu][name] for spu, each in over if each == name
        )
        for number, members in enumerate(cluster.lists):
            before = [spu for spu in members if cluster.online[spu]]
            gone = [spu for spu in before if spu in failed]
            follower, leader = cluster.needs[number].get(name, (0, 0))
            needed += len(gone) * follower
            needed += leader - follower if gone and gone == before else 0
        assert found.needed[row] == needed
        assert found.free[row] == sum(
            max(0, cluster.has[spu][name] - after[spu][name]) for spu in takers
        )


def test_all_cases_come_to_what_each_of_them_does() -> None:
    for _, cluster, analysis in drawn():
        spus = online(cluster)
        racks = [
            [spu for spu in spus if cluster.racks[spu] == name]
            for name in sorted({cluster.racks[spu] for spu in spus} - {None}, key=str)
        ]
        assert asdict(sweep_spus(analysis)) == expected(cluster, [[spu] for spu in spus])
        assert asdict(sweep_racks(analysis)) == expected(cluster, racks)


def test_the_spus_to_add_are_never_more_than_an_exact_flow_needs() -> None:
    """A flow moves replicas about as it likes: a lower bound stays below it."""
    for draw, cluster, analysis in drawn():
        failed = {*draw.sample(cluster.ids, draw.randint(0, len(cluster.ids)))}
        capacity = draw.choice([1, 3])
        outcome = analysis.outcome(failed)
        assert outcome.without_slot <= outcome.replicas - cluster.placeable(failed)
        needed = outcome.spus_to_add(capacity)
        assert needed is not None
        assert bool(needed) == bool(outcome.without_slot)
        if needed:  # With one less not even a flow finds a slot for each.
            placed = cluster.placeable(failed, added=needed - 1, capacity=capacity)
            assert placed < outcome.replicas


def test_the_failure_of_an_unknown_spu_is_refused() -> None:
    """Another SPU would be taken for it without a word."""
    life = OneCluster(*Events().joins(0, 2))
    with pytest.raises(InvalidEventError, match="spu_ids is 1; expected SPUs of cluster 'c1'"):
        FailureAnalysis(life.state).outcome([0, 1])
