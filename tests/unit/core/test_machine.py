"""The core as its users see it: events in, records out; its laws are in `test_simulation`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Event, Policy
from spu_assigner.core.base.limits import SPU_ID_MAX
from spu_assigner.core.base.records import (
    Order,
    Record,
    ReplicaMap,
    RingChange,
    RingEvent,
    SpuChanged,
    Status,
    TopicStatus,
)
from spu_assigner.core.decision.answers import answers
from spu_assigner.core.decision.machine import decide, step
from spu_assigner.core.state.cluster_state import ClusterState, evolve
from spu_assigner.schemas.json_lines.lines import answer_to_json, event_to_json
from support.events.builders import Events
from support.events.one_cluster import ring_changes
from support.model.oracle import Oracle
from support.model.pictures import picture
from support.project.case_share import share_of


def run(state: ClusterState, *events: Event, policy: Policy = Policy.FLUVIO) -> list[Record]:
    """The records of all events."""
    return [record for event in events for record in step(state, event, default_policy=policy)]


def maps(records: list[Record]) -> list[list[list[int]] | None]:
    """The replica maps among some records, plain; None for a deletion."""
    found = [record.replicas for record in records if isinstance(record, ReplicaMap)]
    return [None if lists is None else lists.tolist() for lists in found]


def codes(records: list[Record]) -> list[Code | None]:
    """The codes of the statuses and ring events among some records."""
    return [record.code for record in records if isinstance(record, TopicStatus | RingEvent)]


@given(
    sizes=st.lists(st.integers(1, 60), min_size=3, max_size=9),
    requests=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 3)), min_size=1, max_size=6),
    policy=st.sampled_from([Policy.FLUVIO, Policy.KAFKA, Policy.REDPANDA]),
    racked=st.booleans(),
    start=st.one_of(st.none(), st.integers(0, 50)),
)
@settings(max_examples=share_of(300), deadline=None)
def test_blocks_around_saturations_equal_the_plain_oracle(
    sizes: list[int],
    requests: list[tuple[int, int]],
    policy: Policy,
    racked: bool,
    start: int | None,
) -> None:
    """Large requests on small SPUs: many blocks, many saturations, tables that run out."""
    oracle, state = Oracle(), ClusterState("c1")
    build, index = Events(), None if policy is Policy.REDPANDA else start
    events: list[Event] = [
        build.join(i, capacity=size, rack="abc"[i % 3] if racked else None)
        for i, size in enumerate(sizes)
    ]
    for number, (partitions, replicas) in enumerate(requests):
        given_fields = {"policy": policy, "start_index": index}
        events.append(build.create(f"t{number}", partitions, replicas, **given_fields))
    for event in events:
        found = [json.loads(answer_to_json(each)) for each in answers(run(state, event))]
        expected = oracle.apply(json.loads(event_to_json(event)))
        assert [line | {"message": None} for line in found] == [
            line | {"message": None} for line in expected
        ]


def test_a_request_that_cannot_be_met_whole_leaves_nothing_behind() -> None:
    """All or nothing: counts, ring, order and chain index are as before."""
    for policy in (Policy.FLUVIO, Policy.KAFKA, Policy.REDPANDA):
        state, build = ClusterState("c1"), Events()
        run(state, *(build.join(i, capacity=2) for i in range(3)))
        before = picture(state)
        records = run(state, build.create("t", 4, 2, policy=policy))
        assert codes(records) == [Code.INSUFFICIENT_CAPACITY]
        after = picture(state)
        assert {**after, "seen": None} == {**before, "seen": None}


def test_asking_for_free_slots_hides_no_change_of_the_ring() -> None:
    """Both measure the counts; the ring is another one all the same."""
    new, state = Events(), ClusterState("c1")
    run(state, new.join(0, capacity=1), new.join(1, capacity=9))
    assert state.ring.ids.tolist() == [0, 1]
    for record in decide(state, new.create("t", 1, 2), default_policy=Policy.FLUVIO):
        evolve(state, record)
    assert state.ledger.free_floor(0) == 8
    assert state.ledger.ring_ids().tolist() == [1]
    assert state.ring.ids.tolist() == [1]


def test_an_emptied_ring_keeps_its_cycle() -> None:
    """The first to join an emptied ring is position 0 of the cycle that was reached."""
    state, build = ClusterState("c1"), Events()
    run(state, *build.joins(0, 1), build.create("t", 4, 1))
    run(state, build.leave(0), build.leave(1))
    run(state, build.join(7))
    assert state.chain_index(Order.ID) == 2
    assert maps(run(state, build.create("u", 1, 1))) == [[[7]]]


def test_a_request_with_its_own_start_does_not_move_the_chain() -> None:
    """Named starts are for those who want Kafka's fixed start."""
    state, build = ClusterState("c1"), Events()
    run(state, *build.joins(1, 2, 3))
    kafka = build.create("k", 2, 2, policy=Policy.KAFKA, start_index=2)
    assert maps(run(state, kafka)) == [[[3, 1], [1, 2]]]  # document 004, case 2
    assert state.chain_index(Order.ID) == 0


