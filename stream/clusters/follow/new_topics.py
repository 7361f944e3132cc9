"""New topics of others, which the job is to place while they are empty.

Rules: a topic that was made after the first look, and to which nothing was ever written, is not
adopted: its create is sent, without a policy, and once the job has placed it its partitions are
moved there: Kafka is told the new lists, and has nothing to copy. If the job rejects the create, or
the topic has been written to by then, it is adopted as it is. What has the map of such a create and
is still empty is moved by a later process, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from spu_assigner.core.base.events import TopicAdopted, TopicCreate
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.stream.clusters.follow.topic_facts import (
    FoundTopic,
    TopicFacts,
    TopicMemory,
    rows_of,
)
from spu_assigner.stream.clusters.plan.model import Row
from spu_assigner.stream.kafka.log_dirs import Partition

Untouched = Callable[[Sequence[str]], Collection[str] | None]  # None: it is not known now


def place_new(
    adoptions: Sequence[TopicAdopted],
    facts: TopicFacts,
    memory: TopicMemory,
    untouched: Untouched,
) -> tuple[list[TopicAdopted | TopicCreate], dict[Partition, Row]]:
    """The adoptions, in place of which the job places new topics that are empty; and their moves.

    Why others are adopted as they are is remembered as if the job had rejected their creates.
    """
    found, maps = facts.found, facts.maps
    if memory.old is None:
        memory.old = frozenset(topic.topic_id for topic in found.values())
    meant = {
        event.topic
        for event in adoptions
        if found[event.topic].place_id not in memory.rejected
        and _is_meant(found[event.topic], maps.get(event.topic), memory.old)
    }
    empty = untouched(sorted(meant)) if meant else ()
    events: list[TopicAdopted | TopicCreate] = []
    moves: dict[Partition, Row] = {}
    for event in adoptions:
        topic, known = found[event.topic], maps.get(event.topic)
        if event.topic not in meant:
            events.append(event)
        elif empty is None:
            continue  # It waits: adopting it would be final.
        elif event.topic not in empty:
            memory.rejected[topic.place_id] = "it was written to before it could be moved"
            events.append(event)
        elif known is None:
            create = TopicCreate(
                event_id=topic.place_id,
                cluster_id=event.cluster_id,
                occurred_at=event.occurred_at,
                topic=event.topic,
                partitions=len(topic.rows),
                replication_factor=max(map(len, topic.rows)),
            )
            events.append(create)
        else:
            pairs = enumerate(zip(topic.rows, rows_of(known), strict=True))
            moves |= {(event.topic, at): new for at, (old, new) in pairs if old != new}
    return events, moves


def _is_meant(topic: FoundTopic, known: ReplicaMap | None, old: Collection[str]) -> bool:
    """Whether a topic is new, or has the map of its create here and is elsewhere."""
    if known is None:
        return topic.topic_id not in old
    return known.cause == topic.place_id and len(rows_of(known)) == len(topic.rows)
