"""How much data topics hold: records by the offsets of partitions, bytes by the sizes of logs.

confluent-kafka has no DescribeLogDirs, so kafka-python asks. Bytes are information for a person,
and nothing is decided by them: where they are not to be had they are not known.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, OffsetSpec
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.config.connection import Connection
from spu_assigner.stream.kafka.errors import REQUEST_SECONDS_MAX, error_text
from spu_assigner.stream.kafka.retry import list_offsets
from spu_assigner.stream.plan.model import ReplicaSizes, TargetError, TopicSize

_LOGGER: Final = logging.getLogger("kafka")
_LOGGER.addHandler(logging.NullHandler())  # A failure shows as a size that is not known.
_LOGGER.propagate = False


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
    return _largest(_log_dirs(connection, partitions), topics)


def replica_sizes(connection: Connection, brokers: Sequence[int]) -> ReplicaSizes:
    """The bytes of every replica on these brokers, as far as they report them.

    A broker reports its own, to a user who may Describe the cluster. Cost: one request for each.
    """
    answers = _log_dirs(connection, None, brokers)
    reporting = {answer["broker"]: answer for answer in answers if answer["log_dirs"]}
    sizes: dict[tuple[str, int], dict[int, int]] = {}
    for broker, answer in reporting.items():
        for topic, number, size in _logs(answer):
            sizes.setdefault((topic, number), {})[broker] = size
    return ReplicaSizes(brokers=frozenset(reporting), sizes=sizes)


def _log_dirs(
    connection: Connection,
    partitions: Mapping[str, Sequence[int]] | None,
    brokers: Sequence[int] | None = None,
) -> list[Mapping[str, Any]]:
    """What brokers report of their logs; a broker that does not answer is left out.

    Args:
        partitions: of these topics; None: all of all.
        brokers: None: all of them, or none if one does not answer.
    """
    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaError

    milliseconds = int(REQUEST_SECONDS_MAX * 1000)
    answers: list[Mapping[str, Any]] = []
    try:
        client = KafkaAdminClient(
            request_timeout_ms=milliseconds,
            bootstrap_timeout_ms=milliseconds,
            **connection.kafka_python(),
        )
    except (KafkaError, OSError):
        return answers
    try:
        for asked in [None] if brokers is None else [[broker] for broker in brokers]:
            with suppress(KafkaError, OSError):
                answers += client.describe_log_dirs(topic_partitions=partitions, brokers=asked)
    finally:
        client.close()
    return answers


def _logs(answer: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Topic, partition and bytes of each replica; not of a copy that is moved between disks."""
    for folder in answer["log_dirs"]:
        for topic in folder["topics"]:
            for partition in topic["partitions"]:
                if not partition["is_future_key"]:
                    yield topic["name"], partition["partition_index"], partition["partition_size"]


def _largest(answers: Sequence[Mapping[str, Any]], topics: Mapping[str, int]) -> dict[str, int]:
    sizes: dict[tuple[str, int], int] = {}
    for topic, number, size in (log for answer in answers for log in _logs(answer)):
        sizes[topic, number] = max(sizes.get((topic, number), 0), size)
    return {
        topic: sum(sizes[topic, number] for number in range(count))
        for topic, count in topics.items()
        if all((topic, number) in sizes for number in range(count))
    }
