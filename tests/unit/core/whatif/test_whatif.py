"""What a failure costs, beside a brute force in plain Python, on hundreds of random clusters."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import asdict
from typing import Any

import networkx
import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.constraints import Taint, TaintEffect
from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import ReplicaMap, SpuChanged
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.base.resources import Need, amounts_of
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.whatif.failure import (
    FailureAnalysis,
    FailureOutcome,
    sweep_racks,
    sweep_spus,
)
from support.events.builders import Events

SEEDS = 300
BLOCK = 60  # seeds of one test
# What failures are compared by, the most important first.
MEASURES = (
    *("lost", "without_slot", "over_capacity"),
    *("leaders_lost", "under_replicated", "leaders_most"),
)
firsts = pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))


class PlainCluster:
    """A cluster as dicts and lists, and what a failure costs it, one partition after another."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        count = draw.randint(1, 9)
        self.ids = sorted(draw.sample(range(40), count))
        names: list[str | None] = draw.choice([[None], ["a", "b"], ["a", "b", "c"], ["a", None]])
        self.racks = {spu: draw.choice(names) for spu in self.ids}
        self.online = {spu: draw.random() < 0.85 for spu in self.ids}
        self.cordoned = {spu: draw.random() < 0.1 for spu in self.ids}
        width = self.width = draw.randint(1, min(4, count))
        self.lists = [
            draw.sample(self.ids, draw.choice([width, width, draw.randint(1, width)]))
            for _ in range(draw.randint(0, 25))
        ]
        self.held = Counter(spu for each in self.lists for spu in each)
        spare = draw.choice([1, 4, 20])
        self.capacity = {spu: max(0, self.held[spu] + draw.randint(-1, spare)) for spu in self.ids}
        # Of two resources what SPUs have, what a follower needs in each topic, and what a leader.
        self.cut = len(self.lists) // 2  # lists of the first topic
        kinds: tuple[str, ...] = draw.choice([(), ("cpu",), ("cpu", "disk")])
        self.has = {spu: {name: draw.randint(0, 40) for name in kinds} for spu in self.ids}
        self.needs = [
            {name: (draw.randint(0, 5), draw.choice([0, 2, 9])) for name in kinds} for _ in "ab"
        ]

    def need(self, row: int) -> dict[str, tuple[int, int]]:
        return self.needs[row >= self.cut]

    def used(self, failed: set[int]) -> dict[int, Counter[str]]:
        """By those that are online and remain."""
        used: dict[int, Counter[str]] = {spu: Counter() for spu in self.ids}
        for row, members in enumerate(self.lists):
            after = [spu for spu in members if self.online[spu] and spu not in failed]
            for name, (follower, leader) in self.need(row).items():
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

    def analysis(self) -> FailureAnalysis:
        state = ClusterState("c1")
        for spu in self.ids:
            changed = SpuChanged(
                cluster_id="c1",
                spu_id=spu,
                online=self.online[spu],
                cordoned=self.cordoned[spu],
                rack=self.racks[spu],
                cores=1,
                capacity=self.capacity[spu],
                labels=(),
                registration=spu,
                core_weights=(0,),
                resources=amounts_of(self.has[spu]),
            )
            state.restore(changed)
        lists_of = {"a": self.lists[: self.cut], "b": self.lists[self.cut :]}
        for (topic, lists), need in zip(lists_of.items(), self.needs, strict=True):
            if lists:
                state.restore(self.replica_map(topic, lists, need))
        return FailureAnalysis(state)

    def replica_map(
        self, topic: str, lists: list[list[int]], need: dict[str, tuple[int, int]]
    ) -> ReplicaMap:
        return ReplicaMap(
            cluster_id="c1",
            topic=topic,
            revision=1,
            policy=Policy.MANUAL,
            replicas=ReplicaLists.of_lists(lists),
            cores=None,
            chain_index=None,
            cause="e",
            replication_factor=self.width,
            need=Need.of(
                {name: of_each[0] for name, of_each in need.items()},
                {name: of_each[1] for name, of_each in need.items()},
            ),
        )

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
    """A sweep, one case after another."""
    costs = [cluster.cost({*case}) for case in cases]
    ranked = [tuple(cost[name] for name in MEASURES) for cost in costs]
    return {
        "cases": len(cases),
        "losing": sum(cost["lost"] > 0 for cost in costs),
        "over_capacity": sum(cost["without_slot"] > 0 for cost in costs),
        "over_resources": sum(cost["over_capacity"] > 0 for cost in costs),
        "failed": cases[ranked.index(max(ranked))] if cases else [],
    }


