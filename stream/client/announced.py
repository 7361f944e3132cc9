"""What was announced of a cluster's SPUs, out of what is in Kafka: for `follow` and `produce`.

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
from spu_assigner.core.base.constraints import Taint, TaintEffect
from spu_assigner.core.base.events import LeaveMode, SpuJoined, SpuLeft
from spu_assigner.core.base.limits import EVENT_IDS_REMEMBERED, default_capacity
from spu_assigner.core.base.records import RingChange, RingEvent, SpuChanged
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages.codec import decode_event, decode_record
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.topics import ASSIGNER_STATE, SPU_EVENTS

_STATE: Final = "spu"  # the kind, in the keys of assigner-state
MARK: Final = "follow"  # the ids of the events of `follow` begin so
LABEL: Final = "kafka-cluster"  # of the SPUs it joins: the id of the watched cluster

SETTLED_SECONDS: Final = 10.0  # for open transactions, which are those of `follow`

Announcement = SpuJoined | SpuLeft
Entry = str | tuple[str, TaintEffect]  # a label by its name, a taint by its key and effect
Changes = Mapping[Entry, str | None]  # labels and taints by their new values; None: removed
LabelsOfBrokers = Mapping[int, Mapping[Entry, str]]  # and taints


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

    online: bool = False
    is_decommissioned: bool = False  # its last leave was for good; no when it is online
    is_own: bool = False  # by `follow`, and not by somebody else
    kafka_cluster: str | None = None  # of one that is own, whose broker it is, where known
    described: Described | None = None  # None: of its joins nothing is left


def entries_of(labels: Mapping[str, str] | None, taints: Sequence[Taint]) -> dict[Entry, str]:
    """Labels and taints by their values."""
    of_taints: list[tuple[Entry, str]] = [((each.key, each.effect), each.value) for each in taints]
    return dict([*(labels or {}).items(), *of_taints])


def entry_text(entry: Entry, value: str) -> str:
    """A label or a taint, as kubectl writes it."""
    name, more = (entry, "") if isinstance(entry, str) else (entry[0], f":{entry[1]}")
    return printable(f"{name}={value}{more}" if value or not more else f"{name}{more}")


def described_over(
    before: Described | None,
    changes: Changes,
    *,
    rack: str | None = None,
    cores: int | None = None,
    capacity: int | None = None,
    resources: Mapping[str, int] | None = None,
) -> Described:
    """What a join says that takes over from `before` what is not named.

    A capacity is taken over with the number of cores that it was announced with.
    """
    known = before or Described(rack=None, cores=1, capacity=default_capacity(1), labels={})
    if cores is None:
        cores = known.cores
    if capacity is None:
        capacity = known.capacity if cores == known.cores else default_capacity(cores)
    entries = {**entries_of(known.labels, known.taints), **changes}
    kept = {entry: value for entry, value in entries.items() if value is not None}
    return Described(
        rack=known.rack if rack is None else rack,
        cores=cores,
        capacity=capacity,
        labels=dict(sorted((x, value) for x, value in kept.items() if isinstance(x, str))),
        resources={**known.resources, **(resources or {})},
        taints=tuple(sorted(Taint(x[0], v, x[1]) for x, v in kept.items() if type(x) is tuple)),
    )


def read_announced(connection: Connection, cluster_id: str) -> AnnouncedOfCluster:
    """What was announced of a cluster's SPUs until now."""
    known = AnnouncedOfCluster(cluster_id)
    for topic, take in ((ASSIGNER_STATE, known.take_state), (SPU_EVENTS, known.take_event)):
        with Reader(connection, [topic], from_beginning=True) as reader:
            reader.settle(SETTLED_SECONDS if topic == SPU_EVENTS else 0)
            for _, message in reader.drain_messages():
                take(message)
    return known


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
        self._announced: dict[int, Announced] = {}
        self._places: dict[int, EventPosition] = {}  # of the last event of each SPU
        self._seen: dict[str, int] = {}  # by ids of events their SPU, the oldest first
        self._elsewhere: dict[tuple[str, str], str] = {}  # brokers that are SPUs of others

    def take_state(self, message: Message) -> None:
        """A message of `assigner-state`; all of them come before the events."""
        cluster_id, _, rest = (message.key() or b"").decode("utf-8", "replace").partition("/")
        kind, _, name = rest.partition("/")
        if kind != _STATE:
            return
        is_here, value = cluster_id == self.cluster_id, message.value()
        try:
            record = None if value is None else decode_record(value)
        except DecodeError:
            if is_here:
                raise
            record = None
        labels = dict(record.labels) if isinstance(record, SpuChanged) else {}
        if not is_here:
            self._elsewhere.pop((cluster_id, name), None)
            if LABEL in labels:
                self._elsewhere[cluster_id, name] = labels[LABEL]
        elif isinstance(record, SpuChanged):
            is_own = LABEL in labels and not record.leaving
            self._announced[record.spu_id] = Announced(
                online=record.online,
                is_decommissioned=record.leaving,
                is_own=is_own,
                kafka_cluster=labels[LABEL] if is_own else None,
                described=_described(record),
            )
        else:
            self._announced.pop(int(name), None)

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
        """An event of this cluster.

        A leave has no labels: whose it is, its id says. A join by others of an SPU that is online
        says something else of it, and not whose it is.
        """
        spu_id = event.spu_id
        if event.event_id in self._seen or not _is_followed(event):
            return
        self._seen[event.event_id] = spu_id
        if len(self._seen) > EVENT_IDS_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        if spu_id in self._places and not place.is_after(self._places[spu_id]):
            return
        self._places[spu_id] = place
        before = self._announced.get(spu_id, Announced())
        kafka_cluster = before.kafka_cluster
        if isinstance(event, SpuLeft):
            is_own = event.event_id.startswith(f"{MARK}/")
        elif LABEL in (labels := event.labels or {}):
            is_own, kafka_cluster = True, labels[LABEL]
        else:
            is_own = before.is_own and before.online
        self._announced[spu_id] = Announced(
            online=isinstance(event, SpuJoined),
            is_decommissioned=isinstance(event, SpuLeft) and event.mode is LeaveMode.DECOMMISSION,
            is_own=is_own,
            kafka_cluster=kafka_cluster if is_own else None,
            described=_described(event) if isinstance(event, SpuJoined) else before.described,
        )

    def by_spu(self) -> Mapping[int, Announced]:
        """What was announced last of each SPU."""
        return dict(sorted(self._announced.items()))

    def events_of(self, spu_id: int) -> list[str]:
        """The ids of an SPU's events, the oldest first."""
        return [each for each, of in self._seen.items() if of == spu_id]

    def clusters_of(self, kafka_cluster: str) -> list[str]:
        """The other clusters that have brokers of this Kafka cluster as SPUs."""
        return sorted({of for (of, _), each in self._elsewhere.items() if each == kafka_cluster})


def _described(spu: SpuJoined | SpuChanged) -> Described:
    return Described(
        rack=spu.rack,
        cores=spu.cores,
        capacity=default_capacity(spu.cores) if spu.capacity is None else spu.capacity,
        labels=dict(spu.labels or {}),
        resources=dict(spu.resources or {}),
        taints=tuple(sorted(spu.taints)),
    )


def _is_followed(event: Announcement) -> bool:
    """Whether the job acts on it."""
    return isinstance(event, SpuLeft) or LABEL in (event.labels or {}) or not refusal(event)


def refusal(event: SpuJoined) -> str | None:
    """Why the job ignores a join, such as numbers out of range; None: it does not."""
    answers = (each for each in Assigner().apply(event) if isinstance(each, RingEvent))
    return next((each.message for each in answers if each.change is RingChange.IGNORED), None)
