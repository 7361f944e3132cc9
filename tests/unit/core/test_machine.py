"""The core as its users see it: events in, records out; its laws are in `test_simulation`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Event, Policy
from spu_assigner.core.base.records import RingEvent, Status
from support.events.builders import Events
from support.events.one_cluster import OneCluster, the_status
from support.events.simulation import difference
from support.project.case_share import share_of


@given(
    sizes=st.lists(st.integers(1, 60), min_size=3, max_size=9),
    requests=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 3)), min_size=1, max_size=6),
    policy=st.sampled_from([Policy.FLUVIO, Policy.KAFKA, Policy.REDPANDA]),
    racked=st.booleans(),
)
@settings(max_examples=share_of(300), deadline=None)
def test_blocks_around_saturations_equal_the_plain_oracle(
    sizes: list[int], requests: list[tuple[int, int]], policy: Policy, racked: bool
) -> None:
    """Large requests on small SPUs: many blocks, many saturations, tables that run out."""
    build = Events()
    events: list[Event] = [
        build.join(i, capacity=size, rack="abc"[i % 3] if racked else None)
        for i, size in enumerate(sizes)
    ]
    for number, (partitions, replicas) in enumerate(requests):
        events.append(build.create(f"t{number}", partitions, replicas, policy=policy))
    assert difference(events, Policy.FLUVIO) is None


@pytest.mark.parametrize("policy", [Policy.FLUVIO, Policy.KAFKA, Policy.REDPANDA])
def test_a_request_that_cannot_be_met_whole_leaves_nothing_behind(policy: Policy) -> None:
    life = OneCluster(*Events().joins(0, 1, 2, capacity=2))
    before = life.kept()
    status = the_status(life.create("t", 4, 2, policy=policy))
    assert status.code is Code.INSUFFICIENT_CAPACITY
    assert life.kept() == before


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"replication_factor": 4}, Code.INSUFFICIENT_SPUS),
        ({"start_index": 2**31}, Code.INVALID_START_INDEX),
        ({"start_index": 0, "policy": Policy.REDPANDA}, Code.INVALID_START_INDEX),
        ({"start_index": 0, "policy": Policy.BALANCED}, Code.INVALID_START_INDEX),
        ({"shift": 0, "policy": Policy.KAFKA}, Code.INVALID_SHIFT),
        ({"shift": 0, "start_index": 0, "policy": Policy.FLUVIO}, Code.INVALID_SHIFT),
        ({"replicas": [], "policy": Policy.KAFKA}, Code.INVALID_REPLICAS),
        ({"policy": Policy.MANUAL}, Code.INVALID_REPLICAS),
    ],
)
def test_a_request_that_contradicts_itself_is_answered(fields: dict[str, Any], code: Code) -> None:
    life = OneCluster(*Events().joins(0, 1, 2))
    before = life.kept()
    asked = {"partitions": 1, "replication_factor": 1, **fields}
    status = the_status(life.apply(life.build.create("t", **asked)))
    assert (status.status, status.code) == (Status.REJECTED, code)
    assert status.message
    assert life.kept() == before


def test_a_cluster_takes_no_more_than_its_limit_of_spus() -> None:
    """SPU 10,000 of a cluster (the 10,001st) is ignored; a known one may still change."""
    life = OneCluster(*Events().joins(*range(10_000)))
    found = [*life.join(10_000), *life.join(5, rack="a")]
    codes = [each.code for each in found if isinstance(each, RingEvent)]
    assert codes == [Code.TOO_MANY_SPUS, None]


def test_a_map_past_the_limit_of_a_message_is_refused() -> None:
    """100,000 lists of 32 five-byte ids would need 16 MB."""
    life = OneCluster(*Events().joins(*range(2**28, 2**28 + 32), capacity=10**6))
    assert the_status(life.create("t", 100_000, 32)).code is Code.MAP_TOO_LARGE
    life.create("u", 1, 1)
    assert life.lists("u") == [[2**28]]
