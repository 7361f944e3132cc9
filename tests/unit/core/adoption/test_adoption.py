"""`TopicAdopted`: a topic enters the state as Kafka has it, and nothing moves."""

from __future__ import annotations

import random

import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Event, LeaveMode, OnShortage, Policy
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
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.json_lines.lines import event_from_json, event_to_json
from spu_assigner.schemas.messages.codec import (
    decode_event,
    decode_record,
    encode_event,
    encode_record,
)
from spu_assigner.stream.audit.verify.audit import verify
from spu_assigner.stream.audit.verify.model import How
from support.events.builders import Events
from support.events.histories import Outgoing, Writer
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


def statuses(records: tuple[Record, ...]) -> list[tuple[str, Status, Code | None, str]]:
    return [
        (record.topic, record.status, record.code, record.cause)
        for record in records
        if isinstance(record, TopicStatus)
    ]


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


def test_the_same_again_is_answered_and_changes_nothing() -> None:
    """Under another id; under the same id it is a copy, and not answered."""
    events = Events()
    assigner = cluster(events, 0, 1, 2)
    first = events.adopt("t", *LISTS)
    assigner.apply(first)
    before = picture(assigner.clusters["c1"])
    assert assigner.apply(first) == ()
    [again] = assigner.apply(events.adopt("t", *LISTS, event_id="again"))
    assert isinstance(again, TopicStatus)
    assert (again.status, again.cause) == (Status.ADOPTED, "again")
    after = picture(assigner.clusters["c1"])
    assert {**after, "seen": None} == {**before, "seen": None}


@pytest.mark.parametrize(
    ("lists", "given"),
    [
        (LISTS[:2], {}),
        ([[1, 0], *LISTS[1:]], {}),
        (LISTS, {"pinned": True}),
        (LISTS, {"policy": Policy.KAFKA}),
    ],
    ids=["fewer partitions", "another leader", "pinned", "policy"],
)
def test_another_content_is_the_next_revision(
    lists: list[list[int]], given: dict[str, object]
) -> None:
    """Lists, policy or `pinned`: each alone is a change."""
    events = Events()
    assigner = cluster(events, 0, 1, 2)
    assigner.apply(events.adopt("t", *LISTS))
    changed = the_map(assigner.apply(events.adopt("t", *lists, **given)))
    assert changed.replicas is not None
    assert (changed.revision, changed.replicas.tolist()) == (2, lists)
    assert changed.pinned is bool(given.get("pinned"))
    assert changed.policy is given.get("policy", Policy.BALANCED)
    state = assigner.clusters["c1"]
    counts = [sum(spu_id in row for row in lists) for spu_id in range(3)]
    assert [state.ledger.count(spu_id) for spu_id in range(3)] == counts


def test_a_known_topic_keeps_its_policy_when_an_adoption_names_none() -> None:
    """Whatever the job's default is."""
    events = Events()
    assigner = cluster(events, 0, 1)
    assigner.apply(events.create("t", 1, 2, policy=Policy.FLUVIO))
    [status] = assigner.apply(events.adopt("t", [0, 1]))
    assert isinstance(status, TopicStatus)
    assert status.status is Status.ADOPTED
    assert the_map(assigner.apply(events.adopt("t", [1, 0]))).policy is Policy.FLUVIO


def test_a_copy_of_an_adoption_that_the_cluster_forgot_does_not_undo_a_later_one() -> None:
    """The topic remembers its own events, as it does its create and its grows."""
    events = Events()
    assigner = cluster(events, 0, 1)
    first, second = events.adopt("t", [0]), events.adopt("t", [1])
    for event in (first, second, *(events.delete("none") for _ in range(300))):
        assigner.apply(event)
    assert assigner.apply(first) == ()
    assert assigner.apply(second) == ()
    assert lists_of(assigner) == [[1]]


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


def test_offline_spus_may_be_named() -> None:
    """They keep what they hold while they are away."""
    events = Events()
    assigner = cluster(events, 0, 1)
    assigner.apply(events.leave(1))
    assert the_map(assigner.apply(events.adopt("t", [1, 0]))).revision == 1


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


def test_a_create_that_waits_is_refused_when_its_name_is_adopted() -> None:
    """The topic is there: the create can no longer be met, and says so."""
    events = Events()
    assigner = cluster(events, 0)
    assigner.apply(events.create("t", 1, 2, on_shortage=OnShortage.WAIT, event_id="waits"))
    answers = assigner.apply(events.adopt("t", [0], event_id="a"))
    assert statuses(answers) == [
        ("t", Status.ADOPTED, None, "a"),
        ("t", Status.REJECTED, Code.TOPIC_EXISTS, "waits"),
    ]
    assert assigner.clusters["c1"].waiting == {}


def test_it_grows_by_its_policy_with_as_many_replicas_as_its_longest_list() -> None:
    """Old lists stay as they are, short ones too."""
    events = Events()
    assigner = cluster(events, 0, 1, 2)
    assigner.apply(events.adopt("t", *LISTS, policy=Policy.FLUVIO))
    grown = the_map(assigner.apply(events.grow("t", 4)))
    assert grown.replicas is not None
    assert grown.replicas.tolist() == [*LISTS, [0, 1, 2]]
    assert grown.wanted_lengths == (2, 3, 1, 3)


def test_a_manual_topic_is_adopted_and_does_not_grow() -> None:
    """There is no rule to grow it by, as of every manual topic."""
    events = Events()
    assigner = cluster(events, 0, 1)
    found = the_map(assigner.apply(events.adopt("t", [0], policy=Policy.MANUAL)))
    assert (found.policy, found.chain_index) == (Policy.MANUAL, None)
    [status] = assigner.apply(events.grow("t", 2))
    assert isinstance(status, TopicStatus)
    assert status.code is Code.MANUAL_TOPIC


