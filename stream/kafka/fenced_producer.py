"""The producer of one leader: in transactions, under an id that the next leader takes over.

Whoever is elected takes the id first, which fences an older process and settles what that one left
open, and only then reads what was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import CLIENT_LOGGER, ClientError, granting, is_denied
from spu_assigner.stream.kafka.retry import deliver, raise_fatal_cause, retry_until
from spu_assigner.stream.kafka.topics import topic_name

TRANSACTION_SECONDS_MAX: Final = 15  # one that a dead leader left open holds back readers
ABORT_SECONDS_MAX: Final = 5.0
_FENCED: Final = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
)
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


class OvertakenError(AssignerError):
    """Another process has taken the transactional id; nothing was sent."""


class DeniedError(AssignerError):
    """This user may not send."""


class FencedProducer:
    """Sends messages; what is sent together is there together, or not at all.

    Raises:
        OvertakenError, DeniedError: as they say.
        ClientError: whether they are there is not known; the next producer of the id can read it.
    """

    def __init__(self, connection: Connection, transactional_id: str, role: Role) -> None:
        """Take the id."""
        self._prefix = connection.prefix
        self._id = transactional_id
        self._role = role
        self._producer: Any = Producer(
            {
                **connection.client(),
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_SECONDS_MAX * 1000,
                "message.timeout.ms": TRANSACTION_SECONDS_MAX * 1000,
                "acks": "all",
                "linger.ms": 1,
                "logger": CLIENT_LOGGER,  # what goes wrong is raised
            }
        )
        with self._as_ours(f"transactional id {transactional_id!r}", []):
            retry_until(self._producer.init_transactions)

    def send(self, topic: str, messages: Iterable[tuple[str, bytes]]) -> list[Message]:
        """Send values to a topic under one key; the messages as they lie there, in order."""
        name = topic_name(topic, prefix=self._prefix)
        placed: list[Message] = []
        undelivered: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                placed.append(message)
            elif error.code() not in _PURGED:
                undelivered.append(error)

        with self._as_ours(name, undelivered), raise_fatal_cause(self._producer):
            self._producer.begin_transaction()
            for key, value in messages:
                self._producer.produce(name, value, key.encode(), on_delivery=delivered)
            deliver(self._producer)
            retry_until(self._producer.commit_transaction)
        return placed

    def close(self) -> None:
        """Let go; what is open is aborted."""
        self._abort()

    def _abort(self) -> KafkaError | None:
        """Abort a transaction that is open; the error that says that another process has fenced."""
        try:
            with raise_fatal_cause(self._producer):
                self._producer.abort_transaction(ABORT_SECONDS_MAX)
        except KafkaException as reason:
            error: KafkaError = reason.args[0]
            return error if error.code() in _FENCED else None
        return None

    @contextmanager
    def _as_ours(self, place: str, undelivered: Sequence[KafkaError]) -> Iterator[None]:
        """A client's error as ours: that of the first message that was not delivered says most."""
        try:
            yield
        except KafkaException as reason:
            # Of a commit at the moment of a fence Kafka may say only that it failed; the abort that
            # follows says so.
            error = self._abort() or (undelivered[0] if undelivered else reason.args[0])
            if {error.code(), reason.args[0].code()} & _FENCED:
                raise OvertakenError(
                    f"another process has taken over {self._id}; this one ends, and sends nothing"
                ) from reason
            if is_denied(error):
                raise DeniedError(
                    f"this user may not Write {place} ({error.name()}); {granting(self._role)}"
                ) from reason
            raise ClientError(
                f"{place} does not take what is sent: {error.str()}; check that its brokers run"
            ) from reason
