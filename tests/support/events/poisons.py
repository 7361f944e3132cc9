"""A catalogue of hostile input: what may come, why somebody would send it, and what must follow.

`MESSAGES` are bytes on the input topics, `LINES` lines for `simulate`, `FILES` replica assignments,
`SETTINGS` settings files. Each has a name of its own, which ends
with the reason why it is here, and the one outcome that the product promises. Nothing is random.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from spu_assigner.core.base.constraints import Constraints, SpreadLevel, Taint, TaintEffect
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
_CREATE: Final[dict[str, bytes]] = {
    **_COMMON,
    "topic": text_bytes("t"),
    "partitions": _ONE,
    "replication_factor": _ONE,
    **dict.fromkeys(("policy", "ignore_rack", "start_index", "shift", "replicas"), b"\x00"),
    **dict.fromkeys(("validate_only", "on_shortage"), b"\x00"),
    **dict.fromkeys(("demand", "leader_demand", "constraints"), b"\x00"),
}
_JOIN: Final[dict[str, bytes]] = {
    **_COMMON,
    "spu_id": b"\x00",
    "rack": b"\x00",
    "cores": _ONE,
    **dict.fromkeys(("capacity", "labels", "resources", "taints"), b"\x00"),
}
_REBALANCE: Final[dict[str, bytes]] = {
    **_COMMON,
    "max_moves": _ONE,
    **dict.fromkeys(("max_bytes", "band_percent", "band"), b"\x00"),
}
_DEMANDING: Final = Constraints(spread=(SpreadLevel("a", min=1),))
_ORIGINALS: Final = {  # by the kind of event what its frame is, and its fields
    "create": (
        Events().create(constraints=Constraints(spread=(SpreadLevel("a", min=1),))),
        _CREATE,
    ),
    "join": (Events().join(taints=(Taint("k", "", TaintEffect.EVICT),)), _JOIN),
    "rebalance": (Events().rebalance(band=1), _REBALANCE),
}
_HEADERS: Final = {kind: encode_event(event)[:5] for kind, (event, _) in _ORIGINALS.items()}
HUGE: Final = long_bytes(2**40)
_FLUVIO, _KAFKA, _BALANCED = b"\x02\x00", b"\x02\x02", b"\x02\x08"  # policies
_EMPTY_LIST: Final = b"\x00\x00"  # a manual list with id 0 and no replicas


def message(kind: str, **changed: bytes) -> bytes:
    return _HEADERS[kind] + b"".join((_ORIGINALS[kind][1] | changed).values())


create, join = partial(message, "create"), partial(message, "join")


def lists(*entries: tuple[int, list[int]]) -> bytes:
    """Manual lists as the field `replicas`: (id, SPUs) each."""
    return b"\x02" + array_bytes(
        [long_bytes(i) + array_bytes([long_bytes(each) for each in ids]) for i, ids in entries]
    )


def _dead(
    letter: DeadLetterCode, says: str, name: str, value: bytes | None, **given: Any
) -> Poison:
    return Poison(name=name, value=value, letter=letter, says=says, **given)


def _refused(kind: str, name: str, code: Code, **changed: bytes) -> Poison:
    """An event that decodes and cannot be met; its event id is the poison's name."""
    value = message(kind, **{"event_id": text_bytes(name), **changed})
    topic = SPU_EVENTS if kind == "join" else TOPIC_EVENTS
    return Poison(name=name, value=value, rejection=code, topic=topic)


_rejected, _ignored = partial(_refused, "create"), partial(_refused, "join")


