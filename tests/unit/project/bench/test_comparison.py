"""The measures of the comparison, and `balanced` in its clusters, at a tenth of their size."""

from __future__ import annotations

import numpy as np
import pytest
from spu_assigner.core.base.events import Policy
from support.placers.comparing import (
    SCENARIOS,
    Evenness,
    Life,
    OurCluster,
    Scenario,
    evenness,
    fair_replicas,
    fill,
    goals_missed,
)

SCALE = 10
TOPICS = 100
LIFE = Life(topics=TOPICS, joining=10, leaving=10, deleted=30)

each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)


def filled(scenario: Scenario, policy: Policy) -> Evenness:
    cluster = OurCluster(policy, scenario.hosts(divided_by=SCALE))
    fill(cluster, topics=TOPICS)
    return evenness(cluster.hosts, [ids for lists in cluster.topics.values() for ids in lists])


@each_scenario
def test_balanced_holds_its_goals(scenario: Scenario) -> None:
    """Every list rack-diverse, every SPU within one of its fair share; the full size is a bench."""
    assert goals_missed(filled(scenario, Policy.BALANCED)) == []


@each_scenario
def test_a_rebalance_moves_nothing_that_balanced_filled(scenario: Scenario) -> None:
    """The rack rule may forbid shares by capacity alone: those are not to be sought."""
    cluster = OurCluster(Policy.BALANCED, scenario.hosts(divided_by=SCALE))
    fill(cluster, topics=TOPICS)
    cluster.rebalance()
    assert cluster.moved == 0


@each_scenario
def test_a_failed_spu_is_followed_by_many(scenario: Scenario) -> None:
    """Ten lists of three that share no followers would have 20; uneven capacities lead fewer."""
    found = filled(scenario, Policy.BALANCED)
    assert found.peers_median >= 15


def test_a_life_leaves_all_lists_rack_diverse_and_moves_the_least() -> None:
    """SPUs join, leave for good, topics go and come: only what the leaving SPUs held moves."""
    for scenario in SCENARIOS:
        if scenario.lives:
            cluster = OurCluster(Policy.BALANCED, scenario.hosts(divided_by=SCALE))
            LIFE.live(cluster, scenario)
            lists = [ids for lists in cluster.topics.values() for ids in lists]
            assert evenness(cluster.hosts, lists).diverse_percent == 100
            assert cluster.moved == cluster.held > 0


@pytest.mark.parametrize(
    ("racks", "capacities", "expected"),
    [
        pytest.param("aabc", [1, 1, 1, 1], [5, 5, 10, 10], id="one replica for each rack"),
        pytest.param("aabc", [1, 3, 1, 1], [2.5, 7.5, 10, 10], id="by capacity within a rack"),
        pytest.param("aaaa", [1, 1, 2, 2], [5, 5, 10, 10], id="by capacity"),
        pytest.param("aaaa", [1, 1, 1, 6], [20 / 3] * 3 + [10], id="once in a list"),
        pytest.param("abcd", [1, 1, 1, 3], [20 / 3] * 3 + [10], id="racks to choose from"),
        pytest.param("aaab", [1, 1, 1, 1], [20 / 3] * 3 + [10], id="two of three on a rack"),
        pytest.param("aabb", [1, 1, 3, 3], [5, 5, 10, 10], id="at least one on a rack"),
    ],
)
def test_fair_shares(racks: str, capacities: list[int], expected: list[float]) -> None:
    """10 lists of 3 replicas."""
    shares = fair_replicas(
        np.array(capacities, dtype=np.float64),
        np.unique(list(racks), return_inverse=True)[1],
        lists=10,
        replicas=3,
    )
    assert shares == pytest.approx(expected)
