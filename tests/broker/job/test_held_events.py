"""Topic events while a transaction of another producer is open on the input."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from spu_assigner.core.base.records import TopicStatus
from spu_assigner.schemas.messages.codec import decode_record, encode_event
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.job.lifecycle import Job
from support.events.builders import Events
from support.kafka.open_transaction import open_transaction
from support.kafka.traffic import Kafka, process_all

OPEN_SECONDS = 3.0  # the job asks once a second; a create that is not held is answered in 0.2


def statuses(kafka: Kafka, count: int, job: Job) -> list[str]:
    records = [decode_record(m.value() or b"") for m in kafka.wait("topic-status", count, job)]
    return [record.status.value for record in records if isinstance(record, TopicStatus)]


@pytest.mark.long("a whole job is shown to hold a create back")
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_create_waits_for_a_join_behind_an_open_transaction(
    settings: Settings, run: Callable[..., Job], end: str
) -> None:
    """Both joins were acknowledged before the create was sent."""
    kafka, events, other = Kafka(settings), Events(), Events("other")
    job = run()
    kafka.send([events.join(0), events.create("before", 1, 1)])
    kafka.wait("topic-status", 1, job)
    join = events.join(1)
    with open_transaction(
        settings.bootstrap_servers,
        f"{settings.topic_prefix}spu-events",
        key=b"other",
        value=encode_event(other.join(0)),
    ) as transaction:
        kafka.send([join, events.create("after", 1, 2)])
        process_all(job.query)
        time.sleep(OPEN_SECONDS)
        assert len(kafka.read("topic-status")) == 1
        getattr(transaction, end)()
    assert statuses(kafka, 2, job) == ["assigned", "assigned"]
