"""Events and answers as JSON Lines: the contract of `spu-assigner simulate`.

One event or answer a line. Names, spelling and order of keys are fixed. Absent fields take their
defaults; anything else that differs from the contract is refused with a message that names the
field, what was found and what was expected.
Imports nothing beyond `core` and the standard library, for `simulate` answers in milliseconds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Any, Final, NoReturn, assert_never

from spu_assigner.core.errors import InvalidEventError
from spu_assigner.core.events import (
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
)
from spu_assigner.core.limits import (
    DEAD_LETTER_RAW_SIZE_MAX,
    MANUAL_FILE_SIZE_MAX,
    MESSAGE_SIZE_MAX,
    is_text,
)
from spu_assigner.core.records import Answer, Reason, ReplicaMap, RingEvent, TopicStatus
from spu_assigner.schemas.errors import DeadLetterCode, DecodeError, shortened

MANUAL_DEPTH_MAX: Final = 8  # well-formed manual lists are 4 deep; the core quotes what is not
QUOTE_LENGTH_MAX: Final = 80  # characters of a value shown in a message


def event_from_json(line: str | bytes) -> Event:
    """Read one event.

    Raises:
        DecodeError: BAD_EVENT, the line is no event of the contract.
    """
    members = _members(line)
    if "type" not in members:
        _bad(f"type is absent; expected one of {', '.join(_TYPES)}")
    type_name = members.pop("type")
    if not isinstance(type_name, str) or type_name not in _TYPES:
        _refuse("type", type_name, f"one of {', '.join(_TYPES)}")
    event_type, readers, required = _TYPES[type_name]
    for name in required:
        if name not in members:
            _bad(f"{name} is absent; a {type_name} needs {', '.join(required)}")
    values = {}
    for name, value in members.items():
        reader = readers.get(name)
        if reader is None:
            _bad(f"unknown field {_quoted(name)}; a {type_name} has {', '.join(readers)}")
        values[name] = reader(name, value)
    if values.get("replicas") is None and len(line) > MESSAGE_SIZE_MAX:
        _bad(f"the line has {len(line)} characters; at most {MESSAGE_SIZE_MAX} without replicas")
    try:
        return event_type(**values)
    except InvalidEventError as error:
        raise DecodeError(DeadLetterCode.BAD_EVENT, str(error)) from error


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


def _members(line: str | bytes) -> dict[str, Any]:
    """The members of the line's object, each name once."""
    if len(line) > MANUAL_FILE_SIZE_MAX:
        _bad(f"the line has {len(line)} characters; at most {MANUAL_FILE_SIZE_MAX} are read")
    try:
        text = line if isinstance(line, str) else line.decode("utf-8")
        value = _DECODER.decode(text)
    except UnicodeDecodeError as error:
        _bad(f"byte {error.start} is no UTF-8; expected one JSON object in UTF-8")
    except json.JSONDecodeError as error:
        if text.startswith("\ufeff"):
            _bad("the line begins with a byte order mark (BOM); expected one JSON object alone")
        _bad(f"no JSON at character {error.pos}: {error.msg}; expected one JSON object")
    except RecursionError:
        _bad("nested too deeply; expected one JSON object")
    except ValueError:
        _bad("a number has too many digits; expected a whole number of at most 4300")
    if not isinstance(value, dict):
        _bad(f"the line is {_quoted(value)}; expected one JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        _bad(f"field {_quoted(_first_twice(pairs))} is given more than once; expected it once")
    return members


def _first_twice(pairs: list[tuple[str, Any]]) -> str:
    """The first name that was there before. Cost: O(pairs), of which a line may hold a million."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    raise ValueError("no name is given twice")


def _not_a_number(constant: str) -> NoReturn:
    _bad(f"found {constant}; expected a whole number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        _not_a_number(text[:QUOTE_LENGTH_MAX])
    return number


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_not_a_number, parse_float=_finite
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
    return {_text(name, key): _text(f"{name}.{key}", text) for key, text in value.items()}


def _manual_or_null(name: str, value: object) -> object:
    """What is inside, the core judges: the asker gets an answer."""
    if value is None:
        return None
    if not isinstance(value, (list, dict)):
        _refuse(name, value, "a list, an object or null")
    if is_deeper_than(value, MANUAL_DEPTH_MAX):
        _bad(f"{name} is nested more than {MANUAL_DEPTH_MAX} deep; expected lists of SPU ids")
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

_NAMES: Final = {event_type: type_name for event_type, (type_name, _) in _READERS.items()}


def _dumps(line: dict[str, object]) -> str:
    return json.dumps(line, separators=(",", ":"))


def _quoted(value: object) -> str:
    match value:
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            text = json.dumps(value)
            if len(text) <= QUOTE_LENGTH_MAX:
                return text
            return f"{text[:QUOTE_LENGTH_MAX]}… ({len(text)} characters)"


def _refuse(name: str, value: object, expected: str) -> NoReturn:
    _bad(f"{name} is {_quoted(value)}; expected {expected}")


def _bad(message: str) -> NoReturn:
    raise DecodeError(DeadLetterCode.BAD_EVENT, message)
