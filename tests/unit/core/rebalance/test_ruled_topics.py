"""Rebalances of topics with constraints: within their rules, and no soft rule kept worse."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from spu_assigner.core.base.constraints import (
    Constraints,
    Taint,
    TaintEffect,
    Toleration,
)
from spu_assigner.core.base.events import Policy
from support.events.one_cluster import OneCluster

SSD = Constraints(require=("tier=ssd",))
TAINT = Taint("pool", "a", TaintEffect.NO_NEW_REPLICAS)
POOL = Constraints(tolerations=(Toleration("pool", "a"),), require=("pool",))
DISK = {"disk_bytes": 1_000}


class Ruled(OneCluster):
    """SPUs with labels, and topics that are there as they are."""

    def __init__(self, **resources: Any) -> None:
        super().__init__()
        self.resources = resources

    def add(self, *spu_ids: int, rack: str | None = None, **labels: str) -> None:
        self.join(*spu_ids, rack=rack, capacity=100, labels=labels, **self.resources)

    def place(self, topic: str, *lists: list[int], rules: Constraints | None = None) -> None:
        self.apply(self.build.adopt(topic, *lists, policy=Policy.BALANCED))
        if self.resources:
            self.apply(self.build.demand(topic, demand={"disk_bytes": 10}))
        if rules is not None:
            self.apply(self.build.constraints(topic, rules))

    def spus(self, topic: str) -> set[int]:
        return {spu for row in self.lists(topic) for spu in row}

    def counts(self, topic: str) -> Counter[int]:
        return Counter(spu for row in self.lists(topic) for spu in row)


@pytest.fixture(params=[{}, {"resources": DISK}], ids=["by count", "by resources"])
def cluster(request: pytest.FixtureRequest) -> Ruled:
    """Each test is for both kinds of rebalance."""
    return Ruled(**request.param)


def test_it_is_moved_within_its_rules_alone(cluster: Ruled) -> None:
    """Though the emptiest SPUs are those that it may not use."""
    cluster.add(0, 1, 2, tier="ssd")
    cluster.add(3, 4, 5, tier="hdd")
    cluster.place("t", *[[0]] * 12, rules=SSD)
    answer = cluster.rebalance()
    assert cluster.spus("t") == {0, 1, 2}
    assert max(cluster.counts("t").values()) <= 5
    assert "left alone" not in (answer.message or "")


def test_topics_that_are_to_be_apart_do_not_meet(cluster: Ruled) -> None:
    """Both may move, and the empty SPUs are the best for either."""
    cluster.add(*range(8))
    cluster.place("b", *[[1]] * 12)
    cluster.place("a", *[[0]] * 12, rules=Constraints(apart_from=("b",)))
    cluster.rebalance()
    assert len(cluster.spus("a")) > 1
    assert len(cluster.spus("b")) > 1
    assert not cluster.spus("a") & cluster.spus("b")


def test_topics_that_are_to_be_together_stay_so(cluster: Ruled) -> None:
    """Neither leaves the other; `b` moves where `a` is not, `a` to where it is with `b` already."""
    cluster.add(*range(6))
    cluster.place("b", *[[0]] * 9, *[[1]] * 9, *[[2]] * 9)
    cluster.place("a", *[[0]] * 9, [1], rules=Constraints(together_with=("b",)))
    cluster.rebalance()
    assert cluster.spus("a") == {0, 1}
    assert cluster.counts("a")[1] > 1
    assert cluster.counts("b")[0] == cluster.counts("b")[1] == 9
    assert {3, 4, 5} & cluster.spus("b")


def test_who_leads_is_still_preferred(cluster: Ruled) -> None:
    """Followers move anywhere, leaders and leads to SPUs of the zone that is to lead."""
    cluster.add(0, 1, zone="a")
    cluster.add(2, 3, zone="b")
    cluster.place("t", *[[0, 2]] * 12, rules=Constraints(leaders=("zone=a",)))
    cluster.rebalance()
    assert {row[0] for row in cluster.lists("t")} == {0, 1}
    assert 3 in cluster.spus("t")


def test_an_spu_that_must_not_lead_gets_followers_alone(cluster: Ruled) -> None:
    taint = Taint("calm", "x", TaintEffect.NO_LEADERS)
    cluster.add(0, 1)
    cluster.join(2, capacity=100, taints=(taint,), **cluster.resources)
    cluster.place("t", *[[0, 1]] * 9, rules=Constraints(forbid=("spu_id=7",)))
    cluster.rebalance()
    assert 2 in cluster.spus("t")
    assert 2 not in {row[0] for row in cluster.lists("t")}


def test_a_list_of_one_goes_to_no_spu_that_must_not_lead(cluster: Ruled) -> None:
    """Nobody else could lead it (life 80); the topic has no rules of its own."""
    cluster.add(0, 1, 2)
    cluster.demote(2)
    cluster.place("t", *[[0]] * 12)
    cluster.rebalance()
    assert cluster.spus("t") == {0, 1}


def test_a_list_of_one_goes_to_an_spu_whose_taint_its_topic_tolerates(cluster: Ruled) -> None:
    taint = Taint("calm", "x", TaintEffect.NO_LEADERS)
    cluster.add(0, 1)
    cluster.join(2, capacity=100, taints=(taint,), **cluster.resources)
    cluster.place("t", *[[0]] * 12, rules=Constraints(tolerations=(Toleration("calm"),)))
    cluster.rebalance()
    assert cluster.spus("t") == {0, 1, 2}


def test_a_list_that_breaks_a_rule_moves_to_where_it_breaks_none(cluster: Ruled) -> None:
    """It is `VIOLATED` since SPU 0 lost its label; all that is there moves away, and is right."""
    cluster.add(0, tier="ssd")
    cluster.add(1, 2, tier="ssd")
    cluster.add(3, tier="hdd")
    cluster.place("t", *[[0]] * 12, rules=SSD)
    cluster.add(0, tier="hdd")
    answer = cluster.rebalance()
    assert cluster.spus("t") == {1, 2}
    assert "12 to repair lists" in (answer.message or "")
    assert abs(cluster.counts("t")[1] - cluster.counts("t")[2]) <= 2


def test_pinned_topics_with_rules_stay(cluster: Ruled) -> None:
    cluster.add(0, 1, tier="ssd")
    cluster.place("t", *[[0]] * 12, rules=SSD)
    cluster.apply(cluster.build.adopt("t", *[[0]] * 12, pinned=True))
    answer = cluster.rebalance()
    assert cluster.spus("t") == {0}
    assert (answer.message or "").endswith("; 1 pinned topic left alone")