C: Final = DeadLetterCode
_SINGLE_OBJECT: Final = encode_event(Events().create(), wire=Wire.SINGLE_OBJECT)


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
_REVERSED: Final = b"\xc3\x01" + _SINGLE_OBJECT[2:10][::-1] + b"x"
_UNKNOWN_SCHEMAS: Final[list[tuple[Any, ...]]] = [
    ("schema id 0 is not", "schema id 0: a frame of zeros", bytes(20)),
    ("0000000000000000", "an unknown fingerprint: somebody else's schema", b"\xc3\x01" + bytes(20)),
    ("not in the registry", "a fingerprint the wrong way round: as a number", _REVERSED),
]
_BROKEN_FRAMES: Final[list[tuple[Any, ...]]] = [
    ("with nothing", "empty value: nothing to read a header from", b""),
    ("JSON, or a text like it", "JSON: a producer without Avro", b'{"type":"topic_create"}'),
    ("begin with 00", "a mark alone: cut in the frame", b"\x00"),
    ("with 00000000", "a short frame: cut in the schema id", bytes(4)),
    ("begin with c301", "a short fingerprint: cut in the fingerprint", b"\xc3\x01" + bytes(7)),
    ("begin with 4f626a01", "a container with its own schema: a recursive one", b"Obj\x01" * 9),
    ("end inside a value", "no body: cut after the frame", _HEADERS["create"]),
    ("end inside a value", "half a body: cut in the body", create()[:-3]),
]
_FRAMES: Final = [
    _dead(C.NULL_VALUE, "is null", "null value: tombstones belong to compacted topics", None),
    _dead(C.TRAILING_BYTES, "1 bytes follow", "a byte too many: often taken", create() + b"\x00"),
    _dead(
        C.TRAILING_BYTES, "bytes follow", "two messages in one: often taken", create() + create()
    ),
    _dead(C.WRONG_TYPE, "that of SpuJoined here", "the other topic's event: a wrong topic", join()),
    _dead(C.WRONG_TYPE, "that of DeadLetter here", "the job's own dead letter: a loop", _LETTER),
    *(_dead(C.UNKNOWN_SCHEMA, says, name, value) for says, name, value in _UNKNOWN_SCHEMAS),
    *(_dead(C.UNDECODABLE, says, name, value) for says, name, value in _BROKEN_FRAMES),
]


def _with_id(length: int) -> bytes:
    return create(event_id=text_bytes("e" * length))


