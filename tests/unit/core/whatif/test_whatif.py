"""What a failure costs, beside a brute force in plain Python, on hundreds of random clusters."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations
from typing import Any

import networkx
import numpy as np
import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.events import LeaveMode, Policy
from spu_assigner.core.base.resources import Need, amounts_of
from spu_assigner.core.whatif import sweep
from spu_assigner.core.whatif.failure import FailureAnalysis, FailureOutcome
from spu_assigner.core.whatif.layout import ClusterLayout, layout_of_state
from spu_assigner.core.whatif.recreation import recreation, usual_capacity
from spu_assigner.core.whatif.resources import resource_layout
from spu_assigner.core.whatif.sweep import (
    MEASURES,
    FailureSweep,
    sweep_pairs,
    sweep_racks,
    sweep_spus,
)
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
        width = draw.randint(1, min(4, count))
        self.lists = [
            draw.sample(self.ids, draw.choice([width, width, draw.randint(1, width)]))
            for _ in range(draw.randint(0, 25))
        ]
        self.wanted = [width for _ in self.lists]
        self.held = Counter(spu for each in self.lists for spu in each)
        spare = draw.choice([1, 4, 20])
        self.capacity = {spu: max(0, self.held[spu] + draw.randint(-1, spare)) for spu in self.ids}
        # Of two resources what SPUs have, what a follower needs in each topic, and what a leader.
        self.cut = len(self.lists) // 2  # lists of the first topic
        names = draw.choice([(), ("cpu",), ("cpu", "disk")])
        self.has = {spu: {name: draw.randint(0, 40) for name in names} for spu in self.ids}
        self.needs = [
            {name: (draw.randint(0, 5), draw.choice([0, 2, 9])) for name in names} for _ in "ab"
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
        width = max(map(len, self.lists), default=1)
        at = {spu: number for number, spu in enumerate(self.ids)}
        live = [[at[spu] for spu in each if self.online[spu]] for each in self.lists]
        rows = [[*each, *[-1] * (width - len(each))] for each in live]
        return ClusterLayout(
            cluster_id="c1",
            ids=np.array(self.ids, dtype=np.int32),
            racks=tuple(self.racks[spu] for spu in self.ids),
            online=np.array([self.online[spu] for spu in self.ids]),
            cordoned=np.array([self.cordoned[spu] for spu in self.ids]),
            capacities=np.array([self.capacity[spu] for spu in self.ids]),
            held=np.array([self.held[spu] for spu in self.ids]),
            live=np.array(rows, dtype=np.int32).reshape(len(rows), width),
            wanted=np.array(self.wanted, dtype=np.int32),
            topics=("a", "b"),
            first_rows=np.array([0, self.cut], dtype=np.int32),
            resources=resource_layout(
                [amounts_of(self.has[spu]) for spu in self.ids],
                [
                    Need.of(
                        {name: of_each[0] for name, of_each in need.items()},
                        {name: of_each[1] for name, of_each in need.items()},
                    )
                    for need in self.needs
                ],
                [self.cut, len(rows) - self.cut],
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
    most = {name: max((cost[name] for cost in costs), default=0) for name in MEASURES}
    worst = {
        name: (
            most[name],
            sum(cost[name] == most[name] for cost in costs),
            next(
                (case for case, cost in zip(cases, costs, strict=True) if cost[name] == most[name]),
                [],
            ),
        )
        for name in MEASURES
    }
    ranked = [tuple(cost[name] for name in MEASURES) for cost in costs]
    return {
        "cases": len(cases),
        "losing": sum(cost["lost"] > 0 for cost in costs),
        "lacking_slots": sum(cost["without_slot"] > 0 for cost in costs),
        "over_capacity": sum(cost["over_capacity"] > 0 for cost in costs),
        "worst": worst,
        "failed": cases[ranked.index(max(ranked))] if cases else [],
    }


def plain(found: FailureSweep, cluster: PlainCluster) -> dict[str, Any]:
    def ids(numbers: Any) -> list[int]:
        return [cluster.ids[each] for each in numbers.tolist()]

    return {
        "cases": found.cases,
        "losing": found.losing,
        "lacking_slots": found.lacking_slots,
        "over_capacity": found.over_capacity,
        "worst": {each.measure: (each.most, each.cases, ids(each.failed)) for each in found.worst},
        "failed": ids(found.failed),
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
    if layout.resources is None or found.resources is None:
        assert not cluster.over(failed)
        return
    after, takers = cluster.used(failed), cluster.takers(failed)
    over, resources = cluster.over(failed), found.resources
    for row, name in enumerate(layout.resources.names):
        remain = [spu for spu in online(cluster) if spu not in failed]
        used = dict(zip(cluster.ids, resources.used[row].tolist(), strict=True))
        assert {spu: used[spu] for spu in remain} == {spu: after[spu][name] for spu in remain}
        is_over = dict(zip(cluster.ids, resources.over[row].tolist(), strict=True))
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
        assert resources.needed[row] == needed
        assert resources.free[row] == sum(
            max(0, cluster.has[spu][name] - after[spu][name]) for spu in takers
        )


@firsts
@pytest.mark.parametrize("is_counted", [False, True])
def test_all_cases_come_to_what_each_of_them_does(
    first: int, is_counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs both ways: one by one where the cluster is small, else from counts of pairs."""
    if is_counted:
        monkeypatch.setattr(sweep, "SMALL_CLUSTER_MAX", 0)
    for seed in range(first, first + BLOCK):
        check_all_cases(seed, is_counted=is_counted)


