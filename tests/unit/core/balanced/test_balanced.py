"""The policy `balanced`: valid lists on any ring, shares held to an exact solver, long runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import lcm
from unittest import mock

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.balanced import list_filling, policy
from spu_assigner.core.balanced.policy import place_balanced
from spu_assigner.core.base.entries import ChainEntry, Entry, SeenEntry
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.events import Policy, SpuJoined, TopicCreate
from spu_assigner.core.base.limits import CAPACITY_MAX
from spu_assigner.core.base.records import ReplicaMap, SpuChanged
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.loads import Loads
from support.project.case_share import share_of

CAPACITIES = st.one_of(
    st.integers(1, 6), st.integers(1, 40), st.sampled_from([100, 200, 7_000, CAPACITY_MAX])
)


@pytest.fixture(
    autouse=True,
    scope="module",
    params=[(policy.SMALL_REQUEST_CELLS_MAX, list_filling.DEALT_CELLS_MIN), (0, 0)],
    ids=["few", "many"],
)
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways of placing, which the size of a request decides between, are held to the same."""
    few_cells, dealt_cells_min = request.param
    with (
        mock.patch.object(policy, "SMALL_REQUEST_CELLS_MAX", few_cells),
        mock.patch.object(list_filling, "DEALT_CELLS_MIN", dealt_cells_min),
    ):
        yield


@dataclass(slots=True, kw_only=True)
class Spu:
    """One SPU of a plain model of the ring."""

    rack: int
    capacity: int
    replicas: int = 0
    leaders: int = 0


@dataclass(frozen=True, kw_only=True)
class Case:
    """A ring and a request."""

    spus: dict[int, Spu]
    partitions: int
    replicas: int
    start: int

    def place(self) -> list[list[int]]:
        """What `balanced` makes of it."""
        rows: list[list[int]] = place_balanced(
            loads_of(self.spus),
            partitions=self.partitions,
            replicas=self.replicas,
            start=self.start,
        ).tolist()
        return rows

    def copied(self) -> dict[int, Spu]:
        """The SPUs, to be changed."""
        return {
            spu_id: Spu(
                rack=spu.rack, capacity=spu.capacity, replicas=spu.replicas, leaders=spu.leaders
            )
            for spu_id, spu in self.spus.items()
        }


def loads_of(spus: dict[int, Spu]) -> Loads:
    """The model as arrays."""
    ids = sorted(spus)
    return Loads(
        ids=np.array(ids, dtype=np.int32),
        racks=np.array([spus[spu_id].rack for spu_id in ids], dtype=np.int32),
        capacities=np.array([spus[spu_id].capacity for spu_id in ids], dtype=np.int64),
        replicas=np.array([spus[spu_id].replicas for spu_id in ids], dtype=np.int64),
        leaders=np.array([spus[spu_id].leaders for spu_id in ids], dtype=np.int64),
    )


