"""What is sent about topics that are followed, look after look; and where new ones are placed.

    followed = FollowedTopics(options, place_new=True)
    turn = followed.turn(found, published, applied, spus=…, occurred_at=…, untouched=…)

Rules: what was sent is not sent again while the job has not answered. With `place_new` a topic
that was made after the first look, and to which nothing was ever written, is not adopted: its
create is sent, without a policy, and once the job has placed it its partitions are to be moved
there. If the job rejects the create, or the topic has been written to by then, it is adopted as it
is. What has the map of such a create and is still empty is moved by a later process, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from spu_assigner.core.base.events import TopicAdopted, TopicCreate, TopicRelease
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.clusters.follow.adoption import (
    ADOPT_MARK,
    PLACE_MARK,
    AdoptionDecision,
    AdoptionEvent,
    AdoptionOptions,
    FoundTopic,
    PublishedMaps,
    decide_adoptions,
    is_made_again,
    releases,
    rows_of,
    unknown_id,
    with_bytes,
)
from spu_assigner.stream.clusters.plan.applied import AppliedRecords
from spu_assigner.stream.clusters.plan.model import TopicReason

FollowedEvent = AdoptionEvent | TopicCreate
Untouched = Callable[[Sequence[str]], Collection[str] | None]  # None: it is not known now
# The bytes of one copy of topics, as far as they are known, by the numbers of their partitions.
TopicBytes = Callable[[Mapping[str, int]], Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsTurn:
    """What one look at topics that are followed comes to."""

    decision: AdoptionDecision = field(default_factory=AdoptionDecision)
    events: tuple[FollowedEvent, ...] = ()  # to be sent now
    moves: tuple[MovedPartition, ...] = ()  # of new topics that are empty
    unplaced: tuple[TopicReason, ...] = ()  # new topics that are adopted as they are, and why
    left: tuple[TopicReason, ...] = ()  # not adopted, and why
    held: tuple[str, ...] = ()  # gone, but too many are
    is_awaited: bool = False  # something gone is looked for once more


class FollowedTopics:
    """What was sent about topics so far, and so what is to be sent next."""

    def __init__(self, options: AdoptionOptions, *, place_new: bool = False) -> None:
        self._options = options
        self._new = _NewTopics(options) if place_new else None
        self._gone: frozenset[str] = frozenset()  # at the look before
        self._sent: dict[str, object] = {}  # by topic, what was sent of it last
        self._causes: dict[str, str] = {}  # topics by the ids of events that were sent
        self._rejected: dict[str, str] = {}  # by topic, why
        self.adopted: set[str] = set()  # topics of adoptions that were sent
        self.released: set[str] = set()  # likewise of releases

    def reject(self, event_id: str, why: str) -> None:
        """Take note that the job has rejected an event, if it was sent here."""
        if self._new is not None and self._new.reject(event_id, why):
            return
        if event_id in self._causes:
            self._rejected[self._causes[event_id]] = why

    def retry(self) -> None:
        """Send again what was rejected or not answered: what it needs may be there now."""
        self._sent.clear()
        self._rejected.clear()

    def turn(
        self,
        found: Mapping[str, FoundTopic],
        published: PublishedMaps,
        applied: AppliedRecords,
        *,
        spus: Collection[int],
        occurred_at: int,
        untouched: Untouched = lambda _: None,
        topic_bytes: TopicBytes = lambda _: {},
        moving: Collection[str] = (),
    ) -> TopicsTurn:
        """What follows from a look; the other arguments are those of `decide_adoptions`.

        Args:
            untouched: says to which of these topics nothing was ever written.
            topic_bytes: is asked for the topics whose adoptions are to be sent now.
            moving: topics that this process was moving at the look: nobody has to adopt them.
        """
        decision = decide_adoptions(
            found, published, applied, self._options, spus=spus, occurred_at=occurred_at
        )
        before, self._gone = self._gone, frozenset(decision.gone)
        gone = [name for name in decision.gone if name in before]
        there = len(decision.equal) + len(decision.adopted) + len(decision.pending)
        is_mass = len(gone) > 1 and len(gone) > there
        lost = [] if is_mass else gone
        forgotten = releases(lost, published, self._options, occurred_at=occurred_at)
        placed = _Placed(adopted=decision.adopted)
        if self._new is not None:
            placed = self._new.placed(decision.adopted, found, published, untouched)
        events: list[FollowedEvent] = [*placed.adopted, *placed.creates, *forgotten]
        new = [each for each in events if self._sent.get(each.topic) != _content(each, published)]
        asked = {e.topic: len(e.replicas) for e in new if isinstance(e, TopicAdopted)}
        sizes = topic_bytes(asked) if asked else {}
        new = [
            with_bytes(
                each,
                sizes.get(each.topic),
                published.maps.get(each.topic),
                may_be_less=is_made_again(each.topic, found[each.topic], applied),
            )
            if isinstance(each, TopicAdopted)
            else each
            for each in new
        ]
        for event in new:
            self._rejected.pop(event.topic, None)
            self._causes[event.event_id] = event.topic
            self._sent[event.topic] = _content(event, published)
        self.adopted.update(event.topic for event in new if isinstance(event, TopicAdopted))
        self.released.update(event.topic for event in new if isinstance(event, TopicRelease))
        rejected = (
            TopicReason(topic=name, reason=why)
            for name, why in self._rejected.items()
            if name in found
        )
        return TopicsTurn(
            decision=decision,
            events=tuple(new),
            left=(*(each for each in decision.left if each.topic not in moving), *rejected),
            moves=tuple(placed.moves),
            unplaced=tuple(placed.unplaced),
            held=tuple(gone) if is_mass else (),
            is_awaited=len(decision.gone) > len(gone),
        )


@dataclass(slots=True, kw_only=True)
class _Placed:
    """What becomes of topics that would be adopted."""

    adopted: list[TopicAdopted] = field(default_factory=list)
    creates: list[TopicCreate] = field(default_factory=list)
    moves: list[MovedPartition] = field(default_factory=list)
    unplaced: list[TopicReason] = field(default_factory=list)


class _NewTopics:
    """Topics that others have made since the first look, by Kafka's ids of them."""

    def __init__(self, options: AdoptionOptions) -> None:
        self._cluster_id = options.cluster_id
        self._old: frozenset[str] | None = None  # there at the first look
        self._asked: dict[str, str] = {}  # by event id
        self._refused: dict[str, str] = {}  # why they are adopted as they are

    def reject(self, event_id: str, why: str) -> bool:
        """Take note that the job has rejected a create; whether it was one of these."""
        if event_id not in self._asked:
            return False
        self._refused[self._asked[event_id]] = f"the job does not place it: {why}"
        return True

    def placed(
        self,
        adoptions: Sequence[TopicAdopted],
        found: Mapping[str, FoundTopic],
        published: PublishedMaps,
        untouched: Untouched,
    ) -> _Placed:
        """What follows for topics that would be adopted."""
        if self._old is None:
            self._old = frozenset(topic.topic_id for topic in found.values())
        result = _Placed()
        meant: list[TopicAdopted] = []
        for event in adoptions:
            topic, known = found[event.topic], published.maps.get(event.topic)
            is_new = known is None and topic.topic_id not in self._old
            if topic.topic_id in self._refused or not (is_new or _is_to_move(topic, known)):
                result.adopted.append(event)
            else:
                meant.append(event)
        empty = untouched([event.topic for event in meant]) if meant else None
        if empty is not None:
            for event in meant:
                topic, known = found[event.topic], published.maps.get(event.topic)
                if event.topic not in empty:
                    self._refused[topic.topic_id] = "it was written to before it could be moved"
                    result.adopted.append(event)
                elif known is not None:
                    result.moves += _moves(event.topic, topic, known)
                elif topic.topic_id not in self._asked.values():
                    result.creates.append(self._create(event, topic, published))
        result.unplaced = [
            TopicReason(topic=name, reason=self._refused[topic.topic_id])
            for name, topic in found.items()
            if topic.topic_id in self._refused
        ]
        return result

    def _create(
        self, event: TopicAdopted, topic: FoundTopic, published: PublishedMaps
    ) -> TopicCreate:
        event_id = unknown_id(f"{PLACE_MARK}/{topic.topic_id}", event.topic, published)
        self._asked[event_id] = topic.topic_id
        return TopicCreate(
            event_id=event_id,
            cluster_id=self._cluster_id,
            occurred_at=event.occurred_at,
            topic=event.topic,
            partitions=len(topic.rows),
            replication_factor=max(map(len, topic.rows)),
        )


def is_followed(known: ReplicaMap) -> bool:
    """Whether a map is of an adoption, or of a new topic that was placed."""
    return known.cause.startswith((f"{ADOPT_MARK}/", f"{PLACE_MARK}/"))


def _is_to_move(topic: FoundTopic, known: ReplicaMap | None) -> bool:
    """Whether a topic has the map of its create here, and is elsewhere."""
    if known is None or not known.cause.startswith(f"{PLACE_MARK}/{topic.topic_id}"):
        return False
    return len(rows_of(known)) == len(topic.rows)


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


def _content(event: FollowedEvent, published: PublishedMaps) -> object:
    """What an event says, and of which map; its id may have a number."""
    if isinstance(event, TopicCreate):
        return event.event_id
    known = published.maps.get(event.topic)
    replicas = event.replicas if isinstance(event, TopicAdopted) else None
    return (replicas, 0 if known is None else known.revision)
