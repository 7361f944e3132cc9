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
from dataclasses import MISSING, dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final, NoReturn, get_args, get_type_hints

from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.events import Event
from spu_assigner.core.base.limits import DEAD_LETTER_RAW_SIZE_MAX, MESSAGE_SIZE_MAX, is_text
from spu_assigner.core.base.records import Answer, Move, Reason, ReplicaMap, RingEvent, TopicStatus
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.schemas.errors import LineError, LineFault, shortened
from spu_assigner.schemas.json_lines.json_object import members_of, quoted

LABEL_FAULTS_MAX: Final = 100  # of one line that are reported; more help nobody
MANUAL_DEPTH_MAX: Final = 8  # well-formed manual lists are 4 deep; the core quotes what is not

_Note = Callable[[LineFault, str, str], None]  # takes a fault, its message, and the field


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
        is_there = "type" in members
        found = quoted(type_name) if is_there else "absent"
        fault = LineFault.UNKNOWN_TYPE if is_there else LineFault.ABSENT_FIELD
        note(fault, f"type is {found}; expected one of {', '.join(_TYPES)}", "type")
        return None
    event_type, kinds, required = _TYPES[type_name]
    values = {name: _STAND_INS[name] for name in required}
    for name in required:
        if name not in members:
            said = f"{name} is absent; a {type_name} needs {', '.join(required)}"
            note(LineFault.ABSENT_FIELD, said, name)
    for name, value in members.items():
        if name in kinds:
            before = faults
            read = kinds[name].read(name, value, note)
            if faults == before:
                values[name] = read
        elif name != "type":
            said = f"unknown field {quoted(name)}; a {type_name} has {', '.join(kinds)}"
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


def _raise(error: LineError) -> NoReturn:
    raise error


# Fields that a line does not have where they are null.
_LEFT_OUT: Final = (
    "occurred_at",
    "labels",
    "resources",
    "demand",
    "leader_demand",
    "max_bytes",
    "band_percent",
)


def event_to_json(event: Event) -> str:
    """Write one event; `event_from_json` gives it back."""
    type_name = _NAMES[type(event)]
    line: dict[str, object] = {"type": type_name}
    for name in _TYPES[type_name][1]:
        value = getattr(event, name)
        if value is not None or name not in _LEFT_OUT:
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
    if isinstance(answer, ReplicaMap) and explain:
        line["reason"] = answer.reason
    return _dumps(line)


_ANSWERS: Final[dict[type[Answer], tuple[str, tuple[str, ...]]]] = {
    ReplicaMap: (
        "replica_map",
        (
            "cluster_id",
            "topic",
            "revision",
            "policy",
            "replicas",
            "cores",
            "chain_index",
            "cause",
        ),
    ),
    TopicStatus: (
        "topic_status",
        ("cluster_id", "topic", "status", "code", "message", "replicas", "cause"),
    ),
    RingEvent: (
        "ring_event",
        ("cluster_id", "spu_id", "change", "code", "ring_size", "cause"),
    ),
}


