"""A catalogue of hostile input: what may come, why somebody would send it, and what must follow.

Each has a name of its own, which ends with the reason why it is here, and the one outcome that the
product promises. Nothing is random.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.limits import (
    MANUAL_FILE_SIZE_MAX,
    MANUAL_MESSAGE_SIZE_MAX,
    MESSAGE_SIZE_MAX,
)
from spu_assigner.schemas.avro.writing import array_bytes, long_bytes, text_bytes
from spu_assigner.schemas.errors import DeadLetterCode
from spu_assigner.schemas.messages.codec import encode_event, encode_record
from spu_assigner.schemas.messages.wire import DeadLetter, Wire
from support.events.builders import Events

SPU_EVENTS: Final = "spu-events"
TOPIC_EVENTS: Final = "topic-events"
CLUSTER: Final = "c"  # whose requests are refused: it has no SPU
FAR_FUTURE_MS: Final = 32_503_680_000_000  # the year 3000


@dataclass(frozen=True, kw_only=True)
class Poison:
    """One message. It has a dead letter's code, or a rejection's; with neither it is answered."""

    name: str
    value: bytes | None
    key: bytes | None = CLUSTER.encode()
    topic: str = TOPIC_EVENTS
    letter: DeadLetterCode | None = None
    rejection: Code | None = None
    says: str = ""  # a part of the dead letter's message
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None  # as the producer claims


# Bytes of messages, field by field.

_COMMON: Final = {
    "event_id": text_bytes("e"),
    "cluster_id": text_bytes(CLUSTER),
    "occurred_at": b"\x00",
}
_ONE: Final = long_bytes(1)
_FIELDS: Final[dict[str, dict[str, bytes]]] = {
    "create": {
        **_COMMON,
        "topic": text_bytes("t"),
        **dict.fromkeys(("partitions", "replication_factor"), _ONE),
        **dict.fromkeys(("policy", "ignore_rack", "start_index", "shift", "replicas"), b"\x00"),
        **dict.fromkeys(("validate_only", "on_shortage"), b"\x00"),
        **dict.fromkeys(("demand", "leader_demand", "constraints"), b"\x00"),
    },
    "join": {
        **_COMMON,
        **dict.fromkeys(("spu_id", "rack"), b"\x00"),
        "cores": _ONE,
        **dict.fromkeys(("capacity", "labels", "resources", "taints"), b"\x00"),
    },
    "rebalance": {
        **_COMMON,
        "max_moves": _ONE,
        **dict.fromkeys(("max_bytes", "band_percent", "band"), b"\x00"),
    },
}
_HEADERS: Final = {kind: encode_event(getattr(Events(), kind)())[:5] for kind in _FIELDS}
HUGE: Final = long_bytes(2**40)
_GIVEN: Final = b"\x02"  # the branch of a union that is not null
_FLUVIO, _KAFKA, _BALANCED = b"\x02\x00", b"\x02\x02", b"\x02\x08"  # policies


def message(kind: str, **changed: bytes) -> bytes:
    return _HEADERS[kind] + b"".join((_FIELDS[kind] | changed).values())


create, join = partial(message, "create"), partial(message, "join")


def lists(*entries: tuple[int, list[int]]) -> bytes:
    """Manual lists as the field `replicas`: (id, SPUs) each."""
    return _GIVEN + array_bytes(
        [long_bytes(i) + array_bytes([long_bytes(each) for each in ids]) for i, ids in entries]
    )


def _taints(*entries: tuple[str, str]) -> bytes:
    """Keys and values, against new replicas."""
    return array_bytes([text_bytes(key) + text_bytes(value) + b"\x00" for key, value in entries])


def _amounts(*pairs: tuple[str, int]) -> bytes:
    return _GIVEN + array_bytes([text_bytes(name) + long_bytes(number) for name, number in pairs])


def _constraints(rule: str, *entries: bytes) -> bytes:
    rules = (field.name for field in fields(Constraints))
    return _GIVEN + b"".join(array_bytes(entries if each == rule else []) for each in rules)


# Messages that are no event: the code, a part of what is said, the name, the value.

C: Final = DeadLetterCode
_BAD: Final = C.UNDECODABLE
_FINGERPRINT: Final = encode_event(Events().create(), wire=Wire.SINGLE_OBJECT)[2:10]
_REVERSED: Final = b"\xc3\x01" + _FINGERPRINT[::-1] + b"x"
_LETTER: Final = encode_record(
    DeadLetter.of_value(
        b"x",
        source_topic="t",
        source_partition=0,
        source_offset=1,
        source_timestamp_ms=2,
        code=C.UNDECODABLE,
        message="m",
    )
)
_LONG_GROW: Final = encode_event(Events().grow()) + bytes(MESSAGE_SIZE_MAX)
_TOMORROW: Final = _GIVEN + long_bytes(len(Policy))
_LONG_LISTS: Final = _GIVEN + array_bytes([b"\x00\x00"] * (MANUAL_MESSAGE_SIZE_MAX // 2))
_FRAMES: Final[list[tuple[DeadLetterCode, str, str, bytes | None]]] = [
    (C.NULL_VALUE, "is null", "null value: tombstones belong to compacted topics", None),
    (C.TRAILING_BYTES, "1 bytes follow", "a byte too many: often taken", create() + b"\x00"),
    (C.WRONG_TYPE, "that of SpuJoined here", "the other topic's event: a wrong topic", join()),
    (C.WRONG_TYPE, "that of DeadLetter here", "the job's own dead letter: a loop", _LETTER),
    (C.UNKNOWN_SCHEMA, "0" * 16, "an unknown fingerprint: another schema", b"\xc3\x01" + bytes(20)),
    (C.UNKNOWN_SCHEMA, "not in the registry", "a fingerprint reversed: as a number", _REVERSED),
    (_BAD, "with nothing", "empty value: nothing to read a header from", b""),
    (_BAD, "JSON, or a text like it", "JSON: a producer without Avro", b'{"type":"topic_create"}'),
    (_BAD, "with 00000000", "a short frame: cut in the schema id", bytes(4)),
    (_BAD, "begin with 4f626a01", "a container with a recursive schema", b"Obj\x01" * 9),
    (_BAD, "end inside a value", "half a body: cut in the body", create()[:-3]),
    (C.TOO_LARGE, "at most 65536", "a grow of over 64 KiB: no event without lists is", _LONG_GROW),
]

# Creates of which one field is wrong, likewise; the cluster's name is the key, too.
_BODIES: Final[list[tuple[DeadLetterCode, str, str, str, bytes]]] = [
    (_BAD, "a length is 63", "a text beyond the end: a slice is shorter", "event_id", b"\x7ee"),
    (_BAD, "is 1099511627776", "a text of 2^40 bytes: allocated if believed", "event_id", HUGE),
    (_BAD, "a length is -1", "a text of length -1: a slice goes backwards", "event_id", b"\x01"),
    (_BAD, "no UTF-8", "no UTF-8: half a letter", "event_id", b"\x04\xc3\x28"),
    (_BAD, "int is 2147483648", "a long in an int: often taken", "partitions", long_bytes(2**31)),
    (_BAD, "more than 10 bytes", "a varint of over 64 bits", "partitions", b"\x80" * 10 + b"\x00"),
    (_BAD, "branch is 2", "a union's branch beyond: out of range", "occurred_at", long_bytes(2)),
    (_BAD, f"index is {len(Policy)}", "a policy of tomorrow: beyond", "policy", _TOMORROW),
    (_BAD, "index is -1", "a negative enum index: from the end", "on_shortage", b"\x01"),
    (_BAD, "boolean is 2", "a boolean of 2: Avro libraries take it", "ignore_rack", b"\x02"),
    (_BAD, "1099511627776 items", "a block of 2^40 items: memory", "replicas", b"\x02" + HUGE),
    (_BAD, "bytes; 5 are left", "a block of 2^40 bytes: too long", "replicas", b"\x02\x01" + HUGE),
    (_BAD, "a block has -1 bytes", "a block of -1 bytes: endless", "replicas", b"\x02\x01\x01"),
    (_BAD, "size says", "a block of wrong size", "replicas", b"\x02\x01\x02" + bytes(3)),
    (_BAD, "", "a block that never ends: no end", "replicas", b"\x02\x02\x00\x02\x06"),
    (C.TOO_LARGE, "1048576 for", "a create of over 1 MiB: lists", "replicas", _LONG_LISTS),
    *(
        (C.INVALID_EVENT, f"{field} is", f"{field} {what}", field, text_bytes(text))
        for field, what, text in (
            ("event_id", "of 64 KiB: remembered", "e" * MESSAGE_SIZE_MAX),
            ("event_id", "of 257 characters: one too many", "e" * 257),
            ("topic", "with a slash: the key of its map names another cluster", "a/b"),
            ("topic", "with an escape sequence: it clears a terminal", "\x1b[2J"),
            ("topic", "of 250 characters: one too many", "t" * 250),
            ("topic", "of 60,000 characters: not to be quoted whole", "t" * 60_000),
            ("cluster_id", "with a slash: its key would be that of a topic", "c/t"),
            ("cluster_id", "that is empty: nothing to answer under", ""),
        )
    ),
]
_LABELS: Final = _GIVEN + b"\x04" + (text_bytes("a") + text_bytes("b")) * 2 + b"\x00"
_LONG_LABEL: Final = b"\x02\x02" + text_bytes("a") + text_bytes("x" * MESSAGE_SIZE_MAX) + b"\x00"
_JOINS: Final[list[tuple[DeadLetterCode, str, str, str, bytes]]] = [
    (_BAD, "twice", "a label twice: two values", "labels", _LABELS),
    (C.TOO_LARGE, "at most 65536", "a join of over 64 KiB: labels", "labels", _LONG_LABEL),
]
_KEYS: Final[list[tuple[str, str, bytes | None]]] = [
    ("the message has no key", "no key: state is kept by key", None),
    ("b'c2'", "another cluster's key: it would reach another shard's state", b"c2"),
    (r"c\x00", "a key with NUL: C ends there", b"c\x00"),
    (r"\xff", "a key of no UTF-8: keys are texts", b"\xff"),
    ("the key is", "a key of 100 kB: it would become the dead letter's", b"k" * 100_000),
]


def _dead(
    letter: DeadLetterCode, says: str, name: str, value: bytes | None, **given: Any
) -> Poison:
    return Poison(name=name, value=value, letter=letter, says=says, **given)


_DEAD: Final = [
    *(_dead(*frame) for frame in _FRAMES),
    *(
        _dead(
            *(letter, says, name, create(**{field: raw})),
            key=raw[1:] if field == "cluster_id" else CLUSTER.encode(),
        )
        for letter, says, name, field, raw in _BODIES
    ),
    *(
        _dead(letter, says, name, join(**{field: raw}), topic=SPU_EVENTS)
        for letter, says, name, field, raw in _JOINS
    ),
    _dead(C.KEY_MISSING, "no key", "no key and no value: nothing at all", None, key=None),
    *(
        _dead(C.KEY_MISSING if key is None else C.KEY_MISMATCH, says, name, create(), key=key)
        for says, name, key in _KEYS
    ),
]


# Events that decode and cannot be met; the event id is the poison's name.


def _refused(code: Code, name: str, kind: str = "create", **changed: bytes) -> Poison:
    value = message(kind, **{"event_id": text_bytes(name), **changed})
    topic = SPU_EVENTS if kind == "join" else TOPIC_EVENTS
    return Poison(name=name, value=value, rejection=code, topic=topic)


_ENDS: Final = (0, -1, 2**31 - 1, -(2**31))
_BELOW: Final = (-1, -(2**31))
_LAST: Final = _GIVEN + long_bytes(2**31 - 1)
_STARTED: Final = {"policy": _KAFKA, "start_index": b"\x02\x00"}
_NUMBERS: Final[list[tuple[str, str, Code, Iterable[int]]]] = [
    ("create", "partitions", Code.INVALID_PARTITIONS, (*_ENDS, 100_001)),
    ("create", "replication_factor", Code.INVALID_REPLICATION_FACTOR, (*_ENDS, 33)),
    ("create", "start_index", Code.INVALID_START_INDEX, _BELOW),
    ("join", "spu_id", Code.INVALID_SPU_ID, _BELOW),
    ("join", "cores", Code.INVALID_CORES, (*_ENDS, 1_025)),
    ("join", "capacity", Code.INVALID_CAPACITY, _BELOW),
    ("rebalance", "max_moves", Code.INVALID_MAX_MOVES, _BELOW),
    ("rebalance", "max_bytes", Code.INVALID_MAX_BYTES, (-1, -(2**63), 2**53, 2**63 - 1)),
    ("rebalance", "band_percent", Code.INVALID_BAND_PERCENT, (*_BELOW, 1_001)),
    ("rebalance", "band", Code.INVALID_BAND, (*_BELOW, 2)),
]
_NOBODY: Final = Code.INSUFFICIENT_SPUS  # what a sound create is answered
_NINE_BYTES: Final = b"\x82" + b"\x80" * 7 + b"\x00"
_FIELD_VALUES: Final[list[tuple[Code, str, dict[str, bytes]]]] = [
    (Code.INVALID_SHIFT, "a shift of -1", {**_STARTED, "shift": b"\x02\x01"}),
    (_NOBODY, "the largest start and shift", {**_STARTED, "start_index": _LAST, "shift": _LAST}),
    (_NOBODY, "a time of 64 bits: no date", {"occurred_at": _GIVEN + long_bytes(2**63 - 1)}),
    (_NOBODY, "an event id of \x1b[2J 🚀 \x00 \u202e: no log prints it as it is", {}),
    (_NOBODY, "1 partition in nine bytes: Avro allows it", {"partitions": _NINE_BYTES}),
    (Code.INVALID_DEMAND, "a demand of -1: below 0", {"demand": _amounts(("disk", -1))}),
    (Code.UNKNOWN_RESOURCE, "a demand that no SPU has", {"demand": _amounts(("disk", 1))}),
]
_A: Final = text_bytes("a")
_RULES: Final[list[tuple[str, str, bytes, list[bytes]]]] = [
    ("of another policy: passed over", "require", _KAFKA, [_A]),
    ("of 60,000 conditions: no end", "require", _BALANCED, [text_bytes("a," * 30_000 + "a")]),
    ("of weight -2^31: over all others", "prefer", _BALANCED, [_A + long_bytes(-(2**31))]),
    ("of a level twice: which one holds", "spread", _BALANCED, [_A + b"\x00\x00"] * 2),
    ("of a topic of tomorrow", "together_with", _BALANCED, [text_bytes("u")]),
]
_17_TAINTS: Final = _taints(*((f"k{number}", "") for number in range(17)))
_DESCRIBED: Final[list[tuple[Code, str, str, bytes]]] = [
    (Code.INVALID_TAINTS, "17 taints: one too many", "taints", _17_TAINTS),
    (Code.INVALID_TAINTS, "a taint twice: two values", "taints", _taints(("k", "a"), ("k", "b"))),
    (Code.INVALID_RESOURCES, "resources of -1: below 0", "resources", _amounts(("disk", -1))),
    (Code.INVALID_RACK, "a rack without a name: not the same as none", "rack", b"\x02\x00"),
]
_LISTS: Final[list[tuple[Code, str, list[tuple[int, list[int]]]]]] = [
    (Code.INVALID_PARTITIONS, "100,001 lists: one too many", [(n, []) for n in range(100_001)]),
    (Code.INVALID_REPLICATION_FACTOR, "200,000 SPUs: too many", [(0, [*range(200_000)])]),
    (Code.MANUAL_PARTITION_IDS, "a list with the largest id: no index", [(2**63 - 1, [0])]),
    (Code.MANUAL_INVALID_SPU, "SPU 2^63 - 1 in a list: it wraps", [(0, [2**63 - 1])]),
]


def _number(kind: str, field: str, code: Code, number: int) -> Poison:
    is_nullable = _FIELDS[kind][field] == b"\x00" and field != "spu_id"
    raw = (_GIVEN if is_nullable else b"") + long_bytes(number)
    policy = {"policy": _FLUVIO} if field == "start_index" else {}
    return _refused(code, f"{field} of {number:,}: an end", kind, **policy, **{field: raw})


_REFUSED: Final = [
    *(
        _number(kind, field, code, number)
        for kind, field, code, numbers in _NUMBERS
        for number in numbers
    ),
    *(_refused(code, name, **changed) for code, name, changed in _FIELD_VALUES),
    *(
        _refused(
            *(Code.INVALID_CONSTRAINTS, f"constraints {what}"),
            policy=policy,
            constraints=_constraints(rule, *entries),
        )
        for what, rule, policy, entries in _RULES
    ),
    *(_refused(code, name, "join", **{field: raw}) for code, name, field, raw in _DESCRIBED),
    *(_refused(code, name, replicas=lists(*entries)) for code, name, entries in _LISTS),
    replace(
        _refused(_NOBODY, "10,000 headers: nobody reads them"),
        headers=tuple((f"h{number}", b"x") for number in range(10_000)),
    ),
    replace(
        _refused(_NOBODY, "headers of garbage: CloudEvents headers that lie"),
        headers=(("ce_id", b"\xff\x00"), ("ce_id", b"twice"), ("", b""), ("x" * 1_000, bytes(999))),
    ),
    replace(
        _refused(_NOBODY, "a time in the year 3000: merged behind all others"),
        timestamp_ms=FAR_FUTURE_MS,
    ),
]

MESSAGES: Final = [*_DEAD, *_REFUSED]


# Lines for `simulate`.


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of JSON Lines; it becomes a dead letter that says this, or is answered by a code."""

    name: str
    make: Callable[[], bytes]
    says: str = ""
    answer: Code | None = None


