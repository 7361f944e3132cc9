"""`TopicAdopted`: a topic enters the state as Kafka has it, and nothing moves."""

from __future__ import annotations

import random

import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import LeaveMode, OnShortage, Policy
from spu_assigner.core.base.limits import PARTITIONS_MAX, REPLICATION_FACTOR_MAX
from spu_assigner.core.base.records import (
    Mode,
    Record,
    ReplicaMap,
    RingChange,
    RingEvent,
    Status,
    TopicStatus,
)
from spu_assigner.stream.audit.verify.audit import verify
from spu_assigner.stream.audit.verify.model import How
from support.events.builders import Events
from support.events.histories import Outgoing, Writer
from support.events.one_cluster import statuses
from support.model.pictures import picture

LISTS = [[0, 1], [1, 2, 0], [2]]


def cluster(events: Events, *spu_ids: int, capacity: int | None = None) -> Assigner:
    """SPUs that hold nothing yet."""
    assigner = Assigner(Policy.BALANCED)
    for event in events.joins(*spu_ids, capacity=capacity):
        assigner.apply(event)
    return assigner


def the_map(records: tuple[Record, ...]) -> ReplicaMap:
    [found] = [record for record in records if isinstance(record, ReplicaMap)]
    return found


def ring_changes(records: tuple[Record, ...]) -> list[tuple[int, RingChange]]:
    return [(record.spu_id, record.change) for record in records if isinstance(record, RingEvent)]


def lists_of(assigner: Assigner, topic: str = "t") -> list[list[int]]:
    return assigner.clusters["c1"].topics[topic].replicas.lists().tolist()


def test_an_adopted_topic_is_as_it_was_found() -> None:
    """Any lengths, any order; the default policy, since the event names none."""
    events = Events()
    assigner = cluster(events, 0, 1, 2)
    found = the_map(answers := assigner.apply(events.adopt("t", *LISTS, event_id="a")))
    assert found.replicas is not None
    assert found.replicas.tolist() == LISTS
    assert (found.revision, found.policy, found.cause) == (1, Policy.BALANCED, "a")
    assert (found.replication_factor, found.wanted_lengths) == (3, (2, 3, 1))
    assert found.reason is not None
    assert found.reason.mode is Mode.ADOPTED
    assert statuses(answers) == [("t", Status.ADOPTED, None, "a")]
    state = assigner.clusters["c1"]
    assert [state.ledger.count(spu_id) for spu_id in range(3)] == [2, 2, 2]


def test_a_fact_may_exceed_a_capacity_and_the_spu_is_saturated() -> None:
    """It leaves the ring; a later content that frees it brings it back, and serves who waits."""
    events = Events()
    assigner = cluster(events, 0, capacity=1)
    full = assigner.apply(events.adopt("t", [0], [0], [0]))
    assert ring_changes(full) == [(0, RingChange.SATURATED)]
    assert assigner.clusters["c1"].ledger.count(0) == 3
    waits = events.create("u", on_shortage=OnShortage.WAIT, event_id="waits")
    assert statuses(assigner.apply(waits)) == [
        ("u", Status.WAITING, Code.INSUFFICIENT_CAPACITY, "waits")
    ]
    still = assigner.apply(events.adopt("t", [0], event_id="still"))
    assert ring_changes(still) == []
    assigner.apply(events.join(1, capacity=0))
    freed = assigner.apply(events.adopt("t", [1], event_id="moved"))
    assert ring_changes(freed) == [(0, RingChange.RESTORED), (0, RingChange.SATURATED)]
    assert statuses(freed) == [
        ("t", Status.ADOPTED, None, "moved"),
        ("u", Status.ASSIGNED, None, "waits"),
    ]


@pytest.mark.parametrize(
    ("topic", "lists", "code", "message"),
    [
        ("t", [[0], [0, 7]], Code.MANUAL_UNKNOWN_SPU, "partition 1 names SPU 7"),
        ("t", [[0], [1, 0, 1]], Code.MANUAL_DUPLICATE_SPU, "partition 1 names SPU 1 more than"),
        ("t", [[0], []], Code.MANUAL_EMPTY_LIST, "partition 1 has no replicas"),
        ("t", [[-1]], Code.MANUAL_INVALID_SPU, "partition 0 names the SPU -1"),
        ("t", [], Code.INVALID_PARTITIONS, "name 0 partitions"),
        ("t", [[0]] * (PARTITIONS_MAX + 1), Code.INVALID_PARTITIONS, "name 100001 partitions"),
        (
            "t",
            [list(range(REPLICATION_FACTOR_MAX + 1))],
            Code.INVALID_REPLICATION_FACTOR,
            "has 33 replicas",
        ),
        ("__t", [[0]], Code.RESERVED_NAME, "leave it out"),
        ("replica-map", [[0]], Code.RESERVED_NAME, "leave it out"),
    ],
)
def test_what_cannot_be_adopted_is_rejected_by_name(
    topic: str, lists: list[list[int]], code: Code, message: str
) -> None:
    """One answer, which names the first fault; the state is as before."""
    events = Events()
    assigner = cluster(events, 0, 1)
    before = picture(assigner.clusters["c1"])
    [status] = assigner.apply(events.adopt(topic, *lists))
    assert isinstance(status, TopicStatus)
    assert (status.status, status.code) == (Status.REJECTED, code)
    assert message in (status.message or "")
    assert {**picture(assigner.clusters["c1"]), "seen": None} == {**before, "seen": None}


def test_a_rebalance_moves_an_adopted_topic_unless_it_is_pinned() -> None:
    """As it does a manual one; the answer counts those that it left alone."""
    events = Events()
    assigner = cluster(events, 0)
    assigner.apply(events.adopt("free", *[[0]] * 4))
    assigner.apply(events.adopt("held", *[[0]] * 4, pinned=True))
    assigner.apply(events.adopt("hand", [0], policy=Policy.MANUAL))
    assigner.apply(events.join(1))
    answers = assigner.apply(events.rebalance())
    moved = the_map(answers)
    [answer] = [each for each in answers if isinstance(each, TopicStatus)]
    assert moved.topic == "free"
    assert answer.moves == 3
    assert (answer.message or "").endswith("; 2 manual or pinned topics left alone")


def test_the_audit_replays_adoptions_and_factors_to_the_same_bytes() -> None:
    """And without the inputs the digests still fit."""
    events = Events()
    writer = Writer(1, shards=1)
    for event in (
        *events.joins(0, 1, 2, 3),
        events.adopt("t", *LISTS, pinned=True),
        events.adopt("t", *LISTS[:2]),
        events.grow("t", 3),
        events.replication("t", 2),
        events.leave(1, mode=LeaveMode.DECOMMISSION),
    ):
        writer.send([Outgoing.of_event(event, None)])
        writer.batch()
    report = verify(writer.topics.history())
    assert [report.findings, list(report.unchecked())] == [[], []]
    assert [how for how, _, _ in report.how()] == [How.REPLAYED]
    topics = writer.topics.copy()
    topics.expire(random.Random(0), ["spu-events", "topic-events"])
    report = verify(topics.history())
    assert report.findings == []
