"""What open transactions hold back from readers of committed messages.

Kafka gives such a reader what is before a partition's last stable offset: the first message of the
oldest open transaction. Where something is concluded from what is not there, the last stable offset
has first to reach the end that the partition had when the question was asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka.admin import OffsetSpec
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin
from spu_assigner.stream.kafka.errors import POLL_SECONDS, REQUEST_SECONDS_MAX, ClientError
from spu_assigner.stream.kafka.retry import list_offsets
from spu_assigner.stream.kafka.topic_admin import require_topics
from spu_assigner.stream.kafka.topics import INPUTS

ENDING: Final = (
    "stop the producer that left it open, or wait until Kafka aborts it (at the latest after the "
    "brokers' transaction.max.timeout.ms); one that Kafka never aborts is found and aborted with "
    "Kafka's own kafka-transactions.sh (find-hanging, abort)"
)

Place = tuple[str, int]  # a topic's name in Kafka, and a partition of it


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMessages:
    """Offsets of one partition that no reader of committed messages is given yet."""

    topic: str
    partition: int
    stable: int  # the last stable offset: the first one that is held back
    end: int

    def __str__(self) -> str:
        return (
            f"partition {self.partition} of {self.topic}: offsets {self.stable} to {self.end - 1} "
            "are held back by an open transaction"
        )


class OpenTransactionError(ClientError):
    """An open transaction holds back what has to be read."""

    def __init__(self, held: Iterable[HeldMessages], *, seconds: float, unread: str) -> None:
        self.held = tuple(held)
        found = "; ".join(map(str, self.held))
        super().__init__(f"{found}; waited {seconds:.0f} s, and {unread}: {ENDING}, then try again")


def held_messages(
    admin: Any, ends: Mapping[Place, int], *, seconds: float
) -> tuple[HeldMessages, ...]:
    """Of these ends, those that a reader of committed messages does not reach now."""
    committed = IsolationLevel.READ_COMMITTED
    stable = list_offsets(admin, ends, OffsetSpec.latest(), seconds=seconds, isolation=committed)
    return tuple(
        HeldMessages(topic=topic, partition=partition, stable=stable[topic, partition], end=end)
        for (topic, partition), end in sorted(ends.items())
        if stable[topic, partition] < end
    )


def held_inputs(connection: Connection) -> tuple[HeldMessages, ...]:
    """What is held back of the job's inputs; nothing where Kafka does not say.

    It is asked with a producer's rights, after a wait that was in vain.
    """
    try:
        with DiagnosedAdmin(connection.client()) as admin:
            counts = require_topics(admin, INPUTS, prefix=connection.prefix)
            places = [(topic, number) for topic, count in counts.items() for number in range(count)]
            ends = list_offsets(admin, places, OffsetSpec.latest(), seconds=REQUEST_SECONDS_MAX)
            return held_messages(admin, ends, seconds=REQUEST_SECONDS_MAX)
    except (ClientError, KafkaException):
        return ()


def why_unanswered(connection: Connection) -> str:
    """What may keep the job from answering: a sentence for a message after a wait."""
    held = "; ".join(map(str, held_inputs(connection)))
    return f"{held}; {ENDING}." if held else "is the job running on these topics?"


def await_stable(
    admin: Any, places: Iterable[Place], *, seconds: float, held_seconds: float, unread: str
) -> dict[Place, int]:
    """Wait until all that is written now is committed or aborted; returns where it ends.

    Raises:
        OpenTransactionError: a transaction is open after `held_seconds`; it says that `unread`.
    """
    ends = list_offsets(admin, places, OffsetSpec.latest(), seconds=seconds)
    deadline = time.monotonic() + held_seconds
    while held := held_messages(admin, ends, seconds=seconds):
        if time.monotonic() >= deadline:
            raise OpenTransactionError(held, seconds=held_seconds, unread=unread)
        time.sleep(POLL_SECONDS)
    return ends