def _line(**changes: Any) -> bytes:
    fields = {"type": "topic_create", "event_id": "poison", "cluster_id": CLUSTER, "topic": "t"}
    return json.dumps(fields | changes).encode()


def _with(members: bytes) -> bytes:
    """A create with more members, as bytes."""
    return _line()[:-1] + b"," + members + b"}"


_DEEP: Final = 10_000


def _half_a_million_names() -> bytes:
    names = (*range(500_000), 499_999)
    return b"{" + b",".join(b'"%x":0' % name for name in names) + b"}"


_BROKEN_LINES: Final[list[tuple[Any, ...]]] = [
    ("longer than 8388608 bytes", "10 MB: memory for all of it", lambda: b" " * 10_000_000),
    ("given more than once", "half a million names: quadratic if compared", _half_a_million_names),
    ("nested too deeply", "lists 10,000 deep: the stack ends", lambda: b"[" * _DEEP + b"]" * _DEEP),
    ("half a surrogate pair is none", "half a pair: no UTF-8", lambda: _line(event_id="\ud800")),
    ("byte order mark", "a byte order mark: editors put it", lambda: b"\xef\xbb\xbf" + _line()),
    ("Extra data", "two objects in a line: the second would be lost", lambda: _line() + _line()),
    (r"\u001b[2J", "an escape sequence: it clears a terminal", lambda: _line(policy="\x1b[2J")),
    ("unknown field", "an unknown field of 64 KiB: not quoted", lambda: _line(**{"x" * 65_536: 1})),
]
_RULES_OF_10_000: Final = b'"constraints":{"require":[' + b'"a",' * 10_000 + b'"a"]}'
_TRUE_SPU: Final = b'"replicas":[{"id":0,"replicas":[true]}]'
_LISTS_OF_8_MIB: Final = b'"replicas":[' + b"[]," * 2_700_000 + b"[]]"
_MEMBERS: Final[list[tuple[str, Code | str, bytes]]] = [  # what it says, or the answer's code
    ("a name twice: two topics", 'field "topic" is given more than once', b'"topic":"u"'),
    ("5,000 digits: Python refuses", "too many digits", b'"partitions":1' + b"0" * 5_000),
    ("NaN: no JSON", "found NaN", b'"start_index":NaN'),
    ("true for 1: a bool is an int to Python", "partitions is true", b'"partitions":true'),
    ("2.0 for 2: no whole number", "2.0", b'"partitions":2.0'),
    ("8 MiB of lists: much memory", Code.INVALID_PARTITIONS, _LISTS_OF_8_MIB),
    ("4,000 digits: an integer", Code.INVALID_PARTITIONS, b'"partitions":1' + b"0" * 4_000),
    ("10,000 rules: much work", Code.INVALID_CONSTRAINTS, _RULES_OF_10_000),
    ("true for SPU 1: an int", Code.MANUAL_INVALID_SPU, _TRUE_SPU),
]
LINES: Final = [
    *(Line(name=name, make=make, says=says) for says, name, make in _BROKEN_LINES),
    *(
        Line(name=name, make=partial(_with, members), answer=found)
        if isinstance(found, Code)
        else Line(name=name, make=partial(_with, members), says=found)
        for name, found, members in _MEMBERS
    ),
]


