"""Topics of Zipf's sizes beside the bounds of exact solvers: the bench, scaled down."""

from __future__ import annotations

import pytest
from spu_assigner.core.base.events import ClusterRebalance, Policy
from support.bench.zipf_cluster import ZipfCluster
from support.events.one_cluster import OneCluster

BAND_PERCENT = 2
TARGET = 1.03


@pytest.mark.parametrize(("spus", "exponent"), [(60, 0.5), (60, 1.0), (100, 0.5)])
def test_creates_one_by_one_come_near_the_bound(spus: int, exponent: float) -> None:
    """Of the linear programme, in which replicas may be divided. The ratio is the target."""
    cluster = ZipfCluster(spus=spus, topics=spus, exponent=exponent)
    cluster.place("balanced")
    assert cluster.is_diverse()
    assert cluster.largest() <= TARGET * max(cluster.bound(), cluster.largest_replica())


def test_small_replicas_leave_room_for_large_ones_within_three_percent() -> None:
    """Among SPUs of shares that count as alike those with the least room come first; beyond that it
    is the smallest share."""
    cluster = OneCluster()
    for spu_id, disk in enumerate((1_000, 1_000, 4_000)):
        cluster.join(spu_id, capacity=10**6, resources={"disk": disk})
        cluster.apply(cluster.build.manual(f"held{spu_id}", [spu_id], demand={"disk": disk // 2}))
    placed = []
    for number in range(6):
        topic = f"t{number}"
        cluster.create(topic, 1, 1, policy=Policy.BALANCED, demand={"disk": 15})
        placed += cluster.lists(topic)[0]
    assert placed == [0, 1, 2, 2, 2, 2]
    assert [cluster.state.resource_use.of(spu_id)["disk"] for spu_id in range(3)] == [
        515,
        515,
        2_060,
    ]


@pytest.mark.thorough
def test_a_rebalance_moves_no_byte_more_than_whole_replicas_must() -> None:
    """What HiGHS needs at least to bring each SPU into the band, SPU by SPU."""
    cluster = ZipfCluster(spus=100, topics=100, exponent=0.5)
    cluster.place("balanced")
    cluster.change_demands()
    level = (100 + BAND_PERCENT) / 100 * max(cluster.bound(), cluster.largest_replica())
    _, whole = cluster.bytes_beyond(level)
    before = dict(cluster.maps)
    cluster.say(ClusterRebalance, max_moves=10**6, band_percent=BAND_PERCENT)
    moved = sum(
        size * len({*new} - {*old})
        for number, size in enumerate(cluster.sizes)
        for old, new in zip(before[f"t{number}"], cluster.maps[f"t{number}"], strict=True)
    )
    assert whole > 0
    assert moved <= whole
    assert cluster.largest() <= level * (1 + 1e-9)
