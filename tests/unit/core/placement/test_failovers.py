"""Who takes over when an SPU or a rack fails, and tables of rounds, where SPUs are alike."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import Mode, ReplicaMap
from support.events.one_cluster import OneCluster
from support.project.case_share import share_of

DOCUMENTS = "abbccc"


class Failing:
    def __init__(self, racks: str) -> None:
        self.racks = racks
        self.life = OneCluster()
        self.lists: list[list[int]] = []
        for spu_id, rack in enumerate(racks):
            self.life.join(spu_id, rack=None if rack == "-" else rack, capacity=10**6)

    def create(self, topic: str, partitions: int, replicas: int = 3, **more: Any) -> None:
        self.life.create(topic, partitions, replicas, policy=Policy.BALANCED, **more)
        self.lists += self.life.lists(topic)

    def worst(self) -> float:
        """The most that one SPU takes over beyond its fair share, whichever SPU or rack fails."""
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
        return max(targets[spu_id] for spu_id in others) - targets.total() / len(others)


@pytest.mark.parametrize(
    ("racks", "most"),
    [(DOCUMENTS, 1.5), ("abc" * 3, 2), ("abc" * 7, 2.5), ("abcde" * 4, 2.5), ("-" * 6, 2)],
)
def test_over_many_topics_each_failure_is_taken_over_evenly(racks: str, most: float) -> None:
    cluster, random = Failing(racks), Random(7)
    for number in range(100):
        cluster.create(f"t{number}", random.choice([6, 6, random.randint(1, 12)]))
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


# Tables of rounds.


SIZES = st.lists(st.integers(1, 7), min_size=1, max_size=12) | st.builds(
    lambda size, count: [size] * count, st.integers(1, 5), st.integers(1, 20)
)


def cluster(sizes: list[int], weights: list[int] | None = None) -> tuple[OneCluster, list[int]]:
    """Racks of so many SPUs each, of these capacities; with the rack of each SPU."""
    life, racks = OneCluster(), [rack for rack, size in enumerate(sizes) for _ in range(size)]
    Random(len(racks)).shuffle(racks)
    for spu_id, rack in enumerate(racks):
        life.join(spu_id, rack=f"r{rack:02}", capacity=10**5 * (weights[rack] if weights else 1))
    return life, racks


def mode(life: OneCluster, *size: int) -> Mode | None:
    answers = life.create(f"t{len(life.state.topics)}", *size, policy=Policy.BALANCED)
    [found] = [each for each in answers if isinstance(each, ReplicaMap)]
    return found.reason and found.reason.mode


def rows_of(life: OneCluster) -> list[list[int]]:
    return [row for name in life.state.topics for row in life.lists(name)]


@given(st.integers(1, 4), SIZES)
@settings(max_examples=share_of(100), deadline=None)
def test_spus_are_level_after_each_list(replicas: int, sizes: list[int]) -> None:
    most = 1 if len(sizes) == 1 else max(sizes)
    assume((replicas + 1) * most <= sum(sizes) and len(sizes) != replicas)
    life, racks = cluster(sizes)
    assert mode(life, 3 * len(racks) + 5, replicas) is Mode.BALANCED_ROUNDS
    held, led = [0] * len(racks), [0] * len(racks)
    for row in rows_of(life):
        led[row[0]] += 1
        for spu_id in row:
            held[spu_id] += 1
        assert len({racks[spu_id] if len(sizes) > 1 else spu_id for spu_id in row}) == replicas
        assert max(held) - min(held) <= 1
        assert max(led) - min(led) <= 1


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=4))
@settings(max_examples=share_of(60), deadline=None)
def test_as_many_racks_as_replicas_are_level_each(given: list[tuple[int, int]]) -> None:
    """Each list has one of each rack; leaders are level by capacity, replicas on each rack."""
    sizes, weights = map(list, zip(*given, strict=True))
    life, racks = cluster(sizes, weights)
    block = sum(size * weight for size, weight in given)
    assert mode(life, 4 * block + block // 2, len(sizes)) is Mode.BALANCED_ROUNDS
    held, led = Counter[int](), Counter[int]()
    for row in rows_of(life):
        assert sorted(racks[spu_id] for spu_id in row) == list(range(len(sizes)))
        held.update(row)
        led[row[0]] += 1
        for rack in range(len(sizes)):
            counts = [held[spu_id] for spu_id, own in enumerate(racks) if own == rack]
            assert max(counts) - min(counts) <= 1
    shares = [led[spu_id] / weights[rack] for spu_id, rack in enumerate(racks)]
    assert max(shares) - min(shares) <= 1


@pytest.mark.parametrize(
    "sizes", [[20], [7, 7, 7], [8, 7, 7], [3] * 8, [13] * 10, [5, 4, 4, 3, 3, 3], [2, 2, 3]]
)
def test_requests_are_slices_of_one_table(sizes: list[int]) -> None:
    """Wherever they begin and end, failovers included; the next one is found by the counts alone,
    as a process that was restarted does."""
    (whole, _), (parts, _) = cluster(sizes), cluster(sizes)
    assert mode(whole, 2_009, 3) is Mode.BALANCED_ROUNDS
    for partitions in (5, 700, 1, 1_300, 3):
        assert mode(parts, partitions, 3) is Mode.BALANCED_ROUNDS
        parts.state.ring.kept.clear()
    assert rows_of(whole) == rows_of(parts)


@pytest.mark.parametrize("sizes", [[3, 2], [3, 2, 2, 2]], ids=["few", "uneven"])
def test_there_is_no_table_where_racks_are_too_few_or_uneven(sizes: list[int]) -> None:
    assert mode(cluster(sizes)[0], 4, 3) is Mode.BALANCED
