"""Which topics of a Kafka cluster are adopted: decided without Kafka and without a clock.

    decide_adoptions(found, published, …) -> AdoptionDecision

A function of the topics as Kafka shows them, of their published maps, and of what is recorded of
them in `applied-topics`.

Rules:
- A topic without a map is adopted, and one whose lists in Kafka differ from its map, unless they
  differ because the map was changed here and Kafka has not followed yet: a repair, a rebalance, a
  demotion, another replication factor, new partitions (Kafka takes none away, so what has fewer
  than its map has not followed, whatever else differs). A map shows its last change alone: what
  was yet to move when `apply` let the topic grow is recorded. That is for `plan` and `apply` to
  carry out, and adopting it would take it back. Likewise a topic whose map was deleted or released
  here stays without one. `overwrite` takes Kafka's side in both cases.
- A topic that was made again in Kafka, under another id of Kafka's, is another topic: nothing
  planned holds for it.
- While Kafka reassigns a partition of a topic, the topic is left alone: its lists then name brokers
  that it comes from and brokers that it goes to.
- The bytes of a topic, where they are known, are sent as what each of its partitions needs: the
  bytes of one copy ÷ partitions, rounded up, so that their sum is never understated. With the
  largest partition in place of the mean, a topic with one large partition would count as if all
  were as large. For its bytes alone a topic is sent again where they differ by more than 10 % of
  what is known, so that data that trickle in send nothing; fewer bytes only where what is known was
  measured, too: what a request has reserved stays, unless `overwrite` takes Kafka's side.
- Kafka's own topics and the product's are not meant unless they are named, and never adopted.
- A topic that was adopted, or found as mapped, and is in Kafka no more is gone.
- An event's id follows from Kafka's id of the topic, the map's revision, and what the event says:
  whoever decides the same again sends the same id. An id that the job remembers would be passed
  over, as after a rejection, and gets a number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final

from spu_assigner.core.base.events import Policy, TopicAdopted, TopicRelease
from spu_assigner.core.base.limits import KAFKA_OWN
from spu_assigner.core.base.records import Mode, ReplicaMap
from spu_assigner.core.base.resources import BYTES
from spu_assigner.core.state.memory import event_hash
from spu_assigner.schemas.messages.wire import Origin
from spu_assigner.stream.clusters.plan.applied import AppliedRecords, is_unmoved
from spu_assigner.stream.clusters.plan.model import Rows, TopicReason
from spu_assigner.stream.common.printable import listed

TOLERATED_PERCENT: Final = 10  # by which bytes may differ from a demand that is known
ADOPT_MARK: Final = "adopt"  # the ids of its events begin so
PLACE_MARK: Final = "place"  # those of creates of new topics; then comes Kafka's id of the topic
CHANGED_HERE: Final = frozenset(  # The last two change no list, but may follow what did.
    {
        *(Mode.REPAIR, Mode.REBALANCE, Mode.REPLICATION, Mode.DEMOTION),
        *(Mode.DEMAND, Mode.CONSTRAINTS),
    }
)

AdoptionEvent = TopicAdopted | TopicRelease


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopic:
    """A topic as Kafka shows it."""

    rows: Rows
    topic_id: str  # Kafka's
    reassigned: tuple[int, ...] = ()  # the partitions that Kafka is moving


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionOptions:
    """What the command was asked for."""

    cluster_id: str
    globs: tuple[str, ...] = ()  # of topics; none: all
    excluded: tuple[str, ...] = ()  # likewise; it counts more
    own: frozenset[str] = frozenset()  # the product's topics, with the prefix
    pinned: bool | None = None  # None: as its map says; of a new one no
    policy: Policy | None = None  # None: as its map says; of a new one the job's default
    overwrite: bool = False  # also adopt what was changed, deleted, released or reserved here
    forget_gone: bool = False  # release what is gone

    def is_meant(self, topic: str) -> bool:
        """Whether a topic is to be looked at."""
        if any(fnmatchcase(topic, glob) for glob in self.excluded):
            return False
        if self.is_reserved(topic):
            return any(_names(glob, topic) for glob in self.globs)
        return not self.globs or any(fnmatchcase(topic, glob) for glob in self.globs)

    def unmatched(self, topics: Collection[str]) -> tuple[str, ...]:
        """The globs that match none of these topics: probably misspelt."""
        return tuple(
            glob for glob in self.globs if not any(fnmatchcase(each, glob) for each in topics)
        )

    def is_reserved(self, topic: str) -> bool:
        """Whether it is Kafka's own, or the product's."""
        return topic.startswith(KAFKA_OWN) or topic in self.own


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionDecision:
    """What is to be sent, and what is not; topics by name."""

    events: tuple[AdoptionEvent, ...] = ()
    equal: tuple[str, ...] = ()  # as mapped
    pending: tuple[TopicReason, ...] = ()  # changed here: for apply to carry out
    left: tuple[TopicReason, ...] = ()  # cannot be adopted, or not now
    gone: tuple[str, ...] = ()  # mapped, and in Kafka no more
    revisions: Mapping[str, int] = field(default_factory=dict)  # of the map of each event, if any
    resized: frozenset[str] = frozenset()  # topics of events for their bytes alone

    @property
    def adopted(self) -> list[TopicAdopted]:
        return [event for event in self.events if isinstance(event, TopicAdopted)]

    @property
    def released(self) -> list[TopicRelease]:
        return [event for event in self.events if isinstance(event, TopicRelease)]


def decide_adoptions(
    found: Mapping[str, FoundTopic],
    published: PublishedMaps,
    applied: AppliedRecords,
    options: AdoptionOptions,
    *,
    spus: Collection[int],
    occurred_at: int,
    topic_bytes: Mapping[str, int] | None = None,
) -> AdoptionDecision:
    """What follows from topics and their maps as they are.

    Args:
        found: all topics of the Kafka cluster.
        applied: what is recorded of topics.
        spus: the ids that were announced as SPUs, or are about to be.
        occurred_at: for the events, ms since 1970.
        topic_bytes: of one copy of each topic of which they are known; None: of none.
    """
    sizes = topic_bytes or {}
    events: list[AdoptionEvent] = []
    equal: list[str] = []
    pending: list[TopicReason] = []
    left: list[TopicReason] = []
    known_spus = frozenset(spus)
    for name, topic in sorted(found.items()):
        if not options.is_meant(name):
            continue
        known = published.maps.get(name)
        event = with_bytes(
            _event_of(name, topic, known, options, occurred_at),
            sizes.get(name),
            known,
            may_be_less=options.overwrite or is_made_again(name, topic, applied),
        )
        if options.is_reserved(name):
            left.append(TopicReason(topic=name, reason=_reserved_text(name)))
        elif known is not None and _is_as_mapped(event, known) and event.demand is None:
            equal.append(name)
        elif (why := _why_pending(name, topic, known, applied)) and not options.overwrite:
            pending.append(TopicReason(topic=name, reason=why))
        elif (fault := _fault(topic, known_spus)) is not None:
            left.append(TopicReason(topic=name, reason=fault))
        else:
            events.append(_fresh(event, topic.topic_id, published))
    gone = tuple(
        name
        for name, known in sorted(published.maps.items())
        if name not in found and options.is_meant(name) and _was_there(name, known, applied)
    )
    if options.forget_gone:
        events += releases(gone, published, options, occurred_at=occurred_at)
    return AdoptionDecision(
        events=tuple(events),
        equal=tuple(equal),
        pending=tuple(pending),
        left=tuple(left),
        gone=gone,
        revisions={
            event.topic: published.maps[event.topic].revision
            for event in events
            if event.topic in published.maps
        },
        resized=frozenset(
            event.topic
            for event in events
            if isinstance(event, TopicAdopted)
            and event.topic in published.maps
            and _is_as_mapped(event, published.maps[event.topic])
        ),
    )


def with_bytes(
    event: TopicAdopted, size: int | None, known: ReplicaMap | None, *, may_be_less: bool = False
) -> TopicAdopted:
    """An adoption that says what each partition needs, unless that is as it is known.

    Args:
        size: the bytes of one copy of the topic; None: they are not known.
        known: its map, if it has one.
        may_be_less: also than what was not measured.
    """
    if size is None:
        return event
    amount = -(-size // len(event.replicas))
    demand = {} if known is None or known.need is None else dict(known.need.demand)
    before = demand.get(BYTES, 0)
    is_measured = (
        known is not None and known.reason is not None and known.reason.mode is Mode.ADOPTED
    )
    is_near = 100 * abs(amount - before) <= TOLERATED_PERCENT * before
    if is_near or (amount < before and not (is_measured or may_be_less)):
        return event
    return replace(event, demand={**demand, BYTES: amount})


def _names(glob: str, topic: str) -> bool:
    """Whether a glob names a reserved topic, rather than meeting it among others."""
    return glob == topic or (glob.startswith(KAFKA_OWN) and fnmatchcase(topic, glob))


def _reserved_text(name: str) -> str:
    is_like_kafka = name.startswith(KAFKA_OWN)
    found = (
        f"begins with {KAFKA_OWN!r}, as Kafka's own topics do"
        if is_like_kafka
        else "is the product's"
    )
    return f"{found}, and the job takes no such name (RESERVED_NAME); leave it out"


def _fault(topic: FoundTopic, spus: Collection[int]) -> str | None:
    """Why a topic cannot be adopted now; None: it can."""
    if topic.reassigned:
        return (
            f"Kafka is reassigning its partitions {listed(topic.reassigned)}; adopt it when that "
            "is done (`kafka-reassign-partitions --list` shows it)"
        )
    if absent := sorted({each for row in topic.rows for each in row} - set(spus)):
        return (
            f"its lists name brokers {listed(absent)}, which are neither alive nor SPUs; start "
            "them, let them join (`spu-assigner produce spu-joined`), or reassign their "
            "partitions, and run this again"
        )
    return None


def _event_of(
    name: str,
    topic: FoundTopic,
    known: ReplicaMap | None,
    options: AdoptionOptions,
    occurred_at: int,
) -> TopicAdopted:
    """What adopting it says; without the id."""
    pinned = options.pinned
    if pinned is None:
        pinned = known is not None and known.pinned
    return TopicAdopted(
        event_id=ADOPT_MARK,
        cluster_id=options.cluster_id,
        occurred_at=occurred_at,
        topic=name,
        replicas=topic.rows,
        policy=options.policy,
        pinned=pinned,
    )


def _is_as_mapped(event: TopicAdopted, known: ReplicaMap) -> bool:
    return (
        event.replicas == rows_of(known)
        and event.pinned == known.pinned
        and event.policy in (None, known.policy)
    )


def rows_of(known: ReplicaMap) -> Rows:
    """The lists of a living topic's map."""
    return () if known.replicas is None else tuple(map(tuple, known.replicas.tolist()))


