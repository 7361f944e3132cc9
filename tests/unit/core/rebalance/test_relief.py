"""Rebalances by resources, beside an exact solver."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from spu_assigner.core.base.events import Policy
from support.events.one_cluster import OneCluster
from support.model.exact_relief import Demand, Weighted
from support.project.case_share import share_of

CASES = max(share_of(60), 60)  # of fewer, how near they are to the least says little
BAND = Fraction(105, 100)

# One worker of several finds the outcomes, once.
pytestmark = pytest.mark.xdist_group("relief")


class Small(OneCluster):
    def __init__(self) -> None:
        super().__init__(default=Policy.BALANCED)
        self.needs: dict[str, Demand] = {}
        self.racks: list[int] = []
        self.capacities: list[dict[str, int]] = []

    def add(self, rack: int | None, slots: int, **resources: int) -> None:
        spu_id, name = len(self.racks), None if rack is None else "abc"[rack]
        self.racks.append(rack or 0)
        self.capacities.append({"slots": slots, **resources})
        self.join(spu_id, rack=name, capacity=slots, resources=resources)

    def place(self, topic: str, partitions: int, replicas: int, **needs: Any) -> None:
        self.create(topic, partitions, replicas, **needs)
        self.note(topic, **needs)

    def measure(self, topic: str, **needs: Any) -> None:
        self.apply(self.build.demand(topic, **needs))
        self.note(topic, **needs)

    def note(self, topic: str, demand: Any, leader_demand: Any = None) -> None:
        follower = {"slots": 1, **demand}
        self.needs[topic] = Demand(follower=follower, leader={**follower, **(leader_demand or {})})

    def weighted(self) -> Weighted:
        names = sorted(self.state.topics)
        rows = [(self.needs[name], row) for name in names for row in self.lists(name)]
        return Weighted(
            racks=self.racks,
            capacities=self.capacities,
            lists=[row for _, row in rows],
            demands=[demand for demand, _ in rows],
        )


def drawn(seed: int) -> Small:
    """SPUs of one or two sizes; topics placed by `balanced`; then one joins, and some grow."""
    random, small = Random(seed), Small()
    racks = random.choice([1, 1, 2, 3])
    names = ["disk_bytes", "net"][: random.choice([1, 1, 2])]
    spus, late = random.randint(3, 6), random.choice([0, 0, 1])

    def add(spu: int) -> None:
        size = random.choice([1, 1, 2])
        rack = spu % racks if racks > 1 else None
        small.add(rack, 60 * size, **dict.fromkeys(names, 2_000 * size))

    for spu in range(spus - late):
        add(spu)
    for number in range(random.randint(4, 10)):
        demand = {name: max(1, 300 // random.randint(1, 20)) for name in names}
        leader = {"net": demand["net"] + random.randint(0, 20)} if len(names) == 2 else None
        size = random.randint(1, 6), random.randint(1, min(3, spus - late))
        small.place(f"t{number}", *size, demand=demand, leader_demand=leader)
    for spu in range(spus - late, spus):
        add(spu)
    for topic in sorted(small.state.topics):
        if random.random() < 0.4:
            factor = random.choice([0.5, 0.7, 1.5, 2, 3])
            was = small.needs[topic].follower
            small.measure(topic, demand={name: max(1, int(was[name] * factor)) for name in names})
    return small


@dataclass(frozen=True, kw_only=True)
class Outcome:
    band: Fraction  # above the fair share, which is that of the linear programme
    before: Fraction  # the largest share
    largest: Fraction  # afterwards
    moved: int
    least: int | None  # bytes; None: the band cannot be reached
    moved_again: int
    size_max: int  # bytes of the largest replica

    @property
    def is_reached(self) -> bool:
        return self.largest <= self.band


def outcome(seed: int) -> Outcome:
    small = drawn(seed)
    cluster = small.weighted()
    band = max(cluster.least_level(), cluster.largest_replica()) * BAND
    small.rebalance()
    after = small.weighted()
    small.rebalance()
    return Outcome(
        band=band,
        before=cluster.largest(),
        largest=after.largest(),
        moved=cluster.moved(after.lists),
        least=cluster.least_bytes(band),
        moved_again=after.moved(small.weighted().lists),
        size_max=max(demand.size for demand in cluster.demands),
    )


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return [outcome(seed) for seed in range(CASES)]


def test_the_band_is_reached_where_it_can_be(outcomes: list[Outcome]) -> None:
    """The search has a limit, so not always: of lists that can be packed in a few ways only."""
    possible = [each for each in outcomes if each.least is not None]
    assert len(possible) >= CASES // 2
    assert sum(each.is_reached for each in possible) >= 0.95 * len(possible)


def test_the_largest_share_never_becomes_larger(outcomes: list[Outcome]) -> None:
    """Also where the band cannot be reached; and in the band a second one moves nothing."""
    assert all(each.largest <= each.before for each in outcomes)
    assert all(each.moved_again == 0 for each in outcomes if each.is_reached)


def test_hardly_more_bytes_move_than_must(outcomes: list[Outcome]) -> None:
    """At most 5 % more over all cases. Of a single case no bound is proved; what is seen is that at
    most the bytes of two of the cluster's largest replicas move in vain."""
    reached = [each for each in outcomes if each.is_reached]
    pairs = [(each, each.least) for each in reached if each.least is not None]
    assert all(least <= each.moved <= least + 2 * each.size_max for each, least in pairs)
    assert sum(each.moved for each, _ in pairs) <= 1.05 * sum(least for _, least in pairs)


def test_the_answer_has_bytes_and_shares() -> None:
    small = Small()
    for _ in range(2):
        small.add(None, 100, disk_bytes=1_000)
    small.place("a", 4, 1, demand={"disk_bytes": 150})
    small.add(None, 100, disk_bytes=1_000)
    shares = "the largest dominant share is 30.0 %, was 30.0 %, and 20.0 % is fair"
    assert small.rebalance(band_percent=50).message == (
        "0 replicas of 0 bytes move, 0 lists get another leader from among their replicas; "
        f"{shares}"
    )
    small.place("b", 1, 1, demand={"disk_bytes": 0})
    assert small.rebalance(band_percent=49).message == (
        "1 replica of 150 bytes moves, 0 lists get another leader from among their replicas; "
        f"{shares}"
    )


def test_bytes_and_moves_are_limited() -> None:
    """The order is cut off, so a second rebalance goes on from there."""
    small = Small()
    for _ in range(2):
        small.add(None, 100, disk_bytes=10_000)
    small.place("a", 40, 1, demand={"disk_bytes": 10})
    for _ in range(2):
        small.add(None, 100, disk_bytes=10_000)
    assert small.rebalance(max_bytes=45).moves == 4
    assert [small.rebalance(moves).moves for moves in (3, 0, 100, 100)] == [3, 0, 20 - 7, 0]


def test_what_is_pinned_stays_and_is_no_fault_of_others() -> None:
    """SPU 0 is beyond the fair share by what does not move; all else leaves it."""
    small = Small()
    for _ in range(3):
        small.add(None, 100, disk_bytes=1_000)
    small.place("a", 6, 1, demand={"disk_bytes": 50})
    small.adopt("p", [0], [0], pinned=True)
    small.measure("p", demand={"disk_bytes": 300})
    small.rebalance()
    assert [each["disk_bytes"] for each in small.weighted().used()] == [600, 150, 150]