# Files of manual lists, and settings.


class File(NamedTuple):
    """A file in a folder of its own; `make` gives its path."""

    name: str
    make: Callable[[Path], Path]
    says: str


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def _link(folder: Path) -> Path:
    (folder / "lists").write_text("[]", encoding="utf-8")
    (folder / "link").symlink_to("lists")
    return folder / "link"


def _sparse(size: int) -> Callable[[Path], Path]:
    """A file that takes no room on disk."""

    def make(folder: Path) -> Path:
        with (folder / "sparse").open("wb") as file:
            file.truncate(size)
        return folder / "sparse"

    return make


_FILE: Final = b'[{"id":0,"replicas":[0]}]'
_NOT_REGULAR: Final = "is not a regular file"

# Of any file that is read: no regular file, not to be read, too large.
PLACES: Final = [
    File("a FIFO: it waits for a writer", _pipe, _NOT_REGULAR),
    File("a folder: no bytes", lambda folder: folder, _NOT_REGULAR),
    File("nothing: a wrong name", lambda folder: folder / "no", "No such file"),
    File("half a surrogate pair: no bytes", lambda folder: folder / "\ud800", "cannot be read"),
    File("1 TiB: memory for all of it", _sparse(2**40), "has more than"),
]


def _holding(name: str, content: bytes, says: str) -> File:
    def make(folder: Path) -> Path:
        (folder / "poison").write_bytes(content)
        return folder / "poison"

    return File(name, make, says)


