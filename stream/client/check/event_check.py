"""The faults of one event, on the state that the lines before it have left.

The core decides whether it is rejected, and why. For further faults of a rejected event, the core
decides it again with a legal value in place of the one that was rejected. What the core accepts and
is probably not intended is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import (
    Event,
    Policy,
    SpuJoined,
    TopicAdopted,
    TopicCreate,
    TopicDelete,
    TopicRelease,
)
from spu_assigner.core.base.limits import PARTITIONS_MAX
from spu_assigner.core.base.records import Record, RingChange, RingEvent, Status, TopicStatus, Wait
from spu_assigner.core.decision.checks import spu_faults, unknown_spus
from spu_assigner.core.decision.machine import decide, step
from spu_assigner.core.policies.manual_lists import (
    ManualFault,
    entries_of,
    is_spu_id,
    list_faults,
    plain_list_faults,
)
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.stream.client.check.codes import ADVICE
from spu_assigner.stream.client.check.faults import CheckFaults

Refusal = tuple[Code, str]

_UNUSED_ID: Final = "\x00"  # of what is decided and never applied: an id that nobody types
_UNKNOWN_TOPIC: Final = re.compile(r"constraints\.\w+ names ")


@dataclass(slots=True)
class CheckedCluster:
    """A cluster of the file: its state, and the lines that led to it."""

    state: ClusterState
    ids: dict[str, tuple[int, int]] = field(default_factory=dict)  # line and content of each event
    joins: dict[int, int] = field(default_factory=dict)  # the last line of each SPU
    topics: dict[str, str] = field(default_factory=dict)  # what the last line did to each
    names: dict[str, str] = field(
        default_factory=dict
    )  # topics by what they are in Kafka's metrics

    def report_end(self, faults: CheckFaults) -> None:
        """What is so after the last line."""
        report = partial(faults.report, cluster_id=self.state.cluster_id)
        online = [spu for _, spu in sorted(self.state.spus.items()) if spu.online]
        bare = [spu for spu in online if spu.rack is None]
        for spu in bare if len(bare) < len(online) else ():
            said = (
                f"SPU {spu.spu_id} has no rack, and {len(online) - len(bare)} online SPUs have one"
            )
            report(self.joins[spu.spu_id], "RACKS_ON_SOME", said, field="rack")
        for waiting in self.state.waiting.values():
            is_create = waiting.kind is Wait.CREATE
            what = "the create" if is_create else "the repair"
            said = f"{what} of topic {waiting.topic!r} still waits when the file ends"
            line, _ = self.ids[waiting.cause]
            report(line, "STILL_WAITING", said, field="topic" if is_create else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCheck:
    """One event in its file."""

    line: int
    event: Event
    cluster: CheckedCluster
    default_policy: Policy
    faults: CheckFaults

    def check(self) -> None:
        """Decide and apply it, and report its faults."""
        event, cluster = self.event, self.cluster
        before, content = cluster.ids.get(event.event_id), _content(event)
        records = step(cluster.state, event, default_policy=self.default_policy)
        if before is not None:
            self._report_known_id(*before, content=content, is_answered=bool(records))
        if not records:
            return
        cluster.ids[event.event_id] = self.line, content
        refusal = _refusal_of(event, records)
        if refusal is not None:
            for code, message in self._refusals(refusal):
                self._report_refused(code, message)
        self._report_answers(records)
        if isinstance(event, SpuJoined) and refusal is None:
            cluster.joins[event.spu_id] = self.line
        if not isinstance(event, TopicCreate) or not event.validate_only:
            self._note_topic(refusal)

    def report(self, code: str, message: str, name: str = "") -> None:
        """Note a fault of a field."""
        is_unknown_topic = code == Code.INVALID_CONSTRAINTS and _UNKNOWN_TOPIC.match(message)
        self.faults.report(
            self.line,
            code,
            message,
            field=name,
            cluster_id=self.event.cluster_id,
            is_by_history=bool(is_unknown_topic),
        )

    def _report_known_id(self, line: int, other: int, *, content: int, is_answered: bool) -> None:
        if is_answered:
            said = f"line {line} has the same id, which is no longer remembered"
            self.report("EVENT_ID_REUSED_LATE", said, "event_id")
        elif other == content:
            self.report("REPEATED_EVENT", f"the same event as on line {line}", "event_id")
        else:
            said = f"line {line} has the same id and other content; this event is skipped"
            self.report("EVENT_ID_REUSED", said, "event_id")

    def _refusals(self, first: Refusal) -> Iterator[Refusal]:
        """The first refusal, then those that show with legal values in place of the others."""
        asked = replace(self.event, event_id=_UNUSED_ID)
        tried: set[Code] = set()
        refusal: Refusal | None = first
        while refusal is not None and refusal[0] not in tried:
            code, _ = refusal
            tried.add(code)
            legal = {n: v for n, v in ADVICE[code].legal.items() if hasattr(asked, n)}
            if (
                refusal is first or legal or self._is_of_lists(code)
            ):  # Else a legal value led to it.
                yield refusal
            if not legal:
                return
            asked = replace(asked, **legal)
            records = decide(self.cluster.state, asked, default_policy=self.default_policy)
            refusal = _refusal_of(asked, records)

    def _report_refused(self, code: Code, message: str) -> None:
        lists = getattr(self.event, "replicas", None)
        prefix = "replicas.partitions" if isinstance(lists, dict) else "replicas"
        is_said = False
        for fault in self._list_faults() if self._is_of_lists(code) else ():
            is_said = True  # The core names the first of them.
            self.report(fault.code, fault.message, field_of(prefix, fault.path))
        if is_said:
            return
        earlier = self.cluster.topics.get(getattr(self.event, "topic", ""))
        if earlier is not None and code in (Code.TOPIC_EXISTS, Code.TOPIC_UNKNOWN):
            message = f"{message} ({earlier})"
        self.report(code, message, _field(code, message))

    def _is_of_lists(self, code: Code) -> bool:
        """Whether replica lists of the event can be rejected so."""
        match self.event:
            case (
                TopicAdopted() | TopicCreate(policy=None | Policy.MANUAL, replicas=list() | dict())
            ):
                counts = (Code.INVALID_PARTITIONS, Code.INVALID_REPLICATION_FACTOR)
                return code.startswith("MANUAL_") or code in counts
            case _:
                return False

    def _list_faults(self) -> Iterator[ManualFault]:
        """Every fault of the event's replica lists."""
        event, state = self.event, self.cluster.state
        if isinstance(event, TopicAdopted):
            yield from plain_list_faults(event.replicas)
            if len(event.replicas) <= PARTITIONS_MAX:
                yield from unknown_spus(state, event.replicas)
        elif isinstance(event, TopicCreate):
            yield from list_faults(event.replicas)
            yield from spu_faults(state, whole_lists(event.replicas))

    def _report_answers(self, records: Sequence[Record]) -> None:
        """What the core says of an event that it accepts."""
        for record in records:
            match record:
                case RingEvent(change=RingChange.JOINED | RingChange.UPDATED, message=str(message)):
                    self.report("FIELD_LOST", f"SPU {record.spu_id} {message}")
                case TopicStatus(status=Status.VIOLATED, message=str(message)):
                    self.report("RULES_BROKEN", f"topic {record.topic!r}: {message}")
                case _:
                    pass

    def _note_topic(self, refusal: Refusal | None) -> None:
        """Keep what the line does to its topic, and report a name that Kafka refuses beside it."""
        event, line, topics, names = self.event, self.line, self.cluster.topics, self.cluster.names
        code = None if refusal is None else refusal[0]
        match event:
            case TopicCreate() | TopicAdopted() if code is None or ADVICE[code].is_by_history:
                if code is None:
                    verb = "adopts" if isinstance(event, TopicAdopted) else "requests"
                    topics[event.topic] = f"line {line} {verb} it"
                alike = names.setdefault(event.topic.replace(".", "_"), event.topic)
                if alike != event.topic and code is not Code.TOPIC_COLLIDES:
                    said = f"{event.topic!r} and {alike!r} differ in dots and underscores alone"
                    self.report("COLLIDING_NAMES", said, "topic")
                if code is None and isinstance(event, TopicCreate) and event.replicas is not None:
                    self._report_unread_counts(event)
            case TopicDelete() | TopicRelease() if code is None:
                is_released = isinstance(event, TopicRelease)
                topics[event.topic] = f"line {line} {'releases' if is_released else 'deletes'} it"
                plain = event.topic.replace(".", "_")
                if not is_released and names.get(plain) == event.topic:
                    del names[plain]  # Kafka keeps a topic that is released, and its name.
            case _:
                pass
        if isinstance(event, TopicCreate) and code is not None:
            topics.setdefault(event.topic, f"line {line} requests it and is rejected")

    def _report_unread_counts(self, event: TopicCreate) -> None:
        entries = entries_of(event.replicas)
        for name, given, listed in (
            ("partitions", event.partitions, len(entries)),
            ("replication_factor", event.replication_factor, len(entries[0]["replicas"])),
        ):
            if given not in (1, listed):  # 1 is what it is when nobody gives it.
                said = f"{name} is {given}; the replica lists make it {listed}"
                self.report("UNREAD_COUNT", said, name)


