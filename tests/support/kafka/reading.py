"""Reading all that is committed on a topic, and waiting until nothing is under way there."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
from spu_assigner.stream.kafka.retry import ask_leaders, list_offsets
from spu_assigner.stream.kafka.topics import JOB_TOPICS

SETTLED_SECONDS_MAX = 240.0  # a commit's markers are written in milliseconds
ANSWER_SECONDS_MAX = 10.0  # then it is asked again: the leader may be another one by now


def committed(bootstrap_servers: str, topic: str) -> list[Message]:
    """Every committed message now on a topic, partition by partition, in offset order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "tests",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # the end of a partition is reported after it
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


def outputs(prefix: str) -> list[str]:
    """The topics that a job writes to."""
    return [f"{prefix}{spec.name}" for spec in JOB_TOPICS if not spec.is_input]


def settled(
    servers: str | AdminClient, topics: Iterable[str], seconds: float = SETTLED_SECONDS_MAX
) -> None:
    """Return when all that is written now is committed or aborted, in every partition.

    A commit is acknowledged before its markers are in the partitions, which get them one by one:
    who reads meanwhile misses what is committed. Not for where a transaction is left open.
    """
    if isinstance(servers, str):
        with AdminClient({"bootstrap.servers": servers, "log_level": 0}) as admin:
            settled(admin, topics, seconds)
        return
    admin = servers
    names = list(topics)
    deadline = time.monotonic() + seconds

    def places(left: float) -> list[tuple[str, int]]:
        there = admin.list_topics(timeout=min(left, ANSWER_SECONDS_MAX)).topics
        if missing := [name for name in names if name not in there]:
            # One broker knows of a new topic before another.
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"no {missing}"))
        return [(name, number) for name in names for number in there[name].partitions]

    def ends(level: IsolationLevel) -> dict[tuple[str, int], int]:
        seconds_left = deadline - time.monotonic()
        return list_offsets(
            admin, wanted, OffsetSpec.latest(), seconds=seconds_left, isolation=level
        )

    wanted = ask_leaders(admin, places, seconds=seconds)
    written = ends(IsolationLevel.READ_UNCOMMITTED)
    while True:
        now = ends(IsolationLevel.READ_COMMITTED)
        open_at = {place: now[place] for place, end in written.items() if now[place] < end}
        if not open_at:
            return
        assert time.monotonic() < deadline, f"a transaction stays open: {open_at}"
        time.sleep(0.01)
