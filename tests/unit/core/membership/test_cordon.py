"""`SpuCordon` and `SpuUncordon`: an SPU that takes no new replicas and keeps what it has."""

from __future__ import annotations

import json

import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import (
    LeaveMode,
    OnShortage,
    Policy,
    SpuCordon,
    SpuId,
    SpuUncordon,
)
from spu_assigner.core.base.records import (
    ReplicaMap,
    RingChange,
    RingEvent,
    SpuChanged,
    Status,
    TopicStatus,
)
from spu_assigner.core.explain.explaining_assigner import ExplainingAssigner
from spu_assigner.schemas.json_lines.lines import event_from_json, event_to_json
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


@pytest.mark.parametrize(
    ("policy", "before", "after"),
    [
        (Policy.FLUVIO, [[0, 1], [1, 2], [2, 3]], [[3, 0], [0, 3], [2, 0]]),
        (Policy.KAFKA, [[0, 1], [1, 2], [2, 3]], [[3, 0], [0, 3], [2, 0]]),
        (Policy.REDPANDA, [[0, 1], [2, 3], [0, 1]], [[2, 3], [0, 2], [3, 0]]),
        (Policy.BALANCED, [[0, 2], [1, 3], [2, 1]], [[3, 0], [0, 2], [2, 3]]),
    ],
)
def test_each_policy_places_on_the_ring_without_it(
    policy: Policy, before: list[list[int]], after: list[list[int]]
) -> None:
    """As if it had left: the chain goes on with the first SPU that remains."""
    life, other = (OneCluster(*Events().joins(0, 1, 2, 3)) for _ in range(2))
    for each in (life, other):
        each.create("t", 3, 2, policy=policy)
    life.cordon(1)
    other.apply(other.build.leave(1))
    for each in (life, other):
        each.create("u", 3, 2, policy=policy)
    assert (life.lists("t"), life.lists("u")) == (before, after)
    assert life.lists("u") == other.lists("u")


def test_a_manual_list_may_not_name_it() -> None:
    """A request that names it is rejected, as for an SPU that is leaving."""
    life = OneCluster(*Events().joins(0, 1))
    life.cordon(1)
    answers = life.apply(life.build.manual("t", [0], [1]))
    assert codes(answers) == [Code.MANUAL_SPU_CORDONED]
    life.uncordon(1)
    assert codes(life.apply(life.build.manual("t", [0], [1]))) == [None]


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


def test_a_join_keeps_the_cordon_and_a_leave_for_good_forgets_it() -> None:
    """An update, a return and a cancelled decommission alike."""
    life = OneCluster(*Events().joins(0, 1))
    life.create("t", 2, 1)
    life.cordon(1)
    assert ring_changes(life.apply(life.build.join(1, rack="a"))) == [(1, RingChange.UPDATED, 1)]
    life.apply(life.build.leave(1))
    assert ring_changes(life.apply(life.build.join(1))) == [(1, RingChange.JOINED, 1)]
    life.cordon(0)  # So that nothing can be moved.
    life.apply(life.build.leave(1, mode=GONE))
    assert life.state.leaving == {1}
    life.apply(life.build.join(1))
    assert (life.state.leaving, life.state.spus[SpuId(1)].cordoned) == (set(), True)
    life.uncordon(0)
    life.apply(life.build.leave(1, mode=GONE))
    assert SpuId(1) not in life.state.spus
    assert ring_changes(life.apply(life.build.join(1))) == [(1, RingChange.JOINED, 2)]


def test_an_spu_that_is_away_may_be_cordoned_before_it_is_back() -> None:
    """It comes back online, and not into the ring."""
    life = OneCluster(*Events().joins(0, 1))
    life.apply(life.build.leave(1))
    assert ring_changes(life.cordon(1)) == [(1, RingChange.CORDONED, 1)]
    life.apply(life.build.join(1))
    assert life.state.ring.ids.tolist() == [0]
    assert ring_changes(life.uncordon(1)) == [(1, RingChange.UNCORDONED, 2)]


def test_one_that_is_full_comes_back_saturated() -> None:
    """And while it is cordoned, what is freed on it brings it back as little as what fills it."""
    life = OneCluster(*Events().joins(0, 1, capacity=1))
    life.create("t", 2, 1)
    life.cordon(1)
    assert ring_changes(life.uncordon(1)) == [
        (1, RingChange.UNCORDONED, 0),
        (1, RingChange.SATURATED, 0),
    ]
    life.cordon(1)
    assert ring_changes(life.apply(life.build.delete("t"))) == [(0, RingChange.RESTORED, 1)]
    assert ring_changes(life.uncordon(1)) == [(1, RingChange.UNCORDONED, 2)]


def test_what_is_so_already_is_answered_once_and_changes_nothing() -> None:
    """Cordoned twice, uncordoned twice, and of an SPU that nobody knows."""
    life = OneCluster(*Events().joins(0))
    assert codes(life.uncordon(0)) == [Code.SPU_UNCHANGED]
    life.cordon(0)
    life.state.take_entries()
    [answer] = life.cordon(0)
    assert isinstance(answer, RingEvent)
    assert (answer.change, answer.code, answer.ring_size) == (
        RingChange.IGNORED,
        Code.SPU_UNCHANGED,
        0,
    )
    assert answer.message == "SPU 0 is cordoned already: nothing to change"
    for answers in (life.cordon(7), life.uncordon(7), life.cordon(-1), life.uncordon(2**70)):
        assert codes(answers) == [Code.SPU_UNKNOWN]
    assert not any(isinstance(entry, SpuChanged) for entry in life.state.take_entries())


def test_explain_names_the_cordoned() -> None:
    """Beside who is offline or saturated."""
    assigner = ExplainingAssigner(Policy.KAFKA)
    build = Events()
    for event in [*build.joins(0, 1, 2), build.cordon(1)]:
        assigner.apply(event)
    [(_, [(_, decision)]), _] = assigner.apply(build.create("t", 1, 2))
    assert [(each.spu_id, each.why) for each in decision.absent] == [(1, "cordoned")]
    assert decision.unknown == ()


@pytest.mark.parametrize(("kind", "name"), [(SpuCordon, "cordon"), (SpuUncordon, "uncordon")])
def test_the_json_form_is_the_contracts(kind: type[SpuCordon | SpuUncordon], name: str) -> None:
    """Fixed by the contract, as every other line of `simulate`."""
    line = f'{{"type":"spu_{name}","event_id":"e4","cluster_id":"c1","spu_id":0}}'
    event = kind(event_id="e4", cluster_id="c1", spu_id=0)
    assert event_from_json(line) == event
    assert json.loads(event_to_json(event)) == json.loads(line)


def test_a_cordon_is_of_its_cluster_alone() -> None:
    """Clusters never influence each other."""
    assigner = Assigner(Policy.FLUVIO)
    one, two = Events("c1"), Events("c2")
    for build in (one, two):
        for event in build.joins(0, 1):
            assigner.apply(event)
    assigner.apply(one.cordon(0))
    sizes = [assigner.clusters[name].ring.size for name in ("c1", "c2")]
    assert sizes == [1, 2]
