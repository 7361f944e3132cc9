"""What Kafka reassigns is asked for at each look, also when the broker that was asked is down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from kafka.errors import ClusterAuthorizationFailedError, KafkaTimeoutError
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.clusters.follow.watched import WatchedCluster
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import AccessError, ClientError


class Place(NamedTuple):
    topic: str
    partition: int


@pytest.fixture
def watched() -> Iterator[WatchedCluster]:
    cluster = WatchedCluster(Connection(bootstrap_servers="127.0.0.1:1"))
    yield cluster
    cluster.close()


def clients(monkeypatch: pytest.MonkeyPatch, *errors: Exception | None) -> list[object]:
    """Admin clients; each has its own answer, those after the last one the last."""
    made: list[object] = []

    class Admin:
        def __init__(self, **_: Any) -> None:
            self._error = errors[min(len(made), len(errors) - 1)]
            made.append(self)

        def list_partition_reassignments(self) -> Mapping[Place, Any]:
            if self._error is not None:
                raise self._error
            lists = {"replicas": [1], "adding_replicas": [1], "removing_replicas": []}
            return {Place("t", 2): lists, Place("t", 0): lists}

        def close(self) -> None:
            pass

    monkeypatch.setattr("kafka.admin.KafkaAdminClient", Admin)
    return made


def test_when_the_broker_that_is_asked_stops_a_new_client_asks_another(
    watched: WatchedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on asking the one that it took for the controller: the look was blind so long."""
    made = clients(monkeypatch, KafkaTimeoutError(), None)
    for _ in range(2):
        assert watched._reassigned() == {"t": [2, 0]}
    assert len(made) == 2


@pytest.mark.parametrize(
    ("error", "kind", "reported"),
    [
        (KafkaTimeoutError(), ClientError, "does not say which partitions it reassigns"),
        (ClusterAuthorizationFailedError(), AccessError, r"may not see .* \(Describe the cluster"),
    ],
)
def test_what_cannot_be_asked_is_reported(
    watched: WatchedCluster,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    kind: type[AssignerError],
    reported: str,
) -> None:
    """Nothing is adopted then: a list may name brokers that a partition comes from."""
    clients(monkeypatch, error)
    with pytest.raises(kind, match=reported):
        watched._reassigned()
