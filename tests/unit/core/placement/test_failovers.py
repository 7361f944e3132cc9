"""Failovers of `balanced` are even, counted over all topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from spu_assigner.core.base.events import Policy
from support.events.one_cluster import OneCluster

DOCUMENTS = "abbccc"


class Failing:
    def __init__(self, racks: str, capacities: Sequence[int] = (10**6,)) -> None:
        """Capacities: of SPU 0, 1 …, then from the first one again."""
        self.racks = racks
        self.capacities = [capacities[at % len(capacities)] for at in range(len(racks))]
        self.life = OneCluster()
        self.lists: list[list[int]] = []
        for spu_id, (rack, capacity) in enumerate(zip(racks, self.capacities, strict=True)):
            self.life.join(spu_id, rack=None if rack == "-" else rack, capacity=capacity)

    def create(self, topic: str, partitions: int, replicas: int = 3, **more: Any) -> None:
        self.life.create(topic, partitions, replicas, policy=Policy.BALANCED, **more)
        self.lists += self.life.lists(topic)

    def worst(self) -> float:
        """The most that one SPU takes over beyond its fair share by capacity, whichever SPU or rack
        fails."""
        racks = [
            {spu for spu, each in enumerate(self.racks) if each == rack}
            for rack in sorted({*self.racks} - {"-"})
        ]
        return max(map(self._beyond_fair, [*racks, *({spu} for spu in range(len(self.racks)))]))

    def _beyond_fair(self, failed: set[int]) -> float:
        racks = {self.racks[spu_id] for spu_id in failed} - {"-"}
        others = [
            spu_id
            for spu_id, rack in enumerate(self.racks)
            if spu_id not in failed and rack not in racks
        ]
        targets = Counter(
            next(spu_id for spu_id in row if spu_id not in failed)
            for row in self.lists
            if row[0] in failed
        )
        whole = sum(self.capacities[spu_id] for spu_id in others)
        return max(
            targets[spu_id] - targets.total() * self.capacities[spu_id] / whole for spu_id in others
        )


@pytest.mark.parametrize(
    ("racks", "most"),
    [(DOCUMENTS, 1.5), ("abc" * 3, 2), ("abc" * 7, 2.5), ("abcde" * 4, 2.5), ("-" * 6, 2)],
)
def test_over_many_topics_each_failure_is_taken_over_evenly(racks: str, most: float) -> None:
    cluster, random = Failing(racks), Random(7)
    for number in range(100):
        cluster.create(f"t{number}", random.choice([6, 6, random.randint(1, 12)]))
    assert cluster.worst() <= most


@pytest.mark.parametrize(("spus_a_rack", "most"), [(7, 5), (4, 8)])
def test_spus_of_different_capacity_take_over_by_capacity(spus_a_rack: int, most: float) -> None:
    """A third of them are four times as large as the smallest: if all took over as much, some would
    be 12 leaders beyond that."""
    cluster = Failing("abc" * spus_a_rack, [10**6] * 3 + [2 * 10**6] * 3 + [4 * 10**6] * 3)
    for number in range(150):
        cluster.create(f"t{number}", 8)
    assert cluster.worst() <= most


@pytest.mark.parametrize(
    ("racks", "replicas", "most"),
    [
        (DOCUMENTS, 3, 1.5),
        ("abc" * 21, 3, 2),
        ("a" * 50 + "b" * 30 + "c" * 20, 3, 2),
        ("abcdef" * 10, 3, 3),
        ("abcd" * 10, 4, 2),
        ("ab" * 10, 2, 2),
    ],
)
def test_of_one_large_topic_each_failure_is_taken_over_evenly(
    racks: str, replicas: int, most: float
) -> None:
    cluster = Failing(racks)
    cluster.create("t", 1_000, replicas)
    assert cluster.worst() <= most


@pytest.mark.parametrize(("spus", "racks", "step"), [(9, 3, 4), (150, 5, 1)])
def test_a_large_map_counts_as_much_as_its_lists_one_by_one(
    spus: int, racks: int, step: int
) -> None:
    """Short lists too, whatever the ids; what is created next is led and followed alike."""
    random = Random(spus)
    ids = [number * step for number in range(spus)]
    lists = [random.sample(ids, random.choice([1, 2, 3, 3])) for _ in range(2_100)]
    next_lists = []
    for size in (2_100, 100):
        life = OneCluster()
        for number, spu_id in enumerate(ids):
            life.join(spu_id, rack=f"r{number % racks}", capacity=10**6)
        life.create("first", 1, 3, policy=Policy.BALANCED)  # From now on it is counted.
        for begin in range(0, len(lists), size):
            life.apply(life.build.adopt(f"t{begin}", *lists[begin : begin + size]))
        life.create("next", 30, 3, policy=Policy.BALANCED)
        next_lists.append(life.lists("next"))
    assert next_lists[0] == next_lists[1]