FILES: Final = [
    *PLACES,
    File("a link: the file may be another's", _link, "is a symbolic link"),
    File("8 MiB and a byte", _sparse(MANUAL_FILE_SIZE_MAX + 1), "has more than 8388608 bytes"),
    _holding("deep lists: the stack ends", b"[" * _DEEP + b"]" * _DEEP, "nested too deeply"),
    _holding(
        "replicas 900 deep: read, it ends the stack of whoever quotes it",
        b'[{"id":0,"replicas":' + b"[" * 900 + b"]" * 900 + b"}]",
        "nested too deeply",
    ),
    _holding("UTF-16: Windows", _FILE.decode().encode("utf-16"), "byte 0xff in position 0"),
]

SETTINGS: Final = [
    *PLACES,
    _holding("deep lists: the stack ends", b"shards = " + b"[" * _DEEP, "nested too deeply"),
    _holding("5,000 digits: no int", b"shards = 1" + b"0" * 5_000, "digits"),
    _holding("a name twice: two values", b"shards = 1\nshards = 2", "expected TOML"),
    _holding("an unknown name: misspelt", b"shard = 1", "a name in"),
    _holding("an escape sequence: it clears", b'query_name = "\\u001B[2J"', r"\x1b[2J"),
    _holding("100 kB: another file", b"#" * 100_000, "has more than 65536 bytes"),
]
