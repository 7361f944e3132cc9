"""The cluster that tests share: real brokers in racks, which start and stop on request."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata
from spu_assigner.stream.local.broker.embedded import BrokerError
from support.kafka.kafka_cluster import CONTROLLER_ID, KafkaCluster

RACKS = {1: "a", 2: "b", 3: "c"}


def _create(cluster: KafkaCluster, topic: str) -> None:
    """Return when every replica is in sync: then any broker may go."""
    with AdminClient(cluster.client) as admin:
        wanted = NewTopic(
            topic, 1, replica_assignment=[[2, 3, 1]], config={"min.insync.replicas": "2"}
        )
        admin.create_topics([wanted])[topic].result(timeout=60)
        _await_partition(cluster, topic, lambda found: len(found.isrs) == 3)


def _await_partition(
    cluster: KafkaCluster, topic: str, claim: Callable[[PartitionMetadata], bool]
) -> None:
    """A broker reports a change when it has heard of it: some milliseconds after the answer."""
    with AdminClient(cluster.client) as admin:
        deadline = time.monotonic() + 60
        while True:
            found = admin.list_topics(topic, timeout=60).topics[topic].partitions.get(0)
            if found is not None and claim(found):
                return
            assert time.monotonic() < deadline, f"{topic} is not as expected: {found}"
            time.sleep(0.05)


def _send(cluster: KafkaCluster, topic: str, value: bytes) -> None:
    """In a transaction, as the job's sink does."""
    producer = Producer({**cluster.client, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, value)
    producer.commit_transaction(60)


def _read(cluster: KafkaCluster, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({**cluster.client, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, timeout=60)]
    finally:
        consumer.close()


def test_each_broker_reports_its_rack(kafka_cluster: KafkaCluster) -> None:
    """What follows membership reads ids and racks from the cluster's own description."""
    assert kafka_cluster.seen() == RACKS
    assert kafka_cluster.ids == (1, 2, 3)


def test_a_stopped_broker_is_not_reported_until_it_is_back(
    kafka_cluster: KafkaCluster, topic_prefix: str
) -> None:
    """Another one leads meanwhile: two of three replicas take a transaction, and nothing is lost.

    The clients know all three addresses, so that they do not mind which one is away.
    """
    topic = f"{topic_prefix}kept"
    _create(kafka_cluster, topic)
    _send(kafka_cluster, topic, b"by three")
    with kafka_cluster.stopped(2):
        assert kafka_cluster.seen() == {1: "a", 3: "c"}
        assert kafka_cluster.pid(2) is None
        _await_partition(kafka_cluster, topic, lambda found: found.leader in (1, 3))
        _send(kafka_cluster, topic, b"by two")
    assert kafka_cluster.seen() == RACKS
    assert _read(kafka_cluster, topic, 2) == [b"by three", b"by two"]


def test_a_broker_that_died_by_itself_is_named_with_its_log(kafka_cluster: KafkaCluster) -> None:
    """A test that waits for a dead broker would only report its own deadline.

    The cluster fences it by the missing heartbeat alone.
    """
    pid = kafka_cluster.pid(1)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    try:
        with pytest.raises(BrokerError, match=r"broker 1 has ended by itself; its log is \S+$"):
            _check_for(kafka_cluster, 60.0)
        assert kafka_cluster.log_path(1).is_file()
        kafka_cluster.kill(1)
        assert kafka_cluster.seen() == {2: "b", 3: "c"}
    finally:
        kafka_cluster.start(1)
    assert kafka_cluster.seen() == RACKS


def _check_for(cluster: KafkaCluster, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        cluster.check()
        time.sleep(0.05)


def test_what_cannot_be_done_is_refused(kafka_cluster: KafkaCluster) -> None:
    """A slip in a test is reported at once, not by a cluster that never looks as expected."""
    with pytest.raises(BrokerError, match=r"there is no broker 4, only \[1, 2, 3\]"):
        kafka_cluster.stop(4)
    with pytest.raises(BrokerError, match="broker 2 already runs on"):
        kafka_cluster.start(2)
    with pytest.raises(BrokerError, match="the cluster has not been started"):
        KafkaCluster().stop(1)
    assert kafka_cluster.log_path(CONTROLLER_ID).is_file()


def test_a_cluster_that_does_not_come_up_says_why() -> None:
    """Kafka's own reason, and no process is left behind."""
    cluster = KafkaCluster(("a",), settings={"num.io.threads": "none"})
    with pytest.raises(BrokerError, match=r"num\.io\.threads"):
        cluster.begin()
    with pytest.raises(BrokerError, match="the cluster has not been started"):
        cluster.pid(1)
