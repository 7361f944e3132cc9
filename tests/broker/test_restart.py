"""A stream of everything, with the job stopped again and again: at the end it is as if one process
had applied the events one after the other.

The order in which they were applied is taken from the markers, the messages from the input topics;
the core and `spu-assigner simulate` say what is to come out.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spu_assigner.core import (
    Assigner,
    Event,
    LeaveMode,
    OnShortage,
    Policy,
    ReplicaMap,
    RingEvent,
    TopicStatus,
)
from spu_assigner.core.records import Answer, Entry, Mode, Status
from spu_assigner.core.state import ClusterState
from spu_assigner.schemas.codec import EventKind, decode_event, decode_record, encode_event
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.jsonl import answer_to_json, event_to_json
from spu_assigner.schemas.wire import DeadLetter
from spu_assigner.stream.broker import EmbeddedBroker
from spu_assigner.stream.java import Java
from spu_assigner.stream.topics import create_topics
from support.audits import audit
from support.builders import Events
from support.pictures import picture
from support.programs import left_after, running, session
from support.streams import OUTPUTS, SPU_EVENTS, TOPIC_EVENTS, Outgoing, Read, Streams

SEED = 20
CLUSTERS = 10
KINDS: dict[str, EventKind] = {SPU_EVENTS: "spu", TOPIC_EVENTS: "topic"}
JOB = [sys.executable, "-m", "spu_assigner.stream.job"]
PROGRAM = [sys.executable, "-m", "spu_assigner.stream.cli", "run"]
ByKey = dict[bytes | None, list[Any]]


class Story:
    """Events of several clusters in a random order, some twice, and between them what is none."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._events = [Events(f"c{number}") for number in range(CLUSTERS)]
        self._sent: list[Outgoing] = []
        self.poison: dict[tuple[bytes | None, bytes | None], str] = {}  # key and value: the code

    def beginning(self) -> list[Outgoing]:
        """Every cluster's first SPUs: some with racks, all with little room."""
        return [
            self._sending(number, event)
            for number, events in enumerate(self._events)
            for event in events.racks({"a": [0, 1], "b": [2, 3]} if number % 2 else {}, capacity=40)
            or events.joins(0, 1, 2, 3, capacity=40)
        ]

    def part(self, count: int) -> list[Outgoing]:
        """The next messages."""
        return [self._next() for _ in range(count)]

    def _next(self) -> Outgoing:
        draw = self._random
        number = draw.randrange(CLUSTERS)
        events, topic = self._events[number], f"t{draw.randrange(12)}"
        policy = draw.choice([None, *_POLICIES])
        match draw.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]:
            case "create":
                event: Event = events.create(
                    topic,
                    draw.randint(1, 6),
                    draw.randint(1, 4),
                    policy=policy,
                    on_shortage=draw.choice(list(OnShortage)),
                )
            case "grow":
                event = events.grow(topic, draw.randint(2, 9))
            case "rebalance":
                event = events.rebalance(draw.randint(0, 20))
            case "delete":
                event = events.delete(topic)
            case "join":
                rack = draw.choice(["a", "b", "c"]) if number % 2 else None
                event = events.join(draw.randrange(8), rack=rack, capacity=draw.randint(5, 60))
            case "leave":
                event = events.leave(draw.randrange(8), mode=draw.choice(list(LeaveMode)))
            case "again" if self._sent:
                return draw.choice(self._sent)
            case _:
                return self._poison(number)
        return self._sending(number, event)

    def _sending(self, number: int, event: Event) -> Outgoing:
        # One in three clusters has producers that choose partitions by other rules than the key.
        partition = self._random.randrange(4) if number % 3 == 2 else None
        self._sent.append(Outgoing.of_event(event, partition))
        return self._sent[-1]

    def _poison(self, number: int) -> Outgoing:
        kind = self._random.randrange(5)
        create = self._events[number].create("poisoned")
        key, value = create.cluster_id.encode(), encode_event(create)
        nobody = f"nobody-{len(self.poison)}".encode()
        found: tuple[str, str, bytes | None, bytes | None] = [
            ("UNDECODABLE", TOPIC_EVENTS, key, b"\xff" + value),
            ("KEY_MISMATCH", TOPIC_EVENTS, nobody, value),
            ("KEY_MISSING", TOPIC_EVENTS, None, value),
            ("WRONG_TYPE", SPU_EVENTS, key, value),
            ("NULL_VALUE", SPU_EVENTS, nobody, None),
        ][kind]
        code, topic, key_sent, value_sent = found
        self.poison[key_sent, value_sent] = code
        return Outgoing(topic=topic, key=key_sent, value=value_sent)


