"""How many bytes topics hold, by the sizes of logs.

Bytes are information for a person, and nothing is decided by them: where they are not to be had
they are not known.
"""

from __future__ import annotations

from collections.abc import Mapping

from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.log_dirs import replicas_of, topic_logs


def topic_bytes(connection: Connection, topics: Mapping[str, int]) -> dict[str, int]:
    """Of topics, the bytes of one replica of each partition: of the largest, as they may differ.

    Left out is a topic of which some partition is reported by no broker: that needs the right to
    Describe the cluster.

    Args:
        topics: the number of partitions of each.
    """
    partitions = {topic: list(range(count)) for topic, count in topics.items()}
    sizes: dict[tuple[str, int], int] = {}
    for answer in topic_logs(connection, partitions):
        for topic, number, size in replicas_of(answer):
            sizes[topic, number] = max(sizes.get((topic, number), 0), size)
    return {
        topic: sum(sizes[topic, number] for number in numbers)
        for topic, numbers in partitions.items()
        if all((topic, number) in sizes for number in numbers)
    }
