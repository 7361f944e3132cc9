"""What brokers hold, and what is said of replicas that a user may not see."""

from __future__ import annotations

from typing import Any

import pytest
from spu_assigner.stream.kafka import log_dirs
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.log_dirs import UnseenReplicas, sizes_in

HELD = {("a", 0): {1: 5}, ("a", 1): {1: 5, 2: 5}, ("b", 0): {3: 0}}


def test_replicas_that_are_not_seen_and_brokers_that_do_not_report_are_named() -> None:
    """A line for each, and none where nothing is left out."""
    assert list(UnseenReplicas().summary.lines("")) == []
    unseen = UnseenReplicas(sizes=HELD, silent=(2,)).summary
    assert list(unseen.lines("they are not counted")) == [
        "4 replicas of 2 topics that you may not see (a, b): they are not counted",
        "broker 2 does not report what topics that you may not see hold there; brokers do to users "
        "who may Describe the cluster: they are not counted",
    ]


def test_the_bytes_of_a_topic_are_those_of_one_replica_of_each_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The largest: a follower may lag behind. What no broker reports is not known."""

    def logs(broker: int, *sizes: tuple[str, int, int], error: int = 0) -> dict[str, Any]:
        topics = [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": at, "partition_size": size, "is_future_key": size == 99}
                ],
            }
            for topic, at, size in sizes
        ]
        return {"broker": broker, "log_dirs": [{"topics": topics, "error_code": error}]}

    held = sizes_in(
        [
            logs(1, ("t", 0, 10), ("t", 1, 5), ("u", 0, 7)),
            logs(2, ("t", 1, 6)),
            logs(3, ("t", 0, 99)),
            logs(4, ("u", 1, 1), error=1),
        ]
    )
    assert held.brokers == {1, 2, 3}
    monkeypatch.setattr(log_dirs, "replica_sizes", lambda _: held)
    connection = Connection(bootstrap_servers="127.0.0.1:9092")
    assert log_dirs.topic_bytes(connection, {"t": 2, "u": 2}) == {"t": 16}
