"""Events and answers as JSON Lines: the contract of `spu-assigner simulate`.

One event or answer a line. Names, spelling and order of keys are those of the classes of the core.
Absent fields take their defaults; anything else that differs from the contract is refused with a
message that names the field, what was found and what was expected.
Imports nothing beyond `core` and the standard library, for `simulate` answers in milliseconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final, NoReturn, get_args

from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.events import Event
from spu_assigner.core.base.limits import DEAD_LETTER_RAW_SIZE_MAX, MESSAGE_SIZE_MAX
from spu_assigner.core.base.records import (
    Answer,
    Move,
    Reason,
    RecordedRing,
    ReplicaMap,
    RingChange,
    RingEvent,
    TopicStatus,
)
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.schemas.errors import LineError, LineFault, shortened
from spu_assigner.schemas.json_lines.json_object import (
    REASSIGNMENT,
    is_reassignment,
    members_of,
    quoted,
)
from spu_assigner.schemas.json_lines.kinds import FieldReader, members_and_required, reader_of

CONSTRAINTS: Final = reader_of(Constraints)


def event_from_json(line: str | bytes) -> Event:
    """Read one event.

    Raises:
        LineError: BAD_EVENT, the line is no event of the contract.
    """
    event = event_of_members(members_of(line), len(line), _raise)
    if event is None:
        raise ValueError("neither an event nor a fault")  # `_raise` does not return
    return event


def event_of_members(
    members: dict[str, Any], length: int, report: Callable[[LineError], None]
) -> Event | None:
    """The event of the object that a line of `length` holds; None once a fault was reported.

    Where `report` returns, it gets every fault, in the order in which they are looked for.
    """
    faults = 0

    def note(fault: LineFault, message: str, field: str) -> None:
        nonlocal faults
        faults += 1
        report(LineError(fault, message, field=field))

    type_name = members.get("type")
    if not isinstance(type_name, str) or type_name not in _TYPES:
        if is_reassignment(members):
            note(LineFault.NO_JSON, f"the line {REASSIGNMENT}; expected one event", "")
            return None
        is_there = "type" in members
        found = quoted(type_name) if is_there else "absent"
        fault = LineFault.UNKNOWN_TYPE if is_there else LineFault.ABSENT_FIELD
        note(fault, f"type is {found}; expected one of {', '.join(_TYPES)}", "type")
        return None
    event_type, readers, required = _TYPES[type_name]
    values = {name: _STAND_INS[name] for name in required}
    for name in required:
        if name not in members:
            said = f"{name} is absent; a {type_name} needs {', '.join(required)}"
            note(LineFault.ABSENT_FIELD, said, name)
    for name, value in members.items():
        if name in readers:
            before = faults
            read = readers[name](name, value, note)
            if faults == before:
                values[name] = read
        elif name != "type":
            said = f"unknown field {quoted(name)}; a {type_name} has {', '.join(readers)}"
            note(LineFault.UNKNOWN_FIELD, said, name)
    if values.get("replicas") is None and length > MESSAGE_SIZE_MAX:
        said = f"the line has {length} characters; at most {MESSAGE_SIZE_MAX} without replicas"
        note(LineFault.TOO_LONG, said, "")
    while True:
        try:
            event = event_type(**values)
        except InvalidEventError as error:
            note(LineFault.ILLEGAL_NAME, str(error), error.field)
            values[error.field] = _STAND_INS[error.field]
        else:
            return None if faults else event


def constraints_from_json(text: str | bytes) -> Constraints:
    """Read the constraints of a topic alone.

    Raises:
        LineError: BAD_EVENT, the text is no object of them.
    """

    def note(fault: LineFault, message: str, field: str) -> NoReturn:
        raise LineError(fault, message, field=field)

    read: Constraints = CONSTRAINTS("constraints", members_of(text), note)
    return read


def _raise(error: LineError) -> NoReturn:
    raise error


# Fields that a line does not have where they are null, or hold nothing.
_LEFT_OUT: Final = (
    *("occurred_at", "labels", "resources", "taints"),
    *("demand", "leader_demand", "constraints", "max_bytes", "band_percent", "band"),
)


def event_to_json(event: Event) -> str:
    """Write one event; `event_from_json` gives it back."""
    type_name = _NAMES[type(event)]
    line: dict[str, object] = {"type": type_name}
    for name in _TYPES[type_name][1]:
        value = getattr(event, name)
        if name not in _LEFT_OUT or (value is not None and value != ()):
            line[name] = value
    return _dumps(line)


def answer_to_json(answer: Answer, *, explain: bool = False) -> str:
    """Write one answer, with the contract's keys in the contract's order.

    With `explain` a map's line ends with its reason.
    """
    type_name, names = _ANSWERS[type(answer)]
    line: dict[str, object] = {"type": type_name}
    line |= {name: getattr(answer, name) for name in names}
    if isinstance(answer, TopicStatus) and answer.moves is not None:
        line["moves"] = answer.moves
    if isinstance(answer, RingEvent) and answer.resource is not None:
        line["resource"] = answer.resource
    if isinstance(answer, RingEvent) and answer.change in _JOINS and answer.message is not None:
        line["message"] = answer.message  # what the join dropped
    if isinstance(answer, ReplicaMap) and explain:
        line["reason"] = answer.reason
    return _dumps(line)


_JOINS: Final = (RingChange.JOINED, RingChange.UPDATED)
_ANSWERS: Final[dict[type[Answer], tuple[str, list[str]]]] = {
    ReplicaMap: (
        "replica_map",
        ["cluster_id", "topic", "revision", "policy", "replicas", "cores", "chain_index", "cause"],
    ),
    TopicStatus: (
        "topic_status",
        ["cluster_id", "topic", "status", "code", "message", "replicas", "cause"],
    ),
    RingEvent: ("ring_event", ["cluster_id", "spu_id", "change", "code", "ring_size", "cause"]),
}


def dead_letter_json(line: int, code: str, message: str, raw: str | bytes) -> str:
    """Write the dead letter of line `line` (from 1); of the raw line the first 64 KiB are kept."""
    if isinstance(raw, bytes):
        raw = raw[:DEAD_LETTER_RAW_SIZE_MAX].decode("utf-8", "replace")
    letter = {"type": "dead_letter", "line": line, "code": str(code), "message": shortened(message)}
    return _dumps({**letter, "raw": raw[:DEAD_LETTER_RAW_SIZE_MAX]})


def _plain(value: Any) -> object:
    """What JSON has no form of, as it can write it."""
    if isinstance(value, ReplicaLists):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    members = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Reason | RecordedRing | Move):
        return members
    return {name: held for name, held in members.items() if held is not None and held != ()}


_dumps: Final = json.JSONEncoder(separators=(",", ":"), default=_plain).encode


_NAMES: Final[dict[type[Event], str]] = {  # `SpuJoined` is "spu_joined"
    event_type: re.sub("(?<=[a-z])(?=[A-Z])", "_", event_type.__name__).lower()
    for event_type in get_args(Event)
}
_TYPES: Final[dict[str, tuple[Any, dict[str, FieldReader], tuple[str, ...]]]] = {
    name: (event_type, *members_and_required(event_type)) for event_type, name in _NAMES.items()
}

# What stands for a required field that is absent or wrong while other faults are looked for.
_STAND_INS: Final[dict[str, Any]] = {
    "event_id": "e",
    "cluster_id": "c",
    "topic": "t",
    "spu_id": 0,
    "partitions": 1,
    "replication_factor": 1,
    "max_moves": 0,
    "replicas": (),
    "demand": {},
    "constraints": Constraints(),
}
