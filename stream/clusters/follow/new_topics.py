"""New topics of others, which the job is to place while they are empty.

Rules: a topic that was made after the first look, and to which nothing was ever written, is not
adopted: its create is sent, without a policy, and once the job has placed it its partitions are to
be moved there. If the job rejects the create, or the topic has been written to by then, it is
adopted as it is. What has the map of such a create and is still empty is moved by a later process,
too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from spu_assigner.core.base.events import TopicAdopted, TopicCreate
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.clusters.follow.topic_facts import (
    FoundTopic,
    TopicFacts,
    TopicMemory,
    rows_of,
)
from spu_assigner.stream.clusters.plan.model import TopicReason

Untouched = Callable[[Sequence[str]], Collection[str] | None]  # None: it is not known now


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTopics:
    """What becomes of topics that would be adopted."""

    events: tuple[TopicAdopted | TopicCreate, ...] = ()
    moves: tuple[MovedPartition, ...] = ()
    unplaced: tuple[TopicReason, ...] = ()


def place_new(
    adoptions: Sequence[TopicAdopted],
    facts: TopicFacts,
    memory: TopicMemory,
    untouched: Untouched,
) -> PlacedTopics:
    """The adoptions, new topics that are empty being placed by the job."""
    found, maps = facts.found, facts.published.maps
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
    moves: list[MovedPartition] = []
    for event in adoptions:
        topic, known = found[event.topic], maps.get(event.topic)
        if event.topic not in meant:
            events.append(event)
        elif empty is None:
            continue  # It waits: adopting it would be final.
        elif event.topic not in empty:
            memory.rejected[topic.place_id] = "it was written to before it could be moved"
            events.append(event)
        elif known is not None:
            moves += _moves(event.topic, topic, known)
        else:
            events.append(_create(event, topic))
    unplaced = (
        TopicReason(topic=name, reason=memory.rejected[topic.place_id])
        for name, topic in found.items()
        if topic.place_id in memory.rejected
    )
    return PlacedTopics(events=tuple(events), moves=tuple(moves), unplaced=tuple(unplaced))


def _is_meant(topic: FoundTopic, known: ReplicaMap | None, old: Collection[str]) -> bool:
    """Whether a topic is new, or has the map of its create here and is elsewhere."""
    if known is None:
        return topic.topic_id not in old
    is_placed = known.cause.startswith(topic.place_id)
    return is_placed and len(rows_of(known)) == len(topic.rows)


def _create(event: TopicAdopted, topic: FoundTopic) -> TopicCreate:
    return TopicCreate(
        event_id=topic.place_id,
        cluster_id=event.cluster_id,
        occurred_at=event.occurred_at,
        topic=event.topic,
        partitions=len(topic.rows),
        replication_factor=max(map(len, topic.rows)),
    )


def _moves(name: str, topic: FoundTopic, known: ReplicaMap) -> list[MovedPartition]:
    return [
        MovedPartition(
            topic=name,
            topic_id=topic.topic_id,
            partition=number,
            before=before,
            after=after,
            size_bytes=0,
        )
        for number, (before, after) in enumerate(zip(topic.rows, rows_of(known), strict=True))
        if before != after
    ]