def ending() -> list[list[Event]]:
    """A life in which nothing is left to chance: each part is applied before the next is sent."""
    events = Events("last")
    hot = {"policy": Policy.FLUVIO, "start_index": 0}
    return [
        [*events.joins(0, 1, 2)],
        [
            events.create("whole", 2, 3, policy=Policy.BALANCED),
            events.create("later", 1, 4, on_shortage=OnShortage.WAIT),
            *[events.create(f"hot-{number}", **hot) for number in range(9)],
        ],
        [events.leave(2, mode=LeaveMode.DECOMMISSION)],  # leaves the lists of "whole" short
        [*events.joins(7, 8, 9)],
        [events.rebalance(20)],
    ]


_WEIGHTS = {
    "create": 10,
    "delete": 4,
    "grow": 2,
    "rebalance": 1,
    "join": 4,
    "leave": 2,
    "again": 2,
    "poison": 1,
}
_POLICIES = [Policy.FLUVIO, Policy.KAFKA, Policy.REDPANDA, Policy.BALANCED]


def event_of(read: Read) -> Event | None:
    """The event of an input message; None if it is none."""
    try:
        event = decode_event(read.value, kind=KINDS[read.topic])
    except DecodeError:
        return None
    return event if event.cluster_id.encode() == read.key else None


def by_topic_and_key(answers: Iterable[Answer]) -> dict[str, ByKey]:
    """What is to be on each topic; None: a tombstone."""
    found: dict[str, ByKey] = {name: defaultdict(list) for name in OUTPUTS[:3]}
    for answer in answers:
        match answer:
            case RingEvent():
                found["ring-events"][answer.cluster_id.encode()].append(answer)
            case TopicStatus():
                found["topic-status"][f"{answer.cluster_id}/{answer.topic}".encode()].append(answer)
            case ReplicaMap():
                told = None if answer.replicas is None else answer
                found["replica-map"][f"{answer.cluster_id}/{answer.topic}".encode()].append(told)
    return found


def answers_in_kafka(streams: Streams) -> dict[str, ByKey]:
    found: dict[str, ByKey] = {name: defaultdict(list) for name in OUTPUTS[:3]}
    for name, by_key in found.items():
        for read in streams.read(name):
            by_key[read.key].append(None if read.value is None else decode_record(read.value))
    return found


