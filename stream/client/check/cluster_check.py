"""The faults of the events of one cluster, each decided on the state that the ones before left.

The core decides whether an event is rejected, and why. For further faults of a rejected event, it
decides again with a legal value in place of the rejected one. What it accepts and is probably not
intended is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

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

_Refusal = tuple[Code, str]

_UNUSED_ID: Final = "\x00"  # of what is decided and never applied: an id that nobody types
_UNKNOWN_TOPIC: Final = re.compile(r"constraints\.\w+ names ")


class CheckFault(NamedTuple):
    """One fault of a line."""

    line: int
    code: str
    message: str  # what was found, and what was expected
    field: str = ""  # as in `replicas[3].id`; empty: the line as a whole
    cluster_id: str | None = None
    is_by_history: bool = False  # it depends on the SPUs and topics that were there before the line


class ClusterCheck:
    """Checks the events of a cluster in their order; an event's faults come as it is taken."""

    def __init__(self, cluster_id: str, default_policy: Policy) -> None:
        self.state = ClusterState(cluster_id)
        self.has_joins = False
        self._default_policy = default_policy
        self._events: dict[str, tuple[int, int]] = {}  # line and content, by event id
        self._topics: dict[str, int] = {}  # the last line that requests or forgets each

    def take(self, line: int, event: Event) -> Iterator[CheckFault]:
        """Decide and apply an event, and report its faults."""
        records = step(self.state, event, default_policy=self._default_policy)
        if not records:
            yield self._known_id(line, event)
            return
        self._events[event.event_id] = line, _content(event)
        refusal = _refusal_of(event, records)
        if refusal is not None:
            for code, message in self._refusals(event, refusal):
                yield from self._refused(line, event, code, message)
        elif isinstance(event, SpuJoined):
            self.has_joins = True
        for record in records:
            match record:
                case RingEvent(change=RingChange.JOINED | RingChange.UPDATED, message=str(said)):
                    yield self._fault(line, "FIELD_LOST", f"SPU {record.spu_id} {said}")
                case TopicStatus(status=Status.VIOLATED, message=str(said)):
                    yield self._fault(line, "RULES_BROKEN", f"topic {record.topic!r}: {said}")
                case _:
                    pass
        match event:
            case TopicCreate(validate_only=False) | TopicAdopted() | TopicDelete() | TopicRelease():
                if refusal is None:
                    self._topics[event.topic] = line
                elif isinstance(event, TopicCreate):
                    self._topics.setdefault(event.topic, line)
            case _:
                pass

    def still_waiting(self) -> Iterator[CheckFault]:
        """What waits after the last event."""
        for waiting in self.state.waiting.values():
            is_create = waiting.kind is Wait.CREATE
            what = "the create" if is_create else "the repair"
            said = f"{what} of topic {waiting.topic!r} still waits when the file ends"
            line, _ = self._events[waiting.cause]
            yield self._fault(line, "STILL_WAITING", said, "topic" if is_create else "")

    def _fault(self, line: int, code: str, message: str, field: str = "") -> CheckFault:
        is_by_history = ADVICE[code].is_by_history or (
            code == Code.INVALID_CONSTRAINTS and _UNKNOWN_TOPIC.match(message) is not None
        )
        return CheckFault(line, code, message, field, self.state.cluster_id, is_by_history)

    def _known_id(self, line: int, event: Event) -> CheckFault:
        first, content = self._events[event.event_id]
        if content == _content(event):
            said = f"the same event as on line {first}"
            return self._fault(line, "REPEATED_EVENT", said, "event_id")
        said = f"line {first} has the same id and other content; this event is skipped"
        return self._fault(line, "EVENT_ID_REUSED", said, "event_id")

    def _refusals(self, event: Event, first: _Refusal) -> Iterator[_Refusal]:
        """The first refusal, then those that show with legal values in place of the others."""
        asked = replace(event, event_id=_UNUSED_ID)
        tried: set[Code] = set()
        refusal: _Refusal | None = first
        while refusal is not None and refusal[0] not in tried:
            code, _ = refusal
            tried.add(code)
            legal = {n: v for n, v in ADVICE[code].legal.items() if hasattr(asked, n)}
            # What no legal value can replace may follow from a value that was put in.
            if refusal is first or legal or _is_of_lists(event, code):
                yield refusal
            if not legal:
                return
            asked = replace(asked, **legal)
            records = decide(self.state, asked, default_policy=self._default_policy)
            refusal = _refusal_of(asked, records)

    def _refused(self, line: int, event: Event, code: Code, message: str) -> Iterator[CheckFault]:
        lists = getattr(event, "replicas", None)
        prefix = "replicas.partitions" if isinstance(lists, dict) else "replicas"
        is_said = False
        for fault in self._list_faults(event) if _is_of_lists(event, code) else ():
            is_said = True  # The core names the first of them.
            yield self._fault(line, fault.code, fault.message, _field_of(prefix, fault.path))
        if is_said:
            return
        earlier = self._topics.get(getattr(event, "topic", ""))
        if earlier is not None and code in (Code.TOPIC_EXISTS, Code.TOPIC_UNKNOWN):
            message = f"{message} (see line {earlier})"
        yield self._fault(line, code, message, _field(code, message))

    def _list_faults(self, event: Event) -> Iterator[ManualFault]:
        """Every fault of the event's replica lists."""
        if isinstance(event, TopicAdopted):
            yield from plain_list_faults(event.replicas)
            if len(event.replicas) <= PARTITIONS_MAX:
                yield from unknown_spus(self.state, event.replicas)
        elif isinstance(event, TopicCreate):
            yield from list_faults(event.replicas)
            yield from spu_faults(self.state, _whole_lists(event.replicas))


def _is_of_lists(event: Event, code: Code) -> bool:
    """Whether replica lists of the event can be rejected so."""
    match event:
        case TopicAdopted() | TopicCreate(policy=None | Policy.MANUAL, replicas=list() | dict()):
            counts = (Code.INVALID_PARTITIONS, Code.INVALID_REPLICATION_FACTOR)
            return code.startswith("MANUAL_") or code in counts
        case _:
            return False


def _field_of(name: str, path: Sequence[int | str]) -> str:
    """The way into a field as messages spell it: `replicas[3].id`."""
    return name + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)


def _whole_lists(raw: Any) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Those lists whose SPUs can be looked up, with the places of the SPUs."""
    entries = entries_of(raw)
    for partition, entry in enumerate(entries if isinstance(entries, list) else ()):
        replicas = entry.get("replicas") if isinstance(entry, dict) else None
        if isinstance(replicas, list):
            yield partition, [(at, each) for at, each in enumerate(replicas) if is_spu_id(each)]


def _content(event: Event) -> int:
    """What an event says, but for its id and its time."""
    said = [type(event).__name__]
    for name in event.__struct_fields__:
        if name not in ("event_id", "occurred_at"):
            value = getattr(event, name)
            said.append(repr(sorted(value.items()) if type(value) is dict else value))
    return hash("\n".join(said))


def _refusal_of(event: Event, records: Sequence[Record]) -> _Refusal | None:
    """Why the event that these records answer is rejected or ignored; None: it is not."""
    for record in records:
        match record:
            case TopicStatus(status=Status.REJECTED) | RingEvent(change=RingChange.IGNORED):
                if record.cause == event.event_id and record.code is not None:
                    return record.code, record.message or ""
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
