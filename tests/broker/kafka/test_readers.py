"""Readers that go by offsets: what is deleted or recreated under them is never passed over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Timer
from typing import Any

import pytest
from confluent_kafka import Producer
from spu_assigner.core.base.records import Status
from spu_assigner.stream.client.pending_answers import Awaited
from spu_assigner.stream.kafka import client as client_module
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import RenewedError
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.events.event_codecs import RING, STATUS, encode
from support.kafka.one_topic import OneTopic, open_transaction
from support.kafka.shared_broker import SharedBroker

TOPIC = "topic-status"
ANSWER = replace(STATUS, status=Status.DELETED, cause=RING.cause)


@pytest.fixture
def connection(kafka: SharedBroker, topic_prefix: str) -> Connection:
    """To topics that are there."""
    create_topics({"bootstrap.servers": kafka.bootstrap_servers}, prefix=topic_prefix, partitions=1)
    return Connection(bootstrap_servers=kafka.bootstrap_servers, prefix=topic_prefix)


def write(connection: Connection, *values: int | bytes) -> None:
    producer = Producer({"bootstrap.servers": connection.bootstrap_servers})
    for value in values:
        data = value if isinstance(value, bytes) else b"%d" % value
        producer.produce(connection.prefix + TOPIC, data, b"key")
    assert producer.flush(30) == 0


def topic(connection: Connection) -> OneTopic:
    return OneTopic(connection.bootstrap_servers, connection.prefix + TOPIC)


def values(messages: Any) -> list[int]:
    return [int(message.value()) for _, message in messages]


@pytest.fixture
def after_offsets(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Has something happen once, when a reader has asked where its topics begin and end."""

    def arrange(happens: Callable[[], None]) -> None:
        asked = client_module.list_offsets

        def listed(*given: Any, **named: Any) -> Mapping[tuple[str, int], int]:
            found = asked(*given, **named)
            monkeypatch.setattr(client_module, "list_offsets", asked)
            happens()
            return found

        monkeypatch.setattr(client_module, "list_offsets", listed)

    return arrange


@pytest.mark.smoke
def test_a_reader_whose_start_expires_reads_all_that_is_left_and_says_so(
    connection: Connection, after_offsets: Callable[[Callable[[], None]], None]
) -> None:
    """By default the client would jump to the end: nothing would be read, and all counted."""
    write(connection, *range(30))
    after_offsets(lambda: topic(connection).expire(before=15))
    with Reader(connection, [TOPIC], from_beginning=True) as reader:
        assert values(reader.drain_messages()) == [*range(15, 30)]
        assert reader.spans() == {(TOPIC, 0): (15, 30)}
        assert reader.probe(10) is None
        assert reader.passed_over == [
            f"{connection.prefix}{TOPIC}, partition 0: offsets 0 to 14 were deleted before they "
            "were read"
        ]


@pytest.mark.smoke
@pytest.mark.parametrize("written", [9, 5, 2, 0])
def test_a_reader_of_a_topic_that_was_recreated_says_so(
    connection: Connection, written: int
) -> None:
    """By offsets alone what the new one has before them would be passed over."""
    write(connection, *range(5))
    with Reader(connection, [TOPIC], from_beginning=True) as reader:
        assert values(reader.drain_messages()) == [*range(5)]
        topic(connection).recreate(partitions=1)
        write(connection, *range(written))
        said = f"{connection.prefix}{TOPIC} was deleted and recreated while it was read"
        for look in (lambda: [*reader.drain_messages()], lambda: reader.probe(0)):
            with pytest.raises(RenewedError, match=said):
                look()


def test_a_reader_of_a_topic_that_is_recreated_while_it_is_read_says_so(
    connection: Connection, after_offsets: Callable[[Callable[[], None]], None]
) -> None:
    """Its ends are those of the old one, its messages the new one's."""
    write(connection, *range(5))
    with Reader(connection, [TOPIC], from_beginning=True) as reader:

        def happens() -> None:
            topic(connection).recreate(partitions=1)
            write(connection, *range(10, 19))

        after_offsets(happens)
        with pytest.raises(RenewedError, match="was deleted and recreated"):
            reader.drain()


def test_what_came_with_an_answer_is_reported_though_its_commit_is_seen_later(
    connection: Connection,
) -> None:
    """Kafka writes the end of a transaction into one partition after another."""
    awaited, reported = Awaited(), list[Any]()
    awaited.expect_id(RING.cause)
    with Reader(connection, [TOPIC, "ring-events"]) as reader:
        ring = connection.prefix + "ring-events"
        with open_transaction(connection.bootstrap_servers, ring, value=encode(RING)) as late:
            write(connection, encode(ANSWER))
            Timer(1, late.commit).start()
            assert awaited.wait(reader, seconds=60, report=reported.append)
    assert {each.answer for each in reported} == {ANSWER, RING}
