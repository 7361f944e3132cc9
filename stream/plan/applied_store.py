"""The topic `applied-topics`: where `apply` keeps what it made, beside the topics themselves.

    ledger = AppliedLedger(connection, "c1")
    applied = ledger.read()
    ledger.intend(changes); …; ledger.record(records)

Rules: a key is `<cluster>/<topic>`, or `<cluster>/<topic>/intent` before a creation, so that two
runs at the same time cannot overwrite a creation with an intent. What is written is acknowledged by
all replicas in sync before anything that depends on it is done. The topic is made by the first
write; until then nothing is recorded. A value that is none of ours is an error: it would look as if
nothing were recorded.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages.codec import decode_record, encode_record
from spu_assigner.schemas.messages.wire import AppliedTopic, Origin
from spu_assigner.stream.config.connection import Connection
from spu_assigner.stream.kafka.access import may_write
from spu_assigner.stream.kafka.client import DELIVERY_SECONDS_MAX, Reader
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin
from spu_assigner.stream.kafka.errors import GRANTING, ClientError, TopicsError, error_text
from spu_assigner.stream.kafka.topic_admin import create_missing
from spu_assigner.stream.kafka.topics import APPLIED_TOPICS, TOPICS, topic_name
from spu_assigner.stream.plan.applied import AppliedRecords, fold, rows_digest
from spu_assigner.stream.plan.model import TopicChange
from spu_assigner.stream.plan.notes import Notes
from spu_assigner.stream.recover.published import DamagedOutputError

INTENT: Final = "/intent"
SEEN_SECONDS_MAX: Final = 10.0  # from the controller's answer to what a broker shows: milliseconds
POLL_SECONDS: Final = 0.02


def now_ms() -> int:
    """The time that records bear."""
    return int(time.time() * 1000)


class AppliedLedger:
    """The records of one cluster's topics.

    Args:
        connection: to the Kafka cluster that the topics are in, with the prefix of the job's.
        is_there: whether the topic exists.
    """

    def __init__(self, connection: Connection, cluster_id: str, *, is_there: bool) -> None:
        self.topic = topic_name(APPLIED_TOPICS, prefix=connection.prefix)
        self._connection = connection
        self._cluster_id = cluster_id
        self._is_there = is_there
        self._producer: Producer | None = None
        self._errors: list[KafkaError] = []  # of the client, and of messages
        self._intents: set[str] = set()  # topics with one that is not settled

    @property
    def is_there(self) -> bool:
        return self._is_there

    def read(self) -> AppliedRecords:
        """All that is recorded now; nothing where the topic is missing.

        Raises:
            ClientError: Kafka cannot be reached, or this user may not read it.
            DamagedOutputError: a value is none that `apply` or `plan` has written.
        """
        applied = fold(self._records()) if self._is_there else AppliedRecords()
        self._intents = set(applied.intents)
        return applied

    def _records(self) -> Iterator[tuple[str, AppliedTopic | None]]:
        own = f"{self._cluster_id}/".encode()
        with Reader(self._connection, [APPLIED_TOPICS], from_beginning=True) as reader:
            for _, message in reader.drain_messages():
                key = message.key() or b""
                if key.startswith(own):
                    value = message.value()
                    record = None if value is None else self._record(key, value, message)
                    yield key.removeprefix(own).decode("utf-8", "replace"), record

    def _record(self, key: bytes, value: bytes, message: Message) -> AppliedTopic:
        try:
            record = decode_record(value)
        except DecodeError as reason:
            found = f"no record: {reason}"
        else:
            if isinstance(record, AppliedTopic) and _key(record).encode() == key:
                return record
            found = f"a {type(record).__name__} that does not belong there"
        raise DamagedOutputError(
            topic=self.topic,
            partition=int(message.partition() or 0),
            offset=int(message.offset() or 0),
            key=key,
            told=found,
            writer="`spu-assigner apply`",
        )

    def intend(self, changes: Iterable[TopicChange]) -> None:
        """Record that these topics are about to be created."""
        at = now_ms()
        intents = [
            AppliedTopic(
                cluster_id=self._cluster_id,
                topic=change.topic,
                topic_id=None,
                origin=Origin.INTENT,
                recorded_at=at,
                lists=rows_digest(change.after),
            )
            for change in changes
        ]
        self._intents |= {intent.topic for intent in intents}
        self._write(intents, ())

    def created(self, changes: Sequence[TopicChange], ids: Mapping[str, str]) -> None:
        """Record the topics that were created, by Kafka's ids of them."""
        at = now_ms()
        self.record(
            [
                AppliedTopic(
                    cluster_id=self._cluster_id,
                    topic=change.topic,
                    topic_id=ids[change.topic],
                    origin=Origin.CREATED,
                    recorded_at=at,
                    lists=rows_digest(change.after),
                )
                for change in changes
                if change.topic in ids
            ]
        )

    def note(self, notes: Notes) -> None:
        """Record what was found."""
        if notes:
            self.record(notes.records)
            self.forget(notes.forgotten)

    def record(self, records: Sequence[AppliedTopic]) -> None:
        """Record these topics; their intents are settled by it."""
        if records:
            settled = [each.topic for each in records if each.topic in self._intents]
            self._write(records, [f"{topic}{INTENT}" for topic in settled])
            self._intents.difference_update(settled)

    def withdraw(self, topics: Iterable[str]) -> None:
        """Settle intents that came to nothing: the topics were made by others."""
        self._write((), [f"{topic}{INTENT}" for topic in topics])

    def forget(self, topics: Iterable[str]) -> None:
        """Record nothing of these topics any more: they are not in Kafka, and not mapped."""
        self._write((), [f"{topic}{end}" for topic in topics for end in ("", INTENT)])

    def _write(self, records: Iterable[AppliedTopic], gone: Iterable[str]) -> None:
        """Write, and wait until all of it is acknowledged.

        Raises:
            ClientError: something is not.
            TopicsError: the topic is missing and cannot be made.
        """
        values = [(_key(record), encode_record(record)) for record in records]
        messages: list[tuple[str, bytes | None]] = [
            *values,
            *((f"{self._cluster_id}/{key}", None) for key in gone),
        ]
        if not messages:
            return
        if not self._is_there:
            self._create()
            self._is_there = True
        self._require_right()
        self._errors.clear()
        producer = self._producer = self._producer or self._opened()
        try:
            for key, value in messages:
                producer.produce(
                    self.topic, key=key.encode(), value=value, on_delivery=self._delivered
                )
                producer.poll(0)
            left = producer.flush(DELIVERY_SECONDS_MAX)
        except (KafkaException, BufferError, SystemError) as reason:
            # A call that meets a fatal error may end without saying which it was.
            error = reason.args[0] if isinstance(reason, KafkaException) else None
            raise self._refused(self._errors[0] if self._errors else error) from reason
        failed = [error for error in self._errors if error.code() not in _PASSING]
        if left or failed:
            raise self._refused(failed[0] if failed else None)

    def _create(self) -> None:
        """Make the topic, and wait until it is seen.

        Raises:
            ClientError: Kafka refuses, or no broker answers.
        """
        (spec,) = (spec for spec in TOPICS if spec.name == APPLIED_TOPICS)
        with DiagnosedAdmin(self._connection.client()) as admin:
            deadline = time.monotonic() + SEEN_SECONDS_MAX
            create_missing(admin, {self.topic: spec})
            while self.topic not in admin.metadata().topics:
                if time.monotonic() > deadline:
                    raise TopicsError(
                        f"{self.topic} was made, and is not seen after {SEEN_SECONDS_MAX:.0f} s"
                    )
                time.sleep(POLL_SECONDS)

    def _require_right(self) -> None:
        """Ask first: to a producer that may not write librdkafka says so in a log line of its own.

        Raises:
            ClientError: this user may not write.
        """
        if self._producer is not None:
            return
        with DiagnosedAdmin(self._connection.client()) as admin:
            is_allowed = may_write(admin, self.topic)
        if is_allowed is False:
            raise ClientError(f"this user may not Write {self.topic}; {GRANTING}")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(error)

    def _opened(self) -> Producer:
        settings: dict[str, Any] = {
            "acks": "all",
            "enable.idempotence": True,  # a repetition by the client neither doubles nor reorders
            "message.timeout.ms": int(DELIVERY_SECONDS_MAX * 1000),
            "queue.buffering.max.messages": MESSAGES_MAX,
            "linger.ms": 1,
            "log_level": 0,  # what goes wrong is reported once, by an error
            "error_cb": self._errors.append,
        }
        try:
            return Producer({**settings, **self._connection.client()})
        except (KafkaException, TypeError) as reason:
            raise ClientError(f"Kafka's client refuses its settings: {reason}") from reason

    def _refused(self, error: KafkaError | None) -> ClientError:
        reason = "Kafka does not answer" if error is None else error_text(error)
        return ClientError(f"{self.topic} does not take what is to be recorded: {reason}")


MESSAGES_MAX: Final = 1_000_000  # of one write: two for each topic
_PASSING: Final = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)  # the client reconnects


def _key(record: AppliedTopic) -> str:
    end = INTENT if record.origin is Origin.INTENT else ""
    return f"{record.cluster_id}/{record.topic}{end}"
