"""A stream of everything, with the job stopped again and again: at the end it is as if one process
had applied the events one after the other.

The order in which they were applied is taken from the markers, the messages from the input topics;
the core and `spu-assigner simulate` say what is to come out.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from spu_assigner.core import Assigner, Event, ReplicaMap, TopicStatus
from spu_assigner.core.base.records import Answer, Mode, Status
from spu_assigner.schemas.json_lines.lines import answer_to_json, event_to_json
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.schemas.messages.wire import DeadLetter
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.local.jvm.java import Java
from support.events.story import Story, ending, event_of
from support.job.audits import audit
from support.job.judge import place_of, restored, value_of
from support.job.programs import left_after, running, session
from support.job.shards import SHARDS
from support.job.streams import OUTPUTS, Read, Streams
from support.kafka.shared_broker import SharedBroker
from support.model.pictures import picture

SEED = 20
STOCK = 300  # events: what is not yet applied when a job is stopped
PATIENCE_SECONDS = 240.0
JOB = [sys.executable, "-m", "spu_assigner.stream.job.lifecycle"]
PROGRAM = [sys.executable, "-m", "spu_assigner.stream.cli", "run"]
ByKey = dict[bytes | None, list[Any]]


def by_topic_and_key(answers: Iterable[Answer]) -> dict[str, ByKey]:
    """What is to be on each topic; None: a tombstone."""
    found: dict[str, ByKey] = {name: defaultdict(list) for name in OUTPUTS[:3]}
    for answer in answers:
        topic, key = place_of(answer)
        found[topic][key].append(value_of(answer))
    return found


def answers_in_kafka(streams: Streams) -> dict[str, ByKey]:
    found: dict[str, ByKey] = {name: defaultdict(list) for name in OUTPUTS[:3]}
    for name, by_key in found.items():
        for read in streams.read(name):
            by_key[read.key].append(None if read.value is None else decode_record(read.value))
    return found


def simulated(events: Iterable[Event]) -> list[str]:
    """What `spu-assigner simulate` prints."""
    result = subprocess.run(
        [sys.executable, "-m", "spu_assigner.stream.cli", "simulate"],
        input="".join(f"{event_to_json(event)}\n" for event in events),
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.splitlines()


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
    latest = {
        (topic, read.key): read.value
        for topic in ("replica-map", "assigner-state")
        for read in streams.read(topic)
    }
    assert restored(assigner.clusters, latest.values()) == {
        name: picture(state) for name, state in assigner.clusters.items()
    }


@pytest.mark.long("a job is stopped, killed and started in one life")
def test_a_job_that_was_stopped_and_killed_is_as_one_that_was_not(
    kafka: SharedBroker, java: Java, topic_prefix: str, tmp_path: Path
) -> None:
    """Terminated and killed in mid-stream: nothing is lost, doubled or put in another order."""
    create_topics({"bootstrap.servers": kafka.bootstrap_servers}, prefix=topic_prefix)
    streams, story = Streams(kafka.bootstrap_servers, topic_prefix), Story(SEED)
    log, total = tmp_path / "log", 0
    environ = {
        "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "SPU_ASSIGNER_TOPIC_PREFIX": topic_prefix,
        "SPU_ASSIGNER_CHECKPOINT": str(tmp_path / "checkpoint"),
        "SPU_ASSIGNER_SHARDS": str(SHARDS),
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
        enough, deadline = streams.applied_count() + 60, time.monotonic() + PATIENCE_SECONDS
        with running(command, log, environ) as job:
            while (applied := streams.applied_count()) < enough:
                assert job.poll() is None, f"the job ended with status {job.returncode}"
                assert time.monotonic() < deadline, f"{applied} of {enough} are applied"
                if total - applied < STOCK:  # It is never through with all.
                    part = story.part(100)
                    streams.send(part)
                    total += len(part)
                time.sleep(0.1)
            job.send_signal(number)
            assert job.wait(90) == status
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
        assert job.wait(90) == 1
        assert left_after(job) == {}
    message = "spu-assigner: Spark's JVM has ended: killed, or out of memory; start the job again"
    assert message in log.read_text(encoding="utf-8")

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
