"""A topic of the product in a test, what may befall it, and a transaction that stays open."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from spu_assigner.stream.kafka.topic_ids import ask_topic_ids
from spu_assigner.stream.kafka.topics import TOPICS

PATIENCE_SECONDS = 240.0  # milliseconds on an idle machine


class OneTopic:
    """Of a broker that tests share."""

    def __init__(self, bootstrap_servers: str, name: str) -> None:
        self.name = name
        self._client = {"bootstrap.servers": bootstrap_servers}

    def expire(self, before: int, partition: int = 0) -> None:
        """As retention does; -1: all that is there."""
        place = TopicPartition(self.name, partition, before)
        with AdminClient(self._client) as admin:
            for future in admin.delete_records([place]).values():
                future.result(PATIENCE_SECONDS)

    def remove(self) -> None:
        with AdminClient(self._client) as admin:
            for future in admin.delete_topics([self.name]).values():
                future.result()

    def recreate(self, partitions: int = 4) -> None:
        """Back when the broker knows the new topic."""
        before = self.id()
        self.remove()
        config = next(each.required for each in TOPICS if self.name.endswith(each.name))
        topic = NewTopic(self.name, partitions, 1, config=config)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:  # A deletion takes a moment after it was promised.
            try:
                with AdminClient(self._client) as admin:
                    for future in admin.create_topics([topic]).values():
                        future.result()
            except KafkaException:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            else:
                break
        while self.id() in (None, before):  # The controller answers before its broker knows.
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def id(self) -> str | None:
        """Kafka's of the topic; None: the broker knows of none."""
        with AdminClient(self._client) as admin, suppress(KafkaException):
            return ask_topic_ids(admin, [self.name], seconds=PATIENCE_SECONDS).get(self.name)
        return None


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
