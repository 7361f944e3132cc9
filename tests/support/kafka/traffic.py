"""Events into a real Kafka, answers out of it, and what the answers are to be."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.sql.streaming.query import StreamingQuery
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import Event, SpuEvent
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.schemas.messages.codec import decode_record, encode_event
from spu_assigner.schemas.messages.wire import CommitMarker
from spu_assigner.stream.job.lifecycle import Job
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.retry import list_offsets
from support.kafka.reading import committed, outputs, settled

PATIENCE_SECONDS = 240.0  # a first batch takes 5 s on two idle cores


class Kafka:
    """A producer of events and a reader of answers for one prefix."""

    def __init__(self, settings: Settings) -> None:
        self._servers = settings.bootstrap_servers
        self._prefix = settings.topic_prefix
        self._producer = Producer(
            {"bootstrap.servers": self._servers, "linger.ms": 0, "log_level": 0}
        )

    def send(self, events: Iterable[Event]) -> None:
        """All acknowledged; SPU events before topic events that follow them."""
        for event in events:
            is_spu = isinstance(event, SpuEvent)
            topic = "spu-events" if is_spu else "topic-events"
            self.send_raw(topic, event.cluster_id.encode(), encode_event(event))
        self._producer.flush()

    def send_raw(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int = 0
    ) -> None:
        self._producer.produce(self._prefix + topic, value, key, partition=partition)
        self._producer.flush()

    def read(self, topic: str) -> list[Message]:
        return committed(self._servers, self._prefix + topic)

    def wait(self, topic: str, count: int, job: Job) -> list[Message]:
        """Messages of a topic, once there are so many, and other topics can be read, too. What was
        committed together with them is then seen on each."""
        deadline, name = time.monotonic() + PATIENCE_SECONDS, self._prefix + topic
        messages: list[Message] = []
        with AdminClient({"bootstrap.servers": self._servers, "log_level": 0}) as admin:
            partitions = admin.list_topics(name, timeout=10).topics[name].partitions
            places = [(name, number) for number in partitions]

            def end() -> int:
                latest = OffsetSpec.latest()
                return sum(list_offsets(admin, places, latest, seconds=PATIENCE_SECONDS).values())

            # Only what may be enough is read: a job takes its time to begin.
            while end() < count or len(messages := self.read(topic)) < count:
                job.await_termination(0.1)  # raises if the query has ended
                assert time.monotonic() < deadline, f"{topic}: {len(messages)} of {count}"
        settled(self._servers, outputs(self._prefix))
        return messages

    def maps(self) -> dict[bytes, list[list[int]]]:
        """The current replica lists by key."""
        found: dict[bytes, list[list[int]]] = {}
        for message in self.read("replica-map"):
            key, value = message.key(), message.value()
            assert key is not None
            found.pop(key, None)
            if value is not None:
                record = decode_record(value)
                assert isinstance(record, ReplicaMap)
                assert record.replicas is not None
                found[key] = record.replicas.tolist()
        return found

    def markers(self) -> list[CommitMarker]:
        records = [decode_record(message.value() or b"") for message in self.read("assigner-audit")]
        return [record for record in records if isinstance(record, CommitMarker)]


def expected_maps(events: Iterable[Event]) -> dict[bytes, list[list[int]]]:
    """What the core gives for the same events in the same order."""
    assigner = Assigner()
    found: dict[bytes, list[list[int]]] = {}
    for event in events:
        for record in assigner.apply(event):
            if isinstance(record, ReplicaMap):
                key = f"{record.cluster_id}/{record.topic}".encode()
                found.pop(key, None)
                if record.replicas is not None:
                    found[key] = record.replicas.tolist()
    return found


def process_all(query: StreamingQuery) -> None:
    """Wait until a query has processed all that was sent, and written its checkpoint.

    The first call may return when the source was woken by what was sent, before it is processed.
    """
    query.processAllAvailable()
    query.processAllAvailable()