def is_deeper_than(value: object, depth: int) -> bool:
    """Whether lists and objects of JSON are nested more than `depth` deep. Cost: O(values)."""
    level: list[object] = [value]
    for _ in range(depth):
        level = [
            child
            for parent in level
            if isinstance(parent, (list, dict))
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
    return bool(level)


def dead_letter_json(line: int, code: str, message: str, raw: str | bytes) -> str:
    """Write the dead letter of line `line` (from 1); of the raw line the first 64 KiB are kept."""
    if isinstance(raw, bytes):
        raw = raw[:DEAD_LETTER_RAW_SIZE_MAX].decode("utf-8", "replace")
    return _dumps(
        {
            "type": "dead_letter",
            "line": line,
            "code": str(code),
            "message": shortened(message),
            "raw": raw[:DEAD_LETTER_RAW_SIZE_MAX],
        }
    )


def _plain(value: object) -> object:
    """What JSON has no form of, as it can write it."""
    match value:
        case ReplicaLists():
            return value.tolist()
        case Mapping():
            return dict(value)
        case Reason() | Move():
            line = {field.name: getattr(value, field.name) for field in fields(value)}
            if isinstance(value, Reason):  # In hexadecimal: many readers of JSON keep 53 bits.
                line["ring_fingerprint"] = f"{value.ring_fingerprint:016x}"
            return line
        case _:
            raise TypeError(f"found {type(value).__name__}; expected what JSON can hold")


_dumps: Final = json.JSONEncoder(separators=(",", ":"), default=_plain).encode


# What a field may hold, by the type that its class names.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    expected: str
    types: tuple[type, ...]  # of a value of JSON
    finish: Callable[[str, Any, _Note], Any] | None = None  # looks at what is inside

    def read(self, name: str, value: object, note: _Note) -> Any:
        """The value as the event has it; a fault is noted."""
        if type(value) not in self.types:  # A bool is an int to Python, not to the contract.
            note(
                LineFault.WRONG_VALUE, f"{name} is {quoted(value)}; expected {self.expected}", name
            )
        elif self.finish is not None and value is not None:
            return self.finish(name, value, note)
        return value


def _check_text(name: str, text: str, note: _Note) -> str:
    if not is_text(text):
        said = (
            f"{name} is {quoted(text)}; expected a text in Unicode; half a surrogate pair is none"
        )
        note(LineFault.WRONG_VALUE, said, name)
    return text


def _check_labels(name: str, labels: dict[str, Any], note: _Note) -> dict[str, Any]:
    left = LABEL_FAULTS_MAX

    def note_some(fault: LineFault, message: str, field: str) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            note(fault, message, field)

    for key, text in labels.items():
        _check_text(name, key, note_some)
        _TEXT.read(f"{name}.{key}", text, note_some)
    return labels


def _check_amounts(name: str, amounts: dict[str, Any], note: _Note) -> dict[str, Any]:
    """Whole numbers; whether they can be amounts the core judges."""
    left = LABEL_FAULTS_MAX
    for key, amount in amounts.items():
        if type(amount) is not int or not is_text(key):
            left -= 1
            field = f"{name}.{key}" if is_text(key) else name
            said = f"{name}.{quoted(key)} is {quoted(amount)}; expected a whole number"
            if left >= 0:
                note(LineFault.WRONG_VALUE, said, field)
    return amounts


def _adopted_lists(name: str, lists: list[Any], note: _Note) -> tuple[tuple[int, ...], ...]:
    """Lists of numbers; whether these are SPU ids the core judges."""
    for partition, replicas in enumerate(lists):
        if type(replicas) is not list or any(type(spu_id) is not int for spu_id in replicas):
            said = f"{name}[{partition}] is {quoted(replicas)}; expected a list of SPU ids"
            note(LineFault.WRONG_VALUE, said, name)
            return ()
    return tuple(map(tuple, lists))


def _check_depth(name: str, lists: object, note: _Note) -> object:
    """Deeper down the core judges: the requester gets an answer."""
    if is_deeper_than(lists, MANUAL_DEPTH_MAX):
        said = f"{name} is nested more than {MANUAL_DEPTH_MAX} deep; expected lists of SPU ids"
        note(LineFault.TOO_DEEP, said, name)
    return lists


def _choice(words: type[StrEnum]) -> _Kind:
    by_value = {word.value: word for word in words}
    expected = f"one of {', '.join(by_value)}"

    def choose(name: str, value: str, note: _Note) -> StrEnum | None:
        if value not in by_value:
            said = f"{name} is {quoted(value)}; expected {expected}"
            note(LineFault.WRONG_VALUE, said, name)
        return by_value.get(value)

    return _Kind(expected=expected, types=(str,), finish=choose)


_TEXT: Final = _Kind(expected="a text", types=(str,), finish=_check_text)
_KINDS: Final[dict[Any, _Kind]] = {
    int: _Kind(expected="a whole number", types=(int,)),
    bool: _Kind(expected="true or false", types=(bool,)),
    str: _TEXT,
    Mapping[str, str]: _Kind(
        expected="an object of texts, or null", types=(dict,), finish=_check_labels
    ),
    Mapping[str, int]: _Kind(
        expected="an object of whole numbers", types=(dict,), finish=_check_amounts
    ),
    tuple[tuple[int, ...], ...]: _Kind(
        expected="a list of lists of SPU ids", types=(list,), finish=_adopted_lists
    ),
    Any: _Kind(expected="a list, an object or null", types=(list, dict), finish=_check_depth),
}


def _kind_of(hint: Any) -> _Kind:
    """The kind of a field by its type, or its type or None."""
    held, *others = get_args(hint) if type(None) in get_args(hint) else (hint,)
    kind = _KINDS.get(held) or _choice(held)
    return replace(kind, types=(*kind.types, *others))


def _type_of(event_type: Any) -> tuple[Callable[..., Event], dict[str, _Kind], tuple[str, ...]]:
    hints = get_type_hints(event_type)
    return (
        event_type,
        {field.name: _kind_of(hints[field.name]) for field in fields(event_type)},
        tuple(field.name for field in fields(event_type) if field.default is MISSING),
    )


_NAMES: Final[dict[type[Event], str]] = {  # `SpuJoined` is "spu_joined"
    event_type: re.sub("(?<=[a-z])(?=[A-Z])", "_", event_type.__name__).lower()
    for event_type in get_args(Event)
}
_TYPES: Final = {name: _type_of(event_type) for event_type, name in _NAMES.items()}

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
}
