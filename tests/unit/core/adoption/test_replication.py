"""`TopicReplication`: the lists of a living topic get another length; kept replicas keep order."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import LeaveMode, OnShortage, Policy
from spu_assigner.core.base.records import (
    Answer,
    Mode,
    ReplicaMap,
    RingChange,
    RingEvent,
    Status,
    TopicStatus,
)
from spu_assigner.schemas.json_lines.lines import event_to_json
from support.events.builders import Events
from support.model.oracle import Oracle
from support.model.pictures import picture
from support.project.case_share import share_of

Rows = list[list[int]]


def lists_of(assigner: Assigner, topic: str = "t") -> Rows:
    return assigner.clusters["c1"].topics[topic].replicas.lists().tolist()


def statuses(answers: tuple[Answer, ...]) -> list[tuple[str, Status, Code | None, str]]:
    return [
        (each.topic, each.status, each.code, each.cause)
        for each in answers
        if isinstance(each, TopicStatus)
    ]


def adopted(events: Events, lists: Rows, **spus: Any) -> Assigner:
    """SPUs 0 to 3 and topic t."""
    assigner = Assigner(Policy.BALANCED)
    for event in (*events.joins(0, 1, 2, 3, **spus), events.adopt("t", *lists)):
        assigner.apply(event)
    return assigner


def test_a_higher_factor_appends_to_each_list() -> None:
    """The least used SPU first, counted replica by replica, then the lowest id."""
    events = Events()
    assigner = adopted(events, [[0, 1], [1, 0], [2, 0]])
    answers = assigner.apply(events.replication("t", 3, event_id="r"))
    [changed] = [each for each in answers if isinstance(each, ReplicaMap)]
    assert lists_of(assigner) == [[0, 1, 3], [1, 0, 2], [2, 0, 3]]
    assert (changed.revision, changed.replication_factor, changed.cause) == (2, 3, "r")
    assert changed.reason is not None
    assert changed.reason.mode is Mode.REPLICATION
    assert [(move.partition, move.gone, move.taken) for move in changed.reason.moves] == [
        (0, None, 3),
        (1, None, 2),
        (2, None, 3),
    ]
    assert statuses(answers) == [("t", Status.ASSIGNED, None, "r")]


def test_a_new_replica_goes_to_a_rack_of_its_own_before_it_evens_the_load() -> None:
    """Racks come first, as wherever replicas are placed."""
    events = Events()
    assigner = Assigner(Policy.BALANCED)
    for event in (*events.racks({"a": [0, 1], "b": [2]}), events.adopt("u", [2], [2], [2])):
        assigner.apply(event)
    assigner.apply(events.adopt("t", [0]))
    assigner.apply(events.replication("t", 2))
    assert lists_of(assigner) == [[0, 2]]


def test_a_lower_factor_takes_replicas_off_the_fullest_spus() -> None:
    """By the share of capacity that is used; counts are up to date list by list."""
    events = Events()
    assigner = Assigner(Policy.BALANCED)
    for spu_id, capacity in enumerate([100, 10, 20, 100]):
        assigner.apply(events.join(spu_id, capacity=capacity))
    assigner.apply(events.adopt("t", *[[0, 1, 2]] * 3))
    assigner.apply(events.replication("t", 2))
    # SPU 1 holds 3 of 10, SPU 2 3 of 20; after two lists SPU 1 has 1 of 10 left.
    assert lists_of(assigner) == [[0, 2], [0, 2], [0, 1]]


def test_the_leader_stays_though_it_is_on_the_fullest_spu() -> None:
    """Another can go, so it does."""
    events = Events()
    assigner = adopted(events, [[0, 1, 2], [0, 1], [0]])
    assigner.apply(events.replication("t", 1))
    assert lists_of(assigner) == [[0], [0], [0]]


@pytest.mark.parametrize(
    ("row", "offline", "factor", "left"),
    [
        ([3, 1, 2], [3], 2, [1, 2]),
        ([0, 1, 2], [0, 2], 2, [1, 2]),
        ([0, 1, 2], [0, 2], 1, [1]),
        ([2, 0, 3, 1], [0, 1], 2, [2, 3]),
        ([2, 0, 3, 1], [2, 1], 3, [0, 3, 1]),
        ([2, 0, 3, 1], [0, 1, 2, 3], 1, [2]),
    ],
)
def test_replicas_that_are_offline_go_first_the_leader_too(
    row: list[int], offline: list[int], factor: int, left: list[int]
) -> None:
    """A leader that is offline serves nothing; who is online and stays succeeds it."""
    events = Events()
    assigner = adopted(events, [row])
    for spu_id in offline:
        assigner.apply(events.leave(spu_id))
    assigner.apply(events.replication("t", factor))
    assert lists_of(assigner) == [left]


def test_the_only_copy_that_can_be_read_stays_though_it_is_leaving() -> None:
    """SPU 1 failed; SPU 0 is decommissioned and hands its data over."""
    events = Events()
    assigner = adopted(events, [[0, 1]])
    for spu_id in (2, 3):
        assigner.apply(events.cordon(spu_id))
    assigner.apply(events.leave(1))
    assigner.apply(events.leave(0, mode=LeaveMode.DECOMMISSION))
    assert lists_of(assigner) == [[0, 1]]
    assigner.apply(events.replication("t", 1))
    assert lists_of(assigner) == [[0]]


def test_of_two_that_are_offline_the_one_that_can_be_read_stays() -> None:
    """SPU 0 failed and leads; SPU 1 is decommissioned and nobody can take its replica."""
    events = Events()
    assigner = adopted(events, [[0, 1]])
    for spu_id in (2, 3):
        assigner.apply(events.cordon(spu_id))
    assigner.apply(events.leave(0))
    assigner.apply(events.leave(1, mode=LeaveMode.DECOMMISSION))
    assert lists_of(assigner) == [[0, 1]]
    assigner.apply(events.replication("t", 1))
    assert lists_of(assigner) == [[1]]


@pytest.mark.parametrize(
    ("row", "racks", "factor", "left"),
    [
        ([0, 1, 2, 3, 4], "aabbb", 4, [0, 1, 3, 4]),
        ([0, 1, 2, 3, 4], "aabbb", 2, [0, 4]),
        ([4, 0, 1, 2, 3], "abbab", 3, [4, 2, 3]),
        ([0, 3, 1, 2], "abba", 3, [0, 3, 2]),
    ],
)
def test_the_rack_with_the_most_replicas_gives(
    row: list[int], racks: str, factor: int, left: list[int]
) -> None:
    """So the list stays as even over racks as it can; all are as full."""
    events = Events()
    assigner = Assigner(Policy.BALANCED)
    for spu_id, rack in enumerate(racks):
        assigner.apply(events.join(spu_id, rack=rack))
    assigner.apply(events.adopt("t", row))
    assigner.apply(events.replication("t", factor))
    assert lists_of(assigner) == [left]


def test_a_replica_that_shares_its_rack_goes_before_one_that_is_alone() -> None:
    """Distinct racks stay distinct, though the SPU on rack b is fuller."""
    events = Events()
    assigner = Assigner(Policy.BALANCED)
    for event in events.racks({"a": [0, 1], "b": [2]}, capacity=100):
        assigner.apply(event)
    assigner.apply(events.adopt("u", [2], [2]))
    assigner.apply(events.adopt("t", [0, 1, 2]))
    assigner.apply(events.replication("t", 2))
    assert lists_of(assigner) == [[0, 2]]


def test_the_same_factor_changes_nothing_and_is_answered() -> None:
    """No map; a copy of the request is not answered."""
    events = Events()
    assigner = adopted(events, [[0, 1], [1, 2]])
    before = picture(assigner.clusters["c1"])
    same = events.replication("t", 2, event_id="r")
    assert statuses(assigner.apply(same)) == [("t", Status.ASSIGNED, None, "r")]
    assert len(assigner.apply(events.replication("t", 2))) == 1
    assert assigner.apply(same) == ()
    assert {**picture(assigner.clusters["c1"]), "seen": None} == {**before, "seen": None}


def test_adopted_lists_of_several_lengths_become_even() -> None:
    """The factor is that of the longest; the shorter ones are filled, for that was asked for."""
    events = Events()
    assigner = adopted(events, [[0, 1, 2], [1], [3, 0]])
    answers = assigner.apply(events.replication("t", 2))
    [changed] = [each for each in answers if isinstance(each, ReplicaMap)]
    assert lists_of(assigner) == [[0, 2], [1, 2], [3, 0]]
    assert changed.wanted_lengths is None
    assert (assigner.clusters["c1"].topics["t"].replication_factor) == 2


@pytest.mark.parametrize(
    ("topic", "factor", "code"),
    [
        ("t", 5, Code.INSUFFICIENT_SPUS),
        ("t", 4, Code.INSUFFICIENT_CAPACITY),
        ("t", 0, Code.INVALID_REPLICATION_FACTOR),
        ("t", 33, Code.INVALID_REPLICATION_FACTOR),
        ("none", 2, Code.TOPIC_UNKNOWN),
        ("hand", 2, Code.MANUAL_TOPIC),
    ],
)
def test_a_factor_that_cannot_be_met_changes_nothing(topic: str, factor: int, code: Code) -> None:
    """One answer with the code of a create that cannot be met so."""
    events = Events()
    assigner = adopted(events, [[0, 1], [2]], capacity=2)
    assigner.apply(events.adopt("hand", [3], [3], policy=Policy.MANUAL))
    before = picture(assigner.clusters["c1"])
    [answer] = assigner.apply(events.replication(topic, factor))
    assert isinstance(answer, TopicStatus)
    assert (answer.status, answer.code) == (Status.REJECTED, code)
    assert {**picture(assigner.clusters["c1"]), "seen": None} == {**before, "seen": None}


def test_slots_that_become_free_serve_what_waits() -> None:
    """And the SPU that was full is back in the ring."""
    events = Events()
    assigner = Assigner(Policy.FLUVIO)
    for event in (*events.joins(0, 1, capacity=1), events.create("t", 1, 2)):
        assigner.apply(event)
    assigner.apply(events.create("u", on_shortage=OnShortage.WAIT, event_id="waits"))
    answers = assigner.apply(events.replication("t", 1, event_id="r"))
    assert statuses(answers) == [
        ("t", Status.ASSIGNED, None, "r"),
        ("u", Status.ASSIGNED, None, "waits"),
    ]
    assert [(each.spu_id, each.change) for each in answers if isinstance(each, RingEvent)] == [
        (1, RingChange.RESTORED),
        (1, RingChange.SATURATED),
    ]
    assert (lists_of(assigner), lists_of(assigner, "u")) == ([[0]], [[1]])


def test_a_repair_that_waits_is_done_when_its_lists_are_long_enough() -> None:
    """Whoever awaits the decommission hears of it."""
    events = Events()
    assigner = Assigner(Policy.FLUVIO)
    for event in (*events.joins(0, 1), events.create("t", 1, 2)):
        assigner.apply(event)
    assigner.apply(events.leave(1, mode=LeaveMode.DECOMMISSION, event_id="leave"))
    answers = assigner.apply(events.replication("t", 1, event_id="r"))
    assert statuses(answers) == [
        ("t", Status.ASSIGNED, None, "r"),
        ("t", Status.ASSIGNED, None, "leave"),
    ]
    assert assigner.clusters["c1"].waiting == {}


def test_a_request_that_frees_all_slots_of_an_empty_ring_is_met() -> None:
    """Found by a seed: no SPU was in the ring, before and after."""
    events = Events()
    assigner = Assigner(Policy.REDPANDA)
    for event in (*events.joins(2, 4, capacity=0), events.adopt("t", [2], [4, 2], [2])):
        assigner.apply(event)
    assigner.apply(events.replication("t", 1))
    assert lists_of(assigner) == [[2], [4], [2]]


def test_cores_follow_the_replicas_of_redpanda() -> None:
    """Kept replicas keep theirs; one that goes gives its core back."""
    events = Events()
    assigner = Assigner(Policy.REDPANDA)
    for event in (*events.joins(0, 1, cores=2), events.create("t", 1, 1)):
        assigner.apply(event)
    assigner.apply(events.replication("t", 2))
    topic = assigner.clusters["c1"].topics["t"]
    assert topic.cores is not None
    assert topic.cores.lists().tolist() == [[1, 1]]
    assigner.apply(events.replication("t", 1))
    spus = assigner.clusters["c1"].spus
    assert [spu.core_weights for _, spu in sorted(spus.items())] == [(2, 1), (2, 0)]


def test_lists_exchange_spus_where_one_would_find_none() -> None:
    """Partition 0 takes SPU 1, the only one that partition 1 could have; it makes do with 2."""
    events = Events()
    assigner = Assigner(Policy.BALANCED)
    for spu_id, capacity in enumerate([1, 1, 2]):
        assigner.apply(events.join(spu_id, capacity=capacity))
    assigner.apply(events.adopt("t", [0], [2]))
    assigner.apply(events.replication("t", 2))
    assert lists_of(assigner) == [[0, 2], [2, 1]]


def can_be_met(rows: Rows, free: dict[int, int], factor: int) -> bool:
    """Whether the lists can have so many replicas, by trying everything."""
    if not rows:
        return True
    row, rest = rows[0], rows[1:]
    takers = [spu_id for spu_id, slots in free.items() if slots > 0 and spu_id not in row]
    return any(
        can_be_met(rest, {i: slots - (i in chosen) for i, slots in free.items()}, factor)
        for chosen in combinations(takers, max(factor - len(row), 0))
    )


@pytest.mark.thorough
@settings(max_examples=share_of(400), deadline=None)
@given(
    lists=st.lists(
        st.lists(st.integers(0, 4), min_size=1, max_size=2, unique=True), min_size=1, max_size=4
    ),
    free=st.lists(st.integers(0, 2), min_size=5, max_size=5),
    factor=st.integers(2, 4),
)
def test_a_factor_is_met_wherever_it_can_be(lists: Rows, free: list[int], factor: int) -> None:
    """Held against all that could be tried; and the oracle gives the same lists."""
    events = Events()
    counts = [sum(spu_id in row for row in lists) for spu_id in range(5)]
    story = [
        *[events.join(i, capacity=counts[i] + free[i]) for i in range(5)],
        events.adopt("t", *lists, policy=Policy.FLUVIO),
        events.replication("t", factor),
    ]
    assigner, oracle = Assigner(Policy.FLUVIO), Oracle()
    for event in story:
        answers = assigner.apply(event)
        lines = oracle.apply(as_line(event))
    is_met = statuses(answers)[0][1] is Status.ASSIGNED
    assert is_met == can_be_met(lists, dict(enumerate(free)), factor)
    maps = [line["replicas"] for line in lines if line["type"] == "replica_map"]
    assert maps == ([lists_of(assigner)] if any(isinstance(a, ReplicaMap) for a in answers) else [])


def as_line(event: Any) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(event_to_json(event))
    return line
