"""The distance between batches of several events, and what ends it early."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer
from spu_assigner.core.base.events import Event
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.job import source
from spu_assigner.stream.job.lifecycle import Job
from spu_assigner.stream.kafka.config.settings import Settings
from support.events.builders import Events
from support.kafka.traffic import Kafka

DISTANCE = timedelta(seconds=30)
SOON = 1_000  # so many that wait are a batch at once
SEVERAL, MANY = 40, 3 * SOON  # after the batch of the first a distance begins


def test_a_thousand_events_end_the_distance(
    settings: Settings, run: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sends a backlog does not wait for the sake of a few events before it."""
    monkeypatch.setattr(source, "BATCH_INTERVAL_MS", DISTANCE // timedelta(milliseconds=1))
    job, kafka, events = run(settings), Kafka(settings), Events("c")
    kafka.send([*events.joins(0, 1, 2), events.create("first", 1, 1)])
    kafka.wait("topic-status", 1, job)
    several, many = (
        [events.create(f"{name}-{at}", 1, 1) for at in range(count)]
        for name, count in (("several", SEVERAL), ("many", MANY))
    )
    _send_at_once(settings, several)
    kafka.wait("topic-status", 1 + SEVERAL, job)
    _send_at_once(settings, many)
    kafka.wait("topic-status", 1 + SEVERAL + SOON, job)
    batches: list[Mapping[str, Any]] = []
    while not any(batch["numInputRows"] >= SOON for batch in batches):
        job.await_termination(0.1)
        batches = [batch for batch in job.query.recentProgress if batch["numInputRows"]]
    due = next(at for at, batch in enumerate(batches) if batch["numInputRows"] >= SOON)
    before, begun = (
        datetime.fromisoformat(each["timestamp"]) for each in batches[due - 1 : due + 1]
    )
    assert begun - before < DISTANCE


def _send_at_once(settings: Settings, events: Iterable[Event]) -> None:
    """In one batch of Kafka's, so that the job sees all or none."""
    producer = Producer({**settings.connection().client(), "linger.ms": 1_000})
    for event in events:
        producer.produce(
            f"{settings.topic_prefix}topic-events", encode_event(event), event.cluster_id
        )
    producer.flush()