@st.composite
def spus_of(draw: st.DrawFn) -> Spu:
    """An SPU with at least one free slot; often nearly full, often as empty as others."""
    capacity = draw(CAPACITIES)
    held_max = min(capacity - 1, draw(st.sampled_from([0, 3, 30, CAPACITY_MAX])))
    held = held_max - draw(st.integers(0, min(3, held_max)))
    leaders = draw(st.integers(0, min(held, 20)))
    return Spu(rack=draw(st.integers(0, 4)), capacity=capacity, replicas=held, leaders=leaders)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Rings of 0 to 9 SPUs in 1 to 5 racks of any sizes."""
    spus = draw(st.dictionaries(st.integers(0, 30), spus_of(), max_size=9))
    racks = draw(st.integers(1, 5))
    for spu in spus.values():
        spu.rack %= racks
    return Case(
        spus=spus,
        partitions=draw(st.integers(1, 12)),
        replicas=draw(st.integers(1, 4)),
        start=draw(st.one_of(st.integers(0, 50), st.integers(0, 10**30))),
    )


def rack_bounds(spus: dict[int, Spu], replicas: int) -> dict[int, tuple[int, int]] | None:
    """How many replicas of a list belong on each rack, by the rule; None: too few SPUs."""
    sizes: dict[int, int] = {}
    for spu in spus.values():
        if spu.replicas < spu.capacity:
            sizes[spu.rack] = sizes.get(spu.rack, 0) + 1
    if sum(sizes.values()) < replicas:
        return None
    most = next(
        count
        for count in range(1, replicas + 1)
        if sum(min(size, count) for size in sizes.values()) >= replicas
    )
    return {rack: (min(size, most - 1), min(size, most)) for rack, size in sizes.items()}


def count_row(spus: dict[int, Spu], row: list[int]) -> None:
    """Count a list."""
    spus[row[0]].leaders += 1
    for spu_id in row:
        spus[spu_id].replicas += 1


def require_rules(case: Case) -> None:
    """Distinct SPUs with a free slot, racks as even as can be, and no stop before it must."""
    spus = case.copied()
    rows = case.place()
    for row in rows:
        bounds = rack_bounds(spus, case.replicas)
        assert bounds is not None
        assert len(row) == len(set(row)) == case.replicas
        assert all(spus[spu_id].replicas < spus[spu_id].capacity for spu_id in row)
        for rack, (least, most) in bounds.items():
            assert least <= sum(spus[spu_id].rack == rack for spu_id in row) <= most
        count_row(spus, row)
    if len(rows) < case.partitions:
        assert rack_bounds(spus, case.replicas) is None


@st.composite
def large_cases(draw: st.DrawFn) -> Case:
    """Rings of 2 to 4 racks with lists of several SPUs a rack, long enough to fill many SPUs."""
    held = st.integers(0, 20)
    spus = {}
    for spu_id in range(draw(st.integers(6, 24))):
        replicas = draw(held)
        spus[spu_id] = Spu(
            rack=draw(st.integers(0, 3)),
            capacity=replicas + draw(st.integers(1, 60)),
            replicas=replicas,
            leaders=draw(st.integers(0, replicas)),
        )
    return Case(
        spus=spus,
        partitions=draw(st.integers(1, 60)),
        replicas=draw(st.integers(2, 9)),
        start=draw(st.integers(0, 100)),
    )


@given(cases())
@settings(max_examples=share_of(200), deadline=None)
def test_every_list_keeps_the_rules_on_the_ring_as_it_then_is(case: Case) -> None:
    """SPUs leave on the way, and with them racks; the rule is about those that remain."""
    require_rules(case)


@given(large_cases())
@settings(max_examples=share_of(60), deadline=None)
def test_long_topics_keep_the_rules_when_racks_are_few(case: Case) -> None:
    """Then a list has several SPUs of a rack, and what is left to get must fit in what is left."""
    require_rules(case)


def test_an_spu_that_has_only_leaders_to_get_is_no_follower() -> None:
    """Its rack then has fewer to give to a row that another rack leads."""
    spus = {
        0: Spu(rack=0, capacity=100, replicas=10, leaders=0),
        1: Spu(rack=1, capacity=100, replicas=11, leaders=2),
        2: Spu(rack=0, capacity=100, replicas=11, leaders=0),
        3: Spu(rack=1, capacity=100, replicas=11, leaders=9),
    }
    require_rules(Case(spus=spus, partitions=2, replicas=3, start=0))


@pytest.mark.parametrize(("held", "partitions"), [(0, 5), (1, 6)])
def test_a_rack_of_one_spu_takes_a_replica_of_each_list(held: int, partitions: int) -> None:
    """That is more than the others on average: the lists had 6 replicas, or a ValueError came."""
    racks = (0, 0, 1, 1, 2, 3)
    spus = {spu_id: Spu(rack=rack, capacity=1_000) for spu_id, rack in enumerate(racks)}
    spus[0].replicas = spus[0].leaders = held
    require_rules(Case(spus=spus, partitions=partitions, replicas=5, start=held))


@given(cases())
@settings(max_examples=share_of(50), deadline=None)
def test_the_same_loads_give_the_same_lists(case: Case) -> None:
    """Replay depends on it; and what is read is not written."""
    loads = loads_of(case.spus)
    for array in (loads.ids, loads.racks, loads.capacities, loads.replicas, loads.leaders):
        array.setflags(write=False)
    placed = place_balanced(
        loads, partitions=case.partitions, replicas=case.replicas, start=case.start
    )
    assert placed.dtype == np.int32
    assert placed.tolist() == case.place()


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What a choice of replicas and leaders costs: sums of keys, as integers over one divisor."""

    replicas: int
    leaders: int


