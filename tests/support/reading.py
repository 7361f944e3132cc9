"""Reading all that is committed on a topic."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition


def committed(bootstrap_servers: str, topic: str) -> list[Message]:
    """Every committed message now on a topic, partition by partition, in offset order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "tests",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # the end of a partition is told after it
            "auto.offset.reset": "earliest",
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        found: dict[int, list[Message]] = {partition: [] for partition in partitions}
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        open_ends = set(partitions)
        while open_ends:
            for message in consumer.consume(1_000, 1.0):
                error = message.error()
                if error is None:
                    found[message.partition()].append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    open_ends.discard(message.partition())
        return [message for partition in sorted(found) for message in found[partition]]
    finally:
        consumer.close()
