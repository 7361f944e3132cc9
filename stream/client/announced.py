"""What was announced of a cluster's SPUs, out of what is in Kafka: for `follow` and `--keep`.

`spu-events` is what was announced, and what the job will act on, though it may be down: each event
describes its SPU whole, so the last one of an SPU is all that counts. Of an SPU whose events have
expired there, `assigner-state`, which never does, says what became of them. So nothing has to be
kept anywhere else: a restarted process reads what it announced before, and what others announced.

An event that the job does not follow says nothing: one under another key, a copy of one that was
seen, a join with numbers out of range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from confluent_kafka import Message
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.constraints import Taint
from spu_assigner.core.base.events import LeaveMode, SpuJoined, SpuLeft
from spu_assigner.core.base.limits import EVENT_IDS_REMEMBERED, default_capacity
from spu_assigner.core.base.records import RingChange, RingEvent, SpuChanged
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages.codec import decode_event, decode_record
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.topics import ASSIGNER_STATE, SPU_EVENTS

_STATE: Final = "spu"  # the kind, in the keys of assigner-state
MARK: Final = "follow"  # the ids of the events of `follow` begin so
LABEL: Final = "kafka-cluster"  # of the SPUs it joins: the id of the watched cluster

Announcement = SpuJoined | SpuLeft


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What a join says of an SPU."""

    rack: str | None
    cores: int
    capacity: int
    labels: Mapping[str, str]
    resources: Mapping[str, int] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()

    def fields(self) -> dict[str, Any]:
        """The same, as fields of a `SpuJoined`."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return given | {"labels": self.labels or None, "resources": self.resources or None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """What was announced last of an SPU."""

    online: bool
    is_decommissioned: bool  # its last leave was for good; no when it is online
    is_own: bool  # by `follow`, and not by somebody else
    kafka_cluster: str | None  # of one that is own, whose broker it was joined as, where known
    described: Described | None  # None: of its joins nothing is left


def described_over(
    before: Described | None,
    *,
    rack: str | None,
    cores: int | None,
    capacity: int | None,
    labels: Mapping[str, str],
    resources: Mapping[str, int],
    taints: Sequence[Taint] = (),
) -> Described:
    """What a join says that takes over from `before` what is not named.

    A capacity is taken over with the number of cores that it was announced with.
    """
    known = before or Described(rack=None, cores=1, capacity=default_capacity(1), labels={})
    if cores is None:
        cores = known.cores
    if capacity is None:
        capacity = known.capacity if cores == known.cores else default_capacity(cores)
    named = {(taint.key, taint.effect) for taint in taints}
    kept = [each for each in known.taints if (each.key, each.effect) not in named]
    return Described(
        rack=known.rack if rack is None else rack,
        cores=cores,
        capacity=capacity,
        labels=dict(sorted({**known.labels, **labels}.items())),
        resources={**known.resources, **resources},
        taints=(*kept, *taints),
    )


def read_described(connection: Connection, cluster_id: str, spu_id: int) -> Described | None:
    """What was announced last of one SPU; None: nothing.

    Raises:
        ClientError: the broker does not answer, or topics are missing.
        DecodeError: an SPU's entry in `assigner-state` is damaged.
    """
    known = AnnouncedOfCluster(cluster_id)
    for topic, take in ((ASSIGNER_STATE, known.take_state), (SPU_EVENTS, known.take_event)):
        with Reader(connection, [topic], from_beginning=True) as reader:
            for _, message in reader.drain_messages():
                take(message)
    found = known.by_spu().get(spu_id)
    return None if found is None else found.described


class EventPosition(NamedTuple):
    """Where an event lies in the input, and when the broker took it."""

    partition: int
    offset: int
    time_ms: int

    def is_after(self, other: EventPosition) -> bool:
        """Partitions are merged by the broker's time, as the job does it."""
        if self.partition == other.partition:
            return self.offset > other.offset
        return (self.time_ms, self.partition) > (other.time_ms, other.partition)


def position(message: Message) -> EventPosition:
    """Where a message that was read or delivered lies."""
    partition, offset = int(message.partition() or 0), int(message.offset() or 0)
    return EventPosition(partition, offset, int(message.timestamp()[1]))


