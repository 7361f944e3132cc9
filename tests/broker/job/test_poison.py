"""Every poison that Kafka can carry, among good events, through one job on a real broker."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Producer
from spu_assigner.core.base.limits import DEAD_LETTER_RAW_SIZE_MAX
from spu_assigner.core.base.records import RingEvent, TopicStatus
from spu_assigner.schemas.messages.codec import decode_record, encode_event
from spu_assigner.schemas.messages.wire import DeadLetter
from spu_assigner.stream.job.lifecycle import Job
from spu_assigner.stream.job.shard.batch import DEAD_LETTER_KEY_SIZE_MAX
from spu_assigner.stream.kafka.config.settings import Settings
from support.events.builders import Events
from support.events.poisons import FAR_FUTURE_MS, MESSAGES, SPU_EVENTS, TOPIC_EVENTS, Poison
from support.kafka.traffic import Kafka

TOPIC_STATUS = "topic-status"
GOOD = "good"  # the cluster of the neighbours
MESSAGE_SIZE_MAX = 2 * 1024 * 1024  # of the poisoner's own producer


class Poisoner:
    """Sends anything, and notes where it went."""

    def __init__(self, settings: Settings) -> None:
        self._prefix = settings.topic_prefix
        self._producer = Producer(
            {
                "bootstrap.servers": settings.bootstrap_servers,
                "message.max.bytes": MESSAGE_SIZE_MAX,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self.places: dict[tuple[str, int], Poison] = {}  # by topic and offset

    def send(self, poison: Poison) -> None:
        topic = self._prefix + poison.topic
        given: dict[str, Any] = {}
        if poison.timestamp_ms is not None:
            given["timestamp"] = poison.timestamp_ms

        def note(error: object, message: Any) -> None:
            assert error is None, f"{poison.name}: {error}"
            self.places[topic, message.offset()] = poison

        self._producer.produce(
            topic,
            poison.value,
            poison.key,
            partition=0,
            headers=list(poison.headers),
            on_delivery=note,
            **given,
        )
        assert self._producer.flush(30) == 0


def records_of(messages: list[Any]) -> Iterator[tuple[Any, Any]]:
    for message in messages:
        yield message, decode_record(message.value() or b"")


def test_every_poison_has_its_outcome_and_the_query_never_restarts(
    settings: Settings, run: Callable[..., Job]
) -> None:
    """Good events before, between and behind the poisons are all answered by the same run."""
    kafka, poisoner, events = Kafka(settings), Poisoner(settings), Events(GOOD)
    begin_ms = time.time_ns() // 1_000_000 - 60_000
    kafka.send([events.join(0), events.create("before")])
    job = run()
    kafka.wait(TOPIC_STATUS, 1, job)
    ids = (job.query.id, job.query.runId)
    good = ["before"]
    for number, poison in enumerate(MESSAGES):
        poisoner.send(poison)
        if number % 10 == 0:
            good.append(f"t{number}")
            kafka.send_raw(TOPIC_EVENTS, GOOD.encode(), encode_event(events.create(good[-1])))
    refused = [poison for poison in MESSAGES if poison.letter is None]
    ignored = [poison for poison in refused if poison.topic == SPU_EVENTS]
    statuses = kafka.wait(TOPIC_STATUS, len(good) + len(refused) - len(ignored), job)
    letters = kafka.wait("dead-letter", len(MESSAGES) - len(refused), job)
    kafka.wait("ring-events", 1 + len(ignored), job)
    kafka.send([events.create("behind")])
    good.append("behind")
    statuses = kafka.wait(TOPIC_STATUS, len(statuses) + 1, job)

    answers = [record for _, record in records_of(statuses) if isinstance(record, TopicStatus)]
    assert sorted(each.topic for each in answers if each.status.value == "assigned") == sorted(good)
    found = {each.cause: each.code for each in answers if each.cluster_id != GOOD}
    for _, record in records_of(kafka.read("ring-events")):
        assert isinstance(record, RingEvent)
        if record.cluster_id != GOOD:
            found[record.cause] = record.code
    assert found == {poison.name: poison.rejection for poison in refused}

    assert len(letters) == len(MESSAGES) - len(refused)
    for message, letter in records_of(letters):
        assert isinstance(letter, DeadLetter)
        poison = poisoner.places.pop((letter.source_topic, letter.source_offset))
        assert (poison.name, letter.code) == (poison.name, poison.letter)
        assert poison.says in letter.message
        value = poison.value or b""
        raw = None if poison.value is None else value[:DEAD_LETTER_RAW_SIZE_MAX]
        assert (letter.raw, letter.size) == (raw, len(value))
        assert letter.sha256 == hashlib.sha256(value).hexdigest()
        assert letter.source_partition == 0
        assert begin_ms < letter.source_timestamp_ms < FAR_FUTURE_MS
        assert message.key() == (poison.key and poison.key[:DEAD_LETTER_KEY_SIZE_MAX])
    assert {poison.letter for poison in poisoner.places.values()} == {None}

    assert job.query.isActive
    assert (job.query.id, job.query.runId) == ids
    assert job.query.exception() is None
    batches = [marker.batch for marker in kafka.markers()]
    assert batches == list(range(len(batches)))
    times = [message.timestamp()[1] for message in kafka.read(TOPIC_EVENTS)]
    assert max(times) < FAR_FUTURE_MS  # It is the broker's clock that counts.
