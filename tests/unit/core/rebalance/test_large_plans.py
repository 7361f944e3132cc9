"""Large rebalances end at their limits, which are named."""

from __future__ import annotations

import pytest
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import Status
from spu_assigner.core.rebalance import planning
from support.events.one_cluster import OneCluster


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
