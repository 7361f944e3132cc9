"""What one event may ask to be done: past a limit it is rejected, and says how to ask for less."""

from __future__ import annotations

import re
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from spu_assigner.core.base.constraints import Constraints, Taint, TaintEffect
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import LeaveMode, Policy
from spu_assigner.core.base.limits import LOOKS_EACH
from spu_assigner.core.base.records import ReplicaMap, Status, TopicStatus
from spu_assigner.core.decision import replication
from spu_assigner.core.decision.machine import step
from spu_assigner.core.placement import list_repair
from spu_assigner.core.policies import cursor, striped
from spu_assigner.core.state.cluster_state import ClusterState, evolve
from support.events.builders import Events
from support.events.one_cluster import OneCluster, picture, statuses, the_status
from support.events.random_lives import life_of
from support.events.simulation import CLUSTER, Published, publish, restored_from


def cluster(spus: int) -> OneCluster:
    return OneCluster(*Events().joins(*range(spus), capacity=10_000), default=Policy.BALANCED)


def test_another_factor_in_one_go_is_rejected_and_in_steps_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replication, "RESIZE_MOVES_MAX", 200)
    life = cluster(8)
    life.create("t", 100, 1)
    refused = the_status(life.apply(life.build.replication("t", 6)))
    assert (refused.status, refused.code) == (Status.REJECTED, Code.TOO_MANY_MOVES)
    assert (refused.message or "").endswith("the first to replication_factor 3")
    for factor in (3, 5, 6, 4, 2, 1):
        answer = the_status(life.apply(life.build.replication("t", factor)))
        assert answer.status is Status.ASSIGNED