def key_of(capacity: int, number: int, divisor: int) -> int:
    """The key of the number-th replica or leader."""
    return (2 * number - 1) * divisor // (2 * capacity)


def best_costs(spus: dict[int, Spu], lists: int, replicas: int) -> Costs | None:
    """The least cost of replicas, then of leaders, that the rule about racks admits.

    A minimum-cost flow from racks by way of SPUs to "leads" and "follows". None: not so many lists.
    """
    bounds = rack_bounds(spus, replicas)
    if bounds is None:
        return None
    divisor = lcm(*(2 * spu.capacity for spu in spus.values()))
    level = divisor * 2 * lists + 1  # more than all leaders together can cost
    graph = nx.MultiDiGraph()
    forced = sum(least for least, _ in bounds.values()) * lists
    graph.add_node("more", demand=forced - lists * replicas)
    graph.add_node("leads", demand=lists)
    graph.add_node("follows", demand=lists * replicas - lists)
    for rack, (least, most) in bounds.items():
        graph.add_node(("rack", rack), demand=-least * lists)
        graph.add_edge("more", ("rack", rack), capacity=(most - least) * lists, weight=0)
    for spu_id, spu in spus.items():
        for more in range(1, min(lists, spu.capacity - spu.replicas) + 1):
            cost = level * key_of(spu.capacity, spu.replicas + more, divisor)
            graph.add_edge(("rack", spu.rack), spu_id, capacity=1, weight=cost)
            cost = key_of(spu.capacity, spu.leaders + more, divisor)
            graph.add_edge(spu_id, "leads", capacity=1, weight=cost)
        if spu_id in graph:
            graph.add_edge(spu_id, "follows", capacity=lists, weight=0)
    try:
        cost, _ = nx.network_simplex(graph)
    except nx.NetworkXUnfeasible:
        return None
    return Costs(replicas=cost // level, leaders=cost % level)


def costs_of(spus: dict[int, Spu], rows: list[list[int]]) -> Costs:
    """What these lists cost; counts them."""
    divisor = lcm(*(2 * spu.capacity for spu in spus.values()))
    replicas = leaders = 0
    for row in rows:
        count_row(spus, row)
        leader = spus[row[0]]
        leaders += key_of(leader.capacity, leader.leaders, divisor)
        for spu_id in row:
            replicas += key_of(spus[spu_id].capacity, spus[spu_id].replicas, divisor)
    return Costs(replicas=replicas, leaders=leaders)


@pytest.mark.thorough
@given(cases())
@settings(max_examples=share_of(150), deadline=None)
def test_replicas_then_leaders_are_as_even_as_an_exact_solver_makes_them(case: Case) -> None:
    """For as many lists as one rule about racks admits, then for those after them."""
    spus = case.copied()
    rows = case.place()
    while rows:
        lists, best = len(rows), None
        while best is None:
            best = best_costs(spus, lists, case.replicas)
            lists -= best is None
        assert costs_of(spus, rows[:lists]) == best
        rows = rows[lists:]


def test_lists_do_not_depend_on_what_a_process_keeps_beside_the_state() -> None:
    """A restarted process has the published state, and nothing cached with its ring."""
    warm = ClusterState("c")
    published: dict[tuple[str, int | str], ReplicaMap | Entry] = {}
    events: list[SpuJoined | TopicCreate] = [
        SpuJoined(event_id=f"j{at}", cluster_id="c", spu_id=at * 3, rack=f"r{at % 4}", capacity=400)
        for at in range(12)
    ]
    for at, partitions in enumerate((5, 40, 1, 300, 7, 90, 12)):
        name = f"t{at}"
        events.append(
            TopicCreate(
                event_id=name,
                cluster_id="c",
                topic=name,
                partitions=partitions,
                replication_factor=1 + at % 5,
                policy=Policy.BALANCED,
            )
        )
    for event in events:
        cold = ClusterState("c")
        for record in published.values():
            cold.restore(record)
        records = step(warm, event, default_policy=Policy.BALANCED)
        assert records == step(cold, event, default_policy=Policy.BALANCED)
        for each in (*records, *warm.take_entries()):
            match each:
                case ReplicaMap():
                    published["map", each.topic] = each
                case SpuChanged():
                    published["spu", each.spu_id] = each
                case ChainEntry():
                    published["chains", 0] = each
                case SeenEntry():
                    published["seen", each.block] = each
                case _:
                    pass
    assert sum(kind == "map" for kind, _ in published) == 7


@pytest.mark.parametrize("wrong", [{"partitions": 0}, {"replicas": 0}, {"start": -1}])
def test_a_request_that_makes_no_sense_is_a_bug_of_the_caller(wrong: dict[str, int]) -> None:
    """`decide` refuses such requests before."""
    request = {"partitions": 1, "replicas": 1, "start": 0} | wrong
    with pytest.raises(InvariantError, match="expected 1 or more"):
        place_balanced(loads_of({0: Spu(rack=0, capacity=1)}), **request)


def test_on_an_empty_ring_nothing_is_placed() -> None:
    """The caller sees from the number of rows where the ring was too small."""
    assert place_balanced(loads_of({}), partitions=2, replicas=3, start=0).shape == (0, 3)


def test_the_start_says_who_leads_on_a_tie() -> None:
    """So that one topic goes on where the last one stopped."""
    spus = {spu_id: Spu(rack=spu_id % 3, capacity=10) for spu_id in (3, 5, 6, 7, 9)}
    case = Case(spus=spus, partitions=4, replicas=1, start=13)
    assert case.place() == [[7], [9], [3], [5]]


@dataclass(slots=True, kw_only=True)
class Cluster:
    """A cluster that places topic after topic."""

    racks: np.ndarray
    capacities: np.ndarray
    held: np.ndarray = field(init=False)
    led: np.ndarray = field(init=False)
    start: int = 0
    maps: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.held = np.zeros(len(self.racks), dtype=np.int64)
        self.led = np.zeros(len(self.racks), dtype=np.int64)

    def create(self, partitions: int = 10, replicas: int = 3) -> np.ndarray:
        """One topic more; every list must be on distinct racks."""
        rows = place_balanced(
            Loads(
                ids=np.arange(len(self.racks), dtype=np.int32),
                racks=self.racks,
                capacities=self.capacities,
                replicas=self.held,
                leaders=self.led,
            ),
            partitions=partitions,
            replicas=replicas,
            start=self.start,
        )
        assert rows.shape == (partitions, replicas)
        racks = np.sort(self.racks[rows], axis=1)
        assert (np.diff(racks, axis=1) > 0).all()
        self.start += partitions
        self._count(rows, 1)
        self.maps.append(rows)
        return rows

    def delete(self, number: int) -> None:
        """Take a topic out of the counts."""
        self._count(self.maps.pop(number), -1)

    def join(self, racks: np.ndarray) -> None:
        """Empty SPUs come, with the capacity of the first."""
        none = np.zeros(len(racks), dtype=np.int64)
        self.racks = np.concatenate((self.racks, racks))
        self.capacities = np.concatenate((self.capacities, none + self.capacities[0]))
        self.held = np.concatenate((self.held, none))
        self.led = np.concatenate((self.led, none))

    def _count(self, rows: np.ndarray, sign: int) -> None:
        self.held += sign * np.bincount(rows.ravel(), minlength=len(self.held))
        self.led += sign * np.bincount(rows[:, 0], minlength=len(self.led))

    def spread_in_racks(self) -> list[int]:
        """The most replicas on an SPU less the fewest, rack by rack."""
        return [int(np.ptp(self.held[self.racks == rack])) for rack in np.unique(self.racks)]

    def distinct_followers(self) -> list[int]:
        """For each SPU, how many SPUs follow in the lists it leads."""
        rows = np.concatenate(self.maps)
        pairs = {(leader, follower) for leader, *others in rows.tolist() for follower in others}
        counts = np.bincount([leader for leader, _ in pairs], minlength=len(self.racks))
        return [int(count) for count in counts]


def cluster_of(*sizes: int, capacities: np.ndarray | None = None) -> Cluster:
    """Racks of these sizes, their SPUs mixed."""
    racks = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    racks = racks[(np.arange(len(racks)) * 387) % len(racks)]  # 387: without a common divisor
    if capacities is None:
        capacities = np.full(len(racks), 7_000, dtype=np.int64)
    return Cluster(racks=racks, capacities=capacities)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "sizes",
    [(334, 333, 333), (500, 300, 200), (100,) * 10, (400, 300, 100, 100, 100)][: share_of(12)],
)
def test_a_thousand_topics_leave_replicas_and_leaders_level(sizes: tuple[int, ...]) -> None:
    """A spread of at most 1, which no policy that starts over with each topic can promise."""
    cluster = cluster_of(*sizes)
    for _ in range(1_000):
        cluster.create()
    assert max(cluster.spread_in_racks()) <= 1
    assert (cluster.led == 10).all()