def check_all_cases(seed: int, *, is_counted: bool) -> None:
    cluster = PlainCluster(seed)
    analysis = FailureAnalysis(cluster.layout())
    spus = online(cluster)
    pairs = [list(each) for each in combinations(spus, 2)]
    racks = [
        [spu for spu in spus if cluster.racks[spu] == name]
        for name in sorted({cluster.racks[spu] for spu in spus} - {None}, key=str)
    ]
    assert plain(sweep_spus(analysis), cluster) == expected(cluster, [[spu] for spu in spus])
    assert plain(sweep_racks(analysis), cluster) == expected(cluster, racks)
    found, wanted = plain(sweep_pairs(analysis), cluster), expected(cluster, pairs)
    if is_counted:  # It takes for granted that lists find SPUs enough.
        for each in (found, wanted):
            each["worst"].pop("without_slot")
            del each["lacking_slots"], each["failed"]
    assert found == wanted


@firsts
def test_as_many_replicas_find_a_slot_as_can_and_the_fewest_spus_are_added(first: int) -> None:
    """Held to an exact flow: what is left without a slot, and the number of SPUs, less one too."""
    for seed in range(first, first + BLOCK):
        check_recreation(seed)


def check_recreation(seed: int) -> None:
    cluster = PlainCluster(seed)
    layout = cluster.layout()
    analysis = FailureAnalysis(layout)
    draw = random.Random(seed)
    failed = draw.sample(cluster.ids, draw.randint(0, len(cluster.ids)))
    outcome = analysis.outcome(layout.numbers_of(failed))
    capacity = draw.choice([None, 1, 3])
    found = recreation(analysis, outcome, added_capacity=capacity)
    assert found.without_slot == outcome.replicas - cluster.placeable({*failed})
    assert found.without_slot >= outcome.without_slot
    assert int(found.given.sum()) == outcome.replicas - found.without_spu
    assert int(found.over.sum()) == found.without_slot - found.without_spu
    for spu, given, over in zip(cluster.ids, found.given, found.over, strict=True):
        free = max(0, cluster.capacity[spu] - cluster.held[spu])
        assert given - over <= free
        assert not given or spu in cluster.takers({*failed})
    size = capacity if capacity is not None else usual_capacity(analysis)
    assert found.added_capacity == size
    if size is None or found.spus_to_add is None:
        assert not size
        return

    def is_enough(added: int) -> bool:
        return cluster.placeable({*failed}, added=added, capacity=size) == outcome.replicas

    assert is_enough(found.spus_to_add)
    assert found.spus_to_add == 0 or not is_enough(found.spus_to_add - 1)


@firsts
def test_a_state_is_laid_out_as_its_lists_are(first: int) -> None:
    """Lists of any length, in several topics, with SPUs that are offline or cordoned."""
    for seed in range(first, first + BLOCK):
        check_layout(seed)


def check_layout(seed: int) -> None:
    cluster, events, assigner = PlainCluster(seed), Events(), Assigner(Policy.BALANCED)
    cut = len(cluster.lists) // 2
    topics = {"a": cluster.lists[:cut], "b": cluster.lists[cut:]}
    for spu in cluster.ids:
        joined = events.join(spu, rack=cluster.racks[spu], capacity=cluster.capacity[spu] or 1)
        assigner.apply(joined)
    for name, lists in topics.items():
        if lists:
            assigner.apply(events.adopt(name, *lists))
    for spu in cluster.ids:
        if cluster.cordoned[spu]:
            assigner.apply(events.cordon(spu))
        if not cluster.online[spu]:
            assigner.apply(events.leave(spu, mode=LeaveMode.OFFLINE))
    found, wanted = layout_of_state(assigner.clusters["c1"]), cluster.layout()
    for field in ("ids", "online", "cordoned", "held", "live"):
        assert getattr(found, field).tolist() == getattr(wanted, field).tolist(), field
    assert found.racks == wanted.racks
    assert found.wanted.tolist() == [len(each) for each in cluster.lists]
    named = [(name, number) for name, lists in topics.items() for number in range(len(lists))]
    assert [found.partition_of(row) for row in range(len(cluster.lists))] == named


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
    found = recreation(analysis, outcome)
    assert outcome.replicas == 9
    assert (outcome.slots, found.without_slot, found.spus_to_add) == (9, 0, 0)


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


def test_the_failure_of_an_unknown_spu_is_refused() -> None:
    """Another SPU would be taken for it without a word."""
    events, assigner = Events(), Assigner()
    for event in events.joins(0, 2):
        assigner.apply(event)
    layout = layout_of_state(assigner.clusters["c1"])
    with pytest.raises(InvalidEventError, match="spu_ids is 1; expected SPUs of cluster 'c1'"):
        layout.numbers_of([0, 1])
