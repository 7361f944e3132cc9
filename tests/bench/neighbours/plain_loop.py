"""A replica assigner as a user writes it with a Kafka client alone: consume, decide, produce.

    python plain_loop.py BOOTSTRAP PREFIX [--table]

Reads joins and creates from `<PREFIX>events`, writes maps to `<PREFIX>maps`. State is in memory;
its changelog goes to the compacted topic `<PREFIX>state` in the transaction of the maps and of the
offsets, so that each event is answered exactly once: whoever starts shuts the one before him out
(`init_transactions`), reads the changelog to its end, and goes on at the committed offsets. Any
error ends the process; the next start takes up where the last commit was.

It knows joins and creates, and Fluvio's placement without racks: no capacity, no leave, no repeated
event, no reason in a map, and an SPU that joins between two topics moves the chain's place in the
ring. A create that cannot be met gets no answer.

With --table the lists of a map are sliced as bytes from a table of the formula's period, made once
for a ring (`table_codec.py`). Ends with SIGTERM.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
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
    tables: dict[int, Any] = field(default_factory=dict)  # with --table: by replicas, of this ring


Encode = Callable[[dict[str, Any], Cluster], bytes]


def plain_map(event: dict[str, Any], cluster: Cluster) -> bytes:
    """The map that answers a create, placed and written list by list."""
    first = cluster.index
    cluster.index += event["partitions"]
    lists = place(cluster.ring, first, event["partitions"], event["replication_factor"])
    return encode_map(replica_map(event, lists, cluster.index))


class Assigner:
    """All clusters, and which of them have changed since that was last asked."""

    def __init__(self, encode: Encode) -> None:
        self.clusters: dict[str, Cluster] = {}
        self._encode = encode
        self._changed: set[str] = set()

    def join(self, event: dict[str, Any]) -> None:
        """An SPU is there."""
        cluster = self._changing(event["cluster_id"])
        cluster.ring = sorted({*cluster.ring, event["spu_id"]})
        cluster.tables.clear()

    def create(self, event: dict[str, Any]) -> bytes | None:
        """The map of a topic; None if it is there already or cannot be placed."""
        cluster = self._changing(event["cluster_id"])
        replicas: int = event["replication_factor"]
        if event["topic"] in cluster.topics or not 1 <= replicas <= len(cluster.ring):
            return None
        cluster.topics.add(event["topic"])
        return self._encode(event, cluster)

    def changes(self) -> list[tuple[str, bytes]]:
        """Key and value of each cluster that has changed, for the changelog."""
        names, self._changed = sorted(self._changed), set()
        return [
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


def restore(consumer: Any, topic: str, assigner: Assigner) -> None:
    """Read the changelog to its end."""
    partitions = consumer.list_topics(topic, TIMEOUT_SECONDS).topics[topic].partitions
    unread = set(partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    while unread:
        for message in consumer.consume(BATCH_MESSAGES_MAX, LOOK_SECONDS):
            error = message.error()
            if error is None:
                assigner.restore(message.key().decode(), message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
            else:
                raise KafkaException(error)


def run(bootstrap: str, prefix: str, table: bool, ended: threading.Event) -> None:
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
    assigner = Assigner(encoder(table))
    past = Consumer({**settings, "enable.partition.eof": True})
    restore(past, state, assigner)
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
        for key, value in answers(assigner, batch):
            producer.produce(maps, value, key)
            producer.produce(state, b"", key)
        for key, value in assigner.changes():
            producer.produce(state, value, key)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()),
            consumer.consumer_group_metadata(),
            TIMEOUT_SECONDS,
        )
        producer.commit_transaction(TIMEOUT_SECONDS)
    consumer.close()


def encoder(table: bool) -> Encode:
    """How a map is placed and written."""
    if not table:
        return plain_map
    from table_codec import table_map

    return table_map


def answers(assigner: Assigner, batch: Iterable[Message]) -> Iterable[tuple[str, bytes]]:
    """Key and value of each map."""
    for message in batch:
        if message.error():
            raise KafkaException(message.error())
        kind, event = decode(message.value())
        if kind == "TopicCreate":
            value = assigner.create(event)
            if value is not None:
                yield f"{event['cluster_id']}/{event['topic']}", value
        else:
            assigner.join(event)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("prefix")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    run(options.bootstrap, options.prefix, options.table, ended)


if __name__ == "__main__":
    main()
