"""Events and answers as JSON Lines: the contract of `spu-assigner simulate`.

One event or answer a line. Names, spelling and order of keys are fixed. Absent fields take their
defaults; anything else that differs from the contract is refused with a message that names the
field, what was found and what was expected.
Imports nothing beyond `core` and the standard library, for `simulate` answers in milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Any, Final, NoReturn, assert_never

from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.events import (
    ClusterRebalance,
    Event,
    LeaveMode,
    OnShortage,
    Policy,
    SpuJoined,
    SpuLeft,
    TopicCreate,
    TopicDelete,
    TopicGrow,
    TopicRelease,
)
from spu_assigner.core.base.limits import (
    DEAD_LETTER_RAW_SIZE_MAX,
    MESSAGE_SIZE_MAX,
    is_text,
)
from spu_assigner.core.base.records import Answer, Reason, ReplicaMap, RingEvent, TopicStatus
from spu_assigner.schemas.errors import LineError, LineFault, shortened
from spu_assigner.schemas.json_lines.json_object import members_of, quoted

LABEL_FAULTS_MAX: Final = 100  # of one line that are told; who sends more mends none
MANUAL_DEPTH_MAX: Final = 8  # well-formed manual lists are 4 deep; the core quotes what is not


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
    members: dict[str, Any], length: int, tell: Callable[[LineError], None]
) -> Event | None:
    """The event of the object that a line of `length` holds; None once a fault was told.

    Who lets `tell` return is told every fault, in the order in which they are looked for.
    """
    faults = 0

    def note(error: LineError) -> None:
        nonlocal faults
        for each in (error, *error.others):
            faults += 1
            tell(each)

    type_name = members.get("type")
    if not isinstance(type_name, str) or type_name not in _TYPES:
        note(_type_error(members))
        return None
    event_type, readers, required = _TYPES[type_name]
    values: dict[str, Any] = {}
    for name in required:
        if name not in members:
            said = f"{name} is absent; a {type_name} needs {', '.join(required)}"
            note(LineError(LineFault.ABSENT_FIELD, said, field=name))
            values[name] = _STAND_INS[name]
    for name, value in members.items():
        if name == "type":
            continue
        reader = readers.get(name)
        try:
            if reader is None:
                said = f"unknown field {quoted(name)}; a {type_name} has {', '.join(readers)}"
                raise LineError(LineFault.UNKNOWN_FIELD, said, field=name)
            values[name] = reader(name, value)
        except LineError as error:
            note(error)
            if name in required:
                values[name] = _STAND_INS[name]
    if values.get("replicas") is None and length > MESSAGE_SIZE_MAX:
        said = f"the line has {length} characters; at most {MESSAGE_SIZE_MAX} without replicas"
        note(LineError(LineFault.TOO_LONG, said))
    while True:
        try:
            event = event_type(**values)
        except InvalidEventError as error:
            note(LineError(LineFault.ILLEGAL_NAME, str(error), field=error.field))
            values[error.field] = _STAND_INS[error.field]
        else:
            return None if faults else event


def _type_error(members: dict[str, Any]) -> LineError:
    if "type" not in members:
        said = f"type is absent; expected one of {', '.join(_TYPES)}"
        return LineError(LineFault.ABSENT_FIELD, said, field="type")
    said = f"type is {quoted(members['type'])}; expected one of {', '.join(_TYPES)}"
    return LineError(LineFault.UNKNOWN_TYPE, said, field="type")


def _raise(error: LineError) -> NoReturn:
    raise error


def event_to_json(event: Event) -> str:
    """Write one event; `event_from_json` gives it back."""
    line: dict[str, object] = {"type": _NAMES[type(event)]}
    for name in _TYPES[_NAMES[type(event)]][1]:
        value = getattr(event, name)
        if name == "labels" and value is not None:
            value = dict(value)
        if value is not None or name not in ("occurred_at", "labels"):
            line[name] = value
    return _dumps(line)


def answer_to_json(answer: Answer, *, explain: bool = False) -> str:
    """Write one answer, with the contract's keys in the contract's order.

    With `explain` a map's line ends with its reason.
    """
    line: dict[str, object]
    match answer:
        case ReplicaMap():
            line = {
                "type": "replica_map",
                "cluster_id": answer.cluster_id,
                "topic": answer.topic,
                "revision": answer.revision,
                "policy": answer.policy,
                "replicas": None if answer.replicas is None else answer.replicas.tolist(),
                "cores": None if answer.cores is None else answer.cores.tolist(),
                "chain_index": answer.chain_index,
                "cause": answer.cause,
            }
            if explain:
                line["reason"] = None if answer.reason is None else _reason(answer.reason)
        case TopicStatus():
            line = {
                "type": "topic_status",
                "cluster_id": answer.cluster_id,
                "topic": answer.topic,
                "status": answer.status,
                "code": answer.code,
                "message": answer.message,
                "replicas": None if answer.replicas is None else answer.replicas.tolist(),
                "cause": answer.cause,
            }
            if answer.moves is not None:
                line["moves"] = answer.moves
        case RingEvent():
            line = {
                "type": "ring_event",
                "cluster_id": answer.cluster_id,
                "spu_id": answer.spu_id,
                "change": answer.change,
                "code": answer.code,
                "ring_size": answer.ring_size,
                "cause": answer.cause,
            }
        case _:
            assert_never(answer)
    return _dumps(line)


def _reason(reason: Reason) -> dict[str, object]:
    """Its fields in their order; the fingerprint in hexadecimal, for JSON readers lose 64 bits."""
    line = {field.name: getattr(reason, field.name) for field in fields(reason)}
    line["ring_fingerprint"] = f"{reason.ring_fingerprint:016x}"
    line["moves"] = [
        {"partition": move.partition, "gone": move.gone, "taken": move.taken}
        for move in reason.moves
    ]
    return line


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


# Readers of one field: each takes its name and what was found.


def _integer(name: str, value: object) -> int:
    if type(value) is not int:  # A bool is an int to Python, not to the contract.
        _refuse(name, value, "a whole number")
    return value


def _integer_or_null(name: str, value: object) -> int | None:
    return None if value is None else _integer(name, value)


def _boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        _refuse(name, value, "true or false")
    return value


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        _refuse(name, value, "a text")
    if not is_text(value):
        _refuse(name, value, "a text in Unicode; half a surrogate pair is none")
    return value


def _text_or_null(name: str, value: object) -> str | None:
    return None if value is None else _text(name, value)


def _labels_or_null(name: str, value: object) -> Mapping[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        _refuse(name, value, "an object of texts, or null")
    labels: dict[str, str] = {}
    errors: list[LineError] = []
    for key, text in value.items():
        try:
            labels[_text(name, key)] = _text(f"{name}.{key}", text)
        except LineError as error:
            errors.append(error)
            if len(errors) == LABEL_FAULTS_MAX:
                break
    if errors:
        raise errors[0].with_others(errors[1:])
    return labels


def _manual_or_null(name: str, value: object) -> object:
    """What is inside, the core judges: the asker gets an answer."""
    if value is None:
        return None
    if not isinstance(value, (list, dict)):
        _refuse(name, value, "a list, an object or null")
    if is_deeper_than(value, MANUAL_DEPTH_MAX):
        said = f"{name} is nested more than {MANUAL_DEPTH_MAX} deep; expected lists of SPU ids"
        raise LineError(LineFault.TOO_DEEP, said, field=name)
    return value


def _choice(enum: type[StrEnum]) -> Callable[[str, object], StrEnum]:
    words = {word.value: word for word in enum}

    def read(name: str, value: object) -> StrEnum:
        if not isinstance(value, str) or value not in words:
            _refuse(name, value, f"one of {', '.join(words)}")
        return words[value]

    return read


def _policy_or_null(name: str, value: object) -> StrEnum | None:
    return None if value is None else _POLICY(name, value)


_POLICY: Final = _choice(Policy)

_Reader = Callable[[str, Any], object]

_COMMON: Final[dict[str, _Reader]] = {
    "event_id": _text,
    "cluster_id": _text,
    "occurred_at": _integer_or_null,
}

_READERS: Final[dict[type[Event], tuple[str, dict[str, _Reader]]]] = {
    SpuJoined: (
        "spu_joined",
        {
            "spu_id": _integer,
            "rack": _text_or_null,
            "cores": _integer,
            "capacity": _integer_or_null,
            "labels": _labels_or_null,
        },
    ),
    SpuLeft: ("spu_left", {"spu_id": _integer, "mode": _choice(LeaveMode)}),
    TopicCreate: (
        "topic_create",
        {
            "topic": _text,
            "partitions": _integer,
            "replication_factor": _integer,
            "policy": _policy_or_null,
            "ignore_rack": _boolean,
            "start_index": _integer_or_null,
            "shift": _integer_or_null,
            "replicas": _manual_or_null,
            "validate_only": _boolean,
            "on_shortage": _choice(OnShortage),
        },
    ),
    TopicDelete: ("topic_delete", {"topic": _text}),
    TopicRelease: ("topic_release", {"topic": _text}),
    TopicGrow: ("topic_grow", {"topic": _text, "partitions": _integer}),
    ClusterRebalance: ("cluster_rebalance", {"max_moves": _integer}),
}

_TYPES: Final[dict[str, tuple[Callable[..., Event], dict[str, _Reader], tuple[str, ...]]]] = {
    type_name: (
        event_type,
        _COMMON | readers,
        tuple(
            field.name
            for field in fields(event_type)
            if field.default is MISSING and field.default_factory is MISSING
        ),
    )
    for event_type, (type_name, readers) in _READERS.items()
}

# What stands for a required field that is absent or wrong while other faults are looked for.
_STAND_INS: Final[dict[str, object]] = {
    "event_id": "e",
    "cluster_id": "c",
    "topic": "t",
    "spu_id": 0,
    "partitions": 1,
    "max_moves": 0,
}

_NAMES: Final = {event_type: type_name for event_type, (type_name, _) in _READERS.items()}


def _dumps(line: dict[str, object]) -> str:
    return json.dumps(line, separators=(",", ":"))


def _refuse(name: str, value: object, expected: str) -> NoReturn:
    said = f"{name} is {quoted(value)}; expected {expected}"
    raise LineError(LineFault.WRONG_VALUE, said, field=name)