def test_validate_only_shows_the_map_and_keeps_nothing() -> None:
    """The status holds the map that would have been given."""
    state, build = ClusterState("c1"), Events()
    run(state, *build.joins(0, 1))
    before = picture(state)
    records = run(state, build.create("t", 2, 2, validate_only=True))
    status = records[0]
    assert isinstance(status, TopicStatus)
    assert status.status is Status.VALIDATED
    assert status.replicas is not None
    assert status.replicas.tolist() == [[0, 1], [1, 0]]
    assert {**picture(state), "seen": None} == {**before, "seen": None}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"partitions": 0}, Code.INVALID_PARTITIONS),
        ({"partitions": -1}, Code.INVALID_PARTITIONS),
        ({"partitions": 100_001}, Code.INVALID_PARTITIONS),
        ({"replication_factor": 0}, Code.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 33}, Code.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 4}, Code.INSUFFICIENT_SPUS),
        ({"start_index": -1}, Code.INVALID_START_INDEX),
        ({"start_index": 2**31}, Code.INVALID_START_INDEX),
        ({"start_index": 0, "policy": Policy.REDPANDA}, Code.INVALID_START_INDEX),
        ({"shift": 0, "policy": Policy.KAFKA}, Code.INVALID_SHIFT),
        ({"shift": 0, "start_index": 0, "policy": Policy.FLUVIO}, Code.INVALID_SHIFT),
        ({"shift": -1, "start_index": 0, "policy": Policy.KAFKA}, Code.INVALID_SHIFT),
        ({"replicas": [], "policy": Policy.KAFKA}, Code.INVALID_REPLICAS),
        ({"policy": Policy.MANUAL}, Code.INVALID_REPLICAS),
        ({"start_index": 0, "policy": Policy.BALANCED}, Code.INVALID_START_INDEX),
    ],
)
def test_numbers_out_of_range_are_answered(fields: dict[str, Any], code: Code) -> None:
    """Whoever can be answered is answered, with a code and the way out; nothing changes."""
    state, build = ClusterState("c1"), Events()
    run(state, *build.joins(0, 1, 2))
    before = picture(state)
    given_fields = {"partitions": 1, "replication_factor": 1, **fields}
    records = run(state, build.create("t", **given_fields))
    assert codes(records) == [code]
    assert isinstance(records[0], TopicStatus)
    assert records[0].message
    assert {**picture(state), "seen": None} == {**before, "seen": None}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"spu_id": -1}, Code.INVALID_SPU_ID),
        ({"spu_id": 2**31}, Code.INVALID_SPU_ID),
        ({"spu_id": 0, "cores": 0}, Code.INVALID_CORES),
        ({"spu_id": 0, "capacity": -1}, Code.INVALID_CAPACITY),
        ({"spu_id": 0, "rack": ""}, Code.INVALID_RACK),
        ({"spu_id": 0, "rack": "r" * 129}, Code.INVALID_RACK),
    ],
)
def test_a_join_out_of_range_is_ignored_with_a_code(fields: dict[str, Any], code: Code) -> None:
    """A membership event has no topic to answer under: the ring event says why."""
    state, build = ClusterState("c1"), Events()
    records = run(state, build.join(**fields))
    assert (codes(records), ring_changes(records)[0][1]) == ([code], RingChange.IGNORED)
    assert state.spus == {}


def test_a_cluster_takes_no_more_than_its_limit_of_spus() -> None:
    """SPU 10,000 of a cluster (the 10,001st) is ignored; a known one may still change."""
    state, build = ClusterState("c1"), Events()
    run(state, *build.joins(*range(10_000)))
    assert codes(run(state, build.join(10_000))) == [Code.TOO_MANY_SPUS]
    assert codes(run(state, build.join(5, rack="a"))) == [None]


def test_a_map_past_the_limit_of_a_message_is_refused() -> None:
    """100,000 lists of 32 five-byte ids would need 16 MB."""
    state, build = ClusterState("c1"), Events()
    run(state, *build.joins(*range(2**28, 2**28 + 32), capacity=10**6))
    records = run(state, build.create("t", 100_000, 32))
    assert codes(records) == [Code.MAP_TOO_LARGE]
    assert maps(run(state, build.create("u", 1, 1))) == [[[2**28]]]


def test_a_map_may_be_restored_before_its_spus() -> None:
    """Two topics of Kafka carry them; the largest id takes no more room than another."""
    new, state = Events(), ClusterState("c1")
    joins = [new.join(spu_id) for spu_id in (0, 1, SPU_ID_MAX)]
    run(state, *joins, new.manual("t", [SPU_ID_MAX, 0], [1, 0]))
    spus = [part for part in state.parts() if isinstance(part, SpuChanged)]
    restored = ClusterState("c1")
    for part in (*spus[:2], *(part for part in state.parts() if part not in spus), spus[2]):
        restored.restore(part)
    assert restored == state
    assert [restored.ledger.count(spu_id) for spu_id in (0, 1, SPU_ID_MAX)] == [2, 1, 1]