def simulated(events: Iterable[Event]) -> list[str]:
    """What `spu-assigner simulate` prints."""
    told = subprocess.run(
        [sys.executable, "-m", "spu_assigner.stream.cli", "simulate"],
        input="".join(f"{event_to_json(event)}\n" for event in events),
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout.splitlines()


def check_dead_letters(streams: Streams, applied: list[Read], story: Story) -> None:
    """One for each message that is no event, with the code that belongs to it."""
    letters = []
    for read in streams.read("dead-letter"):
        letter = decode_record(read.value or b"")
        assert isinstance(letter, DeadLetter)
        place = letter.source_partition, letter.source_offset
        code = story.poison[read.key, letter.raw]
        letters.append((letter.source_topic.rpartition(".")[2], *place, letter.code == code))
    expected = [(*read.place, True) for read in applied if (read.key, read.value) in story.poison]
    assert sorted(letters) == sorted(expected)
    assert len(expected) >= 10


def check_that_it_lived(answers: list[Answer]) -> None:
    """The story, or at least its end, has every part of a cluster's later life in it."""
    modes = {
        answer.reason.mode
        for answer in answers
        if isinstance(answer, ReplicaMap) and answer.reason is not None
    }
    assert modes >= {Mode.REPAIR, Mode.REBALANCE, Mode.BALANCED}
    waited = [
        answer.cause
        for answer in answers
        if isinstance(answer, TopicStatus) and answer.status is Status.WAITING
    ]
    served = [
        answer.cause
        for answer in answers
        if isinstance(answer, TopicStatus) and answer.status is Status.ASSIGNED
    ]
    assert set(waited) & set(served)
    short = [
        answer
        for answer in answers
        if isinstance(answer, ReplicaMap)
        and answer.replicas is not None
        and min(map(len, answer.replicas.tolist())) < answer.replication_factor
    ]
    assert short


def check_state(streams: Streams, assigner: Assigner) -> None:
    """The state is what the outputs say: the latest maps and the latest entries."""
    clusters: dict[str, ClusterState] = defaultdict(lambda: ClusterState("?"))
    for cluster_id in assigner.clusters:
        clusters[cluster_id] = ClusterState(cluster_id)
    for topic in ("replica-map", "assigner-state"):
        for value in {read.key: read.value for read in streams.read(topic)}.values():
            if value is not None:
                record = decode_record(value)
                assert isinstance(record, ReplicaMap | Entry)
                clusters[record.cluster_id].restore(record)
    assert {name: picture(state) for name, state in clusters.items()} == {
        name: picture(state) for name, state in assigner.clusters.items()
    }


def test_a_job_that_was_stopped_and_killed_is_as_one_that_was_not(
    kafka: EmbeddedBroker, java: Java, topic_prefix: str, tmp_path: Path
) -> None:
    """Terminated and killed in mid-stream: nothing is lost, doubled or put in another order."""
    create_topics({"bootstrap.servers": kafka.bootstrap_servers}, prefix=topic_prefix)
    streams, story = Streams(kafka.bootstrap_servers, topic_prefix), Story(SEED)
    log, total = tmp_path / "log", 0
    environ = {
        "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "SPU_ASSIGNER_TOPIC_PREFIX": topic_prefix,
        "SPU_ASSIGNER_CHECKPOINT": str(tmp_path / "checkpoint"),
        "SPU_ASSIGNER_SHARDS": "2",
        "SPU_ASSIGNER_TOPIC_EVENTS_PER_BATCH": "40",
        "SPU_ASSIGNER_UI_PORT": "0",
    }
    for command, number, status in (
        (PROGRAM, signal.SIGTERM, 128 + signal.SIGTERM),
        (JOB, signal.SIGKILL, -signal.SIGKILL),
    ):
        part = [*(story.part(400) if total else story.beginning()), *story.part(100)]
        streams.send(part)
        total += len(part)
        before = streams.applied_count()
        with running(command, log, environ) as job:
            streams.wait(lambda enough=before + 60: streams.applied_count() >= enough, job)
            job.send_signal(number)
            assert job.wait(30) == status
            assert left_after(job) == {}
    assert streams.applied_count() < total, "it was stopped when all was done"
    part = story.part(300)
    streams.send(part)
    total += len(part)
    with running(JOB, log, environ) as job:
        streams.wait(lambda: streams.applied_count() == total, job)
        for part in ending():
            streams.send(part)
            total += len(part)
            streams.wait(lambda enough=total: streams.applied_count() == enough, job)
        (jvm,) = (pid for pid, line in session(job).items() if "SparkSubmit" in line)
        os.kill(jvm, signal.SIGKILL)
        assert job.wait(30) == 1
        assert left_after(job) == {}
    told = "spu-assigner: Spark's JVM has ended: killed, or out of memory; start the job again"
    assert told in log.read_text(encoding="utf-8")

    applied = streams.applied()
    events = [event for read in applied if (event := event_of(read)) is not None]
    assigner = Assigner()
    answers = [answer for event in events for answer in assigner.apply(event)]
    check_that_it_lived(answers)
    assert answers_in_kafka(streams) == by_topic_and_key(answers)
    assert simulated(events) == [answer_to_json(answer) for answer in answers]
    check_dead_letters(streams, applied, story)
    check_state(streams, assigner)
    markers = streams.markers()
    assert [marker.batch for marker in markers] == list(range(len(markers)))
    written = [read.ce_id for topic in OUTPUTS for read in streams.read(topic)]
    assert len(written) == len(set(written)) == sum(marker.count for marker in markers)
    assert audit(kafka.bootstrap_servers, topic_prefix, "--strict")[0] == 0
