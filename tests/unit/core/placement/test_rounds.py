"""The table of SPUs alike: level after each list, and the same however requests are cut."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import Mode, ReplicaMap
from spu_assigner.core.placement.rounds import Rack, _block, _full_block, _leading_racks
from support.events.one_cluster import OneCluster
from support.project.case_share import share_of


def racks_of(sizes: list[int], weights: list[int] | None = None) -> list[Rack]:
    """Racks of so many SPUs each, one after the other."""
    ends = np.cumsum(sizes).tolist()
    ways = zip(ends, sizes, weights or [1] * len(sizes), strict=True)
    return [Rack(list(range(end - size, end)), weight) for end, size, weight in ways]


@given(
    st.integers(1, 4),
    st.lists(st.integers(1, 7), min_size=1, max_size=12)
    | st.tuples(st.integers(1, 5), st.integers(1, 20)).map(lambda each: [each[0]] * each[1]),
    st.integers(0, 300),
)
@settings(max_examples=share_of(200), deadline=None)
def test_a_block_is_level_after_each_list(replicas: int, sizes: list[int], number: int) -> None:
    """Replicas and leaders of two SPUs differ by one at most, and lists are on distinct racks."""
    racks, spus = racks_of(sizes), sum(sizes)
    assume((replicas + 1) * max(sizes) <= spus)
    leading, _ = _leading_racks([rack.lists for rack in racks])
    rows = _block(racks, leading, replicas, number).tolist()
    require_level(rows, spus)
    rack_of = {spu: number for number, rack in enumerate(racks) for spu in rack.members}
    assert all(len({rack_of[spu] for spu in row}) == replicas for row in rows)
    assert Counter(row[0] for row in rows) == Counter(range(spus))


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=4))
@settings(max_examples=share_of(60), deadline=None)
def test_as_many_racks_as_replicas_are_level_each(given: list[tuple[int, int]]) -> None:
    """Each list has one of each rack; leaders are level by capacity, replicas on each rack."""
    sizes, weights = map(list, zip(*given, strict=True))
    racks = racks_of(sizes, weights)
    leading = _leading_racks([rack.lists for rack in racks])
    rows = [row for number in range(5) for row in _full_block(racks, leading, number).tolist()]
    rack_of = {spu: number for number, rack in enumerate(racks) for spu in rack.members}
    assert all(sorted(rack_of[spu] for spu in row) == list(range(len(sizes))) for row in rows)
    held = Counter[int]()
    for row in rows:
        held.update(row)
        for members, _ in racks:
            counts = [held[spu] for spu in members]
            assert max(counts) - min(counts) <= 1
    led = Counter(row[0] for row in rows)
    assert led == Counter({spu: 5 * weights[rack] for spu, rack in rack_of.items()})


def require_level(rows: list[list[int]], spus: int) -> None:
    held, led = [0] * spus, [0] * spus
    for row in rows:
        led[row[0]] += 1
        for spu in row:
            held[spu] += 1
        assert max(held) - min(held) <= 1
        assert max(led) - min(led) <= 1


def cluster(spus: int, racks: int) -> OneCluster:
    life = OneCluster()
    for spu_id in range(spus):
        life.join(spu_id, rack=f"r{spu_id % racks}" if racks else None, capacity=10_000)
    return life


def mode(life: OneCluster, *size: int) -> Mode | None:
    """How a topic is placed."""
    answers = life.create(f"t{len(life.state.topics)}", *size, policy=Policy.BALANCED)
    [found] = [each for each in answers if isinstance(each, ReplicaMap)]
    return found.reason and found.reason.mode


@pytest.mark.parametrize(("spus", "racks"), [(20, 0), (21, 3), (22, 3), (24, 8)])
def test_requests_are_slices_of_one_table(spus: int, racks: int) -> None:
    """One of 16 gets the lists that two of 8 would get, but for who follows first."""
    whole, parts = cluster(spus, racks), cluster(spus, racks)
    for _ in range(20):
        assert mode(whole, 16, 3) is Mode.BALANCED_ROUNDS
        assert mode(parts, 8, 3) is mode(parts, 8, 3) is Mode.BALANCED_ROUNDS
    counts = [
        (
            life.state.ledger.counts(life.state.ring.ids),
            life.state.ledger.leaders(life.state.ring.ids),
        )
        for life in (whole, parts)
    ]
    assert all((one == other).all() for one, other in zip(*counts, strict=True))
    held, led = counts[0]
    assert int(np.ptp(led)) <= 1
    assert int(np.ptp(held)) <= 1 if racks != 3 else True


@pytest.mark.parametrize(("spus", "racks"), [(21, 3), (22, 3), (24, 8), (130, 10)])
def test_requests_of_very_many_lists_are_of_the_table_too(spus: int, racks: int) -> None:
    """Wherever they begin and end, the next one is found again by the counts alone."""
    life = cluster(spus, racks)
    for partitions in (5, 700, 1, 1_300, 3):
        assert mode(life, partitions, 3) is Mode.BALANCED_ROUNDS
        life.state.ring.kept.clear()
        rows = [row for name in life.state.topics for row in life.lists(name)]
        assert all(len({spu % racks for spu in row}) == 3 for row in rows)
        led = Counter(row[0] for row in rows)
        assert max(led.values()) - min(led[spu] for spu in range(spus)) <= 1


def test_other_requests_are_placed_one_by_one_until_all_are_level_again() -> None:
    life = cluster(12, 0)
    assert mode(life, 5, 3) is Mode.BALANCED_ROUNDS
    assert mode(life, 2, 2) is Mode.BALANCED
    assert mode(life, 1, 3) is Mode.BALANCED
    life.apply(life.build.delete("t2"))
    life.apply(life.build.delete("t1"))
    assert mode(life, 5, 3) is Mode.BALANCED_ROUNDS


@pytest.mark.parametrize(("spus", "racks"), [(5, 2), (9, 4)], ids=["few", "uneven"])
def test_there_is_no_table_where_racks_are_too_few_or_uneven(spus: int, racks: int) -> None:
    assert mode(cluster(spus, racks), 4, 3) is Mode.BALANCED


@pytest.mark.parametrize("capacities", [(1, 2, 4), (3, 3, 2), (5, 1, 1)])
def test_racks_of_different_capacities_have_a_table(capacities: tuple[int, ...]) -> None:
    """Leaders by capacity after each request, replicas level on each rack."""
    life = OneCluster()
    for spu_id in range(22):
        capacity = 10_000 * capacities[spu_id % 3]
        life.join(spu_id, rack=f"r{spu_id % 3}", capacity=capacity)
    for partitions in (16, 5, 700, 1, 90):
        assert mode(life, partitions, 3) is Mode.BALANCED_ROUNDS
        rows = [row for name in life.state.topics for row in life.lists(name)]
        led, held = Counter(row[0] for row in rows), Counter(spu for row in rows for spu in row)
        parts = [led[spu] / capacities[spu % 3] for spu in range(22)]
        assert max(parts) - min(parts) <= 1
        for rack in range(3):
            counts = [held[spu] for spu in range(rack, 22, 3)]
            assert max(counts) - min(counts) <= 1
