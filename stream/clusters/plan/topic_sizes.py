"""How much data topics hold: records by the offsets of partitions, bytes by the sizes of logs.

Bytes are information for a person, and nothing is decided by them: where they are not to be had
they are not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, OffsetSpec
from spu_assigner.stream.clusters.plan.model import TargetError, TopicSize
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import REQUEST_SECONDS_MAX, error_text
from spu_assigner.stream.kafka.log_dirs import replicas_of, topic_logs
from spu_assigner.stream.kafka.retry import list_offsets


def topic_sizes(
    admin: AdminClient, connection: Connection, topics: Mapping[str, int]
) -> dict[str, TopicSize]:
    """Records and, where the brokers report them, bytes; none of a topic that is deleted meanwhile.

    Args:
        topics: the number of partitions of each.

    Raises:
        TargetError: the partitions' leaders do not answer.
    """
    try:
        ends = _offsets(admin, topics, OffsetSpec.latest())
        begins = _offsets(admin, topics, OffsetSpec.earliest())
    except TargetError:
        there = admin.list_topics(timeout=REQUEST_SECONDS_MAX).topics
        left = {name: count for name, count in topics.items() if name in there}
        if len(left) == len(topics):
            raise
        gone = dict.fromkeys(topics.keys() - left, TopicSize(records=0, size_bytes=0))
        return gone | topic_sizes(admin, connection, left)
    sizes = topic_bytes(connection, topics) if topics else {}
    return {
        topic: TopicSize(
            records=sum(ends[topic, n] - begins[topic, n] for n in range(count)),
            size_bytes=sizes.get(topic),
        )
        for topic, count in topics.items()
    }


def untouched(admin: AdminClient, topics: Mapping[str, int]) -> set[str]:
    """Those of the topics to which nothing was ever written.

    Raises:
        TargetError: the partitions' leaders do not answer.
    """
    ends = _offsets(admin, topics, OffsetSpec.latest())
    return {name for name, count in topics.items() if all(not ends[name, n] for n in range(count))}


def _offsets(
    admin: AdminClient, topics: Mapping[str, int], spec: OffsetSpec
) -> dict[tuple[str, int], int]:
    """Of all partitions of these topics."""
    places = [(name, n) for name, count in topics.items() for n in range(count)]
    try:
        return list_offsets(admin, places, spec, seconds=REQUEST_SECONDS_MAX)
    except KafkaException as reason:
        raise TargetError(
            f"how much data {listed(list(topics))} hold is not known: {error_text(reason)}; "
            "check that all brokers run, and run this again"
        ) from reason


def topic_bytes(connection: Connection, topics: Mapping[str, int]) -> dict[str, int]:
    """Of topics, the bytes of one replica of each partition: of the largest, as they may differ.

    Left out is a topic of which some partition is reported by no broker: that needs the right to
    Describe the cluster.

    Args:
        topics: the number of partitions of each.
    """
    partitions = {topic: list(range(count)) for topic, count in topics.items()}
    return _largest(topic_logs(connection, partitions), topics)


def _largest(answers: Sequence[Mapping[str, Any]], topics: Mapping[str, int]) -> dict[str, int]:
    sizes: dict[tuple[str, int], int] = {}
    for topic, number, size in (log for answer in answers for log in replicas_of(answer)):
        sizes[topic, number] = max(sizes.get((topic, number), 0), size)
    return {
        topic: sum(sizes[topic, number] for number in range(count))
        for topic, count in topics.items()
        if all((topic, number) in sizes for number in range(count))
    }