def _why_pending(
    name: str, topic: FoundTopic, known: ReplicaMap | None, applied: AppliedRecords
) -> str | None:
    """What was done here that Kafka has not followed yet; None: Kafka has changed."""
    if is_made_again(name, topic, applied):
        return None
    record = applied.records.get(name)
    if known is None:
        return None if record is None else "its map was deleted or released"
    rows, reason = rows_of(known), known.reason
    if reason is None or topic.rows == rows:
        return None
    if reason.mode in CHANGED_HERE:
        return f"its map was changed by a {reason.mode}, and Kafka has not followed yet"
    is_same_topic = record is not None or topic.rows == rows[: len(topic.rows)]
    if reason.first_partition and len(topic.rows) < len(rows) and is_same_topic:
        return f"its map has grown to {len(rows)} partitions, and Kafka has {len(topic.rows)}"
    if reason.first_partition and record is not None and len(topic.rows) == len(rows):
        pairs = enumerate(zip(topic.rows, rows, strict=True))
        if all(row == mapped or is_unmoved(record, at, row) for at, (row, mapped) in pairs):
            return "its map was changed before it grew, and Kafka has not followed yet"
    return None


def is_made_again(name: str, topic: FoundTopic, applied: AppliedRecords) -> bool:
    """Whether a topic that is recorded was made again under its name: it is another one."""
    record = applied.records.get(name)
    return record is not None and record.topic_id != topic.topic_id


