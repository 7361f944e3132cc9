"""What an adopted topic needs of resources: as measured, it counts from then on."""

from __future__ import annotations

import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import OnShortage, Policy
from spu_assigner.core.base.records import (
    Mode,
    Record,
    ReplicaMap,
    RingChange,
    RingEvent,
    Status,
    TopicStatus,
)
from support.events.builders import Events
from support.model.pictures import picture

DISK = "disk_bytes"


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def assigner(events: Events) -> Assigner:
    """Three SPUs with 100 bytes each."""
    assigner = Assigner(Policy.BALANCED)
    for spu_id in range(3):
        assigner.apply(events.join(spu_id, resources={DISK: 100}))
    return assigner


def used(assigner: Assigner) -> list[int]:
    state = assigner.clusters["c1"]
    return [dict(state.ledger.used(spu_id)).get(DISK, 0) for spu_id in state.spus]


def maps(records: tuple[Record, ...]) -> list[ReplicaMap]:
    return [record for record in records if isinstance(record, ReplicaMap)]


def test_its_replicas_load_the_spus_and_the_next_create_avoids_the_full_one(
    events: Events, assigner: Assigner
) -> None:
    """By slots alone SPU 0 would be as good as the others."""
    [found] = maps(assigner.apply(events.adopt("t", [0], demand={DISK: 90})))
    assert found.need is not None
    assert found.need.demand == ((DISK, 90),)
    assert used(assigner) == [90, 0, 0]
    [created] = maps(assigner.apply(events.create("u", 2, 2, demand={DISK: 20})))
    assert {spu_id for row in created.replicas.tolist() for spu_id in row} == {1, 2}


def test_a_fact_may_exceed_what_an_spu_has_and_only_those_that_need_it_avoid_it(
    events: Events, assigner: Assigner
) -> None:
    answers = assigner.apply(events.adopt("t", [0], [0, 1], demand={DISK: 150}))
    assert used(assigner) == [300, 150, 0]
    full = [each for each in answers if isinstance(each, RingEvent)]
    assert [(each.spu_id, each.change, each.resource, each.ring_size) for each in full] == [
        (0, RingChange.SATURATED, DISK, 3),
        (1, RingChange.SATURATED, DISK, 3),
    ]
    [refused] = assigner.apply(events.create("u", 1, 2, demand={DISK: 1}))
    assert isinstance(refused, TopicStatus)
    assert refused.code is Code.INSUFFICIENT_CAPACITY
    assert "2 have less than 1 of disk_bytes free" in str(refused.message)
    [plain] = maps(assigner.apply(events.create("v", 1, 3)))
    assert sorted(plain.replicas.tolist()[0]) == [0, 1, 2]


def test_the_same_again_changes_nothing_and_another_amount_is_the_next_revision(
    events: Events, assigner: Assigner
) -> None:
    assigner.apply(events.adopt("t", [0, 1], demand={DISK: 10}))
    before = picture(assigner.clusters["c1"])
    for demand in ({DISK: 10}, None):
        [status] = assigner.apply(events.adopt("t", [0, 1], demand=demand))
        assert isinstance(status, TopicStatus)
        assert status.status is Status.ADOPTED
    assert {**picture(assigner.clusters["c1"]), "seen": None} == {**before, "seen": None}
    [changed] = maps(assigner.apply(events.adopt("t", [0, 1], demand={DISK: 20})))
    assert changed.reason is not None
    assert (changed.revision, changed.reason.mode) == (2, Mode.ADOPTED)
    assert used(assigner) == [20, 20, 0]
    [empty] = maps(assigner.apply(events.adopt("t", [0, 1], demand={DISK: 0})))
    assert (empty.revision, empty.need) == (3, None)
    assert used(assigner) == [0, 0, 0]


def test_without_a_demand_what_is_known_stays(events: Events, assigner: Assigner) -> None:
    """Also where the lists change; and what leaders need stays where the rest is measured."""
    assigner.apply(events.create("t", 1, 2))
    measured = events.demand("t", demand={DISK: 10}, leader_demand={DISK: 30})
    assigner.apply(measured)
    [moved] = maps(assigner.apply(events.adopt("t", [2, 0])))
    assert moved.need is not None
    assert (moved.need.demand, moved.need.leader_demand) == (((DISK, 10),), ((DISK, 30),))
    assert used(assigner) == [10, 0, 30]
    assigner.apply(events.adopt("t", [2, 0], demand={DISK: 15}))
    assert used(assigner) == [15, 0, 30]


def test_what_needs_less_makes_room_for_what_waits(events: Events, assigner: Assigner) -> None:
    assigner.apply(events.adopt("t", [0, 1, 2], demand={DISK: 90}))
    asked = events.create("u", 1, 3, demand={DISK: 50}, on_shortage=OnShortage.WAIT)
    assert maps(assigner.apply(asked)) == []
    served = maps(assigner.apply(events.adopt("t", [0, 1, 2], demand={DISK: 50})))
    assert [each.topic for each in served] == ["t", "u"]
