"""What a failure costs, beside a brute force in plain Python, on hundreds of random clusters."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import asdict
from fractions import Fraction
from typing import Any

import networkx
import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.constraints import Taint, TaintEffect
from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.events import LeaveMode, Policy
from spu_assigner.core.base.records import ReplicaMap, SpuChanged
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.base.resources import Need, amounts_of
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.whatif.failure import FailureAnalysis, FailureOutcome
from spu_assigner.core.whatif.layout import ClusterLayout, layout_of_state
from spu_assigner.core.whatif.recreation import recreation
from spu_assigner.core.whatif.sweep import MEASURES, sweep_racks, sweep_spus
from support.events.builders import Events

SEEDS = 300
BLOCK = 60  # seeds of one test
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

    def layout(self) -> ClusterLayout:
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
        return layout_of_state(state)

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

    def dealt(self, failed: set[int]) -> tuple[dict[int, int], int, int]:
        """By the rule, step by step: what SPUs get, replicas without an SPU, on a used rack."""
        given: Counter[int] = Counter()
        without_spu = on_used_rack = 0
        for members in self.lists:
            before = [spu for spu in members if self.online[spu]]
            after = [spu for spu in before if spu not in failed]
            for _ in range(len(before) - len(after)):
                on_rack = Counter(self.racks[spu] for spu in after)

                def rank(spu: int, on_rack: Counter[str | None] = on_rack) -> tuple[Any, ...]:
                    held = self.held[spu] + given[spu]
                    share = Fraction(held + 1, max(1, self.capacity[spu]))
                    return held >= self.capacity[spu], on_rack[self.racks[spu]], share, spu

                best = min({*self.takers(failed)} - {*after}, key=rank, default=None)
                if best is None:
                    without_spu += 1
                    continue
                given[best] += 1
                on_used_rack += on_rack[self.racks[best]] > 0
                after.append(best)
        return given, without_spu, on_used_rack


def online(cluster: PlainCluster) -> list[int]:
    return [spu for spu in cluster.ids if cluster.online[spu]]


def expected(cluster: PlainCluster, cases: list[list[int]]) -> dict[str, Any]:
    """A sweep, one case after another."""
    costs = [cluster.cost({*case}) for case in cases]
    worst = []
    for name in MEASURES if cases else ():
        most = max(cost[name] for cost in costs)
        first = next(case for case, cost in zip(cases, costs, strict=True) if cost[name] == most)
        count = sum(cost[name] == most for cost in costs)
        worst.append({"measure": name, "most": most, "cases": count, "failed": first})
    ranked = [tuple(cost[name] for name in MEASURES) for cost in costs]
    return {
        "cases": len(cases),
        "losing": sum(cost["lost"] > 0 for cost in costs),
        "over_capacity": sum(cost["without_slot"] > 0 for cost in costs),
        "over_resources": sum(cost["over_capacity"] > 0 for cost in costs),
        "worst": worst,
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
    layout = cluster.layout()
    found = FailureAnalysis(layout).outcome(layout.numbers_of(failed))
    cost = cluster.cost({*failed})
    assert {name: getattr(found, name) for name in MEASURES} == {
        name: cost[name] for name in MEASURES
    }
    assert found.lost_rows.tolist() == cost["lost_rows"]
    assert found.leaders.tolist() == cost["leaders"]
    assert found.replicas == cost["replicas"]
    check_resources(cluster, layout, found, {*failed})


def check_resources(
    cluster: PlainCluster, layout: ClusterLayout, found: FailureOutcome, failed: set[int]
) -> None:
    after, takers = cluster.used(failed), cluster.takers(failed)
    over = cluster.over(failed)
    for row, name in enumerate(layout.resources):
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
    """Each SPU and each rack, with what is worst by each measure and which case that is."""
    for seed in range(first, first + BLOCK):
        cluster = PlainCluster(seed)
        analysis = FailureAnalysis(cluster.layout())
        spus = online(cluster)
        racks = [
            [spu for spu in spus if cluster.racks[spu] == name]
            for name in sorted({cluster.racks[spu] for spu in spus} - {None}, key=str)
        ]
        assert asdict(sweep_spus(analysis)) == expected(cluster, [[spu] for spu in spus])
        assert asdict(sweep_racks(analysis)) == expected(cluster, racks)


@firsts
def test_replicas_are_re_created_by_the_rule_as_the_page_has_it(first: int) -> None:
    """Held to the rule step by step, and what has no slot to an exact flow as well."""
    for seed in range(first, first + BLOCK):
        check_recreation(seed)


def check_recreation(seed: int) -> None:
    cluster = PlainCluster(seed)
    layout = cluster.layout()
    analysis = FailureAnalysis(layout)
    draw = random.Random(seed)
    failed = {*draw.sample(cluster.ids, draw.randint(0, len(cluster.ids)))}
    capacity = draw.choice([1, 3])
    outcome = analysis.outcome(layout.numbers_of([*failed]))
    found, given, over = recreation(analysis, outcome, added_capacity=capacity)
    expected_given, without_spu, on_used_rack = cluster.dealt(failed)
    assert given.tolist() == [expected_given[spu] for spu in cluster.ids]
    assert over.tolist() == [
        max(0, expected_given[spu] - max(0, cluster.capacity[spu] - cluster.held[spu]))
        for spu in cluster.ids
    ]
    assert found.without_spu == without_spu
    assert found.on_used_rack == (on_used_rack if any(cluster.racks.values()) else None)
    assert found.without_slot == sum(over) + without_spu
    assert found.replicas == sum(given) + without_spu
    without_slot = outcome.replicas - cluster.placeable(failed)  # however they are moved about
    assert outcome.without_slot <= without_slot <= found.without_slot
    assert found.spus_to_add is not None
    assert bool(found.spus_to_add) == bool(found.without_slot)
    if without_slot:  # With one less than the bound not even a flow finds a slot for each.
        added = found.spus_to_add - 1
        assert cluster.placeable(failed, added=added, capacity=capacity) < outcome.replicas


@firsts
def test_a_state_is_laid_out_as_its_lists_are(first: int) -> None:
    """Lists of any length, in several topics, with SPUs that are offline or cordoned."""
    for seed in range(first, first + BLOCK):
        cluster = PlainCluster(seed)
        layout = cluster.layout()
        assert layout.ids.tolist() == cluster.ids
        assert layout.racks == tuple(cluster.racks.values())
        assert layout.online.tolist() == [*cluster.online.values()]
        assert layout.closed.tolist() == [*cluster.cordoned.values()]
        assert layout.held.tolist() == [cluster.held[spu] for spu in cluster.ids]
        live = [[cluster.ids[each] for each in row if each >= 0] for row in layout.live.tolist()]
        assert live == [[spu for spu in each if cluster.online[spu]] for each in cluster.lists]
        assert layout.wanted.tolist() == [cluster.width] * len(live)
        named = [("a", row) for row in range(cluster.cut)]
        named += [("b", row) for row in range(len(live) - cluster.cut)]
        assert [layout.partition_of(row) for row in range(len(live))] == named


def test_the_documents_own_example_overwhelms_the_small_racks() -> None:
    """Without rack c, with half of the SPUs, one of those that are left leads half of all."""
    events, assigner = Events(), Assigner(Policy.FLUVIO)
    for event in [
        *events.racks({"a": [0], "b": [1, 2], "c": [3, 4, 5]}, capacity=6),
        events.create("t", 6, 3, policy=Policy.FLUVIO),
    ]:
        assigner.apply(event)
    layout = layout_of_state(assigner.clusters["c1"])
    analysis = FailureAnalysis(layout)
    assert analysis.leaders.tolist() == [1] * 6
    outcome = analysis.outcome(layout.numbers_of([3, 4, 5]))
    assert (outcome.leaders_lost, outcome.under_replicated, outcome.lost) == (3, 6, 0)
    # [3,2,0] → 2, [2,0,4] → 2, [0,4,1] → 0, [4,1,5] → 1, [1,5,3] → 1, [5,3,2] → 2
    assert outcome.leaders.tolist() == [1, 2, 3, 0, 0, 0]
    found, *_ = recreation(analysis, outcome)
    assert outcome.replicas == 9
    assert (outcome.free_slots, found.without_slot, found.spus_to_add) == (9, 0, 0)


def test_an_offline_spu_leads_nothing_and_its_failure_costs_nothing() -> None:
    """The next online one of the list has led since it left."""
    events, assigner = Events(), Assigner(Policy.FLUVIO)
    for event in [
        *events.joins(0, 1, 2),
        events.manual("t", [0, 1], [2, 1], policy=Policy.MANUAL),
        events.leave(0, mode=LeaveMode.OFFLINE),
    ]:
        assigner.apply(event)
    layout = layout_of_state(assigner.clusters["c1"])
    analysis = FailureAnalysis(layout)
    assert analysis.leaders.tolist() == [0, 1, 1]
    assert analysis.under_replicated_before == 1
    nothing = analysis.outcome(layout.numbers_of([0]))
    assert (nothing.leaders_lost, nothing.lost, nothing.replicas) == (0, 0, 0)
    assert layout.partition_of(1) == ("t", 1)
    assert analysis.outcome(layout.numbers_of([1])).lost_rows.tolist() == [0]


def test_an_spu_with_a_taint_against_new_replicas_takes_none() -> None:
    """It is closed, as if it were cordoned; a taint against leaders alone keeps nothing away."""
    events, assigner = Events(), Assigner()
    closed = Taint(key="k", value="", effect=TaintEffect.NO_NEW_REPLICAS)
    barred = Taint(key="k", value="", effect=TaintEffect.NO_LEADERS)
    for event in [
        *events.joins(0, 1),
        events.join(2, taints=(closed,)),
        events.join(3, taints=(barred,)),
        events.manual("t", [0, 1], policy=Policy.MANUAL),
    ]:
        assigner.apply(event)
    layout = layout_of_state(assigner.clusters["c1"])
    outcome = FailureAnalysis(layout).outcome(layout.numbers_of([0]))
    assert outcome.open.tolist() == [False, True, False, True]


def test_the_failure_of_an_unknown_spu_is_refused() -> None:
    """Another SPU would be taken for it without a word."""
    events, assigner = Events(), Assigner()
    for event in events.joins(0, 2):
        assigner.apply(event)
    layout = layout_of_state(assigner.clusters["c1"])
    with pytest.raises(InvalidEventError, match="spu_ids is 1; expected SPUs of cluster 'c1'"):
        layout.numbers_of([0, 1])
