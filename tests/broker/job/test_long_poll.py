"""The source that waits at the broker: what an idle job asks for, and what wakes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from itertools import pairwise

from confluent_kafka.admin import AdminClient, NewPartitions
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.job.lifecycle import Job
from spu_assigner.stream.job.query import BATCH_INTERVAL_MS, triggers_begun
from spu_assigner.stream.kafka.config.settings import Settings
from support.events.builders import Events
from support.kafka.traffic import Kafka, process_all

SECONDS = 5.0
ROUNDS = 5
SEVERAL = 8  # events of a batch that keeps a distance
MANY = 40  # enough for a batch of several, also where the first ones are one of their own
CLOCK_MS = 5
STARTED = 4  # triggers that may begin beside those of the idle seconds


def test_an_idle_job_asks_once_a_second_and_wakes_with_the_first_event(
    settings: Settings, run: Callable[..., Job]
) -> None:
    """A trigger waits a second, the next one asks; Spark's own source has 60 to 100 a second."""
    kafka, events = Kafka(settings), Events("c")
    kafka.send([*events.joins(0, 1, 2), events.create("first", 1, 1)])
    job = run()
    kafka.wait("topic-status", 1, job)
    process_all(job.query)
    triggers = partial(triggers_begun, job.spark, job.run)
    before, begun = triggers(), time.monotonic()
    time.sleep(SECONDS)
    assert 1 <= triggers() - before <= 2 * (time.monotonic() - begun) + STARTED

    # A batch costs the same for one event as for many: those of several keep a distance.
    for number in range(ROUNDS):
        kafka.send([events.create(f"several-{number}-{each}", 1, 1) for each in range(MANY)])
        kafka.wait("topic-status", 1 + MANY * (number + 1), job)
    batches = [each for each in job.query.recentProgress if each["numInputRows"] >= SEVERAL]
    sources = [source for batch in batches for source in batch["sources"]]
    assert {source["metrics"]["maxOffsetsBehindLatest"] for source in sources} == {"0"}
    starts = [datetime.fromisoformat(batch["timestamp"]) for batch in batches]
    gaps = [(later - earlier).total_seconds() * 1000 for earlier, later in pairwise(starts)]
    assert len(gaps) >= ROUNDS - 1
    assert min(gaps) >= BATCH_INTERVAL_MS - CLOCK_MS

    # The broker is asked between the waits, and names partitions that were added meanwhile.
    topic = f"{settings.topic_prefix}topic-events"
    with AdminClient(settings.connection().client()) as admin:
        count = len(admin.list_topics(topic, 10).topics[topic].partitions)
        admin.create_partitions([NewPartitions(topic, count + 1)])[topic].result(30)
    fresh = Kafka(settings)  # the other producer does not know the partition yet
    fresh.send_raw(
        "topic-events", b"c", encode_event(events.create("grown", 1, 1)), partition=count
    )
    fresh.wait("topic-status", 2 + MANY * ROUNDS, job)

    process_all(job.query)
    job.query.stop()  # While it waits.
    assert job.await_termination(1.0)
    assert job.query.exception() is None
