"""Rebalances by resources, beside an exact solver."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from spu_assigner.core import Assigner
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import ReplicaMap, TopicStatus
from support.events.builders import Events
from support.model.exact_relief import Demand, Weighted
from support.project.case_share import share_of

CASES = max(share_of(60), 60)  # of fewer, how near they are to the least says little
BAND = Fraction(105, 100)

# One worker of several finds the outcomes, once.
pytestmark = pytest.mark.xdist_group("relief")


class Small:
    """A cluster of few SPUs."""

    def __init__(self) -> None:
        self.events = Events()
        self.assigner = Assigner()
        self.maps: dict[str, list[list[int]]] = {}
        self.needs: dict[str, Demand] = {}
        self.racks: list[int] = []
        self.capacities: list[dict[str, int]] = []

    def join(self, rack: int | None, slots: int, **resources: int) -> None:
        spu_id = len(self.racks)
        self.racks.append(rack or 0)
        self.capacities.append({"slots": slots, **resources})
        name = None if rack is None else "abc"[rack]
        self.say(self.events.join(spu_id, rack=name, capacity=slots, resources=resources))

    def create(self, topic: str, partitions: int, replicas: int, **demand: Any) -> None:
        self.say(self.events.create(topic, partitions, replicas, **demand))
        self.note(topic, **demand)

    def measure(self, topic: str, **demand: Any) -> None:
        self.say(self.events.demand(topic, **demand))
        self.note(topic, **demand)

    def note(self, topic: str, demand: Any, leader_demand: Any = None) -> None:
        follower = {"slots": 1, **demand}
        self.needs[topic] = Demand(follower=follower, leader={**follower, **(leader_demand or {})})

    def rebalance(self, **given: Any) -> TopicStatus:
        return self.say(self.events.rebalance(**given))

    def say(self, event: Any) -> Any:
        answers = self.assigner.apply(event)
        for each in answers:
            if isinstance(each, ReplicaMap) and each.replicas is not None:
                self.maps[each.topic] = each.replicas.tolist()
        return next((each for each in answers if isinstance(each, TopicStatus)), None)

    def weighted(self) -> Weighted:
        return Weighted(
            racks=self.racks,
            capacities=self.capacities,
            lists=self.lists(),
            demands=[self.needs[name] for name, rows in sorted(self.maps.items()) for _ in rows],
        )

    def lists(self) -> list[list[int]]:
        return [row for _, rows in sorted(self.maps.items()) for row in rows]


def drawn(seed: int) -> Small:
    """SPUs of one or two sizes; topics placed by `balanced`; then one joins, and some grow."""
    random, small = Random(seed), Small()
    racks = random.choice([1, 1, 2, 3])
    names = ["disk_bytes", "net"][: random.choice([1, 1, 2])]
    spus, late = random.randint(3, 6), random.choice([0, 0, 1])

    def join(spu: int) -> None:
        size = random.choice([1, 1, 2])
        rack = spu % racks if racks > 1 else None
        small.join(rack, 60 * size, **dict.fromkeys(names, 2_000 * size))

    for spu in range(spus - late):
        join(spu)
    for number in range(random.randint(4, 10)):
        demand = {name: max(1, 300 // random.randint(1, 20)) for name in names}
        leader = {"net": demand["net"] + random.randint(0, 20)} if len(names) == 2 else None
        size = random.randint(1, 6), random.randint(1, min(3, spus - late))
        small.create(f"t{number}", *size, demand=demand, leader_demand=leader)
    for spu in range(spus - late, spus):
        join(spu)
    for topic in sorted(small.maps):
        if random.random() < 0.4:
            factor = random.choice([0.5, 0.7, 1.5, 2, 3])
            was = small.needs[topic].follower
            small.measure(topic, demand={name: max(1, int(was[name] * factor)) for name in names})
    return small


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A rebalance of a random cluster, and what is the best."""

    level: float  # of the linear programme
    fair: Fraction  # as this file has it
    largest: Fraction  # afterwards
    moved: int
    least: int | None  # bytes; None: the band cannot be reached
    moved_again: int
    before: Fraction  # the largest share
    size_max: int  # bytes of the largest replica
    replica: Fraction  # the largest share that a replica takes of the largest SPU


def outcome(seed: int) -> Outcome:
    small = drawn(seed)
    cluster = small.weighted()
    fair = max(totals(cluster), largest_replica(cluster))
    small.rebalance()
    lists = small.lists()
    small.rebalance()
    return Outcome(
        level=cluster.least_level(),
        fair=fair,
        largest=cluster.largest(lists),
        moved=cluster.moved(lists),
        least=cluster.least_bytes(fair * BAND),
        moved_again=small.weighted().moved(lists),
        before=cluster.largest(),
        size_max=max(demand.size for demand in cluster.demands),
        replica=largest_replica(cluster),
    )


def totals(cluster: Weighted) -> Fraction:
    """What must be used of a resource by what there is of it: of all SPUs, and of each set of racks
    that must hold a part of each list."""
    racks = sorted(set(cluster.racks))
    found = []
    for number in range(1, 2 ** len(racks)):
        some = [rack for at, rack in enumerate(racks) if number >> at & 1]
        for name in cluster.names:
            needed = 0
            for row, demand in zip(cluster.lists, cluster.demands, strict=True):
                amounts = [
                    (demand.leader if place == 0 else demand.follower).get(name, 0)
                    for place in range(len(row))
                ]
                elsewhere = sum(
                    min(
                        max(1, [cluster.racks[spu] for spu in row].count(rack)),
                        cluster.racks.count(rack),
                    )
                    for rack in racks
                    if rack not in some
                )
                needed += sum(sorted(amounts)[: max(0, len(row) - elsewhere)])
            has = sum(
                capacities[name]
                for rack, capacities in zip(cluster.racks, cluster.capacities, strict=True)
                if rack in some
            )
            found.append(Fraction(needed, has))
    return max(found)