def test_a_decommission_moves_its_replicas_and_lengthens_no_list() -> None:
    """Each list keeps the length that it was adopted with."""
    events = Events()
    assigner = cluster(events, 0, 1, 2, 3)
    assigner.apply(events.adopt("t", *LISTS))
    moved = the_map(assigner.apply(events.leave(1, mode=LeaveMode.DECOMMISSION)))
    assert moved.replicas is not None
    assert moved.replicas.tolist() == [[0, 3], [2, 0, 3], [2]]
    assert moved.wanted_lengths == (2, 3, 1)
    assert 1 not in assigner.clusters["c1"].spus


def test_a_list_left_short_is_filled_up_to_its_own_length() -> None:
    """It waits for an SPU; its neighbours, which were shorter, do not."""
    events = Events()
    assigner = cluster(events, 0, 1, 2)
    assigner.apply(events.adopt("t", *LISTS))
    leave = events.leave(1, mode=LeaveMode.DECOMMISSION, event_id="leave")
    assert statuses(assigner.apply(leave)) == [
        ("t", Status.WAITING, Code.INSUFFICIENT_SPUS, "leave")
    ]
    assert lists_of(assigner) == [[0, 2], [2, 0], [2]]
    filled = assigner.apply(events.join(5))
    assert statuses(filled) == [("t", Status.ASSIGNED, None, "leave")]
    assert lists_of(assigner) == [[0, 2], [2, 0, 5], [2]]


def test_what_is_adopted_on_a_leaving_spu_is_moved_by_the_decommission() -> None:
    """The map is as it was found; the next one is the repair's, for the SPU has to be emptied."""
    events = Events()
    assigner = cluster(events, 0, capacity=0)
    assigner.apply(events.join(2))
    assigner.apply(events.adopt("last", [2]))
    assigner.apply(events.leave(2, mode=LeaveMode.DECOMMISSION))
    answers = assigner.apply(events.adopt("t", [2, 0], event_id="a"))
    maps = [each.replicas for each in answers if isinstance(each, ReplicaMap)]
    assert [None if each is None else each.tolist() for each in maps] == [[[2, 0]], [[0]]]
    assert statuses(answers) == [
        ("t", Status.ADOPTED, None, "a"),
        ("t", Status.WAITING, Code.INSUFFICIENT_SPUS, "a"),
    ]


def test_a_repair_that_waits_ends_when_the_topic_is_adopted_as_it_is() -> None:
    """Its lists are what they are to be; whoever awaits the decommission hears of it."""
    events = Events()
    assigner = cluster(events, 0, 1)
    assigner.apply(events.create("t", 1, 2))
    assigner.apply(events.leave(1, mode=LeaveMode.DECOMMISSION, event_id="leave"))
    answers = assigner.apply(events.adopt("t", [0], pinned=True, event_id="a"))
    assert statuses(answers) == [
        ("t", Status.ADOPTED, None, "a"),
        ("t", Status.ASSIGNED, None, "leave"),
    ]
    assigner.apply(events.join(5))
    assert lists_of(assigner) == [[0]]


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


def test_redpanda_takes_a_core_for_each_replica_and_gives_it_back() -> None:
    """Lists of Kafka's name no cores: the first of least weight each, as the policy does."""
    events = Events()
    assigner = cluster(events)
    for event in events.joins(0, 1, cores=2):
        assigner.apply(event)
    found = the_map(assigner.apply(events.adopt("t", [0], [0, 1], policy=Policy.REDPANDA)))
    assert found.cores is not None
    assert found.cores.tolist() == [[1], [1, 1]]
    again = the_map(assigner.apply(events.adopt("t", [0], [0], policy=Policy.REDPANDA)))
    assert again.cores is not None
    assert again.cores.tolist() == [[1], [1]]
    assigner.apply(events.delete("t"))
    assert assigner.clusters["c1"].core_weights == {0: [2, 0], 1: [2, 0]}


def test_the_state_is_rebuilt_from_the_messages_of_an_adoption() -> None:
    """Its lengths and its pin are in the map, which `recover` reads."""
    events = Events()
    assigner = cluster(events, 0, 1, 2)
    found = the_map(assigner.apply(events.adopt("t", *LISTS, pinned=True)))
    state, restored = assigner.clusters["c1"], ClusterState("c1")
    published = decode_record(encode_record(found))
    assert published == found
    for value in (published, *state.take_entries()):
        restored.restore(value)  # type: ignore[arg-type]  # maps and entries that are there
    assert picture(restored) == picture(state)


@pytest.mark.parametrize("given", [{}, {"policy": Policy.KAFKA, "pinned": True}])
def test_the_event_is_the_same_in_json_and_in_avro(given: dict[str, object]) -> None:
    """And in the form that the contract fixes."""
    event: Event = Events().adopt("t", [0, 1], [1, 2, 0], **given)
    assert decode_event(encode_event(event), kind="topic") == event
    assert event_from_json(event_to_json(event)) == event
    fixed = (
        '{"type":"topic_adopted","event_id":"e1","cluster_id":"c1","topic":"t",'
        '"replicas":[[0,1],[1,2,0]],"policy":null,"pinned":false}'
    )
    if not given:
        assert event_to_json(event) == fixed


@pytest.mark.thorough
def test_the_largest_lists_of_kafka_fit_into_a_message() -> None:
    """A topic of 100,000 partitions is within 1 MiB, as manual lists are."""
    rows = [[number % 60, (number + 1) % 60, (number + 2) % 60] for number in range(PARTITIONS_MAX)]
    event = Events().adopt("t", *rows)
    assert decode_event(encode_event(event), kind="topic") == event


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