@pytest.mark.parametrize("policy", [Policy.RENDEZVOUS, Policy.FLUVIO, Policy.KAFKA, Policy.KRAFT])
def test_a_create_that_takes_too_many_looks_is_rejected_and_in_parts_it_is_not(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rendezvous` scores each SPU for each partition; the others put a ring in order anew for each
    SPU that becomes saturated."""
    for module in (cursor, striped):
        monkeypatch.setattr(module, "PLACING_LOOKS_MAX", 12 * LOOKS_EACH)
    life = cluster(0)
    for spu_id in range(12):  # One after the other fills.
        life.join(spu_id, capacity=40 + spu_id)
    refused = the_status(life.create("t", 260, 2, policy=policy))
    assert (refused.status, refused.code) == (Status.REJECTED, Code.TOO_COMPLEX)
    found = re.search(r"ask for (\d+)", refused.message or "")
    assert found is not None
    partitions = int(found[1])
    for event in (
        life.build.create("t", partitions, 2, policy=policy),
        life.build.grow("t", partitions + 1),
    ):
        assert the_status(life.apply(event)).status is Status.ASSIGNED


@pytest.mark.parametrize("constraints", [None, Constraints(require=("!spot",))])
@pytest.mark.parametrize("evicts", [False, True])
def test_what_one_event_does_not_move_the_next_ones_do(
    constraints: Constraints | None, evicts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large topic, and of many; the answer says so, and nothing else has to be asked."""
    monkeypatch.setattr(list_repair, "RETRY_LOOKS_MAX", 1_500)
    life = cluster(4)
    for name, partitions in (("a", 80), ("b", 4), ("c", 4)):
        life.create(name, partitions, 3, constraints=constraints)
    found: list[Any] = (
        life.join(0, taints=(Taint("k", "v", TaintEffect.EVICT),))
        if evicts
        else life.leave(0, LeaveMode.DECOMMISSION)
    )
    answers = [each for each in found if isinstance(each, TopicStatus)]
    assert {each.topic for each in answers} == {"a", "b", "c"}
    assert {each.code for each in answers} == {Code.TOO_MANY_MOVES}
    before, events = life.held(0), 0
    assert 0 < before < 66
    while life.state.retries is not None:
        life.apply(life.build.delete("unknown"))
        left = life.held(0) if 0 in life.state.spus else 0
        assert left < before or left == 0
        before, events = left, events + 1
    assert (before, life.state.waiting) == (0, {})
    assert events > 1


def test_leads_that_one_event_does_not_give_away_the_next_ones_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(list_repair, "RETRY_LOOKS_MAX", 300)
    life = cluster(3)
    names = [f"t{number}" for number in range(6)]
    for name in names:
        life.create(name, 3, 3)
    life.demote(0)
    assert 0 < sum(life.leads(name)[0] for name in names) < 6
    while life.state.retries is not None:
        life.apply(life.build.delete("unknown"))
    assert sum(life.leads(name)[0] for name in names) == 0


# What waits goes on with the next events.


def assigned(found: Iterable[object]) -> list[str]:
    return [topic for topic, status, *_ in statuses(found) if status is Status.ASSIGNED]


@pytest.fixture
def one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_repair, "RETRY_LOOKS_MAX", 1)


@pytest.fixture
def life(one_try: None) -> OneCluster:
    """A full SPU."""
    life = OneCluster(default=Policy.BALANCED)
    life.join(0, capacity=1)
    life.create("full", 1, 1)
    return life


def test_the_next_events_go_on_whatever_they_are(life: OneCluster) -> None:
    """A create that is granted at once, one that is refused, a delete of what is not there."""
    for number in range(5):
        life.wait(f"w{number}", 1, 1)
    build, join = life.build, life.build.join(1, capacity=100)
    assert assigned(life.apply(join)) == ["w0"]
    assert life.apply(join) == []  # A repeated event changes nothing, so it does not go on.
    assert assigned(life.create("new", 1, 1)) == ["new", "w1"]
    assert assigned(life.create("new", 0, 1)) == ["w2"]
    assert assigned(life.apply(build.delete("unknown"))) == ["w3"]
    assert assigned(life.apply(build.grow("new", 2))) == ["new", "w4"]
    life.apply(build.delete("unknown"))
    assert life.state.retries is None
    assert not life.state.waiting


def test_room_that_is_made_meanwhile_is_tried_by_all_once_more(life: OneCluster) -> None:
    """But first by those that were not tried yet."""
    for name, replicas in (("pair", 2), ("w0", 1), ("w1", 1)):
        life.wait(name, 1, replicas, policy=Policy.KRAFT)
    assert assigned(life.join(1, capacity=100)) == []  # `pair` was tried
    assert assigned(life.join(2, capacity=100)) == ["w0"]
    nothing = [life.apply(life.build.delete("unknown")) for _ in range(3)]
    assert [assigned(found) for found in nothing] == [["w1"], ["pair"], []]
    assert life.state.retries is None


@pytest.mark.usefixtures("one_try")
def test_the_laws_hold_where_events_go_on_for_each_other() -> None:
    """Records replayed, and what was published, give the state; repeated events change nothing."""
    pauses = 0
    for seed in range(120):
        life = life_of(seed)
        state, replayed = ClusterState(CLUSTER), ClusterState(CLUSTER)
        published: Published = {}
        for event in life.events:
            records = step(state, event, default_policy=life.default_policy)
            for record in records:
                evolve(replayed, record)
                if isinstance(record, ReplicaMap):
                    published["map", record.topic] = record
            publish(published, state)
            pauses += state.retries is not None
            if state.retries is not None:
                assert picture(restored_from(published, Random(seed))) == picture(state), seed
                assert step(state, event, default_policy=life.default_policy) == (), seed
        assert picture(replayed) == picture(state), seed
    assert pauses > 5


def test_lists_that_use_up_an_event_without_a_move_do_not_hold_back_the_next_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of `stuck` no list can move: only the SPUs that are left meet its rules."""
    life = OneCluster(default=Policy.BALANCED)
    life.join(0, 1, labels={"tier": "ssd"}, capacity=1_000)
    life.join(2, 3, labels={"tier": "hdd"}, capacity=1_000)
    life.create("stuck", 200, 2, constraints=Constraints(require=("tier=ssd",)))
    for name in ("t0", "t1"):
        life.manual(name, [0, 2])
    monkeypatch.setattr(list_repair, "RETRY_LOOKS_MAX", 5_000)
    life.leave(0, LeaveMode.DECOMMISSION)
    for _ in range(4):
        life.apply(life.build.delete("unknown"))
    assert life.state.waiting.keys() == {"stuck"}
    assert life.state.retries is None