def largest_replica(cluster: Weighted) -> Fraction:
    return max(
        Fraction(
            max(
                max(demand.follower.get(name, 0), demand.leader.get(name, 0))
                for demand in cluster.demands
            ),
            max(capacities[name] for capacities in cluster.capacities),
        )
        for name in cluster.names
    )


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return [outcome(seed) for seed in range(CASES)]


def test_the_fair_share_is_that_of_the_linear_programme(outcomes: list[Outcome]) -> None:
    """Unless one replica is larger than that, which is not divided; else it may be a bit below:
    it does not see that each of a few SPUs must hold a replica of a list."""
    exact = [max(each.level, float(each.replica)) for each in outcomes]
    fair = [float(each.fair) for each in outcomes]
    assert all(a <= b + 1e-9 for a, b in zip(fair, exact, strict=True))
    assert sum(a >= b - 1e-9 for a, b in zip(fair, exact, strict=True)) >= 0.9 * CASES


def test_the_band_is_reached_where_it_can_be(outcomes: list[Outcome]) -> None:
    """The search has a limit, so not always: of lists that can be packed in a few ways only."""
    possible = [each for each in outcomes if each.least is not None]
    reached = [each for each in possible if each.largest <= each.fair * BAND]
    assert len(possible) >= CASES // 2
    assert len(reached) >= 0.95 * len(possible)


def test_the_largest_share_never_becomes_larger(outcomes: list[Outcome]) -> None:
    """Also where the band cannot be reached."""
    assert all(each.largest <= each.before for each in outcomes)


def test_a_second_rebalance_in_the_band_moves_nothing(outcomes: list[Outcome]) -> None:
    assert all(each.moved_again == 0 for each in outcomes if each.largest <= each.fair * BAND)


def test_hardly_more_bytes_move_than_must(outcomes: list[Outcome]) -> None:
    """At most 5 % more over all cases. Of a single case no bound is proved; what is seen is that at
    most the bytes of two of the cluster's largest replicas move in vain."""
    reached = [each for each in outcomes if each.largest <= each.fair * BAND]
    triples = [
        (each.moved, each.least, each.size_max) for each in reached if each.least is not None
    ]
    assert all(least <= moved <= least + 2 * size_max for moved, least, size_max in triples)
    assert sum(moved for moved, _, _ in triples) <= 1.05 * sum(least for _, least, _ in triples)


def test_the_answer_has_bytes_and_shares() -> None:
    small = Small()
    for _ in range(2):
        small.join(None, 100, disk_bytes=1_000)
    small.create("a", 4, 1, demand={"disk_bytes": 150})
    small.join(None, 100, disk_bytes=1_000)
    assert small.rebalance(band_percent=50).message == (
        "0 replicas of 0 bytes move, 0 lists get another leader from among their replicas; "
        "the largest dominant share is 30.0 %, was 30.0 %, and 20.0 % is fair"
    )
    small.create("b", 1, 1, demand={"disk_bytes": 0})
    assert small.rebalance(band_percent=49).message == (
        "1 replica of 150 bytes moves, 0 lists get another leader from among their replicas; "
        "the largest dominant share is 30.0 %, was 30.0 %, and 20.0 % is fair"
    )


def test_bytes_and_moves_are_limited() -> None:
    """The order is cut off, so a second rebalance goes on from there."""
    small = Small()
    for _ in range(2):
        small.join(None, 100, disk_bytes=10_000)
    small.create("a", 40, 1, demand={"disk_bytes": 10})
    for _ in range(2):
        small.join(None, 100, disk_bytes=10_000)
    assert small.rebalance(max_bytes=45).moves == 4
    assert small.rebalance(max_moves=3).moves == 3
    assert small.rebalance(max_moves=0).moves == 0
    assert small.rebalance().moves == 20 - 7
    assert small.rebalance().moves == 0


def test_what_is_pinned_stays_and_is_no_fault_of_others() -> None:
    """SPU 0 is beyond the fair share by what does not move; all else leaves it."""
    small = Small()
    for _ in range(3):
        small.join(None, 100, disk_bytes=1_000)
    small.create("a", 6, 1, demand={"disk_bytes": 50})
    small.say(small.events.adopt("p", [0], [0], pinned=True))
    small.measure("p", demand={"disk_bytes": 300})
    small.rebalance()
    used = small.weighted().used()
    assert [each["disk_bytes"] for each in used] == [600, 150, 150]


def test_an_spu_takes_another_replica_in_exchange() -> None:
    """Either of its own alone would leave the other SPU with as much."""
    small = Small()
    for _ in range(2):
        small.join(None, 100, disk_bytes=100)
    for topic, spu, size in (("a", 0, 40), ("b", 0, 30), ("c", 1, 30), ("d", 1, 20)):
        small.say(small.events.adopt(topic, [spu], policy=Policy.BALANCED))
        small.measure(topic, demand={"disk_bytes": size})
    assert small.rebalance().moves == 2
    assert [each["disk_bytes"] for each in small.weighted().used()] == [60, 60]
