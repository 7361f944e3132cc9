"""Rebalances of topics with constraints: within their rules, and no soft rule kept worse."""

from __future__ import annotations

from typing import Any

import pytest
from spu_assigner.core.base.constraints import Constraints, Taint, TaintEffect, Toleration
from support.events.one_cluster import OneCluster
from support.events.random_lives import rebalanced_life
from support.events.simulation import fault_of

SSD = Constraints(require=("tier=ssd",))
WEAK = Taint("calm", "x", TaintEffect.NO_LEADERS)
LIVES = 900


@pytest.mark.thorough
@pytest.mark.parametrize("chunk", range(4))
def test_no_rebalance_breaks_a_rule_or_keeps_one_worse(chunk: int) -> None:
    """Random lives. Labels, taints and constraints change before it; a quarter have resources."""
    for seed in range(chunk * LIVES // 4, (chunk + 1) * LIVES // 4):
        assert fault_of(rebalanced_life(seed)) is None, seed


class Ruled(OneCluster):
    """SPUs with labels, and topics that are there as they are."""

    def __init__(self, resources: dict[str, int]) -> None:
        super().__init__()
        self.resources = resources

    def add(self, *spu_ids: int, taints: tuple[Taint, ...] = (), **labels: str) -> None:
        given = {"capacity": 100, "labels": labels, "resources": self.resources}
        self.join(*spu_ids, taints=taints, **given)

    def place(self, topic: str, *lists: list[int], **given: Any) -> None:
        self.adopt(topic, *lists, demand=dict.fromkeys(self.resources, 10), **given)


@pytest.fixture(params=[{}, {"disk_bytes": 1_000}], ids=["by count", "by resources"])
def cluster(request: pytest.FixtureRequest) -> Ruled:
    return Ruled(request.param)


def test_it_is_moved_within_its_rules_alone(cluster: Ruled) -> None:
    cluster.add(0, 1, 2, tier="ssd")
    cluster.add(3, 4, 5, tier="hdd")
    cluster.place("t", *[[0]] * 12, rules=SSD)
    assert "left alone" not in (cluster.rebalance().message or "")
    assert cluster.spus("t").keys() == {0, 1, 2}
    assert max(cluster.spus("t").values()) <= 5


@pytest.mark.parametrize(
    ("row", "rules", "leads"),
    [
        ([0, 1], Constraints(forbid=("spu_id=7",)), False),
        ([0], None, None),  # Nobody else could lead a list of one (life 80).
        ([0], Constraints(tolerations=(Toleration("calm"),)), True),
    ],
    ids=["followers", "a list of one", "tolerated"],
)
def test_an_spu_that_must_not_lead_gets_followers_alone(
    cluster: Ruled, row: list[int], rules: Constraints | None, leads: bool | None
) -> None:
    cluster.add(0, 1)
    cluster.add(2, taints=(WEAK,))
    cluster.place("t", *[row] * 12, rules=rules)
    cluster.rebalance()
    assert (cluster.spus("t")[2] > 0) is (leads is not None)
    assert (cluster.leads("t")[2] > 0) is bool(leads)


def test_a_list_that_breaks_a_rule_moves_to_where_it_breaks_none(cluster: Ruled) -> None:
    """It is `VIOLATED` since SPU 0 lost its label; all that is there moves away, and is right."""
    cluster.add(0, 1, 2, tier="ssd")
    cluster.add(3, tier="hdd")
    cluster.place("t", *[[0]] * 12, rules=SSD)
    cluster.add(0, tier="hdd")
    assert "12 to repair lists" in (cluster.rebalance().message or "")
    assert cluster.spus("t").keys() == {1, 2}
    assert abs(cluster.spus("t")[1] - cluster.spus("t")[2]) <= 2
