"""Replica maps, topics in Kafka and records of them, for tests of `plan` and `apply`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spu_assigner.schemas.messages.wire import AppliedTopic, Origin
from spu_assigner.stream.clusters.plan.applied import AppliedRecords
from spu_assigner.stream.clusters.plan.model import KafkaCluster, Maps, Partition, Wanted

Lists = Sequence[Sequence[int]]
Topics = Mapping[str, Lists | tuple[Partition, ...]]


def wanted(lists: Lists | None, *short: int, factor: int = 0) -> Wanted:
    """With the partitions whose lists wait for a replica: those named, or shorter than `factor`."""
    rows = None if lists is None else tuple(map(tuple, lists))
    lost = {number for number, row in enumerate(rows or ()) if len(row) < factor}
    return Wanted(replicas=rows, short=frozenset(short) | lost)


def maps(topics: Mapping[str, Wanted | Lists | None], **waiting: str) -> Maps:
    found = {
        name: each if isinstance(each, Wanted) else wanted(each) for name, each in topics.items()
    }
    return Maps(cluster_id="c1", topics=found, waiting=waiting)


def there(lists: Lists, in_sync: Lists | None = None) -> tuple[Partition, ...]:
    return tuple(
        Partition(replicas=tuple(row), in_sync=frozenset(seen))
        for row, seen in zip(lists, in_sync or lists, strict=True)
    )


def kafka(topics: Topics) -> KafkaCluster:
    """Three live brokers with these topics, the job's own topic `replica-map` among them or not."""
    return KafkaCluster(
        kafka_id="k",
        brokers=(1, 2, 3),
        topics={
            name: each if isinstance(each, tuple) else there(each) for name, each in topics.items()
        },
        ids={name: f"id-of-{name}" for name in topics},
        own=frozenset({"replica-map"}),
    )


def record(topic: str, origin: Origin, topic_id: str | None = None, at: int = 1) -> AppliedTopic:
    """Of the topic that `kafka` has, unless an id is given."""
    return AppliedTopic(
        cluster_id="c1",
        topic=topic,
        topic_id=topic_id or f"id-of-{topic}",
        origin=origin,
        recorded_at=at,
        lists="",
    )


def recorded(*records: AppliedTopic) -> AppliedRecords:
    return AppliedRecords(records={each.topic: each for each in records})
