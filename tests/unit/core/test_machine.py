"""The core as its users see it: events in, records out; its laws are in `test_simulation`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Event, Policy
from spu_assigner.core.base.records import (
    Record,
    ReplicaMap,
    RingEvent,
    TopicStatus,
)
from spu_assigner.core.decision.answers import answers
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.json_lines.lines import answer_to_json, event_to_json
from support.events.builders import Events
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


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"replication_factor": 4}, Code.INSUFFICIENT_SPUS),
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
