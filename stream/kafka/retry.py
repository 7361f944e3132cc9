"""Requests that are retried: a slow broker is no dead one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from spu_assigner.stream.kafka.errors import is_denied

RETRY_SECONDS_MAX: Final = 30.0  # of one request to the broker
# Of the first of several requests; each further one has twice as many. What a new client asks its
# bootstrap server is lost if it meanwhile leaves that for a broker, and would be waited for.
_FIRST_SECONDS: Final = 0.25

_T = TypeVar("_T")


def deliver(producer: Any) -> None:
    """Wait until all is delivered, as long as some more is acknowledged now and then."""
    least, deadline = len(producer), time.monotonic() + RETRY_SECONDS_MAX
    while (left := producer.flush(1.0)) > 0:
        if left < least:
            least, deadline = left, time.monotonic() + RETRY_SECONDS_MAX
        elif time.monotonic() > deadline:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def produce_until(
    producer: Any,
    topic: str,
    value: bytes | None,
    key: bytes | None,
    headers: list[tuple[str, bytes]],
) -> None:
    """Hand a message to a producer whose queue is full, once there is room."""
    deadline = time.monotonic() + RETRY_SECONDS_MAX
    while True:
        producer.poll(0.05)
        try:
            producer.produce(topic, value, key, headers=headers)
            return
        except BufferError as reason:
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from reason


def retry_until(request: Callable[[float], None]) -> None:
    """Ask until it is done; librdkafka says when the same request may be made again."""
    deadline = time.monotonic() + RETRY_SECONDS_MAX
    while True:
        try:
            return request(max(0.1, deadline - time.monotonic()))
        except KafkaException as reason:
            if not reason.args[0].retriable() or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def ask_leaders(client: Any, request: Callable[[float], _T], *, seconds: float) -> _T:
    """What the leaders of partitions answer, asked again while there is none, `seconds` in all.

    Between two requests the client looks for leaders again: librdkafka remembers that a partition
    had none, and by that memory alone refuses what is asked of it for up to five minutes
    (`topic.metadata.refresh.interval.ms`). It also keeps waiting for a controller that is gone, so
    no request but a late one may use up the time.

    Raises:
        KafkaException: the request's, when time is up or what is asked is not permitted.
    """
    deadline, share = time.monotonic() + seconds, _FIRST_SECONDS
    while True:
        try:
            return request(max(0.1, min(share, deadline - time.monotonic())))
        except KafkaException as reason:
            if is_denied(reason.args[0]) or time.monotonic() > deadline:
                raise
        share *= 2
        time.sleep(0.1)
        look_again(client, seconds=max(0.1, deadline - time.monotonic()))


def look_again(client: Any, *, seconds: float) -> None:
    """Let a client learn which brokers run and lead, whatever it has kept in memory."""
    with suppress(KafkaException):
        # Of all topics: a topic that is named could be made by being asked for.
        client.list_topics(timeout=seconds)


def list_offsets(
    admin: Any,
    places: Iterable[tuple[str, int]],
    spec: Any,
    *,
    seconds: float,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[tuple[str, int], int]:
    """The offset of an `OffsetSpec` that the leader of each partition gives, as `ask_leaders`."""
    asked = {TopicPartition(topic, number): spec for topic, number in places}

    def answered(left: float) -> dict[tuple[str, int], int]:
        futures = admin.list_offsets(asked, isolation_level=isolation, request_timeout=left)
        return {
            (place.topic, place.partition): int(future.result().offset)
            for place, future in futures.items()
        }

    return ask_leaders(admin, answered, seconds=seconds) if asked else {}


@contextmanager
def raise_fatal_cause(producer: Any) -> Iterator[None]:
    """Raise a fatal error of a producer in a transaction as what it is.

    Some calls set it, go on calling back, or return without it; Python then reports a SystemError.
    Those that come after it say that there was one, and not which.
    """
    try:
        yield
    except (SystemError, KafkaException) as reason:
        error = reason if isinstance(reason, KafkaException) else reason.__cause__
        if isinstance(error, KafkaException) and error.args[0].code() != KafkaError._FATAL:
            raise error from None
        try:
            producer.begin_transaction()  # One is open: it only reports what is wrong.
        except KafkaException as found:
            if found.args[0].fatal():
                raise found from None
        raise
