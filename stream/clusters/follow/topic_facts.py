"""What is known of topics: how Kafka shows them, what the job published, what was sent before."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from spu_assigner.core.base.events import TopicAdopted, TopicCreate, TopicRelease
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.core.state.memory import event_hash
from spu_assigner.stream.clusters.plan.applied import AppliedRecords
from spu_assigner.stream.clusters.plan.model import Rows

PLACE_MARK: Final = "place"  # begins the ids of creates of new topics; then Kafka's id of the topic

TopicEvent = TopicAdopted | TopicCreate | TopicRelease


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopic:
    """A topic as Kafka shows it."""

    rows: Rows
    topic_id: str  # Kafka's
    reassigned: tuple[int, ...] = ()  # the partitions that Kafka is moving

    @property
    def place_id(self) -> str:
        """The id of the event that has the job place it."""
        return f"{PLACE_MARK}/{self.topic_id}"


def rows_of(known: ReplicaMap) -> Rows:
    """The lists of a living topic's map."""
    return () if known.replicas is None else tuple(map(tuple, known.replicas.tolist()))


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedMaps:
    """What the job has published of a cluster's topics."""

    maps: Mapping[str, ReplicaMap] = field(default_factory=dict)  # of living topics
    remembered: Collection[int] = frozenset()  # hashes of the event ids that the job remembers

    def knows(self, event_id: str, topic: str) -> bool:
        """Whether the job passes over an event of this id about this topic."""
        hashed, known = event_hash(event_id), self.maps.get(topic)
        if hashed in self.remembered or known is None:
            return hashed in self.remembered
        return hashed in (known.own_events or (event_hash(known.cause),))

    def numbered(self, event: TopicEvent) -> TopicEvent:
        """The event, if the job remembers its id with the first number that it does not."""
        event_id, number = event.event_id, 1
        while self.knows(event_id, event.topic):
            number += 1
            event_id = f"{event.event_id}/{number}"
        return event if number == 1 else replace(event, event_id=event_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """What is known of topics at one look, on both sides."""

    found: Mapping[str, FoundTopic] = field(default_factory=dict)  # all of the Kafka cluster
    published: PublishedMaps = field(default_factory=PublishedMaps)
    applied: AppliedRecords = field(default_factory=AppliedRecords)  # what is recorded of them
    spus: Collection[int] = frozenset()  # that were announced, or are about to be

    def is_made_again(self, topic: str) -> bool:
        """Whether a topic that is recorded was made again under its name: it is another one."""
        record = self.applied.records.get(topic)
        return record is not None and record.topic_id != self.found[topic].topic_id


@dataclass(slots=True, kw_only=True)
class TopicMemory:
    """What one process has seen of topics, sent, and been answered."""

    old: frozenset[str] | None = None  # Kafka's ids of the topics at the first look
    gone: frozenset[str] = frozenset()  # topics that were gone at the last look
    sent: dict[str, str] = field(default_factory=dict)  # by event id: the same without a number
    adopted: set[str] = field(default_factory=set)  # topics of adoptions that were sent
    released: set[str] = field(default_factory=set)  # likewise of releases
    rejected: dict[str, str] = field(default_factory=dict)  # why, by event id without a number

    def reject(self, event_id: str, why: str) -> None:
        """Take note that the job has rejected an event, if it was sent here."""
        base = self.sent.get(event_id)
        if base is not None:
            is_create = base.startswith(PLACE_MARK)
            self.rejected[base] = f"the job does not place it: {why}" if is_create else why

    def retry(self) -> None:
        """Send again what was rejected or not answered: what it needs may be there now.

        A create that was rejected is not: the topic is adopted instead.
        """
        self.sent.clear()
        kept = {each: why for each, why in self.rejected.items() if each.startswith(PLACE_MARK)}
        self.rejected = kept

    def unsent(self, events: Sequence[TopicEvent]) -> tuple[TopicEvent, ...]:
        """Those of the events that are decided now which were not sent yet."""
        decided = {event.event_id for event in events}
        self.sent = {sent: base for sent, base in self.sent.items() if base in decided}
        waiting = {*self.sent.values()}
        return tuple(event for event in events if event.event_id not in waiting)

    def numbered(
        self, events: Sequence[TopicEvent], published: PublishedMaps
    ) -> tuple[TopicEvent, ...]:
        """The events as they are sent now, by ids that the job does not remember."""
        sent = tuple(published.numbered(event) for event in events)
        self.sent |= {new.event_id: event.event_id for new, event in zip(sent, events, strict=True)}
        self.adopted.update(event.topic for event in sent if isinstance(event, TopicAdopted))
        self.released.update(event.topic for event in sent if isinstance(event, TopicRelease))
        return sent
