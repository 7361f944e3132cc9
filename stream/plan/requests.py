"""Requests that change topics: in pieces that Kafka's controller takes, and what it answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException
from spu_assigner.stream.kafka.errors import is_denied
from spu_assigner.stream.plan.model import TopicChange

if TYPE_CHECKING:
    from concurrent.futures import Future

CHANGES_MAX: Final = 50  # topics of a request that makes them: reported and recorded together
PARTITIONS_MAX: Final = 2_000  # of a request; Kafka's controller refuses 10,000 records at once
_OVERTAKEN: Final = (
    KafkaError.TOPIC_ALREADY_EXISTS,  # of a creation
    KafkaError.INVALID_PARTITIONS,  # of a growth: it has as many already
    KafkaError.UNKNOWN_TOPIC_OR_PART,  # of a deletion
)
LOST: Final = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What Kafka said to one request for one topic."""

    topic: str
    reason: str
    is_denied: bool = False  # a right is missing
    is_lost: bool = False  # Kafka did not answer
    is_overtaken: bool = False  # somebody else has done it, or something else of the kind


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """What became of one request."""

    changes: Sequence[TopicChange]
    failures: Sequence[Failure]


def batched(changes: Sequence[TopicChange]) -> Iterator[list[TopicChange]]:
    """Pieces that the controller takes at once."""
    batch: list[TopicChange] = []
    count = 0
    for change in changes:
        size = len(change.added)
        if batch and (len(batch) >= CHANGES_MAX or count + size > PARTITIONS_MAX):
            yield batch
            batch, count = [], 0
        batch.append(change)
        count += size
    if batch:
        yield batch


def failures_of(futures: Mapping[str, Future[Any]]) -> list[Failure]:
    """What was refused of a request."""
    failures = []
    for topic, future in futures.items():
        try:
            future.result()
        except KafkaException as reason:
            error = reason.args[0]
            failures.append(
                Failure(
                    topic=topic,
                    reason=str(error.str()),
                    is_denied=is_denied(error),
                    is_lost=error.code() in LOST,
                    is_overtaken=error.code() in _OVERTAKEN,
                )
            )
    return failures


def lost(topic: str) -> Failure:
    """Of a request that was not sent, since the one before got no answer."""
    return Failure(topic=topic, reason="Kafka does not answer any more", is_lost=True)
