"""What shows of a state that was put together from parts, and what is sound."""

from __future__ import annotations

from dataclasses import replace

import pytest
from spu_assigner.core.base.events import LeaveMode, Policy
from spu_assigner.core.base.records import (
    ChainEntry,
    Entry,
    ReplicaMap,
    SeenEntry,
    SpuChanged,
    Wait,
    Waiting,
)
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.consistency_check import faults
from support.events.builders import Events
from support.events.one_cluster import OneCluster
from support.events.random_lives import life_of

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
