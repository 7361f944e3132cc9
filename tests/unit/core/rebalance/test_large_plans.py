"""Large rebalances: most units are dealt, few moves are planned as few, and limits are named."""

from __future__ import annotations

from collections import Counter

import pytest
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import Status
from spu_assigner.core.rebalance import planning
from spu_assigner.core.rebalance.replica_pool import ReplicaPool
from support.events.one_cluster import OneCluster
from support.model.plain_rebalance import Cluster

PARTITIONS = 3_000


class Passed:
    """How many units were passed one by one, and how many were dealt."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.alone = self.dealt = 0
        transfer, deal = ReplicaPool.transfer, ReplicaPool.deal

        def transferred(*given: int) -> None:
            self.alone += 1
            transfer(*given)  # type: ignore[call-arg]

        def dealt(*given: object) -> object:
            change = deal(*given)  # type: ignore[arg-type]
            self.dealt += int(change.clip(min=0).sum())
            return change

        patch.setattr(ReplicaPool, "transfer", transferred)
        patch.setattr(ReplicaPool, "deal", dealt)


def scaled_out() -> Cluster:
    """All lists on three SPUs; three others are empty."""
    return Cluster(
        racks=dict.fromkeys(range(6), 0),
        capacities=dict.fromkeys(range(6), 10**6),
        topics=[[[0, 1, 2], [1, 2, 0], [2, 0, 1]] * (PARTITIONS // 3)],
        other={},
    )


def test_most_units_pass_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one each takes a time that grows with the lists of an SPU."""
    passed, cluster = Passed(monkeypatch), scaled_out()
    plan = cluster.plan()
    assert len(plan.moves) == 3 * (PARTITIONS // 2 - 1)  # Bands end one below the fair share.
    assert cluster.after(plan).outside(cluster.bands()) == 0
    assert passed.alone < 50


def test_a_plan_of_few_moves_passes_few_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten moves take no plan of thousands."""
    passed, cluster = Passed(monkeypatch), scaled_out()
    plan = cluster.plan(10)
    assert len(plan.moves) == 10
    assert passed.alone + passed.dealt < 20


def test_repeated_plans_of_few_moves_come_to_the_fewest() -> None:
    """What is cut off is planned the next time, and nothing moves twice."""
    cluster, fewest, made = scaled_out(), len(scaled_out().plan().moves), 0
    while moves := cluster.plan(1_500).moves:
        made += len(moves)
        cluster = cluster.moved(list(moves))
    assert made == fewest
    assert cluster.outside(cluster.bands()) == 0


def test_racks_are_kept_where_many_units_pass_at_once() -> None:
    """Four racks of five SPUs each, of which two are empty."""
    rows = []
    for number in range(2_000):
        places = [number % 3, number // 3 % 3, number // 9 % 3]
        rows.append([place + 5 * ((number + at) % 4) for at, place in enumerate(places)])
    cluster = Cluster(
        racks={spu: spu // 5 for spu in range(20)},
        capacities=dict.fromkeys(range(20), 10**6),
        topics=[rows],
        other={},
    )
    plan = cluster.plan()
    after = cluster.after(plan)
    assert after.outside(cluster.bands()) == 0
    assert all(len(set(row)) == 3 for row in after.topics[0])
    assert after.rack_counts() == cluster.rack_counts()
    held = Counter(spu for row in rows for spu in row)
    above = sum(max(0, held[spu] - high) for spu, (_, high) in cluster.bands().items())
    below = sum(max(0, low - held[spu]) for spu, (low, _) in cluster.bands().items())
    assert len(plan.moves) == max(above, below)


def grown() -> OneCluster:
    life = OneCluster()
    life.join(0, 1, 2)
    life.create("t", 900, 3, policy=Policy.BALANCED)
    life.join(3, 4, 5)
    return life


def test_too_many_moves_are_rejected_and_the_answer_says_what_to_ask_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plan would keep all others waiting; so many at a time come to the same."""
    monkeypatch.setattr(planning, "REBALANCE_MOVES_MAX", 500)
    life = grown()
    refused = life.rebalance(1_000)
    assert (refused.status, refused.code) == (Status.REJECTED, Code.TOO_MANY_MOVES)
    assert "max_moves 500" in (refused.message or "")
    moves = [life.rebalance(500).moves for _ in range(4)]
    assert moves == [500, 500, 347, 0]  # 3 * 449 in all


def test_a_search_that_ends_at_its_limit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found is done, and asking again may find more."""
    life = grown()
    evened = planning.even_out

    def cut(*given: object, **_: object) -> object:
        return evened(*given, looks_max=0)  # type: ignore[arg-type]

    monkeypatch.setattr(planning, "even_out", cut)
    assert "ended at its limit" in (life.rebalance().message or "")
