"""The shares by capacity that the lists permit, beside their definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from spu_assigner.core.rebalance import fair_share
from spu_assigner.core.rebalance.fair_share import Kinds, Shares, fair_shares
from support.model.plain_rebalance import Cluster, Row, clusters
from support.project.case_share import share_of


def shares(cluster: Cluster) -> Shares:
    numbers = sorted({cluster.racks[spu] for spu in cluster.capacities})
    rows = [Row.of(row, cluster) for topic in cluster.topics for row in topic]
    ids = sorted(cluster.capacities)
    kinds = Kinds(
        lists=np.ones(len(rows), dtype=np.int64),
        units=np.array([row.units for row in rows]),
        room=np.array([[row.room[number] for number in numbers] for row in rows]),
    )
    return fair_shares(
        [cluster.capacities[spu] for spu in ids],
        [cluster.other.get(spu, 0) for spu in ids],
        np.array([numbers.index(cluster.racks[spu]) for spu in ids]),
        kinds,
    )


def expected(cluster: Cluster) -> Shares:
    found = cluster.fair_replicas()
    return [found[spu] for spu in sorted(found)]


@settings(max_examples=share_of(500), deadline=None)
@given(clusters())
def test_the_level_rises_until_a_set_of_racks_is_full(cluster: Cluster) -> None:
    assert shares(cluster) == expected(cluster)


@settings(max_examples=share_of(300), deadline=None)
@given(clusters())
def test_of_many_racks_those_asked_for_most_are_enough(cluster: Cluster) -> None:
    """While each has room for one replica of a list; there are too many sets to look at all."""
    topics = [
        [list({cluster.racks[spu]: spu for spu in row}.values()) for row in topic]
        for topic in cluster.topics
    ]
    online = dict.fromkeys(cluster.racks, 7) | cluster.capacities
    spread = Cluster(racks=cluster.racks, capacities=online, topics=topics, other=cluster.other)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fair_share, "ALL_SETS_OF", 0)
        assert shares(spread) == expected(spread)
