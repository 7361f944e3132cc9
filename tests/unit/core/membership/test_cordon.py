"""`SpuCordon` and `SpuUncordon`: an SPU that takes no new replicas and keeps what it has."""

from __future__ import annotations

import pytest
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import LeaveMode, OnShortage, Policy, SpuId
from spu_assigner.core.base.records import (
    ReplicaMap,
    RingChange,
    Status,
    TopicStatus,
)
from support.events.builders import Events
from support.events.one_cluster import Answer, OneCluster, ring_changes

AUTOMATIC = [policy for policy in Policy if policy is not Policy.MANUAL]
GONE = LeaveMode.DECOMMISSION


def codes(answers: list[Answer]) -> list[Code | None]:
    return [each.code for each in answers if not isinstance(each, ReplicaMap)]


@pytest.mark.parametrize("policy", AUTOMATIC)
def test_a_cordoned_spu_keeps_what_it_has_and_takes_nothing(policy: Policy) -> None:
    """By no create, grow, repair or rebalance."""
    life = OneCluster(*Events().joins(0, 1, 2, 3))
    life.create("t", 4, 2, policy=policy)
    held = life.held(1)
    assert held > 0
    assert ring_changes(life.cordon(1)) == [(1, RingChange.CORDONED, 3)]
    assert life.state.spus[SpuId(1)].online
    life.create("u", 6, 3, policy=policy)
    life.apply(life.build.grow("t", 9))
    assert life.held(1) == held
    life.apply(life.build.leave(3, mode=GONE))
    life.apply(life.build.rebalance(1000))
    assert life.held(1) == held
    assert life.state.ring.ids.tolist() == [0, 2]


def test_uncordon_serves_repairs_and_creates_that_wait() -> None:
    """As a join does: short lists first."""
    life = OneCluster(*Events().joins(0, 1, 2))
    life.create("short", 1, 2)
    life.cordon(2)
    life.apply(life.build.leave(1, mode=GONE))
    [waiting] = life.create("wide", 1, 2, on_shortage=OnShortage.WAIT)
    assert isinstance(waiting, TopicStatus)
    assert (waiting.status, waiting.code) == (Status.WAITING, Code.INSUFFICIENT_CAPACITY)
    assert waiting.message is not None
    assert "0 of 2 online SPUs are saturated, 1 are cordoned" in waiting.message
    assert life.lists("short") == [[0]]
    answers = life.uncordon(2)
    assert ring_changes(answers) == [(2, RingChange.UNCORDONED, 2)]
    assert life.lists("short") == [[0, 2]]
    assert sorted(life.lists("wide")[0]) == [0, 2]
    assert not life.state.waiting
