"""One event tries no more of what waits than its limit; the next events go on."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.events import Event, LeaveMode, OnShortage, Policy
from spu_assigner.core.base.records import Record, ReplicaMap, Status, TopicStatus
from spu_assigner.core.decision.machine import step
from spu_assigner.core.placement import list_repair
from spu_assigner.core.state.cluster_state import ClusterState, evolve
from support.events.builders import Events
from support.events.random_lives import life_of
from support.events.simulation import CLUSTER, Published, publish, restored_from
from support.model.pictures import picture

WAITING = 5


def apply(
    state: ClusterState, event: Event, default_policy: Policy = Policy.BALANCED
) -> Sequence[Record]:
    return step(state, event, default_policy=default_policy)


def assigned(records: Sequence[Record]) -> list[str]:
    """The topics that records say are assigned, in this order."""
    return [
        record.topic
        for record in records
        if isinstance(record, TopicStatus) and record.status is Status.ASSIGNED
    ]


@pytest.fixture
def one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event tries one of what waits."""
    monkeypatch.setattr(list_repair, "RETRY_LOOKS_MAX", 1)


@pytest.fixture
def crowded() -> tuple[ClusterState, Events]:
    """A full SPU, and creates that wait."""
    state, events = ClusterState("c1"), Events()
    apply(state, events.join(0, capacity=1))
    apply(state, events.create("full", 1, 1))
    for number in range(WAITING):
        apply(state, events.create(f"w{number}", 1, 1, on_shortage=OnShortage.WAIT))
    return state, events


@pytest.mark.usefixtures("one_try")
def test_the_next_events_go_on_whatever_they_are(crowded: tuple[ClusterState, Events]) -> None:
    """A create that is granted at once, one that is refused, a delete of what is not there."""
    state, events = crowded
    join = events.join(1, capacity=100)
    assert assigned(apply(state, join)) == ["w0"]
    assert apply(state, join) == ()  # A repeated event changes nothing, so it does not go on.
    assert assigned(apply(state, events.create("new", 1, 1))) == ["new", "w1"]
    assert assigned(apply(state, events.create("new", 0, 1))) == ["w2"]
    assert assigned(apply(state, events.delete("unknown"))) == ["w3"]
    assert assigned(apply(state, events.grow("new", 2))) == ["new", "w4"]
    apply(state, events.delete("unknown"))
    assert state.retries is None
    assert not state.waiting


@pytest.mark.usefixtures("one_try")
def test_room_that_is_made_meanwhile_is_tried_by_all_once_more() -> None:
    """But first by those that were not tried yet."""
    state, events = ClusterState("c1"), Events()
    apply(state, events.join(0, capacity=1))
    apply(state, events.create("full", 1, 1))
    wait = {"policy": Policy.KRAFT, "on_shortage": OnShortage.WAIT}
    apply(state, events.create("pair", 1, 2, **wait))
    apply(state, events.create("w0", 1, 1, **wait))
    apply(state, events.create("w1", 1, 1, **wait))
    assert assigned(apply(state, events.join(1, capacity=100))) == []  # `pair` was tried
    assert assigned(apply(state, events.join(2, capacity=100))) == ["w0"]
    assert assigned(apply(state, events.delete("unknown"))) == ["w1"]
    assert assigned(apply(state, events.delete("unknown"))) == ["pair"]
    apply(state, events.delete("unknown"))
    assert state.retries is None


@pytest.mark.usefixtures("one_try")
def test_the_laws_hold_where_events_go_on_for_each_other() -> None:
    """Records replayed, and what was published, give the state; repeated events change nothing."""
    pauses = 0
    for seed in range(120):
        life = life_of(seed)
        state, replayed = ClusterState(CLUSTER), ClusterState(CLUSTER)
        published: Published = {}
        for event in life.events:
            records = apply(state, event, life.default_policy)
            for record in records:
                evolve(replayed, record)
                if isinstance(record, ReplicaMap):
                    published["map", record.topic] = record
            publish(published, state)
            pauses += state.retries is not None
            if state.retries is not None:
                assert picture(restored_from(published, Random(seed))) == picture(state), seed
                assert apply(state, event, life.default_policy) == (), seed
        assert picture(replayed) == picture(state), seed
    assert pauses > 5


def test_lists_that_use_up_an_event_without_a_move_do_not_hold_back_the_next_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of `stuck` no list can move: only the SPUs that are left meet its rules."""
    state, events = ClusterState("c1"), Events()
    for spu_id in range(4):
        tier = "ssd" if spu_id < 2 else "hdd"
        apply(state, events.join(spu_id, labels={"tier": tier}, capacity=1_000))
    rules = Constraints(require=("tier=ssd",))
    apply(state, events.create("stuck", 200, 2, policy=Policy.BALANCED, constraints=rules))
    for name in ("t0", "t1"):
        apply(state, events.manual(name, [0, 2]))
    monkeypatch.setattr(list_repair, "RETRY_LOOKS_MAX", 5_000)
    apply(state, events.leave(0, mode=LeaveMode.DECOMMISSION))
    for _ in range(4):
        apply(state, events.delete("unknown"))
    assert state.waiting.keys() == {"stuck"}
    assert state.retries is None
