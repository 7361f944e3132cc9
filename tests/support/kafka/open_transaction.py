"""A producer whose transaction stays open until the test ends it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import KafkaException, Producer

ENDED_SECONDS_MAX = 30.0


class OpenTransaction:
    """A transaction that has written one message, which may be none that its readers know."""

    def __init__(
        self, client: Mapping[str, Any], topic: str, *, key: bytes = b"k", value: bytes = b"v"
    ) -> None:
        self._producer = Producer(
            {
                **client,
                "transactional.id": f"open-{secrets.token_hex(8)}",
                "transaction.timeout.ms": 300_000,  # longer than a test waits
                "log_level": 0,
            }
        )
        self._producer.init_transactions(ENDED_SECONDS_MAX)
        self._producer.begin_transaction()
        self._producer.produce(topic, value, key, partition=0)
        self._producer.flush(ENDED_SECONDS_MAX)

    def abort(self) -> None:
        self._producer.abort_transaction(ENDED_SECONDS_MAX)

    def commit(self) -> None:
        self._producer.commit_transaction(ENDED_SECONDS_MAX)


@contextmanager
def open_transaction(
    servers: str, topic: str, *, key: bytes = b"k", value: bytes = b"v"
) -> Iterator[OpenTransaction]:
    """Open in the block, unless it is ended there."""
    transaction = OpenTransaction({"bootstrap.servers": servers}, topic, key=key, value=value)
    try:
        yield transaction
    finally:
        with suppress(KafkaException):  # It was ended.
            transaction.abort()
