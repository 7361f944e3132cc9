"""What follows from a look at topics: decided without Kafka and without a clock.

Rules:
- A topic without a map is adopted, and one whose lists in Kafka differ from its map, unless they
  differ because the map was changed here and Kafka has not followed yet, which is for `plan` and
  `apply` to carry out: a repair, a rebalance, a demotion, another replication factor, new
  partitions. A map shows its last change alone: what was yet to move when `apply` let the topic
  grow is recorded. A topic whose map was deleted or released here stays without one. `overwrite`
  takes Kafka's side in both cases.
- A topic under another id of Kafka's is another topic: nothing planned holds for it.
- While Kafka reassigns a partition of a topic, the topic is left alone: its lists then name brokers
  that it comes from and brokers that it goes to.
- A topic that was adopted, placed, or found as mapped, and is in Kafka no more is gone. `adopt`
  releases it on request; `follow` once it was gone in two looks, unless more than half of the
  topics are gone at once: that is rather a fault of the view.
- What was sent is not sent again while the job has not answered, and what it rejected not before a
  broker joins or the topic changes. Another process sends it again, which changes nothing.
- An adoption says what each partition needs of disks: the bytes of one copy ÷ partitions, rounded
  up. `adopt` sends a topic that is as mapped again where they differ by more than 10 % from what is
  known; fewer bytes only where what is known was measured, too: what a request has reserved stays,
  unless `overwrite` takes Kafka's side.
- With `place_new` a topic that was made after the first look, and to which nothing was ever
  written, is not adopted: its create is sent, without a policy, and once the job has placed it its
  partitions are moved there: Kafka gets the new lists, and copies nothing. If the job
  rejects the create, or the topic has been written to by then, it is adopted as it is. What has the
  map of such a create and is still empty is moved by a later process, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from spu_assigner.core.base.events import TopicAdopted, TopicCreate, TopicRelease
from spu_assigner.core.base.records import Mode, ReplicaMap
from spu_assigner.core.base.resources import BYTES
from spu_assigner.schemas.messages.wire import Origin
from spu_assigner.stream.clusters.follow.options import FollowOptions
from spu_assigner.stream.clusters.follow.topic_facts import (
    PLACE_MARK,
    FoundTopic,
    TopicEvent,
    TopicFacts,
    TopicMemory,
    rows_of,
)
from spu_assigner.stream.clusters.plan.applied import AppliedRecords, is_unmoved
from spu_assigner.stream.clusters.plan.model import Row, TopicReason, is_adopted
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.kafka.log_dirs import Partition

TOLERATED_PERCENT: Final = 10  # by which bytes may differ from a demand that is known
ADOPT_MARK: Final = "adopt"  # the ids of its events begin so
CHANGED_HERE: Final = frozenset(  # The last two change no list, but may follow what did.
    {Mode.REPAIR, Mode.REBALANCE, Mode.REPLICATION, Mode.DEMOTION, Mode.DEMAND, Mode.CONSTRAINTS}
)
Untouched = Callable[[Sequence[str]], Collection[str] | None]  # None: it is not known now
BytesOf = Callable[[Sequence[str]], Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsDecision:
    """What is to be sent, and what is not; topics by name."""

    events: tuple[TopicEvent, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)  # why a topic is adopted
    equal: tuple[str, ...] = ()  # as mapped
    pending: tuple[TopicReason, ...] = ()  # changed here: for apply to carry out
    left: tuple[TopicReason, ...] = ()  # cannot be adopted, or not now; or rejected before
    gone: tuple[str, ...] = ()  # mapped, and in Kafka no more
    held: tuple[str, ...] = ()  # gone twice, but too many are
    is_awaited: bool = False  # something that is gone is looked for once more
    moves: Mapping[Partition, Row] = field(default_factory=dict)  # of new topics that are empty
    moved: tuple[str, ...] = ()  # new topics that are where they were placed
    unplaced: tuple[TopicReason, ...] = ()  # new topics that are adopted as they are, and why

    @property
    def adopted(self) -> list[TopicAdopted]:
        """The adoptions among the events."""
        return [event for event in self.events if isinstance(event, TopicAdopted)]

    @property
    def released(self) -> list[TopicRelease]:
        """The releases among the events."""
        return [event for event in self.events if isinstance(event, TopicRelease)]


def decide_topics(
    facts: TopicFacts,
    options: FollowOptions,
    memory: TopicMemory,
    *,
    occurred_at: int,
    untouched: Untouched = lambda _: None,
    bytes_of: BytesOf = lambda _: {},
) -> TopicsDecision:
    """What follows from topics and their maps at a look, whose time no other one has."""
    found, maps = facts.found, facts.maps
    adoptions, equal, pending, left = _compared(facts, options, memory, occurred_at)
    gone = [
        name
        for name, known in sorted(maps.items())
        if name not in found and options.is_meant(name) and _was_there(name, known, facts.applied)
    ]
    twice = [name for name in gone if name in memory.gone]
    is_mass = len(twice) > 1 and len(twice) > len(equal) + len(adoptions) + len(pending)
    lost = gone if options.forget_gone else [] if options.is_adopt or is_mass else twice
    memory.gone = frozenset(gone)
    events: Sequence[TopicEvent] = adoptions
    moves: dict[Partition, Row] = {}
    moved = tuple(name for name in equal if name in memory.moving)
    if options.place_new:
        events, moves = _placed(adoptions, facts, memory, untouched)
        memory.moving = (memory.moving & found.keys() - {*moved}) | {topic for topic, _ in moves}
    releases = (
        TopicRelease(
            event_id=f"{ADOPT_MARK}/gone/{_digest(name)}/{maps[name].revision}",
            cluster_id=options.cluster_id,
            occurred_at=occurred_at,
            topic=name,
        )
        for name in lost
    )
    events = [*events, *releases]
    rejected = memory.rejected
    left += (
        TopicReason(topic=event.topic, reason=rejected[event.event_id])
        for event in events
        if event.event_id in rejected
    )
    resized = [
        _adoption(name, found[name], maps[name], options, occurred_at)
        for name in equal
        if options.is_adopt and not found[name].reassigned
    ]
    sent = memory.send(_sized(memory.unsent(events), resized, facts, options, bytes_of))
    adopted = [event.topic for event in sent if isinstance(event, TopicAdopted)]
    return TopicsDecision(
        events=sent,
        reasons={name: _why_adopted(name, facts, options) for name in adopted},
        equal=tuple(name for name in equal if name not in adopted),
        pending=tuple(pending),
        left=tuple(left),
        gone=tuple(gone),
        held=tuple(twice) if is_mass else (),
        is_awaited=len(gone) > len(twice),
        moves=moves,
        moved=moved,
        unplaced=tuple(
            TopicReason(topic=name, reason=rejected[topic.place_id])
            for name, topic in found.items()
            if topic.place_id in rejected
        ),
    )


def _compared(
    facts: TopicFacts, options: FollowOptions, memory: TopicMemory, occurred_at: int
) -> tuple[list[TopicAdopted], list[str], list[TopicReason], list[TopicReason]]:
    """Topics in Kafka: to be adopted, as mapped, changed here, and left alone."""
    adoptions: list[TopicAdopted] = []
    equal: list[str] = []
    pending: list[TopicReason] = []
    left: list[TopicReason] = []
    for name, topic in sorted(facts.found.items()):
        known = facts.maps.get(name)
        if not options.is_meant(name):
            continue
        if known is not None and _is_as_mapped(topic, known, options):
            equal.append(name)
        elif (why := _why_pending(name, topic, known, facts)) and not options.overwrite:
            pending.append(TopicReason(topic=name, reason=why))
        elif (fault := _fault(topic, facts.spus)) is None:
            adoptions.append(_adoption(name, topic, known, options, occurred_at))
        elif name not in memory.moving:
            left.append(TopicReason(topic=name, reason=fault))
    return adoptions, equal, pending, left


def _sized(
    events: Sequence[TopicEvent],
    resized: Sequence[TopicAdopted],
    facts: TopicFacts,
    options: FollowOptions,
    bytes_of: BytesOf,
) -> list[TopicEvent]:
    """The events, and of `resized` those whose bytes are not as known; with bytes, by name."""
    asked = [each.topic for each in (*events, *resized) if isinstance(each, TopicAdopted)]
    demands = {
        name: demand
        for name, size in bytes_of(asked).items()
        if (demand := _demand(name, size, facts, options)) is not None
    }
    sized = (
        replace(each, demand=demands.get(each.topic)) if isinstance(each, TopicAdopted) else each
        for each in (*events, *(each for each in resized if each.topic in demands))
    )
    return sorted(sized, key=lambda event: (isinstance(event, TopicRelease), event.topic))


def _demand(
    name: str, size: int, facts: TopicFacts, options: FollowOptions
) -> Mapping[str, int] | None:
    """What each partition of a topic of so many bytes needs; None: that is as it is known."""
    known = facts.maps.get(name)
    amount = -(-size // len(facts.found[name].rows))
    demand = {} if known is None or known.need is None else dict(known.need.demand)
    before = demand.get(BYTES, 0)
    is_measured = known is not None and is_adopted(known)
    may_be_less = is_measured or options.overwrite or facts.is_made_again(name)
    is_near = 100 * abs(amount - before) <= TOLERATED_PERCENT * before
    if is_near or (amount < before and not may_be_less):
        return None
    return {**demand, BYTES: amount}


def _why_adopted(name: str, facts: TopicFacts, options: FollowOptions) -> str:
    known = facts.maps.get(name)
    if known is None:
        return "has no map"
    if _is_as_mapped(facts.found[name], known, options):
        return f"holds other bytes than revision {known.revision} of its map says"
    return f"differs from revision {known.revision} of its map"


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


def _adoption(
    name: str, topic: FoundTopic, known: ReplicaMap | None, options: FollowOptions, occurred_at: int
) -> TopicAdopted:
    """The event that adopts a topic."""
    pinned = _pinned(known, options)
    revision = 0 if known is None else known.revision
    content = repr((topic.rows, options.policy and str(options.policy), pinned))
    return TopicAdopted(
        event_id=f"{ADOPT_MARK}/{topic.topic_id}/{revision}/{_digest(content)}",
        cluster_id=options.cluster_id,
        occurred_at=occurred_at,
        topic=name,
        replicas=topic.rows,
        policy=options.policy,
        pinned=pinned,
    )


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _pinned(known: ReplicaMap | None, options: FollowOptions) -> bool:
    return (known is not None and known.pinned) if options.pinned is None else options.pinned


def _is_as_mapped(topic: FoundTopic, known: ReplicaMap, options: FollowOptions) -> bool:
    return (
        topic.rows == rows_of(known)
        and _pinned(known, options) == known.pinned
        and options.policy in (None, known.policy)
    )


def _why_pending(
    name: str, topic: FoundTopic, known: ReplicaMap | None, facts: TopicFacts
) -> str | None:
    """What was done here that Kafka has not followed yet; None: Kafka has changed."""
    if facts.is_made_again(name):
        return None
    record = facts.applied.records.get(name)
    if known is None:
        return None if record is None else "its map was deleted or released"
    rows, reason = rows_of(known), known.reason
    if reason is None or topic.rows == rows:
        return None
    is_undone = reason.mode is Mode.ADOPTED and not is_adopted(known)
    if is_undone or reason.mode in CHANGED_HERE:
        why = "`drain --undo`" if is_undone else f"a {reason.mode}"
        return f"its map was changed by {why}, and Kafka has not followed yet"
    is_same_topic = record is not None or topic.rows == rows[: len(topic.rows)]
    if reason.first_partition and len(topic.rows) < len(rows) and is_same_topic:
        return f"its map has grown to {len(rows)} partitions, and Kafka has {len(topic.rows)}"
    if reason.first_partition and record is not None and len(topic.rows) == len(rows):
        pairs = enumerate(zip(topic.rows, rows, strict=True))
        if all(row == mapped or is_unmoved(record, at, row) for at, (row, mapped) in pairs):
            return "its map was changed before it grew, and Kafka has not followed yet"
    return None


def _was_there(name: str, known: ReplicaMap, applied: AppliedRecords) -> bool:
    """Whether a topic that is not in Kafka was there and made by others: of `apply`'s own `plan`
    speaks."""
    record = applied.records.get(name)
    if record is not None and record.origin is not Origin.RELEASED:
        return record.origin is Origin.FOUND
    return known.cause.startswith(f"{PLACE_MARK}/") or is_adopted(known)


def _placed(
    adoptions: Sequence[TopicAdopted], facts: TopicFacts, memory: TopicMemory, untouched: Untouched
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
        and _is_new(found[event.topic], maps.get(event.topic), memory.old)
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


def _is_new(topic: FoundTopic, known: ReplicaMap | None, old: Collection[str]) -> bool:
    """Whether a topic is new, or has the map of its create here and is elsewhere."""
    if known is None:
        return topic.topic_id not in old
    return known.cause == topic.place_id and len(rows_of(known)) == len(topic.rows)
