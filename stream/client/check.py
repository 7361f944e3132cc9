"""`simulate --check`: the faults of a file of events, before they are sent.

Each line is read as `simulate` reads it, and decided by the core on the state that the ones before
left. Of a rejected event the core decides again with a legal value in place of the rejected one, so
that the first fault of each field is found. What it accepts and is probably not intended is a
warning. The code of a rejection is the core's, that of a line that makes no event its `LineFault`.

A cluster in which no SPU joins is taken to exist already. Its SPUs and topics are not known, and
nothing that depends on them is reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, BinaryIO, Final, NamedTuple

import click
from spu_assigner.core.base.constraints import NO_CONSTRAINTS
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Event, Policy, SpuJoined
from spu_assigner.core.base.limits import NAME_LENGTH_MAX
from spu_assigner.core.base.records import Record, RingChange, RingEvent, Status, TopicStatus, Wait
from spu_assigner.core.decision.machine import decide, step
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.errors import LineError, LineFault
from spu_assigner.schemas.json_lines.json_object import lenient_members
from spu_assigner.schemas.json_lines.lines import event_of_members
from spu_assigner.stream.common.json_line_reading import event_of_line, lines_of
from spu_assigner.stream.common.printable import counted, listed, printable

FAULTS_MAX: Final = 10_000  # of a file, of which no more is read then
_UNUSED_ID: Final = "\x00"  # of what is decided and never applied: no user types such an id
_UNKNOWN_TOPIC: Final = re.compile(r"constraints\.\w+ names ")
_Refusal = tuple[Code, str]


class Advice(NamedTuple):
    """How to fix a fault."""

    fix: str
    field: str = ""  # what a rejection is about; empty: its message says so, or the whole event
    legal: Mapping[str, Any] = {}  # with these the event is decided again, for its other faults
    is_by_history: bool = False  # it depends on the SPUs and topics that were there before


def _set(field: str, legal: Any, fix: str) -> Advice:
    return Advice(fix, field, {field: legal})


def _later(field: str, fix: str, legal: Mapping[str, Any] = {}) -> Advice:
    return Advice(fix, field, legal, is_by_history=True)


_START: Final = "name 0 to 2147483647, with fluvio and kafka only"
_FREE_NAME: Final = {"topic": "-" * NAME_LENGTH_MAX}
_NO_DEMAND: Final[Mapping[str, Any]] = {"demand": {}, "leader_demand": None}
_AMOUNTS: Final = "name at most 8, with amounts from 0 to 9007199254740991"
_TAINTS: Final = "give at most 16, each key once with one effect, of 1 to 256 characters"
_RULES: Final = "write selectors as for kubectl, name topics that are there, use policy balanced"
_REJECTIONS: Final[Mapping[str, Advice]] = {
    "INVALID_PARTITIONS": _set("partitions", 1, "name 1 to 100,000; of a grow more than there are"),
    "INVALID_REPLICATION_FACTOR": _set("replication_factor", 1, "name 1 to 32"),
    "INVALID_START_INDEX": Advice(_START, "start_index", {"start_index": None, "shift": None}),
    "INVALID_SHIFT": _set("shift", None, "use it only with kafka and a start_index"),
    "INVALID_REPLICAS": Advice("give lists with manual, and only with it", "policy"),
    "INVALID_SPU_ID": _set("spu_id", 0, "name 0 to 2147483647"),
    "INVALID_CORES": _set("cores", 1, "name 1 to 1,024"),
    "INVALID_CAPACITY": _set("capacity", None, "name 0 to 2147483647"),
    "INVALID_RACK": _set("rack", None, "name 1 to 128 characters"),
    "INVALID_MAX_MOVES": _set("max_moves", 0, "name 0 to 2147483647"),
    "INVALID_MAX_BYTES": _set("max_bytes", None, "name 0 to 9007199254740991, or leave it out"),
    "INVALID_BAND_PERCENT": _set("band_percent", None, "name 0 to 1000"),
    "INVALID_BAND": _set("band", None, "name 0 or 1, or leave it out"),
    "INVALID_RESOURCES": _set("resources", None, _AMOUNTS),
    "INVALID_DEMAND": Advice(_AMOUNTS, "demand", _NO_DEMAND),
    "INVALID_TAINTS": _set("taints", (), _TAINTS),
    "INVALID_CONSTRAINTS": _set("constraints", NO_CONSTRAINTS, _RULES),
    "MAP_TOO_LARGE": Advice("ask for fewer partitions or replicas", "partitions"),
    "RESERVED_NAME": Advice("choose another name", "topic", _FREE_NAME),
    "MANUAL_MALFORMED": Advice("use one of the two forms of replica lists", "replicas"),
    "MANUAL_PARTITION_IDS": Advice("number them 0, 1, 2, … in order", "replicas"),
    "MANUAL_EMPTY_LIST": Advice("name at least one SPU, leader first", "replicas"),
    "MANUAL_UNEVEN_LISTS": Advice("make the lists equally long", "replicas"),
    "MANUAL_DUPLICATE_SPU": Advice("name each SPU once", "replicas"),
    "MANUAL_INVALID_SPU": Advice("name an integer from 0 to 2147483647", "replicas"),
    "MANUAL_UNKNOWN_SPU": _later("replicas", "let the SPU join first"),
    "MANUAL_SPU_LEAVING": _later("replicas", "name another SPU"),
    "MANUAL_SPU_FULL": _later("replicas", "name another SPU, or add capacity"),
    "MANUAL_SPU_CORDONED": _later("replicas", "uncordon it first, or name another SPU"),
    "TOPIC_EXISTS": _later("topic", "delete it first, or choose another name", _FREE_NAME),
    "TOPIC_COLLIDES": _later("topic", "choose another name", _FREE_NAME),
    "TOPIC_UNKNOWN": _later("topic", "create it first"),
    "MANUAL_TOPIC": _later("topic", "delete it, and create it with all its lists"),
    "SPU_UNKNOWN": _later("spu_id", "let it join first, or remove this event"),
    "SPU_UNCHANGED": _later("spu_id", "remove this event"),
    "SOURCE_OFFLINE": _later("spu_id", "join it again, or delete the topic"),
    "INSUFFICIENT_SPUS": _later("replication_factor", "add joins before, or fewer replicas"),
    "INSUFFICIENT_CAPACITY": _later("replication_factor", "add SPUs or capacity, or request less"),
    "RACKS_INCOMPLETE": _later("policy", "give all SPUs a rack or none, or set ignore_rack"),
    "UNKNOWN_RESOURCE": _later("demand", "name a resource of the SPUs, or add it", _NO_DEMAND),
    "UNSATISFIABLE": _later("constraints", "relax a rule, or add SPUs that meet it"),
    "TOO_MANY_SPUS": _later("spu_id", "keep to at most 10,000 SPUs"),
    "TOO_MANY_WAITING": _later("on_shortage", "keep to at most 10,000 waiting creates"),
    "TOO_COMPLEX": _later("", "ask for fewer partitions at a time, or simpler constraints"),
    "TOO_MANY_MOVES": _later("", "ask for less at a time, as the message says"),
}
_NO_EVENTS: Final = {
    LineFault.NO_JSON: "write one event a line, as a JSON object in UTF-8",
    LineFault.TOO_LONG: "split it, or name less",
    LineFault.TOO_DEEP: "flatten it",
    LineFault.UNKNOWN_TYPE: "use one of the kinds that the message lists",
    LineFault.ABSENT_FIELD: "add it",
    LineFault.UNKNOWN_FIELD: "remove it, or correct its name",
    LineFault.REPEATED_FIELD: "give it once",
    LineFault.WRONG_VALUE: "correct it",
    LineFault.ILLEGAL_NAME: "use letters, digits, '.', '_' and '-' only, at most 249",
}
WARNINGS: Final = {
    "REPEATED_EVENT": Advice("remove it: it changes nothing and is not answered"),
    "FIELD_LOST": Advice("give it again: a join describes its SPU whole"),
    "RULES_BROKEN": _later("", "move the replicas, or relax the rules"),
    "STILL_WAITING": _later("", "add SPUs or capacity"),
}
ADVICE: Final[Mapping[str, Advice]] = {
    **{fault.name: Advice(fix) for fault, fix in _NO_EVENTS.items()},
    **_REJECTIONS,
    "EVENT_ID_REUSED": Advice("give it an id of its own: an event with a known id is skipped"),
    **WARNINGS,
}


class CheckFault(NamedTuple):
    """One fault of a line."""

    line: int
    code: str
    message: str  # what was found, and what was expected
    field: str = ""  # as in `taints[0].key`; empty: the line as a whole
    cluster_id: str | None = None
    is_by_history: bool = False  # it depends on the SPUs and topics that were there before the line


class FileCheck:
    """Takes a file line by line, and keeps its faults."""

    def __init__(self, default_policy: Policy) -> None:
        self.events = 0
        self._default_policy = default_policy
        self._clusters: dict[str, _ClusterCheck] = {}
        self._faults: list[CheckFault] = []

    @property
    def is_full(self) -> bool:
        """Whether no more faults are reported."""
        return len(self._faults) >= FAULTS_MAX

    @property
    def running(self) -> list[str]:
        """The clusters whose beginning is not in the file."""
        return [name for name, cluster in self._clusters.items() if not cluster.has_joins]

    def take(self, number: int, raw: bytes) -> None:
        """Check a line, numbered from 1, without its newline."""
        try:
            event = event_of_line(raw)
        except LineError as error:
            self._faults += [
                CheckFault(number, fault.fault.name, fault.message, fault.field)
                for fault in faults_of_line(raw, error)
            ]
            return
        if event is None:
            return
        self.events += 1
        if (cluster := self._clusters.get(event.cluster_id)) is None:
            cluster = _ClusterCheck(event.cluster_id, self._default_policy)
            self._clusters[event.cluster_id] = cluster
        self._faults += cluster.take(number, event)

    def faults(self) -> list[CheckFault]:
        """All of them, by line, without those that depend on what a file cannot know."""
        waiting = chain.from_iterable(each.still_waiting() for each in self._clusters.values())
        running = set(self.running)
        found = (*self._faults, *waiting)
        known = [x for x in found if not (x.is_by_history and x.cluster_id in running)]
        return sorted(known, key=lambda fault: fault.line)


class _ClusterCheck:
    """Checks the events of a cluster in their order; an event's faults come as it is taken."""

    def __init__(self, cluster_id: str, default_policy: Policy) -> None:
        self.has_joins = False
        self._state = ClusterState(cluster_id)
        self._default_policy = default_policy
        self._events: dict[str, tuple[int, Event]] = {}  # by event id, with the line

    def take(self, line: int, event: Event) -> Iterator[CheckFault]:
        """Decide and apply an event, and report its faults."""
        records = step(self._state, event, default_policy=self._default_policy)
        if not records:
            yield self._known_id(line, event)
            return
        self._events[event.event_id] = line, event
        refusal = _refusal_of(event, records)
        for code, message in self._refusals(event, refusal):
            yield self._fault(line, code, message, _field(code, message))
        self.has_joins |= refusal is None and isinstance(event, SpuJoined)
        for record in records:
            match record:
                case RingEvent(change=RingChange.JOINED | RingChange.UPDATED, message=str(said)):
                    yield self._fault(line, "FIELD_LOST", f"SPU {record.spu_id} {said}")
                case TopicStatus(status=Status.VIOLATED, message=str(said)):
                    yield self._fault(line, "RULES_BROKEN", f"topic {record.topic!r}: {said}")
                case _:
                    pass

    def still_waiting(self) -> Iterator[CheckFault]:
        """What waits after the last event."""
        for waiting in self._state.waiting.values():
            is_create = waiting.kind is Wait.CREATE
            what = "the create" if is_create else "the repair"
            said = f"{what} of topic {waiting.topic!r} still waits when the file ends"
            line, _ = self._events[waiting.cause]
            yield self._fault(line, "STILL_WAITING", said, "topic" if is_create else "")

    def _fault(self, line: int, code: str, message: str, field: str = "") -> CheckFault:
        is_by_history = ADVICE[code].is_by_history or (
            code == Code.INVALID_CONSTRAINTS and _UNKNOWN_TOPIC.match(message) is not None
        )
        return CheckFault(line, code, message, field, self._state.cluster_id, is_by_history)

    def _known_id(self, line: int, event: Event) -> CheckFault:
        first, known = self._events[event.event_id]
        code, said = "REPEATED_EVENT", f"the same event as on line {first}"
        if replace(known, occurred_at=event.occurred_at) != event:
            code = "EVENT_ID_REUSED"
            said = f"line {first} has the same id and other content; this event is skipped"
        return self._fault(line, code, said, "event_id")

    def _refusals(self, event: Event, first: _Refusal | None) -> Iterator[_Refusal]:
        """The first refusal, then those that show with legal values in place of the others."""
        asked = replace(event, event_id=_UNUSED_ID)
        refusal, tried = first, set[Code]()
        while refusal is not None and refusal[0] not in tried:
            code, _ = refusal
            tried.add(code)
            legal = {n: v for n, v in ADVICE[code].legal.items() if hasattr(asked, n)}
            # What no legal value can replace may follow from a value that was put in.
            if refusal is first or legal or code.startswith("MANUAL_"):
                yield refusal
            if not legal:
                return
            asked = replace(asked, **legal)
            records = decide(self._state, asked, default_policy=self._default_policy)
            refusal = _refusal_of(asked, records)


