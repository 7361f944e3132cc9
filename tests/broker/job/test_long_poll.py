"""The source that waits at the broker: what an idle job asks for, and what wakes it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import pairwise

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.job.lifecycle import Job, start
from spu_assigner.stream.job.source import BATCH_INTERVAL_MS, triggers_begun
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from spu_assigner.stream.local.jvm.java import Java
from support.events.builders import Events
from support.job.shards import SHARDS
from support.kafka.traffic import Kafka, process_all

PREFIX = "test-long-poll."
SECONDS = 5.0
CREATES, PAUSE_SECONDS = 5, 0.5  # so long the query has waited when a create comes
SEVERAL = 8  # events of a batch that keeps a distance
MANY = 40  # enough for a batch of several, also where the first ones are one of their own
CLOCK_MS = 5
STARTED = 4  # triggers that may begin beside those of the idle seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """A job that has answered all that was sent."""

    job: Job
    kafka: Kafka
    events: Events
    settings: Settings


@pytest.fixture(scope="module")
def idle(
    kafka: EmbeddedBroker, java: Java, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Idle]:
    create_topics({"bootstrap.servers": kafka.bootstrap_servers}, prefix=PREFIX)
    settings = Settings.load(
        flags={
            "bootstrap_servers": kafka.bootstrap_servers,
            "topic_prefix": PREFIX,
            "query_name": "long-poll",
            "checkpoint": str(tmp_path_factory.mktemp("long-poll") / "checkpoint"),
            "shards": SHARDS,
            "ui_port": 0,
            "master": "local[2]",
        },
        environ={},
    )
    messages, events = Kafka(settings), Events("c")
    messages.send([*events.joins(0, 1, 2), events.create("first", 1, 1)])
    with start(settings) as job:
        messages.wait("topic-status", 1, job)
        process_all(job.query)
        yield Idle(job=job, kafka=messages, events=events, settings=settings)


def test_an_idle_job_asks_the_broker_once_a_second(idle: Idle) -> None:
    """A trigger waits a second, the next one asks; Spark's own source has 60 to 100 a second."""
    triggers = partial(triggers_begun, idle.job.spark, idle.job._run)
    before, begun = triggers(), time.monotonic()
    time.sleep(SECONDS)
    assert 1 <= triggers() - before <= 2 * (time.monotonic() - begun) + STARTED


def test_no_batch_counts_the_wait_before_it(idle: Idle) -> None:
    """A trigger that waited finds nothing: Spark's pages show what a batch itself takes."""
    for number in range(CREATES):
        time.sleep(PAUSE_SECONDS)
        idle.kafka.send([idle.events.create(f"timed-{number}", 1, 1)])
        process_all(idle.job.query)
    batches = idle.job.query.recentProgress[-CREATES:]
    assert [batch["numInputRows"] for batch in batches] == [1] * CREATES
    asking, working = (
        sum(batch["durationMs"][part] for batch in batches) for part in ("latestOffset", "addBatch")
    )
    assert asking < working


def test_batches_of_several_events_keep_a_distance(idle: Idle) -> None:
    """A batch costs the same for one event as for many; a lone event is not held back."""
    process_all(idle.job.query)
    answered = len(idle.kafka.read("topic-status"))
    for number in range(CREATES):
        names = [f"several-{number}-{each}" for each in range(MANY)]
        idle.kafka.send([idle.events.create(name, 1, 1) for name in names])
        idle.kafka.wait("topic-status", answered + MANY * (number + 1), idle.job)
    begun = [
        datetime.fromisoformat(batch["timestamp"])
        for batch in idle.job.query.recentProgress
        if batch["numInputRows"] >= SEVERAL
    ]
    gaps = [(later - earlier).total_seconds() * 1000 for earlier, later in pairwise(begun)]
    assert len(gaps) >= CREATES - 1
    assert min(gaps) >= BATCH_INTERVAL_MS - CLOCK_MS


def test_an_event_in_a_new_partition_is_answered(idle: Idle) -> None:
    """The broker is asked between the waits, and names partitions that were added meanwhile."""
    topic = f"{PREFIX}topic-events"
    answered = len(idle.kafka.read("topic-status"))
    with AdminClient(idle.settings.connection().client()) as admin:
        count = len(admin.list_topics(topic, 10).topics[topic].partitions)
        admin.create_partitions([NewPartitions(topic, count + 1)])[topic].result(30)
    event = idle.events.create("grown", 1, 1)
    fresh = Kafka(idle.settings)  # the other producer does not know the partition yet
    fresh.send_raw("topic-events", b"c", encode_event(event), partition=count)
    fresh.wait("topic-status", answered + 1, idle.job)


def test_a_query_that_is_stopped_while_it_waits_ends_without_a_fault(idle: Idle) -> None:
    """Last in this file: nothing is answered after it."""
    process_all(idle.job.query)
    idle.job.query.stop()
    assert idle.job.await_termination(1.0)
    assert idle.job.query.exception() is None
