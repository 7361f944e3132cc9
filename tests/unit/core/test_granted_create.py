"""The usual create beside the careful decision: the same records, the same state."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.balanced import rounds
from spu_assigner.core.balanced.uniform_ring import UniformRing
from spu_assigner.core.base.events import Event, Policy, TopicCreate
from spu_assigner.core.base.fast_constructor import fast_constructor
from spu_assigner.core.base.records import (
    EventSeen,
    GrantedCreate,
    ReplicaMap,
    Status,
    TopicStatus,
    plain_records,
)
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.decision import lookahead
from spu_assigner.core.decision.machine import decide, step
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.json_lines.lines import event_from_json
from spu_assigner.schemas.messages.codec import encode_record, granted_create_headers
from spu_assigner.schemas.messages.granted_create import encode_granted_create
from spu_assigner.schemas.messages.wire import Wire
from support.events.builders import Events
from support.events.lives import lives
from support.model.pictures import picture


def emitted(records: tuple[Any, ...]) -> list[Any]:
    """Records to compare, with the bytes of the answers."""
    for record in records:
        if isinstance(record, GrantedCreate):
            for wire in Wire:
                pair = tuple(encode_record(part, wire=wire) for part in record.parts()[:2])
                assert encode_granted_create(record, granted_create_headers(wire)) == pair
    records = plain_records(records)
    answers = [
        encode_record(record)
        for record in records
        if isinstance(record, TopicStatus)
        or (isinstance(record, ReplicaMap) and record.replicas is not None)
    ]
    return [*records, *answers]


def lived(events: list[Event], default: Policy, *, with_care: bool) -> tuple[list[Any], Any, int]:
    """All records of a life, the state at its end, and how many creates were usual."""
    state = ClusterState("c1")
    records: list[Any] = []
    usual_count = 0
    with pytest.MonkeyPatch.context() as patch:
        if with_care:
            patch.setattr(lookahead, "PARTITIONS_AHEAD_MAX", 0)
        for event in events:
            found = step(state, event, default_policy=default)
            usual_count += isinstance(next(iter(found), None), GrantedCreate)
            records.append(emitted(found))
        return records, picture(state), usual_count


def both(events: list[Event], default: Policy) -> int:
    """Both ways; gives how many were usual."""
    quickly = lived(events, default, with_care=False)
    with_care = lived(events, default, with_care=True)
    assert quickly[:2] == with_care[:2]
    assert with_care[2] == 0
    return quickly[2]


@given(
    life=lives(), default=st.sampled_from(["fluvio", "kafka", "redpanda", "rendezvous", "balanced"])
)
def test_a_usual_create_is_decided_as_with_care(life: list[Any], default: str) -> None:
    """Over random lives with short rings, racks, repeats, refusals and what waits."""
    both([event_from_json(json.dumps(event)) for event in life], Policy(default))


@pytest.mark.parametrize("policy", ["fluvio", "kafka", "balanced"])
@pytest.mark.parametrize("racks", [1, 3, 7])
def test_nearly_all_creates_are_usual_and_go_through_windows_and_tables(
    policy: str, racks: int
) -> None:
    """Rows made ahead end, begin again, and become a table of the whole period; rings change."""
    random, build = Random(racks), Events()
    events: list[Event] = [
        build.join(spu_id, rack=f"r{spu_id % racks}" if racks > 1 else None) for spu_id in range(13)
    ]
    for number in range(150):
        if number % 60 == 59:
            events.append(build.join(13 + number, rack="r0" if racks > 1 else None))
        partitions = random.choice([1, 2, 7, 16, 100])
        events.append(
            build.create(
                f"t{number}",
                partitions,
                random.randint(1, 4),
                policy=Policy(policy),
                ignore_rack=random.random() < 0.2,
            )
        )
    assert both(events, Policy.FLUVIO) == 150


@pytest.mark.parametrize(
    ("sizes", "partitions_max"),
    [([20], 9), ([64], 16), ([7, 7, 7], 6), ([12, 9, 7], 7), ([5, 30, 9], 5), ([4, 4, 4, 5], 4)],
)
def test_nearly_all_small_requests_of_an_even_ring_go_by_its_levels(
    sizes: list[int], partitions_max: int
) -> None:
    """As `few` places them, also after topics went, others came between, and SPUs joined empty."""
    random, build = Random(len(sizes)), Events()
    racks = [rack for rack, size in enumerate(sizes) for _ in range(size)]
    random.shuffle(racks)
    replicas = 3 if len(sizes) == 1 else len(sizes)
    events: list[Event] = [
        build.join(3 * number, rack=f"r{rack}" if len(sizes) > 1 else None)
        for number, rack in enumerate(racks)
    ]
    for number in range(120):
        partitions = random.randint(1, partitions_max)
        events.append(build.create(f"t{number}", partitions, replicas))
        if number % 9 == 8:
            events.append(build.delete(f"t{random.randrange(number)}"))
        if number % 11 == 10:
            events.append(build.create(f"o{number}", 3, replicas, policy=Policy.KAFKA))
        if number % 13 == 12:
            events.append(build.create(f"f{number}", 40, replicas))
        if number == 60:
            events.append(build.join(200, rack="r0" if len(sizes) > 1 else None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "SPUS_MIN", 100)  # Else these would place nearly all.
        levels: list[bool] = []
        patch.setattr(UniformRing, "lists", noting(UniformRing.lists, levels))
        assert both(events, Policy.BALANCED) >= 120
    assert sum(levels) > 40  # After an empty SPU joined nothing is simple until it is filled.


def noting(lists: Any, noted: list[bool]) -> Any:
    """The method, which notes whether it has placed a request."""

    def placed(*args: Any, **keywords: Any) -> ReplicaLists | None:
        found: ReplicaLists | None = lists(*args, **keywords)
        noted.append(found is not None)
        return found

    return placed


def test_a_large_ring_is_served_by_windows_that_move_on() -> None:
    """A period of a million rows is never made."""
    build = Events()
    events: list[Event] = [*build.joins(*range(400))]
    events += [build.create(f"t{number}", 700, 3, policy=Policy.KAFKA) for number in range(40)]
    assert both(events, Policy.FLUVIO) == 40


@pytest.mark.parametrize(
    "given_to_it",
    [
        {"start_index": 3},
        {"validate_only": True},
        {"partitions": 0},
        {"partitions": lookahead.PARTITIONS_AHEAD_MAX + 1},
        {"replication_factor": 4},
        {"replication_factor": 0},
        {"policy": Policy.REDPANDA},
        {"policy": Policy.MANUAL, "replicas": [{"id": 0, "replicas": [1]}]},
        {"topic": "there"},
        {"event_id": "e4"},
    ],
)
def test_what_is_not_usual_is_left_to_care(given_to_it: dict[str, Any]) -> None:
    """Each of these has an answer, but not this one."""
    state, build = ClusterState("c1"), Events()
    for event in [*build.joins(0, 1, 2, capacity=10**6), build.create("there", 1, 1)]:
        step(state, event, default_policy=Policy.FLUVIO)
    asked = {"event_id": "x", "cluster_id": "c1", "topic": "t", "partitions": 2}
    event = TopicCreate(**{**asked, "replication_factor": 2, **given_to_it})
    records = decide(state, event, default_policy=Policy.FLUVIO)
    assert not any(isinstance(record, GrantedCreate) for record in records)


def test_a_create_that_could_fill_an_spu_is_decided_with_care() -> None:
    """As many partitions as there are free slots may all go to one."""
    state, build = ClusterState("c1"), Events()
    for event in build.joins(0, 1, 2, capacity=10):
        step(state, event, default_policy=Policy.FLUVIO)
    [nine] = decide(state, build.create("t", 9, 1), default_policy=Policy.FLUVIO)
    assert isinstance(nine, GrantedCreate)
    assert len(decide(state, build.create("t", 10, 1), default_policy=Policy.FLUVIO)) > 1


def test_rings_alike_have_one_table_and_others_their_own() -> None:
    """Where the rows depend on racks, SPUs of the same ids are not alike."""
    tables = []
    for racks in ("aabb", "aabb", "abab"):
        state, build = ClusterState("c1"), Events()
        for spu_id, rack in enumerate(racks):
            step(state, build.join(spu_id, rack=rack), default_policy=Policy.FLUVIO)
        for number in range(4):
            for ignore_rack in (False, True):
                asked = build.create(f"t{number}{ignore_rack}", 50, 2, ignore_rack=ignore_rack)
                step(state, asked, default_policy=Policy.KAFKA)
        tables.append(state.ring.tables)
    plain, racked = ("SHIFTED", 2), ("SHIFTED_OVER_RACKS", 2)
    assert tables[0][plain] is tables[1][plain] is tables[2][plain]
    assert tables[0][racked] is tables[1][racked] is not tables[2][racked]


def test_deciding_changes_nothing() -> None:
    """Only `evolve` writes; what is asked twice is answered alike."""
    state, build = ClusterState("c1"), Events()
    for event in [*build.joins(0, 1, 2), build.create("a", 3, 2)]:
        step(state, event, default_policy=Policy.FLUVIO)
    before = picture(state)
    event = build.create("b", 5, 2)
    [first] = decide(state, event, default_policy=Policy.FLUVIO)
    assert isinstance(first, GrantedCreate)
    [again] = decide(state, event, default_policy=Policy.FLUVIO)
    assert again == first
    assert picture(state) == before


def test_what_is_made_quickly_is_what_the_class_makes() -> None:
    """Equal, of the same class, as frozen, with the same defaults and the same keywords."""
    fields = {
        "cluster_id": "c",
        "topic": "t",
        "status": Status.ASSIGNED,
        "code": None,
        "message": None,
        "replicas": ReplicaLists.of_lists([[1, 2]]),
        "cause": "e",
    }
    made: Any = fast_constructor(TopicStatus)(**fields)  # type: ignore[arg-type]
    assert made == TopicStatus(**fields)  # type: ignore[arg-type]
    assert type(made) is TopicStatus
    assert hash(made) == hash(TopicStatus(**fields))  # type: ignore[arg-type]
    with pytest.raises(FrozenInstanceError):
        made.topic = "other"
    with pytest.raises(TypeError):
        fast_constructor(EventSeen)(cluster_id="c")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        fast_constructor(EventSeen)("c", 1)  # type: ignore[misc]
