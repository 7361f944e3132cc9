"""`apply --moves` while the quorum loses its leader."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from spu_assigner.stream.clusters.moves.throttle import FOLLOWERS, LEADERS
from support.job.kafka_operator import Operator
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.moving import Mover

BEFORE = [[1, 2], [1, 2]]
AFTER = [[3, 2], [2, 1]]  # a move, and a new order
SLOW = ("--throttle", "1kB/s")  # a wave does not end by itself
VALUES = 12  # of 256 KiB in each partition: more than is fetched at once


def let_go(mover: Mover) -> None:
    """Take the topic out of the throttle: what is under way ends at once."""
    topic = mover.operator.name("orders")
    with mover.kafka() as kafka:
        assert kafka.change({(topic, LEADERS): None, (topic, FOLLOWERS): None}) == {}


@pytest.mark.long("a cluster of its own, with three controllers")
def test_a_change_of_controller_in_a_wave_loses_nothing(topic_prefix: str, tmp_path: Path) -> None:
    """The one that leads the quorum is killed; what it had begun goes on under the next one."""
    with KafkaCluster(controllers=3) as cluster, AdminClient(cluster.client) as admin:
        operator = Operator(cluster, topic_prefix, admin)
        mover = Mover(operator, tmp_path)
        operator.make("orders", BEFORE)
        mover.fill("orders", partitions=2, values=VALUES)
        before = mover.checksums("orders", 2)
        mover.map({"orders": AFTER})
        first = cluster.active_controller()
        with mover.running(*SLOW) as process, cluster.active_controller_killed() as second:
            assert second != first
            with mover.kafka() as kafka:
                assert len(kafka.ongoing()) > 0  # The wave is still under way.
            let_go(mover)
            _, output = process.communicate(timeout=240)
            assert process.returncode == 0, output
            operator.until("orders", AFTER)
            assert mover.throttles("orders") == {}
            assert mover.checksums("orders", 2) == before
            record = mover.record()
        assert record is not None
        assert (record.moves, record.throttles, record.failures) == ((), (), ())
        assert mover.leaders("orders") == [row[0] for row in AFTER]