def check_lines(source: BinaryIO, name: str, default_policy: Policy, *, is_json: bool) -> int:
    """Print the faults of a file of events and their number; returns the exit status."""
    check = FileCheck(default_policy)
    number = 0
    for number, raw in enumerate(lines_of(source), start=1):
        check.take(number, raw)
        if check.is_full:
            break
    faults = check.faults()
    for fault in faults:
        click.echo(json.dumps(_as_json(fault)) if is_json else _as_text(fault, name))
    warnings = sum(fault.code in WARNINGS for fault in faults)
    errors = len(faults) - warnings
    if is_json:
        counts = {"lines": number, "events": check.events, "errors": errors, "warnings": warnings}
        click.echo(json.dumps({"type": "summary", **counts, "unchecked": check.running}))
    else:
        for said in _summary(check, number, errors, warnings):
            click.echo(printable(said))
    return 1 if errors else 0


def faults_of_line(raw: bytes, first: LineError) -> list[LineError]:
    """All that is wrong with a line that was refused for its first fault, by the reader's rules."""
    faults: list[LineError] = []
    try:
        members = lenient_members(raw, faults.append)
    except LineError:
        return [first]
    event_of_members(members, len(raw), faults.append)
    return faults or [first]


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
    """The field that a rejection is about: the part that its message begins with, if it does."""
    name = ADVICE[code].field
    found = re.match(rf"(leader_)?{name}\b[^\s:;,]*", message) if name else None
    return name if found is None else found[0]


def _as_text(fault: CheckFault, file: str) -> str:
    """For people, as compilers write it."""
    is_named = not fault.field or fault.message.startswith(fault.field)
    field = "" if is_named else f"{fault.field}: "
    said = printable(f"{file}:{fault.line}: {fault.code} {field}{fault.message}")
    fix = ADVICE[fault.code].fix
    return said if fix in fault.message else f"{said}\n  fix: {fix}"


def _as_json(fault: CheckFault) -> dict[str, object]:
    """For programs."""
    return {
        "type": "fault",
        "line": fault.line,
        "severity": "warning" if fault.code in WARNINGS else "error",
        "code": fault.code,
        "cluster_id": fault.cluster_id,
        "field": fault.field or None,
        "message": fault.message,
        "fix": ADVICE[fault.code].fix,
    }


def _summary(check: FileCheck, lines: int, errors: int, warnings: int) -> Iterator[str]:
    if check.is_full:
        yield f"note: stopped after line {lines}: too many faults"
    if running := check.running:
        yield (
            f"note: no SPU joins {listed(running)}: what depends on SPUs and earlier topics there "
            "is not checked"
        )
    found = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    yield f"{found if errors or warnings else 'nothing found'}: {counted(check.events, 'event')}"