_BAD: Final = C.UNDECODABLE
_MOST: Final = long_bytes(2**63 - 1)
_LABEL: Final = text_bytes("a") + text_bytes("b")
_LONG_LABEL: Final = b"\x02\x02" + text_bytes("a") + text_bytes("x" * MESSAGE_SIZE_MAX) + b"\x00"
_LONG_GROW: Final = encode_event(Events().grow()) + bytes(MESSAGE_SIZE_MAX)
_LONG_LISTS: Final = array_bytes([_EMPTY_LIST] * (MANUAL_MESSAGE_SIZE_MAX // 2))
_LONG_CREATE: Final = create(replicas=b"\x02" + _LONG_LISTS)
_TOMORROW: Final = b"\x02" + long_bytes(len(Policy))
_BROKEN_CREATES: Final[list[tuple[Any, ...]]] = [
    ("a length is 63", "a text beyond the end: a slice is shorter", "event_id", b"\x7ee"),
    ("is 1099511627776", "a text of 2^40 bytes: allocated if believed", "event_id", HUGE),
    ("a length is -1", "a text of length -1: a slice goes backwards", "event_id", b"\x01"),
    ("no UTF-8", "no UTF-8: half a letter", "event_id", b"\x04\xc3\x28"),
    ("int is 2147483648", "a long in an int: often taken", "partitions", long_bytes(2**31)),
    ("more than 10 bytes", "a long varint: over 64 bits", "partitions", b"\x80" * 10 + b"\x00"),
    ("branch is 2", "a union's branch beyond: out of range", "occurred_at", long_bytes(2)),
    ("branch is -1", "a negative branch: Python counts from the end", "occurred_at", b"\x01"),
    (f"index is {len(Policy)}", "a policy of tomorrow: beyond", "policy", _TOMORROW),
    ("index is -1", "a negative enum index: from the end", "on_shortage", b"\x01"),
    ("boolean is 2", "a boolean of 2: Avro libraries take it", "ignore_rack", b"\x02"),
    ("1099511627776 items", "a block of 2^40 items: much memory", "replicas", b"\x02" + HUGE),
    ("bytes; 5 are left", "a block of 2^40 bytes: past the end", "replicas", b"\x02\x01" + HUGE),
    ("a block has -1 bytes", "a block of -1 bytes: an endless loop", "replicas", b"\x02\x01\x01"),
    ("size says", "a block of wrong size", "replicas", b"\x02\x01\x02" + bytes(3)),
    ("", "a block that never ends: the end is missing", "replicas", b"\x02\x02\x00\x02\x06"),
]


def _taint(key: str, value: str = "", effect: int = 0) -> bytes:
    return text_bytes(key) + text_bytes(value) + long_bytes(effect)


_RULES: Final = tuple(field.name for field in fields(Constraints))


def _constraints(**entries: list[bytes] | bytes) -> bytes:
    """Constraints as a field that may be null; a list is of the entries of a rule's kind."""
    kinds = (entries.get(name, []) for name in _RULES)
    return b"\x02" + b"".join(
        kind if isinstance(kind, bytes) else array_bytes(kind) for kind in kinds
    )


_BROKEN_CONSTRAINTS: Final[list[tuple[str, str, bytes]]] = [
    ("1099511627776 items", "rules of 2^40 items: much memory", _constraints(require=HUGE)),
    ("no UTF-8", "a selector of no UTF-8: half a letter", _constraints(forbid=[b"\x04\xc3\x28"])),
    (
        "branch is 2",
        "a toleration's branch beyond: out of range",
        _constraints(tolerations=[text_bytes("a") + long_bytes(2)]),
    ),
]
_BROKEN_JOINS: Final[list[tuple[Any, ...]]] = [
    (
        _BAD,
        "an enum's index is 3",
        "a taint with an effect of tomorrow: who would know what it keeps away",
        "taints",
        array_bytes([_taint("k", effect=3)]),
    ),
    (_BAD, "1099511627776 items", "taints of 2^40 items: much memory", "taints", HUGE),
    (_BAD, "int is 9223372036854775807", "an SPU id of 64 bits: no int", "spu_id", _MOST),
    (_BAD, "1099511627776 items", "labels of 2^40 items: much memory", "labels", b"\x02" + HUGE),
    (_BAD, "twice", "a label twice: two values", "labels", b"\x02\x04" + _LABEL * 2 + b"\x00"),
    (C.TOO_LARGE, "at most 65536", "a join of over 64 KiB: labels", "labels", _LONG_LABEL),
]
_LIMITS: Final[list[tuple[Any, ...]]] = [
    (C.TOO_LARGE, "at most 65536", "a grow of over 64 KiB: no event without lists is", _LONG_GROW),
    (C.TOO_LARGE, "1048576 for a TopicCreate", "a create of over 1 MiB: too many", _LONG_CREATE),
    (
        C.INVALID_EVENT,
        "event_id is",
        "an event id of 64 KiB: remembered",
        _with_id(MESSAGE_SIZE_MAX),
    ),
    (C.INVALID_EVENT, "event_id is ''", "an empty event id: nothing to remember", _with_id(0)),
    (C.INVALID_EVENT, "event_id is", "an event id of 257 characters: one too many", _with_id(257)),
]
_BODIES: Final = [
    *(
        _dead(C.UNDECODABLE, says, name, create(**{field: value}))
        for says, name, field, value in _BROKEN_CREATES
    ),
    *(
        _dead(C.UNDECODABLE, says, name, create(constraints=value))
        for says, name, value in _BROKEN_CONSTRAINTS
    ),
    *(
        _dead(letter, says, name, join(**{field: value}), topic=SPU_EVENTS)
        for letter, says, name, field, value in _BROKEN_JOINS
    ),
    _dead(
        C.UNDECODABLE,
        "int is 9223372036854775807",
        "a band of 64 bits: no int",
        message("rebalance", band_percent=b"\x02" + _MOST),
    ),
    *(_dead(letter, says, name, value) for letter, says, name, value in _LIMITS),
]

_TOPIC_NAMES: Final[list[tuple[Any, ...]]] = [
    ("with a slash: the key of its map would name another cluster", "a/b"),
    ("with an escape sequence: it clears the terminal of who reads the log", "\x1b[2J"),
    ("of 250 characters: one more than a name may have", "t" * 250),
    ("of 60,000 characters: the dead letter must not quote it whole", "t" * 60_000),
    ("without a name: nothing to answer under", ""),
]
_CLUSTER_NAMES: Final[list[tuple[Any, ...]]] = [
    ("with a slash: its key would be that of a topic", "c/t"),
    ("without a name: nothing to answer under", ""),
]
_NAMES: Final = [
    *(
        _dead(C.INVALID_EVENT, "topic is", f"a topic {what}", create(topic=text_bytes(name)))
        for what, name in _TOPIC_NAMES
    ),
    *(
        _dead(
            C.INVALID_EVENT,
            "cluster_id is",
            f"a cluster {what}",
            create(cluster_id=text_bytes(name)),
            key=name.encode(),
        )
        for what, name in _CLUSTER_NAMES
    ),
]

_ENDS: Final = (0, -1, 2**31 - 1, -(2**31))
_BELOW: Final = (-1, -(2**31))
_BEYOND: Final = (-1, -(2**63), 2**53, 2**63 - 1)


def _ends(field: str, code: Code, numbers: Iterable[int], **changed: bytes) -> Iterator[Poison]:
    """Numbers at the ends of a field, refused; `changed` holds what precedes them in a union."""
    for number in numbers:
        raw = changed.get(field, b"") + long_bytes(number)
        kind = next(kind for kind, (_, fields) in _ORIGINALS.items() if field in fields)
        name = f"{field} of {number:,}: an end of its type"
        yield _refused(kind, name, code, **(changed | {field: raw}))


_LAST: Final = b"\x02" + long_bytes(2**31 - 1)
_UNUSUAL: Final[list[tuple[Any, ...]]] = [
    (
        "the largest start and shift: added up",
        {"policy": _KAFKA, "start_index": _LAST, "shift": _LAST},
    ),
    ("a time at the end of 64 bits: no date", {"occurred_at": b"\x02" + long_bytes(2**63 - 1)}),
    ("an event id of \x1b[2J 🚀 \x00 \u202e: legal, and no log should print it as it is", {}),
    ("1 partition in nine bytes: Avro allows it", {"partitions": b"\x82" + b"\x80" * 7 + b"\x00"}),
]
_RACKS: Final[list[tuple[Any, ...]]] = [
    ("without a name: it is not the same as no rack", ""),
    ("of 129 characters: one more than it may have", "r" * 129),
]


def _amounts(*pairs: tuple[str, int]) -> bytes:
    """Amounts of resources as a field that may be null."""
    entries = array_bytes([text_bytes(name) + long_bytes(amount) for name, amount in pairs])
    return b"\x02" + entries


_NINE: Final = [(f"r{number}", 1) for number in range(9)]
_BAD_AMOUNTS: Final[list[tuple[str, bytes]]] = [
    ("of -1: below 0", _amounts(("disk_bytes", -1))),
    ("of 2^53: no longer whole to every reader of JSON", _amounts(("disk_bytes", 2**53))),
    ("of nine resources: one too many", _amounts(*_NINE)),
    ("without a name: nothing identifies it", _amounts(("", 1))),
    ("with a name of 60,000 characters: it is kept with the topic", _amounts(("r" * 60_000, 1))),
]
_BAD_TAINTS: Final[list[tuple[str, list[bytes]]]] = [
    ("of 17: one too many", [_taint(f"k{number}") for number in range(17)]),
    ("without a key: nothing to tolerate", [_taint("")]),
    ("twice with one effect: which value holds", [_taint("k", "a"), _taint("k", "b")]),
]
_BAD_CONSTRAINTS: Final[list[tuple[str, str, list[bytes]]]] = [
    ("a selector of 60,000 conditions: no end", "require", [text_bytes("a," * 30_000 + "a")]),
    ("a weight of -2^31: over all others", "prefer", [text_bytes("a") + long_bytes(-(2**31))]),
    ("at least 2, at most 1: none fits", "spread", [text_bytes("a") + b"\x02\x02\x02\x04"]),
    ("a level twice: which one holds", "spread", [text_bytes("a") + b"\x00\x00"] * 2),
    ("a topic that is not there: of tomorrow", "together_with", [text_bytes("u")]),
]
_NUMBERS: Final = [
    *(
        _ignored(f"taints {what}", Code.INVALID_TAINTS, taints=array_bytes(entries))
        for what, entries in _BAD_TAINTS
    ),
    *(
        _rejected(
            f"in constraints {what}",
            Code.INVALID_CONSTRAINTS,
            policy=_BALANCED,
            constraints=_constraints(**{name: entries}),
        )
        for what, name, entries in _BAD_CONSTRAINTS
    ),
    _rejected(
        "constraints of another policy: it would pass them over",
        Code.INVALID_CONSTRAINTS,
        policy=_KAFKA,
        constraints=_constraints(require=[text_bytes("a")]),
    ),
    *(
        _ignored(f"resources {what}", Code.INVALID_RESOURCES, resources=raw)
        for what, raw in _BAD_AMOUNTS
    ),
    *(
        _rejected(f"{name} {what}", Code.INVALID_DEMAND, **{name: raw})
        for name in ("demand", "leader_demand")
        for what, raw in _BAD_AMOUNTS
    ),
    _rejected(
        "a demand of a resource that no SPU has: it would wait for ever",
        Code.UNKNOWN_RESOURCE,
        demand=_amounts(("disk_bytes", 1)),
    ),
    *_ends("partitions", Code.INVALID_PARTITIONS, (*_ENDS, 100_001)),
    *_ends("replication_factor", Code.INVALID_REPLICATION_FACTOR, (*_ENDS, 33)),
    *_ends("start_index", Code.INVALID_START_INDEX, _BELOW, policy=_FLUVIO, start_index=b"\x02"),
    *_ends("spu_id", Code.INVALID_SPU_ID, _BELOW),
    *_ends("cores", Code.INVALID_CORES, (*_ENDS, 1_025)),
    *_ends("capacity", Code.INVALID_CAPACITY, _BELOW, capacity=b"\x02"),
    *_ends("max_moves", Code.INVALID_MAX_MOVES, _BELOW),
    *_ends("max_bytes", Code.INVALID_MAX_BYTES, _BEYOND, max_bytes=b"\x02"),
    *_ends("band_percent", Code.INVALID_BAND_PERCENT, (*_BELOW, 1_001), band_percent=b"\x02"),
    *_ends("band", Code.INVALID_BAND, (*_BELOW, 2), band=b"\x02"),
    _rejected(
        "a shift of -1: below 0",
        Code.INVALID_SHIFT,
        policy=_KAFKA,
        start_index=b"\x02\x00",
        shift=b"\x02\x01",
    ),
    *(_rejected(name, Code.INSUFFICIENT_SPUS, **changed) for name, changed in _UNUSUAL),
    *(
        _ignored(f"a rack {what}", Code.INVALID_RACK, rack=b"\x02" + text_bytes(rack))
        for what, rack in _RACKS
    ),
]

_REFUSED_LISTS: Final[list[tuple[Any, ...]]] = [
    ("100,001 lists: one too many", Code.INVALID_PARTITIONS, [(n, []) for n in range(100_001)]),
    ("no lists: nothing to place", Code.INVALID_PARTITIONS, []),
    ("200,000 SPUs: too many", Code.INVALID_REPLICATION_FACTOR, [(0, [*range(200_000)])]),
    ("a list with the largest id: no index", Code.MANUAL_PARTITION_IDS, [(2**63 - 1, [0])]),
    ("SPU 2^63 - 1 in a list: it wraps in 32 bits", Code.MANUAL_INVALID_SPU, [(0, [2**63 - 1])]),
    ("an SPU that is not there: a replica nowhere", Code.MANUAL_UNKNOWN_SPU, [(0, [2**31 - 1])]),
]
_MANUAL: Final = [
    _rejected(name, code, replicas=lists(*entries)) for name, code, entries in _REFUSED_LISTS
]

_KEYS: Final[list[tuple[Any, ...]]] = [
    ("the message has no key", "no key: state is kept by key", None),
    ("b''", "an empty key: state is kept by key", b""),
    ("b'c2'", "another cluster's key: it would reach another shard's state", b"c2"),
    (r"c\x00", "a key with NUL: C ends there", b"c\x00"),
    (r"\xff", "a key of no UTF-8: keys are texts", b"\xff"),
    ("the key is", "a key of 100 kB: it would become the dead letter's", b"k" * 100_000),
]
_KAFKA_SIDE: Final = [
    _dead(C.KEY_MISSING, "no key", "no key and no value: nothing at all", None, key=None),
    *(
        _dead(C.KEY_MISSING if key is None else C.KEY_MISMATCH, says, name, create(), key=key)
        for says, name, key in _KEYS
    ),
    replace(
        _rejected("10,000 headers: nobody reads them", Code.INSUFFICIENT_SPUS),
        headers=tuple((f"h{number}", b"x") for number in range(10_000)),
    ),
    replace(
        _rejected("headers of garbage: CloudEvents headers that lie", Code.INSUFFICIENT_SPUS),
        headers=(("ce_id", b"\xff\x00"), ("ce_id", b"twice"), ("", b""), ("x" * 1_000, bytes(999))),
    ),
    replace(
        _rejected("a time in the year 3000: merged behind all others", Code.INSUFFICIENT_SPUS),
        timestamp_ms=FAR_FUTURE_MS,
    ),
]

MESSAGES: Final = [*_FRAMES, *_BODIES, *_NAMES, *_NUMBERS, *_MANUAL, *_KAFKA_SIDE]


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
    ("UTF-8", "no UTF-8: Latin-1", lambda: _line()[:-3] + b'\xe9"}'),
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
    ("1e999: an infinite float", "found 1e999", b'"replicas":[{"id":0,"replicas":[1e999]}]'),
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


_LISTS: Final = b'[{"id":0,"replicas":[0]}]'
_NOT_REGULAR: Final = "is not a regular file"

# Of any file that is read: no regular file, not to be read, too large.
PLACES: Final = [
    File("a FIFO: it waits for a writer", _pipe, _NOT_REGULAR),
    File("a folder: no bytes", lambda folder: folder, _NOT_REGULAR),
    File("/dev/zero: no end", lambda _: Path("/dev/zero"), _NOT_REGULAR),
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
    _holding("an empty file: written by nobody", b"", "Expecting value: line 1 column 1"),
    _holding("two values: joined files", _LISTS * 2, "Extra data"),
    _holding("another object: neither form", b'{"lists":[]}', "is neither form"),
    _holding("deep lists: the stack ends", b"[" * _DEEP + b"]" * _DEEP, "nested too deeply"),
    _holding(
        "replicas 900 deep: read, it ends the stack of whoever quotes it",
        b'[{"id":0,"replicas":' + b"[" * 900 + b"]" * 900 + b"}]",
        "nested too deeply",
    ),
    _holding("5,000 digits: no int", b"[1" + b"0" * 5_000 + b"]", "cannot be read"),
    _holding("UTF-16: Windows", _LISTS.decode().encode("utf-16"), "byte 0xff in position 0"),
    _holding("a surrogate in UTF-8", b'["\xed\xa0\x80"]', "byte 0xed in position 2"),
]

SETTINGS: Final = [
    *PLACES,
    _holding("deep lists: the stack ends", b"shards = " + b"[" * _DEEP, "nested too deeply"),
    _holding("5,000 digits: no int", b"shards = 1" + b"0" * 5_000, "digits"),
    _holding("nan: no number", b"shards = nan", "shards in"),
    _holding("a name twice: two values", b"shards = 1\nshards = 2", "expected TOML"),
    _holding("an unknown name: misspelt", b"shard = 1", "a name in"),
    _holding("an escape sequence: it clears", b'query_name = "\\u001B[2J"', r"\x1b[2J"),
    _holding("100 kB: another file", b"#" * 100_000, "has more than 65536 bytes"),
]
