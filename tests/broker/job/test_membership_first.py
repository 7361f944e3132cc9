"""A create never overtakes a join, and Spark's UI shows whose query it is."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from spu_assigner.core.base.records import TopicStatus
from spu_assigner.schemas.messages.codec import decode_record, encode_event
from spu_assigner.stream.job.lifecycle import Job
from spu_assigner.stream.job.query import CALL_MS_MAX
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from support.events.builders import Events
from support.kafka.one_topic import open_transaction
from support.kafka.traffic import Kafka, process_all

ROUNDS = 2_000  # pairs at most; some tens are enough unless batches are very slow
OPEN_SECONDS = 3.0  # the job asks once a second; a create that is not held is answered in 0.2
BATCHES = 10  # a join and its create have fallen into one batch and into two by then


def test_a_limit_on_batches_holds_back_topic_events_only(
    settings: Settings, run: Callable[..., Job]
) -> None:
    """In a backlog membership is caught up first, so creates see the newest membership."""
    kafka, events = Kafka(settings), Events()
    kafka.send(events.create(f"t{number}", 1, 50) for number in range(30))
    kafka.send(events.joins(*range(50)))
    job = run(replace(settings, topic_events_per_batch=10))
    kafka.wait("topic-status", 30, job)
    read = [
        {topic: sum(place.count for place in places) for topic, places in marker.offsets.items()}
        for marker in kafka.markers()
    ]
    prefix = settings.topic_prefix
    assert read[0] == {
        f"{prefix}spu-events": 50,
        f"{prefix}topic-events": read[0][f"{prefix}topic-events"],
    }
    assert all(0 < batch[f"{prefix}topic-events"] <= 10 for batch in read)
    assert sum(batch[f"{prefix}topic-events"] for batch in read) == 30


@pytest.mark.long("joins and creates race over many batches")
def test_a_create_never_overtakes_a_join_acknowledged_before_it(
    settings: Settings, run: Callable[..., Job]
) -> None:
    """Joins and creates go to two topics; whatever batch they fall in, the join is seen."""
    kafka, first = Kafka(settings), Events("first")
    job = run(settings)
    kafka.send([first.join(0), first.create("t", 1, 1)])
    kafka.wait("topic-status", 1, job)  # Batches follow one another from here on.
    pairs = 0
    while len(kafka.markers()) <= BATCHES and pairs < ROUNDS:
        events = Events(f"c{pairs}")
        kafka.send([events.join(0)])
        kafka.send([events.create("t", 1, 1)])
        pairs += 1
        time.sleep(0.01)
    records = [decode_record(m.value() or b"") for m in kafka.wait("topic-status", pairs + 1, job)]
    statuses = [record.status.value for record in records if isinstance(record, TopicStatus)]
    assert statuses == ["assigned"] * (pairs + 1)
    assert len(kafka.markers()) > BATCHES  # else all fell into one, and nothing was shown
    # With the other order this race is lost in some runs only, so the order itself is pinned too:
    # Spark asks its sources for their latest offsets as they stand here, SPU events last.
    progress = job.query.lastProgress
    assert progress is not None
    sources = [
        source["description"].partition(settings.topic_prefix)[2] for source in progress["sources"]
    ]
    assert sources == ["topic-events]]", "spu-events]]"]


def statuses(kafka: Kafka, count: int, job: Job) -> list[str]:
    records = [decode_record(m.value() or b"") for m in kafka.wait("topic-status", count, job)]
    return [record.status.value for record in records if isinstance(record, TopicStatus)]


@pytest.mark.long("a whole job is shown to hold a create back")
@pytest.mark.parametrize(("end", "silence"), [("commit", 0), ("abort", 1.5 * CALL_MS_MAX / 1000)])
def test_a_create_waits_for_a_join_behind_an_open_transaction(
    kafka: EmbeddedBroker, settings: Settings, run: Callable[..., Job], end: str, silence: float
) -> None:
    """Both joins were acknowledged before the create was sent; the broker may be silent meanwhile,
    for longer than a question waits."""
    topics, events, other = Kafka(settings), Events(), Events("other")
    job = run()
    topics.send([events.join(0), events.create("before", 1, 1)])
    topics.wait("topic-status", 1, job)
    join = events.join(1)
    with open_transaction(
        settings.bootstrap_servers,
        f"{settings.topic_prefix}spu-events",
        key=b"other",
        value=encode_event(other.join(0)),
    ) as transaction:
        topics.send([join, events.create("after", 1, 2)])
        process_all(job.query)
        os.kill(kafka.pid or 0, signal.SIGSTOP)
        time.sleep(silence)
        os.kill(kafka.pid or 0, signal.SIGCONT)
        time.sleep(OPEN_SECONDS)
        assert len(topics.read("topic-status")) == 1
        getattr(transaction, end)()
    assert statuses(topics, 2, job) == ["assigned", "assigned"]