def _was_there(name: str, known: ReplicaMap, applied: AppliedRecords) -> bool:
    """Whether a topic that is not in Kafka was there and made by others: of `apply`'s own `plan`
    speaks."""
    record = applied.records.get(name)
    if record is not None and record.origin is not Origin.RELEASED:
        return record.origin is Origin.FOUND
    if known.cause.startswith(f"{PLACE_MARK}/"):
        return True
    return known.reason is not None and known.reason.mode is Mode.ADOPTED


def releases(
    names: Iterable[str], published: PublishedMaps, options: AdoptionOptions, *, occurred_at: int
) -> list[TopicRelease]:
    """The events that forget mapped topics."""
    events = []
    for name in names:
        revision = published.maps[name].revision
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        event_id = unknown_id(f"{ADOPT_MARK}/gone/{digest}/{revision}", name, published)
        events.append(
            TopicRelease(
                event_id=event_id,
                cluster_id=options.cluster_id,
                occurred_at=occurred_at,
                topic=name,
            )
        )
    return events


def _fresh(event: TopicAdopted, topic_id: str, published: PublishedMaps) -> TopicAdopted:
    """The event with its id."""
    known = published.maps.get(event.topic)
    revision = 0 if known is None else known.revision
    content = repr((event.replicas, event.policy and str(event.policy), event.pinned))
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    name = f"{ADOPT_MARK}/{topic_id}/{revision}/{digest}"
    return replace(event, event_id=unknown_id(name, event.topic, published))


def unknown_id(name: str, topic: str, published: PublishedMaps) -> str:
    """The id, or with the first number that the job does not remember."""
    event_id, number = name, 1
    while published.knows(event_id, topic):
        number += 1
        event_id = f"{name}/{number}"
    return event_id