class AnnouncedOfCluster:
    """Takes over messages as they are read; gives what was announced last of each SPU."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self._last: dict[int, tuple[EventPosition, Announcement]] = {}
        self._joins: dict[int, tuple[EventPosition, SpuJoined]] = {}
        self._own: dict[int, str | None] = {}  # of those that are: the watched cluster, if known
        self._kept: dict[int, SpuChanged] = {}  # what the job made of them
        self._seen: dict[str, None] = {}  # ids of events, the oldest first
        self._elsewhere: dict[tuple[str, str], str] = {}  # brokers that are SPUs of others

    def take_state(self, message: Message) -> None:
        """A message of `assigner-state`.

        Raises:
            DecodeError: it is an SPU's, and damaged.
        """
        cluster_id, _, rest = (message.key() or b"").decode("utf-8", "replace").partition("/")
        kind, _, name = rest.partition("/")
        if kind != _STATE:
            return
        value = message.value()
        if cluster_id != self.cluster_id:
            self._take_elsewhere(cluster_id, name, value)
            return
        record = None if value is None else decode_record(value)
        if record is None:
            self._kept.pop(int(name), None)
        elif isinstance(record, SpuChanged):
            self._kept[record.spu_id] = record

    def take_event(self, message: Message) -> None:
        """A message of `spu-events`."""
        if message.key() != self.cluster_id.encode():
            return
        try:
            event = decode_event(message.value(), kind="spu")
        except DecodeError:
            return  # A dead letter of the job's.
        if isinstance(event, SpuJoined | SpuLeft) and event.cluster_id == self.cluster_id:
            self.take(event, position(message))

    def take(self, event: Announcement, place: EventPosition) -> None:
        """An event of this cluster."""
        if event.event_id in self._seen or not _is_followed(event):
            return
        self._seen[event.event_id] = None
        if len(self._seen) > EVENT_IDS_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        spu_id = event.spu_id
        if spu_id not in self._last or place.is_after(self._last[spu_id][0]):
            self._note_owner(event)
            self._last[spu_id] = place, event
        if isinstance(event, SpuJoined) and (
            spu_id not in self._joins or place.is_after(self._joins[spu_id][0])
        ):
            self._joins[spu_id] = place, event

    def by_spu(self) -> Mapping[int, Announced]:
        """What was announced last of each SPU."""
        by_state = {spu_id: self._of_state(kept) for spu_id, kept in self._kept.items()}
        by_events = {spu_id: self._of_event(spu_id, by_state.get(spu_id)) for spu_id in self._last}
        return dict(sorted({**by_state, **by_events}.items()))

    def clusters_of(self, kafka_cluster: str) -> list[str]:
        """The other clusters that have brokers of this Kafka cluster as SPUs."""
        return sorted({of for (of, _), each in self._elsewhere.items() if each == kafka_cluster})

    def _note_owner(self, event: Announcement) -> None:
        """Whose an SPU is after an event, the next one that is known of it.

        A leave has no labels, and a join may outlive its id, in `assigner-state`. A join by others
        of an SPU that is online says something else of it, and not whose it is.
        """
        spu_id = event.spu_id
        if spu_id in self._last:
            is_online = isinstance(self._last[spu_id][1], SpuJoined)
        else:
            kept = self._kept.get(spu_id)
            is_online = kept is not None and kept.online
            if kept is not None and LABEL in (labels := dict(kept.labels)) and not kept.leaving:
                self._own[spu_id] = labels[LABEL]
        if isinstance(event, SpuJoined) and LABEL in (given := event.labels or {}):
            self._own[spu_id] = given[LABEL]
        elif isinstance(event, SpuLeft) and event.event_id.startswith(f"{MARK}/"):
            self._own.setdefault(spu_id, None)
        elif isinstance(event, SpuLeft) or not is_online:
            self._own.pop(spu_id, None)

    def _take_elsewhere(self, cluster_id: str, spu: str, value: bytes | None) -> None:
        self._elsewhere.pop((cluster_id, spu), None)
        try:
            record = None if value is None else decode_record(value)
        except DecodeError:
            return  # Not of this cluster, so not what this command is about.
        if isinstance(record, SpuChanged) and LABEL in (labels := dict(record.labels)):
            self._elsewhere[cluster_id, spu] = labels[LABEL]

    def _of_state(self, spu: SpuChanged) -> Announced:
        described = _described(spu)
        is_own = LABEL in described.labels and not spu.leaving
        return Announced(
            online=spu.online,
            is_decommissioned=spu.leaving,
            is_own=is_own,
            kafka_cluster=described.labels[LABEL] if is_own else None,
            described=described,
        )

    def _of_event(self, spu_id: int, of_state: Announced | None) -> Announced:
        _, event = self._last[spu_id]
        described = None if of_state is None else of_state.described
        if spu_id in self._joins:
            described = _described(self._joins[spu_id][1])
        return Announced(
            online=isinstance(event, SpuJoined),
            is_decommissioned=isinstance(event, SpuLeft) and event.mode is LeaveMode.DECOMMISSION,
            is_own=spu_id in self._own,
            kafka_cluster=self._own.get(spu_id),
            described=described,
        )


def _described(spu: SpuJoined | SpuChanged) -> Described:
    return Described(
        rack=spu.rack,
        cores=spu.cores,
        capacity=default_capacity(spu.cores) if spu.capacity is None else spu.capacity,
        labels=dict(spu.labels or {}),
        resources=dict(spu.resources or {}),
        taints=spu.taints,
    )


def _is_followed(event: Announcement) -> bool:
    """Whether the job acts on it, which refuses a join with numbers out of range."""
    if isinstance(event, SpuLeft) or LABEL in (event.labels or {}):
        return True
    answers = Assigner().apply(event)
    return not any(
        isinstance(answer, RingEvent) and answer.change is RingChange.IGNORED for answer in answers
    )