@firsts
def test_a_failure_costs_what_going_through_the_partitions_counts(first: int) -> None:
    """Any set of SPUs, some of them offline already."""
    for seed in range(first, first + BLOCK):
        check_cost(seed)


def check_cost(seed: int) -> None:
    cluster = PlainCluster(seed)
    draw = random.Random(-seed)
    failed = draw.sample(cluster.ids, draw.randint(0, len(cluster.ids)))
    analysis = cluster.analysis()
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
            follower, leader = cluster.need(number)[name]
            needed += len(gone) * follower
            needed += leader - follower if gone and gone == before else 0
        assert found.needed[row] == needed
        assert found.free[row] == sum(
            max(0, cluster.has[spu][name] - after[spu][name]) for spu in takers
        )


@firsts
def test_all_cases_come_to_what_each_of_them_does(first: int) -> None:
    """Each SPU and each rack, how many are bad, and which is the worst."""
    for seed in range(first, first + BLOCK):
        cluster = PlainCluster(seed)
        analysis = cluster.analysis()
        spus = online(cluster)
        racks = [
            [spu for spu in spus if cluster.racks[spu] == name]
            for name in sorted({cluster.racks[spu] for spu in spus} - {None}, key=str)
        ]
        assert asdict(sweep_spus(analysis)) == expected(cluster, [[spu] for spu in spus])
        assert asdict(sweep_racks(analysis)) == expected(cluster, racks)


@firsts
def test_the_spus_to_add_are_never_more_than_an_exact_flow_needs(first: int) -> None:
    """A flow moves replicas about as it likes: a lower bound stays below it."""
    for seed in range(first, first + BLOCK):
        cluster = PlainCluster(seed)
        draw = random.Random(seed)
        failed = {*draw.sample(cluster.ids, draw.randint(0, len(cluster.ids)))}
        capacity = draw.choice([1, 3])
        outcome = cluster.analysis().outcome(failed)
        without_slot = outcome.replicas - cluster.placeable(failed)
        assert outcome.without_slot <= without_slot
        needed = outcome.spus_to_add(capacity)
        assert needed is not None
        assert bool(needed) == bool(outcome.without_slot)
        if needed:  # With one less not even a flow finds a slot for each.
            placed = cluster.placeable(failed, added=needed - 1, capacity=capacity)
            assert placed < outcome.replicas


def test_an_spu_with_a_taint_against_new_replicas_takes_none() -> None:
    """It is closed, as if it were cordoned; a taint against leaders alone keeps nothing away."""
    events, assigner = Events(), Assigner()
    closed = Taint(key="k", value="", effect=TaintEffect.NO_NEW_REPLICAS)
    barred = Taint(key="k", value="", effect=TaintEffect.NO_LEADERS)
    for event in [
        *events.joins(0, 1, capacity=1),
        events.join(2, taints=(closed,), capacity=10),
        events.join(3, taints=(barred,), capacity=100),
        events.manual("t", [0, 1], policy=Policy.MANUAL),
    ]:
        assigner.apply(event)
    assert FailureAnalysis(assigner.clusters["c1"]).outcome([0]).free_slots == 100


def test_the_failure_of_an_unknown_spu_is_refused() -> None:
    """Another SPU would be taken for it without a word."""
    events, assigner = Events(), Assigner()
    for event in events.joins(0, 2):
        assigner.apply(event)
    with pytest.raises(InvalidEventError, match="spu_ids is 1; expected SPUs of cluster 'c1'"):
        FailureAnalysis(assigner.clusters["c1"]).outcome([0, 1])
