"""What was announced of a cluster's SPUs, out of what is in Kafka.

`spu-events` is what was announced, and what the job will act on, though it may be down: each event
describes its SPU whole, so the last one of an SPU is all that counts. Of an SPU whose events have
expired there, `assigner-state`, which never does, tells what became of them. So nothing has to be
kept anywhere else: a restarted process reads what it announced before, and what others announced.

An event that the job does not follow says nothing: one under another key, a copy of one that was
seen, a join with numbers out of range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Message
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import SpuJoined, SpuLeft
from spu_assigner.core.base.limits import EVENT_IDS_REMEMBERED, default_capacity
from spu_assigner.core.base.records import RingChange, RingEvent, SpuChanged
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages.codec import decode_event, decode_record
from spu_assigner.stream.follow.decision import LABEL, MARK, Announced, Described

_STATE: Final = "spu"  # the kind, in the keys of assigner-state


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPosition:
    """Where an event lies in the input, and when the broker took it."""

    partition: int
    offset: int
    time_ms: int

    def is_after(self, other: EventPosition) -> bool:
        """Partitions are merged by the broker's time, as the job does it."""
        if self.partition == other.partition:
            return self.offset > other.offset
        return (self.time_ms, self.partition) > (other.time_ms, other.partition)


class AnnouncedOfCluster:
    """Takes over messages as they are read; gives what was announced last of each SPU."""

    def __init__(self, cluster_id: str, *, origin: str) -> None:
        """Nothing is known yet.

        Args:
            cluster_id: the cluster.
            origin: names the input topic and where it begins now.
        """
        self._cluster_id = cluster_id
        self._origin = origin
        self._last: dict[int, tuple[EventPosition, SpuJoined | SpuLeft]] = {}
        self._joins: dict[int, tuple[EventPosition, SpuJoined]] = {}
        self._kept: dict[int, SpuChanged] = {}  # what the job made of them
        self._seen: dict[str, None] = {}  # ids of events, the oldest first

    def take_state(self, message: Message) -> None:
        """A message of `assigner-state`.

        Raises:
            DecodeError: it is an SPU's, and damaged.
        """
        cluster_id, _, rest = (message.key() or b"").decode("utf-8", "replace").partition("/")
        kind, _, name = rest.partition("/")
        if cluster_id != self._cluster_id or kind != _STATE:
            return
        value = message.value()
        if value is None:
            self._kept.pop(int(name), None)
            return
        record = decode_record(value)
        if isinstance(record, SpuChanged):
            self._kept[record.spu_id] = record

    def take_event(self, message: Message) -> None:
        """A message of `spu-events`."""
        if message.key() != self._cluster_id.encode():
            return
        try:
            event = decode_event(message.value(), kind="spu")
        except DecodeError:
            return  # A dead letter of the job's.
        if not isinstance(event, SpuJoined | SpuLeft) or event.cluster_id != self._cluster_id:
            return
        place = EventPosition(
            partition=int(message.partition() or 0),
            offset=int(message.offset() or 0),
            time_ms=int(message.timestamp()[1]),
        )
        self.take(event, place)

    def take(self, event: SpuJoined | SpuLeft, place: EventPosition) -> None:
        """An event of this cluster."""
        if event.event_id in self._seen or not _is_followed(event):
            return
        self._seen[event.event_id] = None
        if len(self._seen) > EVENT_IDS_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        before = self._last.get(event.spu_id)
        if before is None or place.is_after(before[0]):
            self._last[event.spu_id] = place, event
        if isinstance(event, SpuJoined):
            joined = self._joins.get(event.spu_id)
            if joined is None or place.is_after(joined[0]):
                self._joins[event.spu_id] = place, event

    def by_spu(self) -> Mapping[int, Announced]:
        """What was announced last of each SPU."""
        return {
            spu_id: self._announced(spu_id)
            for spu_id in sorted(self._last.keys() | self._kept.keys())
        }

    def _announced(self, spu_id: int) -> Announced:
        kept = self._kept.get(spu_id)
        join = self._joins.get(spu_id)
        described = None
        if join is not None:
            described = _of_join(join[1])
        elif kept is not None:
            described = _of_state(kept)
        if spu_id in self._last:
            place, event = self._last[spu_id]
            return Announced(
                online=isinstance(event, SpuJoined),
                is_own=_is_own(event),
                described=described,
                place=f"{self._origin.partition('.')[0]}.{place.partition}.{place.offset}",
            )
        if kept is None:
            raise KeyError(spu_id)
        return Announced(
            online=kept.online,
            is_own=LABEL in dict(kept.labels) and not kept.leaving,
            described=described,
            place=self._origin,
        )


def _of_join(event: SpuJoined) -> Described:
    return Described(
        rack=event.rack,
        cores=event.cores,
        capacity=default_capacity(event.cores) if event.capacity is None else event.capacity,
        labels=dict(event.labels or {}),
    )


def _of_state(spu: SpuChanged) -> Described:
    return Described(rack=spu.rack, cores=spu.cores, capacity=spu.capacity, labels=dict(spu.labels))


def _is_own(event: SpuJoined | SpuLeft) -> bool:
    """A leave has no labels, and a join may outlive its id, in `assigner-state`."""
    if isinstance(event, SpuJoined):
        return LABEL in (event.labels or {})
    return event.event_id.startswith(f"{MARK}/")


def _is_followed(event: SpuJoined | SpuLeft) -> bool:
    """Whether the job acts on it, which refuses a join with numbers out of range."""
    if isinstance(event, SpuLeft) or _is_own(event):
        return True
    answers = Assigner().apply(event)
    return not any(
        isinstance(answer, RingEvent) and answer.change is RingChange.IGNORED for answer in answers
    )