@pytest.mark.thorough
def test_with_uneven_capacities_each_spu_is_within_one_of_its_fair_share() -> None:
    """Three racks take a third of all replicas each; in a rack, capacity decides."""
    capacities = np.array([100, 200, 400, 800], dtype=np.int64)[np.arange(1_000) * 7 % 11 % 4]
    cluster = cluster_of(500, 300, 200, capacities=capacities)
    for _ in range(1_000):
        cluster.create()
    for rack in range(3):
        here = cluster.racks == rack
        fair = 10_000 * capacities[here] / capacities[here].sum()
        assert np.abs(cluster.held[here] - fair).max() <= 1
    assert np.abs(cluster.led - 10_000 * capacities / capacities.sum()).max() <= 1


@pytest.mark.thorough
def test_deletes_and_joins_are_levelled_out_by_later_topics() -> None:
    """Counts decide, not turns: whoever has least is served first."""
    cluster = cluster_of(150, 90, 60)
    for number in range(400):
        cluster.create()
        if number % 3 == 0:
            cluster.delete(number * 31 % len(cluster.maps))
    cluster.join(np.arange(60, dtype=np.int32) % 3)
    for _ in range(300):
        cluster.create()
    assert max(cluster.spread_in_racks()) <= 1
    assert np.ptp(cluster.led) <= 1


@pytest.mark.thorough
def test_those_who_follow_an_spu_are_many() -> None:
    """When it fails, what it led falls on all of them; of 20 follower seats 20 could differ."""
    cluster = cluster_of(334, 333, 333)
    for _ in range(1_000):
        cluster.create()
    assert min(cluster.distinct_followers()) >= 15


@pytest.mark.parametrize("sizes", [(34, 33, 33), (20,) * 5, (1,) * 100])
def test_one_large_topic_spreads_its_followers_too(sizes: tuple[int, ...]) -> None:
    """40 follower seats an SPU, chosen out of at least 66 SPUs: 30 or more differ at the mean."""
    cluster = cluster_of(*sizes)
    cluster.create(partitions=2_000)
    followers = cluster.distinct_followers()
    assert min(followers) >= 20
    assert sum(followers) / len(followers) >= 28
