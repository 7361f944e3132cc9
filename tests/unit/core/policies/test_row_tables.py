"""Rows made ahead beside rows made for each request: the same records, the same state."""

from __future__ import annotations

from random import Random
from typing import Any
from unittest import mock

import pytest
from spu_assigner.core.base.events import Event, Policy
from spu_assigner.core.base.records import ReplicaMap, RingEvent
from spu_assigner.core.decision.machine import step
from spu_assigner.core.policies import cursor
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.messages.codec import encode_record
from support.events.builders import Events
from support.events.random_lives import life_of
from support.model.pictures import picture

LIVES = 100


def lived(events: list[Event], default: Policy) -> tuple[list[Any], Any, int]:
    """All records of a life with the bytes of its maps, the state, and maps that are slices."""
    state, found, slices = ClusterState("c1"), [], 0
    for event in events:
        for record in step(state, event, default_policy=default):
            found.append(record)
            if isinstance(record, ReplicaMap) and record.replicas is not None:
                found.append(encode_record(record))
                slices += record.replicas.table is not None
    return found, picture(state), slices


def slices_of(events: list[Event], default: Policy) -> int:
    """Live it with tables and without; gives how many maps were slices of a table."""
    with_tables = lived(events, default)
    with mock.patch.object(cursor, "REPEATING", ()):
        without = lived(events, default)
    assert with_tables[:2] == without[:2]
    assert without[2] == 0
    return with_tables[2]


def test_rows_of_a_table_are_those_of_the_rule() -> None:
    """Over random lives with short rings, racks, repeats, refusals and what waits."""
    lives = [life_of(seed, modelled=True) for seed in range(LIVES)]
    slices = [slices_of([*life.events], life.default_policy) for life in lives]
    assert sum(slices) > 0


@pytest.mark.parametrize("policy", [Policy.FLUVIO, Policy.KAFKA])
@pytest.mark.parametrize("racks", [1, 3, 7])
def test_creates_go_through_windows_and_periods(policy: Policy, racks: int) -> None:
    """Rows made ahead end, begin again, and become a table of the whole period; rings change."""
    random, build = Random(racks), Events()
    events: list[Event] = [
        build.join(spu_id, rack=f"r{spu_id % racks}" if racks > 1 else None) for spu_id in range(13)
    ]
    for number in range(150):
        if number % 60 == 59:
            events.append(build.join(13 + number, rack="r0" if racks > 1 else None))
        events.append(
            build.create(
                f"t{number}",
                random.choice([1, 2, 7, 16, 100]),
                random.randint(1, 4),
                policy=policy,
                ignore_rack=random.random() < 0.2,
            )
        )
    assert slices_of(events, Policy.FLUVIO) == 150


def test_a_request_that_may_fill_an_spu_takes_no_slice() -> None:
    """It is placed in blocks, up to what fills one; the others follow on the ring that is left."""
    state, build = ClusterState("c1"), Events()
    for event in (build.join(0, capacity=4), build.join(1), build.join(2)):
        step(state, event, default_policy=Policy.FLUVIO)
    first, *_ = step(state, build.create("a", 3, 1), default_policy=Policy.FLUVIO)
    second, *others = step(state, build.create("b", 8, 1), default_policy=Policy.FLUVIO)
    assert isinstance(first, ReplicaMap)
    assert isinstance(second, ReplicaMap)
    assert first.replicas is not None
    assert second.replicas is not None
    assert first.replicas.table is not None
    assert second.replicas.table is None
    assert second.replicas.tolist() == [[0], [1], [2], [0], [1], [2], [0], [1]]
    assert [each.spu_id for each in others if isinstance(each, RingEvent)] == [0]
