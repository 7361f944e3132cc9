"""What moves is spread over topics, and over lists."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.base.events import Policy
from support.events.one_cluster import OneCluster
from support.project.case_share import share_of


def grown(old: int, new: int, topics: dict[str, int], replicas: int, racks: int) -> OneCluster:
    life = OneCluster()

    def join(first: int, last: int) -> None:
        for spu_id in range(first, last):
            life.join(spu_id, rack=f"r{spu_id % racks}" if racks else None, capacity=10_000)

    join(0, old)
    for name, partitions in topics.items():
        life.create(name, partitions, replicas, policy=Policy.BALANCED)
    join(old, old + new)
    return life


def on(life: OneCluster, topic: str) -> Counter[int]:
    return Counter(spu for row in life.lists(topic) for spu in row)


@pytest.mark.parametrize(("old", "topics", "partitions"), [(3, 3, 6), (4, 5, 10), (5, 4, 12)])
def test_each_topic_gives_the_spu_that_joins_its_part(
    old: int, topics: int, partitions: int
) -> None:
    """Of 6 x 2 on four SPUs 3, or one more or less."""
    life = grown(old, 1, {f"t{at}": partitions for at in range(topics)}, 2, 0)
    life.rebalance()
    fair = 2 * partitions / (old + 1)
    assert all(abs(on(life, f"t{at}")[old] - fair) <= 1 for at in range(topics))


@pytest.mark.parametrize("racks", [0, 5])
@pytest.mark.parametrize(("old", "new", "topics"), [(20, 5, 100), (15, 5, 60), (30, 10, 40)])
def test_new_spus_hold_their_part_of_each_topic(
    old: int, new: int, topics: int, racks: int
) -> None:
    """A fair part is 20 or 25 %; no list lies on them alone, and no move is one too many."""
    life = grown(old, new, {f"t{at}": 16 for at in range(topics)}, 3, racks)
    moves = life.rebalance().moves
    fair = 16 * 3 * topics / (old + new)
    assert moves == new * int(-(-(fair - 1) // 1))  # to one below the fair share
    share = new / (old + new)
    for at in range(topics):
        held = on(life, f"t{at}")
        part = sum(held[spu] for spu in range(old, old + new)) / 48
        assert share - 0.11 <= part <= share + 0.11
        assert all(min(row) < old for row in life.lists(f"t{at}"))


@settings(max_examples=share_of(100), deadline=None)
@given(st.data())
def test_a_band_of_0_leaves_a_difference_of_one(data: st.DataObject) -> None:
    """Between SPUs alike; the band of 1 may leave two."""
    old, new = data.draw(st.integers(2, 8)), data.draw(st.integers(0, 3))
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    topics = {f"t{at}": size for at, size in enumerate(sizes)}
    life = grown(old, new, topics, data.draw(st.integers(1, 2)), 0)
    life.rebalance(band=0)
    held = [life.held(spu) for spu in range(old + new)]
    assert max(held) - min(held) <= 1
    assert life.rebalance(band=0).moves == 0
