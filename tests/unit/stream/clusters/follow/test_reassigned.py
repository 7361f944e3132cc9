"""What Kafka reassigns is asked for at each look, also when the broker that was asked is down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from kafka.errors import KafkaTimeoutError
from spu_assigner.stream.clusters.follow import kafka_topics
from spu_assigner.stream.clusters.follow.kafka_topics import TRIES_MAX, WatchedTopics
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import ClientError


class Place(NamedTuple):
    topic: str
    partition: int


class Controllers:
    """Makes admin clients; each asks the broker that is up when it is made, and no other."""

    def __init__(self) -> None:
        self.is_up = [True]  # by client, the last one for all that come
        self.made: list[dict[str, Any]] = []
        self.closed = 0

    def __call__(self, **settings: Any) -> Controllers.Admin:
        self.made.append(settings)
        return self.Admin(self, len(self.made) - 1)

    class Admin:
        def __init__(self, all_: Controllers, number: int) -> None:
            self._all, self._number = all_, number

        def list_partition_reassignments(self) -> Iterator[Place]:
            if not self._all.is_up[min(self._number, len(self._all.is_up) - 1)]:
                raise KafkaTimeoutError
            return iter((Place("t", 2), Place("t", 0)))

        def close(self) -> None:
            self._all.closed += 1


@pytest.fixture
def controllers(monkeypatch: pytest.MonkeyPatch) -> Controllers:
    found = Controllers()
    monkeypatch.setattr("kafka.admin.KafkaAdminClient", found)
    monkeypatch.setattr(kafka_topics, "Target", lambda _: None)
    return found


def test_when_the_broker_that_is_asked_stops_a_new_client_asks_another(
    controllers: Controllers,
) -> None:
    """`follow --topics` was blind for half a minute, and the broker's leave was late by that."""
    topics = WatchedTopics(Connection(bootstrap_servers="127.0.0.1:1"))
    assert topics._reassigned() == {"t": [2, 0]}
    controllers.is_up = [False, True]
    assert topics._reassigned() == {"t": [2, 0]}
    assert (len(controllers.made), controllers.closed) == (2, 1)
    assert all(each["request_timeout_ms"] <= 5_000 for each in controllers.made)


def test_where_no_broker_answers_it_says_so(controllers: Controllers) -> None:
    """And the next look begins with a new client."""
    controllers.is_up = [False]
    topics = WatchedTopics(Connection(bootstrap_servers="127.0.0.1:1"))
    with pytest.raises(ClientError, match="does not say which partitions it reassigns"):
        topics._reassigned()
    assert (len(controllers.made), controllers.closed) == (TRIES_MAX, TRIES_MAX)
    controllers.is_up = [True]
    assert topics._reassigned() == {"t": [2, 0]}
