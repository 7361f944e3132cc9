"""`drain` on three real brokers: one holds nothing in the end, Kafka's own topics included."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from support.job.operator import Operator
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.moving import Mover, until

TWO = {  # replicas of everything, so that two brokers can hold it
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "2",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "6",
}
LEAVES = 3


@pytest.fixture
def operator(topic_prefix: str) -> Iterator[Operator]:
    """Brokers of the test's own: what it is about is what is left on one of them."""
    with KafkaCluster(settings=TWO) as cluster, AdminClient(cluster.client) as admin:
        yield Operator(cluster, topic_prefix, admin)


def use_a_group(operator: Operator, topic: str) -> None:
    """Kafka makes its topic of offsets."""
    consumer = Consumer(
        {**operator.cluster.client, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([operator.name(topic)])
    until(lambda: consumer.poll(1.0) is not None)
    consumer.commit(asynchronous=False)
    consumer.close()


def held(mover: Mover) -> dict[str, int]:
    """How many replicas of each topic are on the broker, as Kafka shows it."""
    with mover.kafka() as kafka:
        found: dict[str, int] = {}
        for (topic, _), shape in kafka.shapes().items():
            if LEAVES in shape.replicas:
                found[topic] = found.get(topic, 0) + 1
        return found


@pytest.mark.long("a cluster of its own, and a broker that is emptied")
def test_a_broker_is_emptied_with_kafkas_own_topics_and_the_products(
    operator: Operator, tmp_path: Path
) -> None:
    """What a person has to do in eight steps; a topic of somebody else's is named, not touched."""
    mover = Mover(operator, tmp_path)
    orders = operator.name("orders")
    with operator.job() as job:
        job.apply([operator.events.create(orders, 6, 2)])
        assert operator.apply().exit_code == 0
        mover.fill("orders", partitions=6, values=4)
        use_a_group(operator, "orders")
        operator.make("foreign", [[3, 1], [1, 2]])
        before = mover.checksums("orders", 6)
        on_it = held(mover)
        assert {"__consumer_offsets", "__transaction_state", orders} < on_it.keys()
        assert any(topic == operator.name("replica-map") for topic in on_it)

        unknown = operator("drain", 9, "--cluster", "c1")
        assert (unknown.exit_code, unknown.stdout) == (1, "")
        assert "broker 9 is no SPU of cluster 'c1'" in unknown.stderr
        early = operator("drain", LEAVES, "--cluster", "c1", "--wait", "0")
        assert early.exit_code == 1
        assert early.stdout == "leaves   SPU 3 of cluster c1 is decommissioned\n"
        assert f"1 topic still has SPU 3 in the map ({orders}); check" in early.stderr
        assert held(mover) == on_it

        job.apply([operator.events.leave(LEAVES, mode="decommission")])
        partly = operator("drain", LEAVES, "--cluster", "c1", "--throttle", "100MB/s")
        assert partly.exit_code == 1, partly.stdout
        assert partly.stderr == (
            f"drain: {operator.name('foreign')}: 1 replica on the broker stay: it has no map; let "
            "it have one (`spu-assigner adopt`), or move it with kafka-reassign-partitions\n"
        )
        assert held(mover) == {operator.name("foreign"): 1}
        operator.remove("foreign")
        done = operator("drain", LEAVES, "--cluster", "c1")
        assert (done.exit_code, done.stderr) == (0, ""), done.stdout
        assert done.stdout.splitlines()[-1] == (
            "empty    broker 3 holds nothing; it may be switched off"
        )
    assert held(mover) == {}
    assert mover.throttles("orders") == {}
    with mover.kafka() as kafka:
        shapes = kafka.shapes()
        assert kafka.sizes(list(shapes), [LEAVES]) == {}
        assert all(shape.leader == shape.replicas[0] for shape in shapes.values())
    operator.cluster.stop(LEAVES)
    assert mover.checksums("orders", 6) == before
    use_a_group(operator, "orders")
