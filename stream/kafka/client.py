"""Kafka for the command line: send events, read what the job answers.

Rules: what is sent is acknowledged by all replicas or reported as failed; what is read is
committed; readers belong to no consumer group and leave no trace on the broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Self

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec
from spu_assigner.core.base.events import Event, SpuEvent
from spu_assigner.core.base.records import ReplicaMap, RingEvent, TopicStatus
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages.codec import decode_record, encode_event
from spu_assigner.schemas.messages.wire import DeadLetter
from spu_assigner.stream.kafka.cloud_events import tombstone_is_release
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin
from spu_assigner.stream.kafka.errors import (
    POLL_SECONDS,
    REQUEST_SECONDS_MAX,
    ClientError,
    RenewedError,
    error_text,
)
from spu_assigner.stream.kafka.open_transactions import OpenTransactionError, await_stable
from spu_assigner.stream.kafka.retry import list_offsets
from spu_assigner.stream.kafka.topic_admin import require_topics
from spu_assigner.stream.kafka.topic_ids import ask_topic_ids, renewed_topics
from spu_assigner.stream.kafka.topics import (
    MAP_MESSAGE_SIZE_MAX,
    MESSAGE_SIZE_MAX,
    SPU_EVENTS,
    TOPIC_EVENTS,
    topic_name,
)

DELIVERY_MS_MAX: Final = 30_000  # long enough for a broker that restarts
SETTLE_SECONDS: Final = 5.0  # the end of a transaction is everywhere within milliseconds
PROBE_SECONDS_MAX: Final = 3.0  # for an answer of a broker that is only looked for

Answer = ReplicaMap | TopicStatus | RingEvent | DeadLetter


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage:
    """What became of one message."""

    event_id: str | None  # None: raw bytes
    topic: str
    partition: int
    offset: int
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One message of the job's."""

    topic: str  # without the prefix
    key: str
    answer: Answer | None  # None: a tombstone, the topic of the key is deleted or released
    fault: str | None = None  # why the value could not be read
    is_released: bool = False  # of a tombstone: the topic's data stay in Kafka


class Sender:
    """Sends events to the topics they belong to, keyed by cluster, in the order they are given.

    `report` is called for each message, once it is acknowledged or given up.
    """

    def __init__(
        self,
        connection: Connection,
        report: Callable[[SentMessage], None],
        topics: Iterable[str] = (SPU_EVENTS, TOPIC_EVENTS),
    ) -> None:
        self._report = report
        self._prefix = connection.prefix
        self._last_topic = ""
        with DiagnosedAdmin(connection.client()) as admin:
            require_topics(admin, topics, prefix=connection.prefix)
        settings: dict[str, Any] = {
            "acks": "all",
            "enable.idempotence": True,  # a repetition by the client neither doubles nor reorders
            "message.max.bytes": MESSAGE_SIZE_MAX,
            "message.timeout.ms": DELIVERY_MS_MAX,
            "linger.ms": 1,
            "log_level": 0,  # what goes wrong is reported once, by an error
            "error_cb": lambda error: None,
        }
        self._producer = Producer({**settings, **connection.client()})

    def send(self, event: Event) -> None:
        """Send one event; raises EncodeError if it does not fit its schema.

        An event for the other input topic waits until all before it are acknowledged: the job
        merges both topics by the broker's clock.
        """
        value = encode_event(event)
        topic = SPU_EVENTS if isinstance(event, SpuEvent) else TOPIC_EVENTS
        if self._last_topic not in ("", topic):
            self.flush()
        self._last_topic = topic
        self.send_raw(topic, key=event.cluster_id, value=value, event_id=event.event_id)

    def send_raw(
        self, topic: str, *, key: str, value: bytes | None, event_id: str | None = None
    ) -> None:
        """Send bytes as they are, or a tombstone."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._report(
                SentMessage(
                    event_id=event_id,
                    topic=str(message.topic()),
                    partition=int(message.partition() or 0),
                    offset=int(message.offset() or 0),
                    error=None if error is None else error_text(error),
                )
            )

        full = topic_name(topic, prefix=self._prefix)
        while True:
            try:
                self._producer.produce(full, key=key.encode(), value=value, on_delivery=delivered)
            except BufferError:  # The client's queue is full: wait for acknowledgements.
                self._producer.poll(POLL_SECONDS)
            except KafkaException as reason:
                raise ClientError(
                    f"{full} does not take the message: {error_text(reason)}; "
                    "check the topic's settings and this user's rights"
                ) from reason
            else:
                break
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until every message is acknowledged or given up."""
        while self._producer.flush(POLL_SECONDS):
            pass