def field_of(name: str, path: Sequence[int | str]) -> str:
    """The way into a field as messages spell it: `replicas[3].id`."""
    return name + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)


def whole_lists(raw: Any) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Those lists whose SPUs can be looked up, with the places of the SPUs."""
    entries = entries_of(raw)
    for partition, entry in enumerate(entries if isinstance(entries, list) else ()):
        replicas = entry.get("replicas") if isinstance(entry, dict) else None
        if isinstance(replicas, list):
            ids = [(place, i) for place, i in enumerate(replicas) if is_spu_id(i)]
            yield partition, ids


def _content(event: Event) -> int:
    """What an event says, but for its id and its time."""
    said = [type(event).__name__]
    for name in event.__struct_fields__:
        if name not in ("event_id", "occurred_at"):
            value = getattr(event, name)
            said.append(repr(sorted(value.items()) if type(value) is dict else value))
    return hash("\n".join(said))


def _refusal_of(event: Event, records: Sequence[Record]) -> Refusal | None:
    """Why the event that these records answer is rejected or ignored; None: it is not."""
    for record in records:
        match record:
            case TopicStatus(cause=cause) if cause != event.event_id:
                pass  # It answers what has waited.
            case TopicStatus(status=Status.REJECTED, code=Code() as code, message=str(message)):
                return code, message
            case RingEvent(change=RingChange.IGNORED, code=Code() as code, message=str(message)):
                return code, message
            case _:
                pass
    return None


def _field(code: Code, message: str) -> str:
    """The field that a rejection is about, as its message names it."""
    name = ADVICE[code].field
    if name in ("taints", "constraints") and (found := re.match(rf"{name}[][.\w]+", message)):
        return found[0]
    if found := re.match(r"(?:demand|leader_demand|resources)(?:\.\S+)? ", message):
        return found[0].strip()
    return name
