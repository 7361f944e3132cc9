"""Whose the transactional id is: what Kafka's errors say of it, and what Kafka answers when asked.

Kafka reports to a producer that it is fenced only when it sends. A query without events sends
nothing, so it asks: the id's producer is this process's as long as producer id and epoch are those
of the moment when it took the id. Batches change neither, with the protocol that librdkafka speaks.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError
from py4j.protocol import Py4JError
from spu_assigner.stream.job.marker_check import FencedError, TransactionExpiredError
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.errors import CLIENT_LOGGER
from spu_assigner.stream.kafka.topics import MAP_MESSAGE_SIZE_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASK_SECONDS: Final = 5.0  # between questions: two requests each
ANSWER_MS_MAX: Final = 3_000
QUEUE_SIZE: Final = 256 * 1024  # KiB in the producer; beyond it sending waits

FENCED: Final = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
)
# What the client says of all other messages once something has failed: no cause.
PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


def transactional_id(settings: Settings) -> str:
    """The `transactional.id` of the query's producer."""
    return f"{settings.topic_prefix}{settings.query_name}"


def producer_options(
    settings: Settings, transaction_seconds: int, on_delivery: Callable[[Any, Any], None]
) -> dict[str, Any]:
    """The options of the query's transactional producer."""
    return {
        **settings.connection().client(),
        "client.id": transactional_id(settings),
        "transactional.id": transactional_id(settings),
        "transaction.timeout.ms": transaction_seconds * 1000,
        "acks": "all",
        "linger.ms": 5,  # committing flushes at once; while a large batch is queued it groups
        "batch.size": 1_000_000,
        "compression.type": "lz4",  # maps are regular; readers and disks see a fraction
        "message.max.bytes": MAP_MESSAGE_SIZE_MAX,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": QUEUE_SIZE,
        "log_level": 0,  # what goes wrong is raised
        "logger": CLIENT_LOGGER,
        "delivery.report.only.error": True,
        "on_delivery": on_delivery,
    }


def taken_over(settings: Settings) -> FencedError:
    """The error of a process that a later one has fenced."""
    return FencedError(
        f"another process has taken over query {settings.query_name!r} (transactional id "
        f"{transactional_id(settings)!r}); the one that was started last continues, this one must "
        "stop"
    )


def expired(
    settings: Settings, *, batch: int, seconds: float, seconds_max: int
) -> TransactionExpiredError:
    """The error of a transaction that was open for longer than Kafka permits; times in s."""
    return TransactionExpiredError(
        f"the transaction of batch {batch} was open for {seconds:.0f} s and Kafka permits "
        f"{seconds_max} s: broker, network or this machine stood still; nothing of it is visible, "
        "start the job again to repeat it (unless another process has taken over query "
        f"{settings.query_name!r} meanwhile)"
    )


class IdOwner:
    """Asks Kafka whether the id is still that of the producer that this process had take it. By the
    JVM's Kafka client: librdkafka has no such request."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        limits = dict.fromkeys(
            ("kafka.request.timeout.ms", "kafka.default.api.timeout.ms"), str(ANSWER_MS_MAX)
        )
        options = {**settings.connection().spark(), **limits}
        extension: Any = spark.sparkContext._jvm.io.spuassigner.spark  # type: ignore[union-attr]  # there is one
        self._kafka = extension.TransactionalId(options, transactional_id(settings))
        self._executor = ThreadPoolExecutor(1)
        self._own: Future[str | None] | None = None  # its result is None where it is not known

    def taken(self) -> None:
        """This process has taken the id; asks in the background, the JVM's client takes a while."""
        self._own = self._executor.submit(self._ask, self._kafka.producer)

    def is_lost(self) -> bool:
        """Whether another producer has it; False where Kafka does not say."""
        own = None if self._own is None else self._own.result()
        return own is not None and self._ask(self._kafka.producer) not in (None, own)

    def close(self) -> None:
        """Close the client."""
        self._executor.shutdown()
        self._ask(self._kafka.close)

    @staticmethod
    def _ask(request: Callable[[], str | None]) -> str | None:
        with suppress(Py4JError, OSError):  # Whoever needs the JVM reports that it is gone.
            return request()
        return None
