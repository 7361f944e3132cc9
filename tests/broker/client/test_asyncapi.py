"""A job's outputs, read by a consumer that knows `asyncapi.yaml` alone.

The outputs are written by the parts of the job themselves, without Spark.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, replace
from enum import Enum
from typing import Any

import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import Event, OnShortage, Policy
from spu_assigner.core.base.records import ReplicaMap, RingEvent, TopicStatus
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.schemas.messages.codec import encode_record
from spu_assigner.schemas.messages.wire import MOVES_KEY, AppliedTopic, Origin
from spu_assigner.stream.clusters.moves.run_record import begun_run
from spu_assigner.stream.clusters.plan.applied_store import AppliedLedger
from spu_assigner.stream.kafka.config.settings import Settings
from support.events.builders import Events
from support.job.small_job import small_job
from support.job.streams import Outgoing
from support.kafka.registry_server import registry_client
from support.kafka.traffic import Kafka
from support.project.contract import Contract, Received, received

NO_EVENT = b"hello"
CHECKPOINT_ID = "0f2c7e0a-6d1b-4a57-9f0e-3c1d2b4a5968"  # of the form that Spark gives


SEEN = {  # the fields that are compared; the codec's own tests hold all of them
    "ReplicaMap": ("topic", "revision", "policy", "replicas", "cores", "chain_index", "cause"),
    "TopicStatus": ("topic", "status", "code", "message", "replicas", "cause"),
    "RingEvent": ("spu_id", "change", "code", "message", "ring_size", "cause"),
}


def plain(value: Any) -> Any:
    """As Avro has it."""
    if isinstance(value, ReplicaLists):
        return value.tolist()
    return value.name if isinstance(value, Enum) else value


def seen_of(record: ReplicaMap | TopicStatus | RingEvent) -> dict[str, Any] | None:
    """What a consumer is to see of an answer of the core."""
    if isinstance(record, ReplicaMap) and record.replicas is None:
        return None
    return {name: plain(getattr(record, name)) for name in SEEN[type(record).__name__]}


def answered(events: Iterable[Event]) -> dict[str, dict[str, list[Any]]]:
    """What the core answers, by type and by key."""
    assigner = Assigner()
    found: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        for record in assigner.apply(event):
            is_of_the_ring = isinstance(record, RingEvent)
            key = record.cluster_id if is_of_the_ring else f"{record.cluster_id}/{record.topic}"
            found[type(record).__name__][key].append(seen_of(record))
    return found


def by_key(messages: list[Received]) -> dict[str, list[Any]]:
    """What was read, by key, in order."""
    found: dict[str, list[Any]] = defaultdict(list)
    for message in messages:
        names = SEEN.get(message.name.removesuffix("Tombstone"))
        value = message.value
        if names is not None and value is not None:
            value = {name: value[name] for name in names}
        found[(message.key or b"").decode()].append(value)
    return found


@pytest.fixture
def sent(settings: Settings) -> list[Event]:
    """A run with answers of all kinds; the events, in their order."""
    events = Events()
    joins = [
        *events.racks({"a": [0, 1], "b": [2]}, labels={"host": "node"}),
        events.leave(7),  # nobody knows it
    ]
    creates: list[Event] = [
        events.create("even", 4, 2),
        events.create("walked", 3, 2, policy=Policy.KAFKA),
        events.create("cores", 2, 2, policy=Policy.REDPANDA),
        events.manual("given", [2, 0], [0, 1]),
        events.create("tried", 2, 3, validate_only=True),
        events.create("refused", 1, 9),
        events.create("waits", 2, 4, on_shortage=OnShortage.WAIT),
        events.delete("walked"),
        events.release("cores"),
        events.rebalance(10),
    ]
    later: list[Event] = [events.join(3, rack="b", capacity=2)]
    first = [Outgoing.of_event(event, 0) for event in joins]
    first.append(Outgoing(topic="topic-events", key=b"c1", value=NO_EVENT, partition=0))
    first += [Outgoing.of_event(event, 0) for event in creates]
    with small_job(settings, checkpoint_id=CHECKPOINT_ID) as job:
        job.streams.send(first)
        job.answer(first)
        job.apply(later)  # it serves what waits, and is saturated by it
    return [*joins, *creates, *later]


@pytest.mark.smoke
def test_a_consumer_that_knows_the_document_alone_reads_every_output(
    settings: Settings, sent: list[Event]
) -> None:
    """With confluent-kafka's own Avro deserializer, and a registry filled from the document."""
    contract = Contract()
    made = AppliedTopic(
        cluster_id="c1",
        topic="even",
        topic_id="id",
        origin=Origin.CREATED,
        recorded_at=1,
        lists="0",
    )
    ledger = AppliedLedger(settings.connection(), "c1", is_there=True)
    ledger.record([made])
    ledger.forget(["walked"])
    run = replace(begun_run("c1"), run_id="r", moves_total=2)
    Kafka(settings).send_raw("applied-topics", MOVES_KEY.encode(), encode_record(run))
    with registry_client(contract.avro_schemas) as client:
        read = {
            name: received(
                contract,
                client,
                operation,
                bootstrap_servers=settings.bootstrap_servers,
                prefix=settings.topic_prefix,
            )
            for name, operation in contract.operations("receive").items()
        }
    expected = answered(sent)
    assert by_key(read["receiveReplicaMaps"]) == expected["ReplicaMap"]
    assert by_key(read["receiveTopicStatuses"]) == expected["TopicStatus"]
    assert by_key(read["receiveRingEvents"]) == expected["RingEvent"]
    (letter,) = read["receiveDeadLetters"]
    assert (letter.value["raw"], letter.value["code"]) == (NO_EVENT, "UNDECODABLE")
    assert letter.value["sha256"] == hashlib.sha256(NO_EVENT).hexdigest()
    state = {message.key: message.value for message in read["receiveState"]}
    assert state[b"c1/waiting/waits"] is None
    assert {key: state[key]["rack"] for key in state if key.startswith(b"c1/spu/")} == {
        b"c1/spu/0": "a",
        b"c1/spu/1": "a",
        b"c1/spu/2": "b",
        b"c1/spu/3": "b",
    }
    applied = read.pop("receiveAppliedTopics")
    (when,) = [each.value["recorded_at"] for each in applied if each.key == b"c1/even"]
    made = replace(made, recorded_at=when)  # when it was written
    assert by_key(applied) == {
        "c1/even": [{**asdict(made), "origin": "CREATED"}],
        "c1/walked": [None],
        "c1/walked/intent": [None],
        MOVES_KEY: [
            {**asdict(run), "state": "RUNNING", "moves": [], "throttles": [], "failures": []}
        ],
    }
    markers = read.pop("receiveMarkers")
    assert read.pop("receiveLastMarkers")[-1] == markers[-1]
    batches = [f"{each.value['checkpoint_id']}/{each.value['batch']}" for each in markers]
    query = settings.query_name
    assert [each.headers["ce_id"] for each in markers] == [f"{query}/{batch}" for batch in batches]
    written = [message.headers["ce_id"] for messages in read.values() for message in messages]
    assert sum(marker.value["count"] for marker in markers) == len(written) == len(set(written))
    names = {
        message.name for messages in [applied, markers, *read.values()] for message in messages
    }
    outputs = contract.operations("receive").values()
    described = {each["name"] for operation in outputs for each in operation["messages"]}
    # Of a decommission, and of a cluster of which nothing is left.
    ends = {"SpuStateTombstone", "ChainStateTombstone", "SeenStateTombstone"}
    assert described - names == ends
