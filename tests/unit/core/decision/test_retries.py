"""One event tries no more of what waits than its limit; the next events go on."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.events import LeaveMode, Policy
from spu_assigner.core.base.records import ReplicaMap, Status
from spu_assigner.core.decision.machine import step
from spu_assigner.core.placement import list_repair
from spu_assigner.core.state.cluster_state import ClusterState, evolve
from support.events.one_cluster import OneCluster, statuses
from support.events.random_lives import life_of
from support.events.simulation import CLUSTER, Published, publish, restored_from
from support.model.pictures import picture


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
