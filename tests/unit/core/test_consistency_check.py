"""A state that lacks a part, or has one of another time, is found; a saved one goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from spu_assigner.core import (
    Assigner,
    ClusterState,
    Event,
    InvalidStateError,
    ReplicaMap,
    as_dict,
    state_from_json,
    state_to_json,
    step,
)
from spu_assigner.core.base.events import LeaveMode, Policy
from spu_assigner.core.base.records import ChainEntry, Entry, SeenEntry, SpuChanged, Wait, Waiting
from spu_assigner.core.state.consistency_check import faults
from support.events.builders import Events
from support.events.one_cluster import OneCluster, picture
from support.events.random_lives import CLUSTER, Life, life_of

LIVES = 300
Parts = list[ReplicaMap | Entry]


def found(parts: Parts) -> list[str]:
    state = ClusterState("c1")
    for part in parts:
        state.restore(part)
    return list(faults(state))


@pytest.fixture
def whole() -> Parts:
    """A cluster with everything: cores, short lists, a leaving SPU, what waits."""
    life = OneCluster(*Events().joins(0, 1, 2, cores=2, capacity=50), default=Policy.BALANCED)
    life.create("r", 4, 2, policy=Policy.REDPANDA)
    life.create("b", 2, 3)
    life.wait("w", 1, 9)
    life.leave(2, LeaveMode.DECOMMISSION)
    life.create("alone", 1, 1, policy=Policy.FLUVIO)
    return list(life.state.parts())


def test_every_life_leaves_a_sound_state() -> None:
    for seed in range(LIVES):
        life = OneCluster(default=Policy.BALANCED)
        for event in life_of(seed).events:
            life.apply(event)
            assert list(faults(life.state)) == []


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        (SpuChanged, "topic r is on SPU 0, which is not known"),
        (ChainEntry, r"block 0 of the remembered events has 8; expected 0 after 0 events"),
        (SeenEntry, r"block 0 of the remembered events has 0; expected 8 after 8 events"),
        (ReplicaMap, "has core weights"),
    ],
)
def test_a_lost_part_shows(whole: Parts, lost: type[Entry], message: str) -> None:
    assert found(whole) == []
    gone = next(
        part for part in whole if isinstance(part, lost) and getattr(part, "topic", "r") == "r"
    )
    assert any(message in each for each in found([p for p in whole if p is not gone]))


def test_an_old_part_shows(whole: Parts) -> None:
    """An SPU of before, a place that was given twice, a topic that waits and is there."""
    spus = [part for part in whole if isinstance(part, SpuChanged)]
    create = next(part for part in whole if isinstance(part, Waiting) and part.kind is Wait.CREATE)
    one = next(part for part in whole if isinstance(part, ReplicaMap))
    for other, message in (
        (replace(spus[0], registration=spus[1].registration), "registered as one"),
        (replace(spus[0], registration=99), "expected less than 3"),
        (replace(spus[0], leaving=True), "is leaving, and is online"),
        (replace(create, topic=one.topic), "is there, and its create waits"),
        (replace(create, topic="x"), "wait at one place"),
        (replace(one, revision=0), "has revision 0"),
    ):
        assert any(message in each for each in found([*whole, other])), message


# States that are saved.


SAVED_LIVES = range(60)


def lived(life: Life, events: tuple[Event, ...]) -> ClusterState:
    state = ClusterState(CLUSTER)
    for event in events:
        step(state, event, default_policy=life.default_policy)
    return state


@pytest.mark.parametrize("seed", SAVED_LIVES)
def test_a_loaded_state_goes_on_as_the_saved_one(seed: int) -> None:
    life = life_of(seed)
    middle = len(life.events) // 2
    state = lived(life, life.events[:middle])
    loaded = state_from_json(state_to_json(state))
    assert loaded == state
    assert picture(loaded) == picture(state)
    assert state_to_json(loaded) == state_to_json(state)
    for event in life.events[middle:]:
        answers = [
            step(each, event, default_policy=life.default_policy) for each in (state, loaded)
        ]
        assert answers[0] == answers[1]
    assert loaded == state


def saved() -> dict[str, Any]:
    new = Events()
    assigner = Assigner()
    for event in (new.join(0), new.join(1), new.create("t", 2, replication_factor=2)):
        assigner.apply(event)
    whole: dict[str, Any] = json.loads(state_to_json(assigner.clusters["c1"]))
    return whole


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (
            lambda whole: whole.update(form="spu-assigner-state-0"),
            "'spu-assigner-state-0' - at `$.f",
        ),
        (lambda whole: whole.update(cluster_id="c2"), "is of cluster 'c1'; expected 'c2'"),
        (lambda whole: whole.pop("maps"), "missing required field `maps`"),
        (lambda whole: whole["spus"].pop(), "which is not known"),
        (lambda whole: whole["spus"][0].update(capacity="7"), "at `$.spus[0].capacity`"),
        (lambda whole: whole["spus"][0].update(rack="\ud800"), "surrogate pair"),
        (lambda whole: whole["maps"][0].update(replicas=[]), "Expected `array` of length >= 1"),
    ],
)
def test_a_damaged_state_is_refused_with_its_fault(
    damage: Callable[[dict[str, Any]], object], fault: str
) -> None:
    """A state that lacks a part would decide otherwise, in silence."""
    whole = saved()
    damage(whole)
    with pytest.raises(InvalidStateError) as caught:
        state_from_json(json.dumps(whole))
    assert fault in caught.value.fault


@pytest.mark.parametrize("text", ["", "{", b"\xff", "7", "[" * 100_000, "null"])
def test_what_is_no_state_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidStateError, match="give what `state_to_json` wrote"):
        state_from_json(text)


@pytest.mark.parametrize("seed", SAVED_LIVES)
def test_events_and_answers_are_written_as_json(seed: int) -> None:
    """By the standard library alone; an event is made again out of it."""
    life = life_of(seed)
    assigner = Assigner(life.default_policy)
    for event in life.events:
        assert type(event)(**json.loads(json.dumps(as_dict(event)))) == event
        for answer in assigner.apply(event):
            written = json.loads(json.dumps(as_dict(answer)))
            assert written["cluster_id"] == CLUSTER
            if isinstance(answer, ReplicaMap) and answer.replicas is not None:
                assert written["replicas"] == answer.replicas.tolist()
                assert written["policy"] == answer.policy.value
