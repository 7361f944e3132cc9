"""A replica assigner as a user writes it with a Kafka client alone: consume, decide, produce.

    python plain_loop.py BOOTSTRAP PREFIX [--core POLICY]

Reads joins and creates from `<PREFIX>events`, writes maps to `<PREFIX>maps`. State is in memory;
its changelog goes to the compacted topic `<PREFIX>state` in the transaction of the maps and of the
offsets, so that each event is answered exactly once: whoever starts shuts the one before him out
(`init_transactions`), reads the changelog to its end, and goes on at the committed offsets. Any
error ends the process; the next start takes up where the last commit was.

It knows joins and creates, and Fluvio's placement without racks: no capacity, no leave, no repeated
event, no reason in a map, and an SPU that joins between two topics moves the chain's place in the
ring. A create that cannot be met gets no answer.

With --core the product's core decides in it, by this policy (`core_loop.py`). Ends with SIGTERM.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from fluvio import place, replica_map
from messages import decode, encode_map

BATCH_MESSAGES_MAX: Final = 10_000
LOOK_SECONDS: Final = 0.2  # for a wish to end, while nothing comes
TIMEOUT_SECONDS: Final = 30.0


@dataclass(slots=True)
class Cluster:
    """What is known of a cluster."""

    ring: list[int] = field(default_factory=list)  # ascending
    index: int = 0  # where the next topic starts
    topics: set[str] = field(default_factory=set)


class PlainClusters:
    """All clusters, and which of them have changed since that was last asked."""

    def __init__(self) -> None:
        self.clusters: dict[str, Cluster] = {}
        self._changed: set[str] = set()
        self._created: list[str] = []  # keys of topics, likewise

    def answer(self, value: bytes) -> tuple[str, bytes] | None:
        """Key and value of the map that answers an event; None: it has none."""
        kind, event = decode(value)
        cluster = self._changing(event["cluster_id"])
        if kind != "TopicCreate":
            cluster.ring = sorted({*cluster.ring, event["spu_id"]})
            return None
        replicas: int = event["replication_factor"]
        if event["topic"] in cluster.topics or not 1 <= replicas <= len(cluster.ring):
            return None
        cluster.topics.add(event["topic"])
        self._created.append(f"{event['cluster_id']}/{event['topic']}")
        first = cluster.index
        cluster.index += event["partitions"]
        lists = place(cluster.ring, first, event["partitions"], replicas)
        return self._created[-1], encode_map(replica_map(event, lists, cluster.index))

    def changes(self) -> list[tuple[str, bytes]]:
        """Key and value of each topic and cluster that has changed, for the changelog."""
        names, self._changed = sorted(self._changed), set()
        created, self._created = self._created, []
        return [(key, b"") for key in created] + [
            (name, json.dumps({"ring": cluster.ring, "index": cluster.index}).encode())
            for name, cluster in ((name, self.clusters[name]) for name in names)
        ]

    def restore(self, key: str, value: bytes) -> None:
        """Take over an entry of the changelog: of a cluster, or of a topic."""
        name, _, topic = key.partition("/")
        cluster = self.clusters.setdefault(name, Cluster())
        if topic:
            cluster.topics.add(topic)
        else:
            known = json.loads(value)
            cluster.ring, cluster.index = known["ring"], known["index"]

    def _changing(self, name: str) -> Cluster:
        self._changed.add(name)
        cluster = self.clusters.get(name)
        if cluster is None:
            cluster = self.clusters[name] = Cluster()
        return cluster


def restore(consumer: Any, topic: str, clusters: Any) -> None:
    """Read a topic of the changelog to its end."""
    partitions = consumer.list_topics(topic, TIMEOUT_SECONDS).topics[topic].partitions
    unread = set(partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    while unread:
        for message in consumer.consume(BATCH_MESSAGES_MAX, LOOK_SECONDS):
            error = message.error()
            if error is None:
                clusters.restore(message.key().decode(), message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
            else:
                raise KafkaException(error)


def run(bootstrap: str, prefix: str, core: str | None, ended: threading.Event) -> None:
    """Answer until the request to end."""
    events, maps, state = (f"{prefix}{name}" for name in ("events", "maps", "state"))
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"{prefix}loop", "linger.ms": 0}
    )
    producer.init_transactions(TIMEOUT_SECONDS)  # From here on an earlier process is shut out.
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": f"{prefix}loop",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 5,
    }
    clusters: Any = PlainClusters()
    past = Consumer({**settings, "enable.partition.eof": True})
    if core is not None:
        from core_loop import CoreClusters, Policy

        clusters = CoreClusters(Policy(core))
        restore(past, maps, clusters)
    restore(past, state, clusters)
    past.close()
    consumer = Consumer(settings)
    places = consumer.list_topics(events, TIMEOUT_SECONDS).topics[events].partitions
    # One process reads all: where it stands is in the committed offsets, its state in the
    # changelog, so there is nothing that a group would have to share out.
    consumer.assign(
        consumer.committed([TopicPartition(events, place) for place in places], TIMEOUT_SECONDS)
    )
    while not ended.is_set():
        first = consumer.poll(LOOK_SECONDS)
        if first is None:
            continue
        batch = [first, *consumer.consume(BATCH_MESSAGES_MAX - 1, timeout=0)]
        producer.begin_transaction()
        for message in batch:
            if message.error():
                raise KafkaException(message.error())
            if (answer := clusters.answer(message.value())) is not None:
                key, value = answer
                producer.produce(maps, value, key)
        for key, value in clusters.changes():
            producer.produce(state, value, key)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()),
            consumer.consumer_group_metadata(),
            TIMEOUT_SECONDS,
        )
        producer.commit_transaction(TIMEOUT_SECONDS)
    consumer.close()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("prefix")
    parser.add_argument("--core", metavar="POLICY")
    options = parser.parse_args()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    run(options.bootstrap, options.prefix, options.core, ended)


if __name__ == "__main__":
    main()
