"""Topics of Zipf's sizes beside the bounds of exact solvers: the bench, scaled down."""

from __future__ import annotations

import pytest
from spu_assigner.core.base.events import ClusterRebalance
from support.bench.zipf_cluster import ZipfCluster

BAND_PERCENT = 2
TARGET = 1.03


@pytest.mark.parametrize(("spus", "exponent"), [(60, 0.5), (60, 1.0), (100, 0.5)])
def test_creates_one_by_one_come_near_the_bound(spus: int, exponent: float) -> None:
    """Of the linear programme, in which replicas may be divided. The ratio is the target."""
    cluster = ZipfCluster(spus=spus, topics=spus, exponent=exponent)
    cluster.place("balanced")
    assert cluster.is_diverse()
    assert cluster.largest() <= TARGET * max(cluster.bound(), cluster.largest_replica())


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
