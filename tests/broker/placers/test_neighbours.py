"""The neighbours that the product is measured against do its work, or figures mean nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from spu_assigner.core import Assigner, Event, Policy, SpuJoined, TopicCreate
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.schemas.messages.codec import encode_event, encode_record
from support.job.programs import running
from support.kafka.reading import committed
from support.kafka.shared_broker import SharedBroker

LOOP = Path(__file__).parents[2] / "bench" / "neighbours" / "plain_loop.py"
FIRST, ALL = 500, 600  # creates before the kill, and in all
PATIENCE_SECONDS = 240.0


def join(spu_id: int) -> SpuJoined:
    return SpuJoined(event_id=f"j{spu_id}", cluster_id="c", spu_id=spu_id, capacity=10**6)


def create(number: int) -> TopicCreate:
    return TopicCreate(
        event_id=f"e{number}",
        cluster_id="c",
        topic=f"t{number}",
        partitions=7,
        replication_factor=3,
    )


@pytest.mark.parametrize("options", [(), ("--table",)], ids=["plain", "table codec"])
def test_the_plain_loop_gives_the_cores_answers_over_a_kill(
    kafka: SharedBroker, topic_prefix: str, tmp_path: Path, options: Sequence[str]
) -> None:
    """It is exactly once and durable: killed, it goes on where its last commit was."""
    servers = kafka.bootstrap_servers
    names = [f"{topic_prefix}{name}" for name in ("events", "maps", "state")]
    with AdminClient({"bootstrap.servers": servers}) as admin:
        for future in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
            future.result(30)
    first: list[Event] = [*map(join, range(5)), *map(create, range(FIRST))]
    second: list[Event] = [create(3), join(2), *map(create, range(FIRST, ALL))]
    command = [sys.executable, str(LOOP), servers, topic_prefix, *options]

    _send(servers, names[0], first)
    with running(command, tmp_path / "first.log") as process:
        _wait(servers, names[1], 1)
        process.kill()
        process.wait()
    _send(servers, names[0], second)
    with running(command, tmp_path / "second.log"):
        found = _wait(servers, names[1], ALL)

    assigner = Assigner(Policy.FLUVIO)
    records = [record for event in (*first, *second) for record in assigner.apply(event)]
    maps = [record for record in records if isinstance(record, ReplicaMap)]
    # Keys lie on two partitions, so only the answers are compared, not their order.
    assert sorted((message.key(), message.value()) for message in found) == sorted(
        (f"c/{each.topic}".encode(), encode_record(replace(each, reason=None))) for each in maps
    )


def _send(servers: str, topic: str, events: Sequence[Event]) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for event in events:
        producer.produce(topic, encode_event(event), event.cluster_id)
    producer.flush()


def _wait(servers: str, topic: str, count: int) -> list[Message]:
    """What is committed there, once it is so many."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found := committed(servers, topic)) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} answers came"
        time.sleep(0.1)
    return found