class Reader:
    """Reads committed messages of the job's topics, from their present ends or their beginnings.

    With `back` it begins so many offsets before the present end of each partition. A fetch waits
    `fetch_wait_ms` for something new: short is prompt, and costs. What is deleted before it was
    read is passed over; `spans` and `passed_over` say so. Offsets of a topic that was recreated are
    never taken for those of the old one: what looks at them raises RenewedError.
    """

    def __init__(
        self,
        connection: Connection,
        topics: Sequence[str],
        *,
        from_beginning: bool = False,
        back: int = 0,
        fetch_wait_ms: int = 20,
    ) -> None:
        self._short = {topic_name(name, prefix=connection.prefix): name for name in topics}
        settings: dict[str, Any] = {
            "group.id": "spu-assigner-reader",  # the client wants one; nothing is committed to it
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,  # reports how far has been read
            "auto.offset.reset": "error",  # the default passes over all that is there
            "fetch.wait.max.ms": fetch_wait_ms,
            "fetch.message.max.bytes": MAP_MESSAGE_SIZE_MAX,
            "log_level": 0,
        }
        self._admin = DiagnosedAdmin(connection.client())
        with ExitStack() as unless_whole:
            unless_whole.enter_context(self._admin)
            counts = require_topics(self._admin, topics, prefix=connection.prefix)
            self._ids = self._topic_ids(REQUEST_SECONDS_MAX)
            self._places = [
                (topic, number) for topic in self._short for number in range(counts[topic])
            ]
            begins = self._offsets(OffsetSpec.earliest() if from_beginning else OffsetSpec.latest())
            if back and not from_beginning:
                oldest = self._offsets(OffsetSpec.earliest())
                begins = {place: max(oldest[place], end - back) for place, end in begins.items()}
            self._consumer = Consumer({**settings, **connection.client()})
            unless_whole.pop_all()
        self.passed_over: list[str] = []  # a sentence for each gap
        self._probe_at = 0.0  # when to look next whether a broker answers
        self._trouble: str | None = None  # what was found then
        self._begins = begins
        self._progress = dict(begins)  # by (topic, partition): the offset to be read next
        self._consumer.assign([TopicPartition(*place, begin) for place, begin in begins.items()])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
        self._admin.close()

    def spans(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Of each topic, without the prefix, and partition: where reading began, and how far it is.

        Where messages were deleted before they were read, it began behind them.
        """
        return {
            (self._short[topic], number): (begin, self._progress[topic, number])
            for (topic, number), begin in self._begins.items()
        }

    def probe(self, every: float) -> str | None:
        """Why no broker answers; what was found last, until `every` seconds have passed since.

        Raises:
            RenewedError: a topic is no longer the one that reading began with.
        """
        if time.monotonic() > self._probe_at:
            try:
                ends = self._offsets(OffsetSpec.latest(), seconds=PROBE_SECONDS_MAX)
                self._require_same(PROBE_SECONDS_MAX)
                if shorter := sorted(at for at, end in ends.items() if end < self._progress[at]):
                    raise _renewed(shorter[0][0])
                self._trouble = None
            except RenewedError:
                raise
            except ClientError as reason:
                self._trouble = str(reason)
            self._probe_at = time.monotonic() + every
        return self._trouble

    def _require_same(self, seconds: float) -> None:
        """Look whether the topics are still those that reading began with."""
        now = self._topic_ids(seconds)
        if renewed := renewed_topics(self._ids, now):
            raise _renewed(renewed[0])
        self._ids = {**now, **self._ids}

    def settle(self, seconds: float = SETTLE_SECONDS) -> None:
        """As `require_settled`, but return after `seconds` whatever is still open."""
        with suppress(OpenTransactionError):
            self.require_settled(seconds)

    def require_settled(self, seconds: float) -> None:
        """Wait until all that is written now is committed or aborted, or raise
        OpenTransactionError.

        A transaction's end reaches one partition before another; after this they show the same of
        what was written before.
        """
        with _known("the topics' offsets are not known"):
            await_stable(
                self._admin,
                self._places,
                seconds=REQUEST_SECONDS_MAX,
                held_seconds=seconds,
                unread="what is committed behind it is not known",
            )

    def poll(self, seconds: float = POLL_SECONDS) -> list[Received]:
        """What has come, after waiting `seconds` at most for the first."""
        return [_received(topic, message) for topic, message in self.messages(seconds)]

    def messages(self, seconds: float = POLL_SECONDS) -> list[tuple[str, Message]]:
        """As `poll`, but the messages as they are, each with its topic without the prefix."""
        found = []
        for message in self._consumer.consume(500, timeout=seconds):
            place = (str(message.topic()), int(message.partition() or 0))
            error = message.error()
            if error is None:
                self._progress[place] = int(message.offset() or 0) + 1
                found.append((self._short[place[0]], message))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._progress[place] = int(message.offset() or 0)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._resume_after_loss(place)
            elif error.fatal() or (not error.retriable() and error.code() not in _PASSING):
                raise ClientError(f"cannot read {place[0]}: {error_text(error)}")
        return found

    def drain(self) -> list[Received]:
        """Everything that is committed now and was not read yet."""
        return [_received(topic, message) for topic, message in self.drain_messages()]

    def drain_messages(self) -> Iterator[tuple[str, Message]]:
        """As `drain`, but the messages as they are; whether topics were recreated is seen last."""
        ends = self._offsets(OffsetSpec.latest())
        deadline = time.monotonic() + REQUEST_SECONDS_MAX
        while any(self._progress[place] < end for place, end in ends.items()):
            if found := self.messages():
                deadline = time.monotonic() + REQUEST_SECONDS_MAX
            elif time.monotonic() > deadline:
                raise ClientError(
                    "the broker stopped answering while its topics were read; "
                    "check that all of Kafka's brokers run, and try again"
                )
            yield from found
        self._require_same(REQUEST_SECONDS_MAX)

    def _resume_after_loss(self, place: tuple[str, int]) -> None:
        """Continue at the first offset that is there: what was to be read next is not."""
        first, due = self._offsets(OffsetSpec.earliest())[place], self._progress[place]
        if first < due:  # Nothing was deleted before it, so the topic is another one.
            raise _renewed(place[0])
        self.passed_over.append(
            f"{place[0]}, partition {place[1]}: offsets {due} to {first - 1} were deleted before "
            "they were read"
        )
        self._begins[place] = self._progress[place] = first
        again = [TopicPartition(*place, first)]  # The client has given it up: it cannot seek.
        self._consumer.incremental_unassign(again)
        self._consumer.incremental_assign(again)

    def _topic_ids(self, seconds: float) -> dict[str, str]:
        """Kafka's ids; none if the broker that is asked has just stopped: the next look asks."""
        with _known("the topics cannot be described"):
            try:
                return ask_topic_ids(self._admin, self._short, seconds=seconds)
            except KafkaException as reason:
                if reason.args[0].code() != KafkaError._TIMED_OUT:
                    raise
                return {}

    def _offsets(
        self, spec: OffsetSpec, *, seconds: float = REQUEST_SECONDS_MAX
    ) -> dict[tuple[str, int], int]:
        """Asks again while it is refused: a partition that was just made may have no leader yet."""
        committed = IsolationLevel.READ_COMMITTED
        with _known("the topics' offsets are not known"):
            return list_offsets(
                self._admin, self._places, spec, seconds=seconds, isolation=committed
            )


_PASSING: Final = (
    *(KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT),  # the client reconnects
    KafkaError.GROUP_AUTHORIZATION_FAILED,  # it joins no group
)


@contextmanager
def _known(failed: str) -> Iterator[None]:
    """Raises what Kafka refuses as a ClientError."""
    try:
        yield
    except KafkaException as reason:
        raise ClientError(
            f"{failed}: {error_text(reason)}; check that all of Kafka's brokers run"
        ) from reason


def _renewed(topic: str) -> RenewedError:
    return RenewedError(
        f"{topic} was deleted and recreated while it was read; run this again to read the new one"
    )


def _received(topic: str, message: Message) -> Received:
    key = (message.key() or b"").decode("utf-8", "replace")
    value = message.value()
    if value is None:
        is_released = tombstone_is_release(message.headers())
        return Received(topic=topic, key=key, answer=None, is_released=is_released)
    try:
        record = decode_record(value)
        if isinstance(record, Answer):
            return Received(topic=topic, key=key, answer=record)
        fault = f"a {type(record).__name__} does not belong there"
    except DecodeError as error:
        fault = str(error)
    return Received(topic=topic, key=key, answer=None, fault=fault)
