"""What is known of topics: how Kafka shows them, what the job published, what was sent before."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from spu_assigner.core.base.events import TopicAdopted, TopicCreate, TopicRelease
from spu_assigner.core.base.records import ReplicaMap
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
class TopicFacts:
    """What is known of topics at one look, on both sides."""

    found: Mapping[str, FoundTopic] = field(default_factory=dict)  # all of the Kafka cluster
    maps: Mapping[str, ReplicaMap] = field(default_factory=dict)  # of living topics
    applied: AppliedRecords = field(default_factory=AppliedRecords)  # what is recorded of them
    spus: Collection[int] = frozenset()  # that were announced, or are about to be

    def is_made_again(self, topic: str) -> bool:
        """Whether a topic that is recorded was made again under its name: it is another one."""
        record = self.applied.records.get(topic)
        return record is not None and record.topic_id != self.found[topic].topic_id


@dataclass(slots=True, kw_only=True)
class TopicMemory:
    """What one process has seen of topics, sent, and been answered.

    An event is sent under the id that was decided, which is that of the same decision at each look,
    and the time: the job passes over an id that it remembers, as after a rejection. A create has no
    time: a topic is placed once.
    """

    old: frozenset[str] | None = None  # Kafka's ids of the topics at the first look
    gone: frozenset[str] = frozenset()  # topics that were gone at the last look
    moving: frozenset[str] = frozenset()  # new topics that are moved to where they were placed
    sent: dict[str, str] = field(default_factory=dict)  # by the id that was sent: that decided
    adopted: set[str] = field(default_factory=set)  # topics of adoptions that were sent
    released: set[str] = field(default_factory=set)  # likewise of releases
    rejected: dict[str, str] = field(default_factory=dict)  # why, by the id that was decided

    def reject(self, event_id: str, why: str) -> None:
        """Take note that the job has rejected an event, if it was sent here."""
        decided = self.sent.get(event_id)
        if decided is not None:
            is_create = decided.startswith(PLACE_MARK)
            self.rejected[decided] = f"the job does not place it: {why}" if is_create else why

    def retry(self) -> None:
        """Send again what was rejected or not answered: what it needs may be there now.

        A create that was rejected is not: the topic is adopted instead.
        """
        self.sent.clear()
        kept = {each: why for each, why in self.rejected.items() if each.startswith(PLACE_MARK)}
        self.rejected = kept

    def unsent(self, events: Iterable[TopicEvent]) -> list[TopicEvent]:
        """Those of the events that are decided now which were not sent yet."""
        decided = {event.event_id: event for event in events}
        self.sent = {sent: each for sent, each in self.sent.items() if each in decided}
        return [event for each, event in decided.items() if each not in self.sent.values()]

    def send(self, events: Iterable[TopicEvent]) -> tuple[TopicEvent, ...]:
        """The events as they are sent."""
        sent = []
        for event in events:
            new = event
            if not isinstance(event, TopicCreate):
                new = replace(event, event_id=f"{event.event_id}/{event.occurred_at}")
            self.sent[new.event_id] = event.event_id
            sent.append(new)
        self.adopted.update(event.topic for event in sent if isinstance(event, TopicAdopted))
        self.released.update(event.topic for event in sent if isinstance(event, TopicRelease))
        return tuple(sent)
