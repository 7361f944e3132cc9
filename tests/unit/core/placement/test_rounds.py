"""The table of SPUs alike: level after each list, and the same however requests are cut."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import Mode, ReplicaMap
from spu_assigner.core.placement.rounds import _block, _full_block
from support.events.one_cluster import OneCluster
from support.project.case_share import share_of


@given(st.integers(1, 4), st.integers(2, 5), st.integers(1, 5), st.integers(0, 40))
@settings(max_examples=share_of(60), deadline=None)
def test_a_block_is_level_after_each_list(
    replicas: int, racks_a_replica: int, size: int, number: int
) -> None:
    """Replicas and leaders of two SPUs differ by one at most, and lists are on distinct racks."""
    count = replicas * racks_a_replica
    racks = [[rack + count * at for at in range(size)] for rack in range(count)]
    rows = _block(racks, replicas, number).tolist()
    require_level(rows, count * size)
    assert all(len({spu % count for spu in row}) == replicas for row in rows)
    assert Counter(row[0] for row in rows) == Counter(range(count * size))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4))
@settings(max_examples=share_of(60), deadline=None)
def test_as_many_racks_as_replicas_are_level_each(sizes: list[int]) -> None:
    """Each list has one of each rack; leaders are level over all, replicas on each rack."""
    ends = np.cumsum(sizes).tolist()
    racks = [list(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    rows = [row for number in range(5) for row in _full_block(racks, number).tolist()]
    rack_of = {spu: rack for rack, members in enumerate(racks) for spu in members}
    assert all(sorted(rack_of[spu] for spu in row) == list(range(len(sizes))) for row in rows)
    held = Counter[int]()
    for row in rows:
        held.update(row)
        for members in racks:
            counts = [held[spu] for spu in members]
            assert max(counts) - min(counts) <= 1
    led = Counter(row[0] for row in rows)
    assert set(led.values()) == {5}


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


@pytest.mark.parametrize(
    ("spus", "racks", "replicas"), [(5, 2, 3), (9, 4, 3), (4, 0, 3)], ids=["few", "uneven", "small"]
)
def test_there_is_no_table_where_racks_are_too_few_or_uneven(
    spus: int, racks: int, replicas: int
) -> None:
    assert mode(cluster(spus, racks), 4, replicas) is Mode.BALANCED
