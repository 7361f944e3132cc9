"""The work that the job and its neighbours are measured on, and the client that measures them.

Work unit: a topic-create of 16 partitions × 3 replicas, over 50 clusters of 64 SPUs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from spu_assigner.core.base.events import Event, SpuJoined, TopicCreate

CLUSTERS: Final = 50
SPUS: Final = 64
PARTITIONS: Final = 16
REPLICAS: Final = 3
SIZES: Final = {
    "clusters": CLUSTERS,
    "spus_per_cluster": SPUS,
    "partitions": PARTITIONS,
    "replicas": REPLICAS,
}
LOG_ERRORS: Final = 3  # of syslog's levels: not that a new broker is still loading
TOPIC_SECONDS: Final = 30.0  # for the broker to report a topic that was just made
ANSWER_SECONDS: Final = 300.0  # without a single answer: a start, then a batch of the largest maps


def joins(clusters: int = CLUSTERS, spus: int = SPUS) -> list[Event]:
    """Every SPU of every cluster."""
    return [
        SpuJoined(
            event_id=f"j{cluster}-{spu}", cluster_id=f"c{cluster}", spu_id=spu, capacity=10**8
        )
        for cluster in range(clusters)
        for spu in range(spus)
    ]


def creates(
    first: int, count: int, *, clusters: int = CLUSTERS, partitions: int = PARTITIONS
) -> list[Event]:
    """Creates number first … first + count - 1, over the clusters in turn."""
    return [
        TopicCreate(
            event_id=f"e{number}",
            cluster_id=f"c{number % clusters}",
            topic=f"t{number}",
            partitions=partitions,
            replication_factor=REPLICAS,
        )
        for number in range(first, first + count)
    ]


class Client:
    """Sends to one topic and reads another, as a user would: idempotent, `read_committed`. `look`
    is called while no answer comes: it raises if none can come any more."""

    def __init__(
        self, bootstrap: str, source: str, target: str, look: Callable[[], None] = lambda: None
    ) -> None:
        self.source = source
        self._look = look
        common = {"bootstrap.servers": bootstrap, "log_level": LOG_ERRORS}
        self.producer = Producer({**common, "enable.idempotence": True, "linger.ms": 0})
        self.bulk = Producer(
            {
                **common,
                "enable.idempotence": True,
                "linger.ms": 20,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self.consumer = Consumer(
            {
                **common,
                "group.id": f"bench-{target}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 5,
            }
        )
        partitions = _partitions(self.consumer, target)
        self.consumer.assign([TopicPartition(target, number, 0) for number in partitions])

    def ask(self, key: str, value: bytes) -> float:
        """Send one, wait for what comes back: ms."""
        begun = time.perf_counter()
        self.producer.produce(self.source, key=key, value=value)
        self.producer.flush()
        self.take(1)
        return (time.perf_counter() - begun) * 1000

    def send(self, records: list[tuple[str, bytes]]) -> None:
        """Send a backlog."""
        for number, (key, value) in enumerate(records):
            self.bulk.produce(self.source, key=key, value=value)
            if number % 5_000 == 0:
                self.bulk.poll(0)
        self.bulk.flush()

    def take(self, count: int) -> None:
        """Read the next `count` values that are committed."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while count:
            messages = self.consumer.consume(min(10_000, count), 0.5)
            for message in messages:
                if message.error():
                    raise AssertionError(str(message.error()))
            count -= len(messages)
            if messages:
                deadline = time.monotonic() + ANSWER_SECONDS
            else:
                self._look()
            assert time.monotonic() < deadline, f"{count} answers did not come"

    def close(self) -> None:
        """Leave the broker alone."""
        self.consumer.close()


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    """A topic's partitions, once each has a leader: one that was just made may show none yet."""
    deadline = time.monotonic() + TOPIC_SECONDS
    while True:
        partitions = consumer.list_topics(topic, TOPIC_SECONDS).topics[topic].partitions
        if partitions and all(each.leader >= 0 for each in partitions.values()):
            return sorted(partitions)
        assert time.monotonic() < deadline, f"{topic} has no leaders"
        time.sleep(0.05)
