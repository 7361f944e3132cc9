"""A catalogue of hostile input: what may come, why somebody would send it, and what must follow.

`MESSAGES` are bytes on the input topics, `LINES` lines for `simulate`, `FILES` replica assignments,
`SETTINGS` settings files, `SCHEMAS` files of the registry. Each has a name that is its own, the
reason why it is here, and the one outcome that the product promises. Nothing here is random.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import fastavro
from spu_assigner.core.base.errors import Code
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
    why: str
    value: bytes | None
    key: bytes | None = CLUSTER.encode()
    topic: str = TOPIC_EVENTS
    letter: DeadLetterCode | None = None
    rejection: Code | None = None
    says: str = ""  # a part of the dead letter's message
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None  # as the producer claims


# Bytes of messages, field by field.

_CREATE: Final[dict[str, bytes]] = {
    "event_id": text_bytes("e"),
    "cluster_id": text_bytes(CLUSTER),
    "occurred_at": b"\x00",
    "topic": text_bytes("t"),
    "partitions": long_bytes(1),
    "replication_factor": long_bytes(1),
    "policy": b"\x00",
    "ignore_rack": b"\x00",
    "start_index": b"\x00",
    "shift": b"\x00",
    "replicas": b"\x00",
    "validate_only": b"\x00",
    "on_shortage": b"\x00",
}
_JOIN: Final[dict[str, bytes]] = {
    "event_id": text_bytes("e"),
    "cluster_id": text_bytes(CLUSTER),
    "occurred_at": b"\x00",
    "spu_id": b"\x00",
    "rack": b"\x00",
    "cores": b"\x02",
    "capacity": b"\x00",
    "labels": b"\x00",
}
CREATE_HEADER: Final = encode_event(Events().create())[:5]
JOIN_HEADER: Final = encode_event(Events().join())[:5]
HUGE: Final = long_bytes(2**40)
_FLUVIO, _KAFKA = b"\x02\x00", b"\x02\x02"  # policies
_EMPTY_LIST: Final = b"\x00\x00"  # a manual list with id 0 and no replicas


def create(**changed: bytes) -> bytes:
    """A request for a topic with some fields' bytes changed."""
    return CREATE_HEADER + b"".join((_CREATE | changed).values())


def join(**changed: bytes) -> bytes:
    """A join with some fields' bytes changed."""
    return JOIN_HEADER + b"".join((_JOIN | changed).values())


def lists(*entries: tuple[int, list[int]]) -> bytes:
    """Manual lists as the field `replicas`: (id, SPUs) each."""
    return b"\x02" + array_bytes(
        [long_bytes(i) + array_bytes([long_bytes(each) for each in ids]) for i, ids in entries]
    )


def _dead(
    name: str, why: str, value: bytes | None, letter: DeadLetterCode, says: str, **given: Any
) -> Poison:
    return Poison(name=name, why=why, value=value, letter=letter, says=says, **given)


def _rejected(name: str, why: str, code: Code, **changed: bytes) -> Poison:
    """A request that decodes and cannot be met; its event id is the poison's name."""
    value = create(**{"event_id": text_bytes(name), **changed})
    return Poison(name=name, why=why, value=value, rejection=code)


def _ignored(name: str, why: str, code: Code, **changed: bytes) -> Poison:
    """A join that decodes and cannot be met."""
    value = join(**{"event_id": text_bytes(name), **changed})
    return Poison(name=name, why=why, value=value, rejection=code, topic=SPU_EVENTS)


C: Final = DeadLetterCode
_AVRO_TAKES_IT: Final = "Avro libraries take it silently"
_ALLOCATES: Final = "whoever believes the number allocates it"


def _container() -> bytes:
    """An Avro file that brings its own schema, a recursive one."""
    tree = {
        "type": "record",
        "name": "Tree",
        "fields": [{"name": "children", "type": {"type": "array", "items": "Tree"}}],
    }
    out = BytesIO()
    fastavro.writer(out, fastavro.parse_schema(tree), [{"children": []}])
    return out.getvalue()


def _letter() -> bytes:
    return encode_record(
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


_FRAMES: Final = [
    _dead("null value", "tombstones belong to compacted topics", None, C.NULL_VALUE, "is null"),
    _dead("empty value", "nothing to read a header from", b"", C.UNDECODABLE, "with nothing"),
    _dead(
        "JSON",
        "a producer without Avro",
        b'{"type":"topic_create"}',
        C.UNDECODABLE,
        "begin with 7b",
    ),
    _dead("a mark alone", "cut in the frame", b"\x00", C.UNDECODABLE, "begin with 00"),
    _dead("a short frame", "cut in the schema id", bytes(4), C.UNDECODABLE, "with 00000000"),
    _dead(
        "a short fingerprint",
        "cut in the fingerprint",
        b"\xc3\x01" + bytes(7),
        C.UNDECODABLE,
        "begin with c301",
    ),
    _dead("schema id 0", "a frame of zeros", bytes(20), C.UNKNOWN_SCHEMA, "schema id 0 is not"),
    _dead(
        "an unknown schema id",
        "another registry's",
        b"\x00\x00\x00\xff\xff" + bytes(9),
        C.UNKNOWN_SCHEMA,
        "schema id 65535",
    ),
    _dead(
        "the largest schema id",
        "negative, for who reads it signed",
        b"\x00\xff\xff\xff\xff" + bytes(9),
        C.UNKNOWN_SCHEMA,
        "schema id 4294967295",
    ),
    _dead(
        "an unknown fingerprint",
        "a schema of somebody else's",
        b"\xc3\x01" + bytes(20),
        C.UNKNOWN_SCHEMA,
        "0000000000000000",
    ),
    _dead(
        "a fingerprint the wrong way round",
        "big-endian writers exist",
        b"\xc3\x01" + encode_event(Events().create(), wire=Wire.SINGLE_OBJECT)[2:10][::-1] + b"x",
        C.UNKNOWN_SCHEMA,
        "not in the registry",
    ),
    _dead(
        "a container file with its own schema",
        "who trusts the schema inside recurses until the process dies",
        _container(),
        C.UNDECODABLE,
        "begin with 4f626a01",
    ),
    _dead(
        "the other topic's event", "sent to the wrong topic", join(), C.WRONG_TYPE, "a SpuJoined"
    ),
    _dead(
        "a request among the joins",
        "sent to the wrong topic",
        create(),
        C.WRONG_TYPE,
        "a TopicCreate",
        topic=SPU_EVENTS,
    ),
    _dead("the job's own dead letter", "a loop", _letter(), C.WRONG_TYPE, "a DeadLetter"),
    _dead("no body", "cut after the frame", CREATE_HEADER, C.UNDECODABLE, "end inside a value"),
    _dead("half a body", "cut in the body", create()[:-3], C.UNDECODABLE, "end inside a value"),
    _dead(
        "half a body of the other encoding",
        "cut in the body",
        encode_event(Events().create(), wire=Wire.SINGLE_OBJECT)[:-3],
        C.UNDECODABLE,
        "end inside a value",
    ),
    _dead(
        "a byte too many", _AVRO_TAKES_IT, create() + b"\x00", C.TRAILING_BYTES, "1 bytes follow"
    ),
    _dead(
        "two messages in one", _AVRO_TAKES_IT, create() + create(), C.TRAILING_BYTES, "bytes follow"
    ),
]

_BODIES: Final = [
    _dead(
        "a text beyond the end",
        "a slice would be a shorter text",
        create(event_id=b"\x7e" + b"e"),
        C.UNDECODABLE,
        "a length is 63",
    ),
    _dead(
        "a text of 2^40 bytes", _ALLOCATES, create(event_id=HUGE), C.UNDECODABLE, "is 1099511627776"
    ),
    _dead(
        "a text of negative length",
        "a slice would go backwards",
        create(event_id=long_bytes(-1)),
        C.UNDECODABLE,
        "a length is -1",
    ),
    _dead(
        "a text of the most negative length",
        "its negative does not fit",
        create(topic=long_bytes(-(2**63))),
        C.UNDECODABLE,
        "a length is -",
    ),
    _dead("no UTF-8", "half a letter", create(event_id=b"\x04\xc3\x28"), C.UNDECODABLE, "no UTF-8"),
    _dead(
        "a surrogate in UTF-8",
        "Java's and Python's writers make some",
        create(event_id=b"\x06\xed\xa0\x80"),
        C.UNDECODABLE,
        "no UTF-8",
    ),
    _dead(
        "overlong UTF-8",
        "another spelling of a dot, to pass a check of names",
        create(topic=b"\x08\xc0\xae\xc0\xae"),
        C.UNDECODABLE,
        "no UTF-8",
    ),
    _dead(
        "a code point beyond Unicode",
        "four bytes that mean nothing",
        create(event_id=b"\x08\xf4\x90\x80\x80"),
        C.UNDECODABLE,
        "no UTF-8",
    ),
    _dead(
        "a long in an int",
        _AVRO_TAKES_IT,
        create(partitions=long_bytes(2**31)),
        C.UNDECODABLE,
        "int is 2147483648",
    ),
    _dead(
        "a negative long in an int",
        _AVRO_TAKES_IT,
        create(partitions=long_bytes(-(2**31) - 1)),
        C.UNDECODABLE,
        "int is -2147483649",
    ),
    _dead(
        "the largest long in an SPU id",
        _AVRO_TAKES_IT,
        join(spu_id=long_bytes(2**63 - 1)),
        C.UNDECODABLE,
        "int is 9223372036854775807",
        topic=SPU_EVENTS,
    ),
    _dead(
        "a varint of 11 bytes",
        "more than 64 bits",
        create(partitions=b"\x80" * 10 + b"\x00"),
        C.UNDECODABLE,
        "more than 10 bytes",
    ),
    _dead(
        "a varint of 70 bits",
        "bits that fall off elsewhere",
        create(partitions=b"\xff" * 9 + b"\x7f"),
        C.UNDECODABLE,
        "more than 64 bits",
    ),
    _dead(
        "a varint of 100 kB",
        "quadratic for who shifts a large integer",
        CREATE_HEADER + b"\x80" * 100_000,
        C.UNDECODABLE,
        "more than 10 bytes",
    ),
    _dead(
        "a varint of 60 kB",
        "the same within the limit of a message",
        CREATE_HEADER + b"\xff" * 60_000,
        C.UNDECODABLE,
        "more than 10 bytes",
    ),
    _dead(
        "a union's branch beyond",
        "an index out of range",
        create(occurred_at=long_bytes(2)),
        C.UNDECODABLE,
        "branch is 2",
    ),
    _dead(
        "a negative branch",
        "it counts from the end in Python",
        create(occurred_at=long_bytes(-1)),
        C.UNDECODABLE,
        "branch is -1",
    ),
    _dead(
        "a negative branch deeper inside",
        "it counts from the end in Python",
        create(policy=long_bytes(-2)),
        C.UNDECODABLE,
        "branch is -2",
    ),
    _dead(
        "an enum's index beyond",
        "a policy of tomorrow",
        create(policy=b"\x02" + long_bytes(5)),
        C.UNDECODABLE,
        "index is 5",
    ),
    _dead(
        "a negative enum index",
        "it counts from the end in Python",
        create(on_shortage=long_bytes(-1)),
        C.UNDECODABLE,
        "index is -1",
    ),
    _dead(
        "an enum's index of 2^40",
        "an index out of range",
        create(on_shortage=HUGE),
        C.UNDECODABLE,
        "index is 1099511627776",
    ),
    _dead(
        "a boolean of 2", _AVRO_TAKES_IT, create(ignore_rack=b"\x02"), C.UNDECODABLE, "boolean is 2"
    ),
    _dead(
        "a boolean of 255",
        _AVRO_TAKES_IT,
        create(validate_only=b"\xff"),
        C.UNDECODABLE,
        "boolean is 255",
    ),
    _dead(
        "a block of 2^40 items",
        _ALLOCATES,
        create(replicas=b"\x02" + HUGE),
        C.UNDECODABLE,
        "1099511627776 items",
    ),
    _dead(
        "a negative block of 2^40 items",
        _ALLOCATES,
        create(replicas=b"\x02" + long_bytes(-(2**40)) + b"\x00"),
        C.UNDECODABLE,
        "items",
    ),
    _dead(
        "a block of the most negative count",
        "its negative does not fit",
        create(replicas=b"\x02" + long_bytes(-(2**63)) + b"\x00"),
        C.UNDECODABLE,
        "9223372036854775808 items",
    ),
    _dead(
        "a block of 2^40 bytes",
        "who skips so far is past the end",
        create(replicas=b"\x02\x01" + HUGE),
        C.UNDECODABLE,
        "bytes; 2 are left",
    ),
    _dead(
        "a block of negative size",
        "who skips so far reads the same again for ever",
        create(replicas=b"\x02\x01\x01"),
        C.UNDECODABLE,
        "a block has -1 bytes",
    ),
    _dead(
        "a block of wrong size",
        "two readers would see two messages",
        create(replicas=b"\x02\x01\x02\x00\x00\x00"),
        C.UNDECODABLE,
        "size says",
    ),
    _dead(
        "a block that never ends",
        "the end is missing",
        create(replicas=b"\x02\x02\x00\x02\x06"),
        C.UNDECODABLE,
        "",
    ),
    _dead(
        "labels of 2^40 items",
        _ALLOCATES,
        join(labels=b"\x02" + HUGE),
        C.UNDECODABLE,
        "1099511627776 items",
        topic=SPU_EVENTS,
    ),
    _dead(
        "a label twice",
        "two readers would see two values",
        join(labels=b"\x02\x04" + (text_bytes("a") + text_bytes("b")) * 2 + b"\x00"),
        C.UNDECODABLE,
        "twice",
        topic=SPU_EVENTS,
    ),
    _dead(
        "a request of just over 64 KiB",
        "no event without lists is as long",
        encode_event(Events().grow()) + bytes(MESSAGE_SIZE_MAX),
        C.TOO_LARGE,
        "at most 65536",
    ),
    _dead(
        "a join of just over 64 KiB",
        "labels have no limit of their own",
        join(labels=b"\x02\x02" + text_bytes("a") + text_bytes("x" * MESSAGE_SIZE_MAX) + b"\x00"),
        C.TOO_LARGE,
        "at most 65536",
        topic=SPU_EVENTS,
    ),
    _dead(
        "a create of just over 1 MiB",
        "more than manual lists need",
        create(replicas=b"\x02" + array_bytes([_EMPTY_LIST] * (MANUAL_MESSAGE_SIZE_MAX // 2))),
        C.TOO_LARGE,
        "1048576 for a TopicCreate",
    ),
    _dead(
        "an event id of 64 KiB",
        "it would be remembered and told with every answer",
        create(event_id=text_bytes("e" * MESSAGE_SIZE_MAX)),
        C.INVALID_EVENT,
        "event_id is",
    ),
]

_NAMES: Final = (
    [
        _dead(f"a topic {what}", why, create(topic=text_bytes(name)), C.INVALID_EVENT, "topic is")
        for what, name, why in (
            ("with a slash", "a/b", "the key of its map would name another cluster"),
            ("of two dots", "..", "a folder, where names become paths"),
            ("of one dot", ".", "a folder, where names become paths"),
            ("that climbs", "../../etc/passwd", "a file, where names become paths"),
            ("with NUL", "a\x00b", "C libraries stop there"),
            ("with a line feed", "t\n", "an anchor of a regular expression lets it pass"),
            ("with a space", "a b", "no name of Kafka's"),
            ("of emoji", "🚀", "no name of Kafka's"),
            ("of a look-alike", "tорic", "Cyrillic letters in a Latin name"),
            ("of fullwidth dots", "．．", "normalisation makes it two dots"),
            ("with an escape sequence", "\x1b[2J", "it clears the terminal of who reads the log"),
            ("of 250 characters", "t" * 250, "one more than a name may have"),
            ("of 60,000 characters", "t" * 60_000, "the dead letter must not quote it whole"),
            ("without a name", "", "nothing to answer under"),
        )
    ]
    + [
        _dead(
            f"a cluster {what}",
            why,
            create(cluster_id=text_bytes(name)),
            C.INVALID_EVENT,
            "cluster_id is",
            key=name.encode(),
        )
        for what, name, why in (
            ("of two dots", "..", "a folder, where names become paths"),
            ("with a slash", "c/t", "its key would be that of a topic"),
            ("with NUL", "c\x00", "C libraries stop there"),
            ("of emoji", "🦄", "no name of Kafka's"),
            ("of 250 characters", "c" * 250, "one more than a name may have"),
            ("without a name", "", "nothing to answer under"),
        )
    ]
    + [
        _dead(
            "an empty event id",
            "nothing to remember",
            create(event_id=b"\x00"),
            C.INVALID_EVENT,
            "event_id is ''",
        ),
        _dead(
            "an event id of 257 characters",
            "one more than is remembered",
            create(event_id=text_bytes("e" * 257)),
            C.INVALID_EVENT,
            "event_id is",
        ),
    ]
)

_ENDS: Final = (("0", 0), ("-1", -1), ("2^31 - 1", 2**31 - 1), ("-2^31", -(2**31)))
_NUMBERS: Final = (
    [
        _rejected(
            f"{name} partitions", "an end of its type", Code.INVALID_PARTITIONS, partitions=raw
        )
        for name, raw in [
            *((name, long_bytes(end)) for name, end in _ENDS),
            ("100,001", long_bytes(100_001)),
        ]
    ]
    + [
        _rejected(
            f"a replication factor of {name}",
            "an end of its type",
            Code.INVALID_REPLICATION_FACTOR,
            replication_factor=long_bytes(number),
        )
        for name, number in [*_ENDS, ("33", 33)]
    ]
    + [
        _rejected(
            f"a start index of {name}",
            "an end of its type",
            Code.INVALID_START_INDEX,
            policy=_FLUVIO,
            start_index=b"\x02" + long_bytes(number),
        )
        for name, number in (("-1", -1), ("-2^31", -(2**31)))
    ]
    + [
        _rejected(
            "a shift of -1",
            "below 0",
            Code.INVALID_SHIFT,
            policy=_KAFKA,
            start_index=b"\x02\x00",
            shift=b"\x02\x01",
        ),
        _rejected(
            "the largest start index and shift",
            "they are added up",
            Code.INSUFFICIENT_SPUS,
            policy=_KAFKA,
            start_index=b"\x02" + long_bytes(2**31 - 1),
            shift=b"\x02" + long_bytes(2**31 - 1),
        ),
        _rejected(
            "a time at the end of 64 bits",
            "no date, where it becomes one",
            Code.INSUFFICIENT_SPUS,
            occurred_at=b"\x02" + long_bytes(2**63 - 1),
        ),
        _rejected(
            "a time at the other end",
            "no date, where it becomes one",
            Code.INSUFFICIENT_SPUS,
            occurred_at=b"\x02" + long_bytes(-(2**63)),
        ),
        _rejected(
            "an event id of \x1b[2J 🚀 \x00 \u202e",
            "legal, and nothing that a log should print as it is",
            Code.INSUFFICIENT_SPUS,
        ),
        _rejected(
            "an id in nine bytes",
            "Avro allows longer varints than are needed",
            Code.INSUFFICIENT_SPUS,
            partitions=b"\x82\x80\x80\x80\x80\x80\x80\x80\x00",
        ),
    ]
    + [
        _ignored(
            f"SPU {name}", "an end of its type", Code.INVALID_SPU_ID, spu_id=long_bytes(number)
        )
        for name, number in (("-1", -1), ("-2^31", -(2**31)))
    ]
    + [
        _ignored(
            f"{name} cores", "each keeps a weight", Code.INVALID_CORES, cores=long_bytes(number)
        )
        for name, number in [*_ENDS, ("1,025", 1_025)]
    ]
    + [
        _ignored(
            f"a capacity of {name}",
            "below 0",
            Code.INVALID_CAPACITY,
            capacity=b"\x02" + long_bytes(number),
        )
        for name, number in (("-1", -1), ("-2^31", -(2**31)))
    ]
    + [
        _ignored(f"a rack {what}", why, Code.INVALID_RACK, rack=b"\x02" + text_bytes(rack))
        for what, rack, why in (
            ("without a name", "", "it is not the same as no rack"),
            ("of 129 characters", "r" * 129, "one more than it may have"),
            ("of 60,000 characters", "r" * 60_000, "it is kept with every SPU"),
        )
    ]
)

_MANUAL: Final = [
    _rejected(
        "100,001 lists",
        "one more than a request may have",
        Code.INVALID_PARTITIONS,
        replicas=lists(*((number, []) for number in range(100_001))),
    ),
    _rejected(
        "half a million lists",
        "2 bytes on the wire and 250 in memory each",
        Code.INVALID_PARTITIONS,
        replicas=b"\x02" + array_bytes([_EMPTY_LIST] * 500_000),
    ),
    _rejected("no lists", "nothing to place", Code.INVALID_PARTITIONS, replicas=b"\x02\x00"),
    _rejected("an empty list", "no leader", Code.MANUAL_EMPTY_LIST, replicas=lists((0, []))),
    _rejected(
        "a list of 200,000 SPUs",
        "more than there can be",
        Code.INVALID_REPLICATION_FACTOR,
        replicas=lists((0, list(range(200_000)))),
    ),
    _rejected(
        "an id given twice",
        "two lists for one partition",
        Code.MANUAL_PARTITION_IDS,
        replicas=lists((0, [0]), (0, [1])),
    ),
    _rejected(
        "a list with the largest id",
        "an index, where ids become one",
        Code.MANUAL_PARTITION_IDS,
        replicas=lists((2**63 - 1, [0])),
    ),
    _rejected(
        "a list with id -1",
        "it counts from the end in Python",
        Code.MANUAL_PARTITION_IDS,
        replicas=lists((-1, [0])),
    ),
    _rejected(
        "an SPU twice in a list",
        "two replicas on one machine",
        Code.MANUAL_DUPLICATE_SPU,
        replicas=lists((0, [7, 7])),
    ),
    _rejected(
        "SPU -1 in a list",
        "it pads short lists inside the core",
        Code.MANUAL_INVALID_SPU,
        replicas=lists((0, [-1])),
    ),
    _rejected(
        "SPU 2^63 - 1 in a list",
        "it wraps around in 32 bits",
        Code.MANUAL_INVALID_SPU,
        replicas=lists((0, [2**63 - 1])),
    ),
    _rejected(
        "SPU 2^32 in a list",
        "it is 0 in 32 bits",
        Code.MANUAL_INVALID_SPU,
        replicas=lists((0, [2**32])),
    ),
    _rejected(
        "lists of different length",
        "no matrix",
        Code.MANUAL_UNEVEN_LISTS,
        replicas=lists((0, [0, 1]), (1, [0])),
    ),
    _rejected(
        "an SPU that is not there",
        "a replica nowhere",
        Code.MANUAL_UNKNOWN_SPU,
        replicas=lists((0, [2**31 - 1])),
    ),
]

_KAFKA_SIDE: Final = [
    _dead(
        "no key",
        "state is kept by key",
        create(),
        C.KEY_MISSING,
        "the message has no key",
        key=None,
    ),
    _dead("no key and no value", "nothing at all", None, C.KEY_MISSING, "no key", key=None),
    _dead("an empty key", "state is kept by key", create(), C.KEY_MISMATCH, "b''", key=b""),
    _dead(
        "another cluster's key",
        "it would reach another shard's state",
        create(),
        C.KEY_MISMATCH,
        "b'c2'",
        key=b"c2",
    ),
    _dead("a key with NUL", "C ends there", create(), C.KEY_MISMATCH, r"c\x00", key=b"c\x00"),
    _dead("a key of no UTF-8", "keys are texts", create(), C.KEY_MISMATCH, r"\xff", key=b"\xff"),
    _dead(
        "a key of 100 kB",
        "it would become the dead letter's",
        create(),
        C.KEY_MISMATCH,
        "the key is",
        key=b"k" * 100_000,
    ),
    Poison(
        name="10,000 headers",
        why="nobody reads them",
        value=create(event_id=text_bytes("10,000 headers")),
        rejection=Code.INSUFFICIENT_SPUS,
        headers=tuple((f"h{number}", b"x") for number in range(10_000)),
    ),
    Poison(
        name="headers of garbage",
        why="CloudEvents headers that lie",
        value=create(event_id=text_bytes("headers of garbage")),
        rejection=Code.INSUFFICIENT_SPUS,
        headers=(("ce_id", b"\xff\x00"), ("ce_id", b"twice"), ("", b""), ("x" * 1_000, bytes(999))),
    ),
    Poison(
        name="a time in the year 3000",
        why="by a producer's clock it would be merged behind all others for ever",
        value=create(event_id=text_bytes("a time in the year 3000")),
        rejection=Code.INSUFFICIENT_SPUS,
        timestamp_ms=FAR_FUTURE_MS,
    ),
]

MESSAGES: Final = [*_FRAMES, *_BODIES, *_NAMES, *_NUMBERS, *_MANUAL, *_KAFKA_SIDE]


# Lines for `simulate`.


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of JSON Lines; it becomes a dead letter that says this, or is answered by a code."""

    name: str
    why: str
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

LINES: Final = [
    Line(
        name="one line of 10 MB",
        why="memory for as much as somebody sends",
        make=lambda: _with(b'"x":"' + b"x" * 10_000_000 + b'"'),
        says="longer than 8388608 bytes",
    ),
    Line(
        name="8 MiB of empty lists",
        why="3 bytes of text and 64 of memory each",
        make=lambda: _with(b'"replicas":[' + b"[]," * 2_700_000 + b"[]]"),
        answer=Code.INVALID_PARTITIONS,
    ),
    Line(
        name="half a million names, the last one twice",
        why="quadratic for who counts them one by one",
        make=lambda: b"{" + b",".join(b'"%x":0' % n for n in (*range(500_000), 499_999)) + b"}",
        says="given more than once",
    ),
    Line(
        name="lists 10,000 deep",
        why="one call each, until the stack ends",
        make=lambda: b"[" * _DEEP + b"]" * _DEEP,
        says="nested too deeply",
    ),
    Line(
        name="objects 10,000 deep",
        why="one call each, until the stack ends",
        make=lambda: b'{"a":' * _DEEP + b"1" + b"}" * _DEEP,
        says="nested too deeply",
    ),
    Line(
        name="replicas 900 deep",
        why="it is read, and ends the stack of whoever walks it",
        make=lambda: _with(b'"replicas":' + b"[" * 900 + b"]" * 900),
        says="nested",
    ),
    Line(
        name="a name twice",
        why="two readers would see two topics",
        make=lambda: _with(b'"topic":"u"'),
        says='field "topic" is given more than once',
    ),
    Line(
        name="a name twice by an escape",
        why="the same name in another spelling",
        make=lambda: _with(rb'"\u0074opic":"u"'),
        says='field "topic" is given more than once',
    ),
    Line(
        name="a number of 5,000 digits",
        why="Python refuses to read it",
        make=lambda: _with(b'"partitions":1' + b"0" * 5_000),
        says="too many digits",
    ),
    Line(
        name="a number of 4,000 digits",
        why="Python reads it, and nobody wants to see it",
        make=lambda: _with(b'"partitions":1' + b"0" * 4_000),
        answer=Code.INVALID_PARTITIONS,
    ),
    Line(name="NaN", why="no JSON", make=lambda: _with(b'"start_index":NaN'), says="found NaN"),
    Line(
        name="-Infinity",
        why="no JSON",
        make=lambda: _with(b'"start_index":-Infinity'),
        says="found -Infinity",
    ),
    Line(
        name="1e999",
        why="infinite, for who reads it as a float",
        make=lambda: _with(b'"replicas":[{"id":0,"replicas":[1e999]}]'),
        says="found 1e999",
    ),
    Line(
        name="true for 1",
        why="a bool is an int to Python",
        make=lambda: _with(b'"partitions":true'),
        says="partitions is true",
    ),
    Line(
        name="true for SPU 1",
        why="a bool is an int to Python",
        make=lambda: _with(b'"replicas":[{"id":0,"replicas":[true]}]'),
        answer=Code.MANUAL_INVALID_SPU,
    ),
    Line(
        name="2.0 for 2", why="no whole number", make=lambda: _with(b'"partitions":2.0'), says="2.0"
    ),
    Line(
        name="half a surrogate pair",
        why="no bytes can hold it",
        make=lambda: _with(rb'"event_id":"\ud800"').replace(b'"event_id": "poison", ', b""),
        says="half a surrogate pair is none",
    ),
    Line(
        name="a byte order mark",
        why="editors put it there, and nobody sees it",
        make=lambda: b"\xef\xbb\xbf" + _line(),
        says="byte order mark",
    ),
    Line(
        name="UTF-16",
        why="some shells write it",
        make=lambda: _line().decode().encode("utf-16-be"),
        says="no JSON",
    ),
    Line(
        name="no UTF-8", why="Latin-1", make=lambda: _line(topic="t")[:-3] + b'\xe9"}', says="UTF-8"
    ),
    Line(name="NUL", why="C ends there", make=lambda: _line() + b"\x00", says="Extra data"),
    Line(
        name="two objects in a line",
        why="the second one would be lost",
        make=lambda: _line() + _line(),
        says="Extra data",
    ),
    Line(
        name="an escape sequence for a policy",
        why="it clears the terminal of who reads the message",
        make=lambda: _line(policy="\x1b[2J"),
        says=r"\u001b[2J",
    ),
    Line(
        name="an unknown field of 64 KiB",
        why="the message must not quote it whole",
        make=lambda: _line(**{"x" * MESSAGE_SIZE_MAX: 1}),
        says="unknown field",
    ),
]


# Files of manual lists, and settings.


@dataclass(frozen=True, kw_only=True)
class File:
    """A file in a folder of its own; `make` gives its path."""

    name: str
    why: str
    make: Callable[[Path], Path]
    says: str


def _holding(content: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "poison"
        path.write_bytes(content)
        return path

    return make


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def _socket(folder: Path) -> Path:
    path = folder / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        before = Path.cwd()
        os.chdir(folder)  # A socket's path has at most 107 bytes.
        try:
            listener.bind("s")
        finally:
            os.chdir(before)
    return path


def _link(folder: Path) -> Path:
    (folder / "lists").write_text("[]", encoding="utf-8")
    (folder / "link").symlink_to("lists")
    return folder / "link"


def _loop(folder: Path) -> Path:
    (folder / "loop").symlink_to("loop")
    return folder / "loop"


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
    File(name="a FIFO", why="it waits for a writer", make=_pipe, says=_NOT_REGULAR),
    File(name="a folder", why="no bytes", make=lambda folder: folder, says=_NOT_REGULAR),
    File(name="/dev/zero", why="no end", make=lambda _: Path("/dev/zero"), says=_NOT_REGULAR),
    File(name="a terminal", why="it waits", make=lambda _: Path("/dev/ptmx"), says=_NOT_REGULAR),
    File(name="a socket", why="not to be opened", make=_socket, says="No such device"),
    File(name="a link to itself", why="no end", make=_loop, says=""),
    File(
        name="nothing", why="a wrong name", make=lambda folder: folder / "no", says="No such file"
    ),
    File(
        name="a name with NUL",
        why="C ends there",
        make=lambda folder: folder / "a\x00b",
        says="embedded null",
    ),
    File(
        name="a name of 5,000 characters",
        why="more than a system takes",
        make=lambda folder: folder / ("a" * 5_000),
        says="too long",
    ),
    File(
        name="a name of half a surrogate pair",
        why="a terminal in another encoding",
        make=lambda folder: folder / "\ud800",
        says="cannot be read",
    ),
    File(
        name="a file that cannot be read",
        why="the disk fails in the middle",
        make=lambda _: Path("/proc/self/mem"),
        says="Input/output error",
    ),
    File(name="1 TiB", why="memory for all of it", make=_sparse(2**40), says="has more than"),
]

FILES: Final = [
    *PLACES,
    File(name="a link", why="the file may be another's", make=_link, says="is a symbolic link"),
    File(
        name="8 MiB and a byte",
        why="the limit",
        make=_sparse(MANUAL_FILE_SIZE_MAX + 1),
        says="has more than 8388608 bytes",
    ),
    *(
        File(name=name, why=why, make=_holding(content), says=says)
        for name, why, content, says in (
            ("an empty file", "written by nobody", b"", "no JSON at line 1, column 1"),
            ("half a file", "read while it was written", _LISTS[:10], "no JSON at line 1"),
            ("two values", "joined files", _LISTS * 2, "Extra data"),
            ("a number", "neither form", b"7", "is neither form"),
            ("another object", "neither form", b'{"lists":[]}', "is neither form"),
            ("deep lists", "the stack ends", b"[" * _DEEP + b"]" * _DEEP, "nested too deeply"),
            ("deep objects", "likewise", b'{"a":' * _DEEP + b"1" + b"}" * _DEEP, "too deeply"),
            ("lists 900 deep", "it is read", b"[" * 900 + b"]" * 900, "nested too deeply"),
            (
                "replicas 900 deep",
                "it is read, and ends the stack of whoever quotes it",
                b'[{"id":0,"replicas":' + b"[" * 900 + b"]" * 900 + b"}]",
                "nested too deeply",
            ),
            ("a name twice", "two lists", b'[{"id":0,"replicas":[0],"id":1}]', "more than once"),
            ("NaN", "no JSON", b'[{"id":NaN,"replicas":[0]}]', "found NaN"),
            ("1e999", "infinite", b'[{"id":0,"replicas":[1e999]}]', "found 1e999"),
            ("5,000 digits", "no int", b"[1" + b"0" * 5_000 + b"]", "cannot be read"),
            ("UTF-16", "Windows", _LISTS.decode().encode("utf-16"), "is no UTF-8 at byte 0"),
            ("UTF-16 unmarked", "Windows", _LISTS.decode().encode("utf-16-le"), "is no JSON"),
            ("two byte order marks", "two editors", b"\xef\xbb\xbf" * 2 + _LISTS, "no JSON"),
            ("Latin-1", "no UTF-8", b'["\xe9"]', "is no UTF-8 at byte 2"),
            ("a surrogate in UTF-8", "no UTF-8", b'["\xed\xa0\x80"]', "is no UTF-8 at byte 2"),
            ("NUL", "C ends there", _LISTS + b"\x00", "Extra data"),
        )
    ),
]

SETTINGS: Final = [
    *PLACES,
    *(
        File(name=name, why=why, make=_holding(content), says=says)
        for name, why, content, says in (
            ("deep lists", "the stack ends", b"shards = " + b"[" * _DEEP, "nested too deeply"),
            ("deep tables", "likewise", b"shards = " + b"{a=" * _DEEP, "nested too deeply"),
            ("5,000 digits", "no int", b"shards = 1" + b"0" * 5_000, "digits"),
            ("5,000 digits in base 16", "an int", b"shards = 0x1" + b"0" * 5_000, "20001 bits"),
            ("a list of them", "an int", b"shards = [0x1" + b"0" * 5_000 + b"]", "20001 bits"),
            ("true for 1", "an int to Python", b"shards = true", "shards in"),
            ("nan", "no number", b"shards = nan", "shards in"),
            ("a name twice", "two values", b"shards = 1\nshards = 2", "expected TOML"),
            ("an unknown name", "misspelt", b"shard = 1", "a name in"),
            ("an escape sequence", "it clears", b'query_name = "\\u001B[2J"', r"\x1b[2J"),
            ("NUL", "C ends there", b'query_name = "a\\u0000"', r"a\x00"),
            ("UTF-16", "Windows", "shards = 1".encode("utf-16"), "expected TOML"),
            ("100 kB", "another file", b"#" * 100_000, "has more than 65536 bytes"),
        )
    ),
]


# Files of the schema registry.


@dataclass(frozen=True, kw_only=True)
class Schema:
    """A file of the registry's folder, and what is said of it."""

    name: str
    why: str
    file: str
    content: bytes
    says: str


def _record(*types: Any, name: str = "TopicGrow") -> dict[str, Any]:
    fields = [{"name": f"f{place}", "type": each} for place, each in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


def _doubling(levels: int) -> dict[str, Any]:
    """Each record holds the one before it twice: 2^levels parts when references are replaced."""
    records: list[Any] = [_record("int", name="R0")]
    records += [
        _record(f"R{level - 1}", f"R{level - 1}", name=f"R{level}") for level in range(1, levels)
    ]
    return _record(*records)


def _nested(depth: int) -> Any:
    schema: Any = "int"
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def _schemas() -> Iterator[Schema]:
    for name, why, schema, says in (
        ("a recursive schema", "no end", _record(_array_of("TopicGrow")), "is recursive"),
        ("itself as a field", "no end", _record("TopicGrow"), "is recursive"),
        ("items of no width", "a count of 2^40 in five bytes", _record(_array_of("null")), "zero"),
        ("items of an empty record", "likewise", _record(_array_of(_record(name="E"))), "zero"),
        ("a fixed of no width", "likewise", _record({**_fixed(0)}), "zero width"),
        ("a schema of 2^30 parts", "1 kB that becomes gigabytes", _doubling(30), "2000 parts"),
        ("a schema 200 deep", "one call each", _record(_nested(200)), "32 deep"),
        ("an unknown type", "a file is missing", _record("Nothing"), "is not defined"),
        ("a type we do not read", "floats", _record("double"), "unused here"),
        ("no schema", "a list", [], "holds no object"),
        ("half a schema", "fields without types", {**_record(), "fields": [1]}, "no name or no"),
        ("a default of NaN", "no JSON", _record(), "nan"),
    ):
        content = json.dumps(schema).encode()
        if name == "a default of NaN":
            field = b'{"name":"a","type":"int","default":NaN}'
            content = content.replace(b'"fields": []', b'"fields": [' + field + b"]")
        yield Schema(name=name, why=why, file="TopicGrow.avsc", content=content, says=says)
    for name, why, content, says in (
        ("no JSON", "half a file", b"{", "is no JSON"),
        ("no UTF-8", "another encoding", b"\xff", "is no JSON"),
        ("lists 10,000 deep", "the stack ends", b"[" * _DEEP + b"]" * _DEEP, "is no JSON"),
    ):
        for file in ("TopicGrow.avsc", "registry.json"):
            yield Schema(name=f"{name} in {file}", why=why, file=file, content=content, says=says)
    whole = {
        "id": 1,
        "type_name": "TopicGrow",
        "version": 1,
        "fingerprint": "00" * 8,
        "schema": _record("int"),
    }
    for name, why, changes, says in (
        ("a schema id of 2^32", "the frame has 4 bytes", {"id": 2**32}, "an entry of"),
        ("a schema id of -1", "the frame has no sign", {"id": -1}, "an entry of"),
        ("a text for a schema id", "ids are compared", {"id": "1"}, "an entry of"),
        ("a fingerprint that is none", "8 bytes", {"fingerprint": "../.."}, "an entry of"),
        ("a recursive entry", "no end", {"schema": _record("TopicGrow")}, "is recursive"),
        ("an entry of 2^30 parts", "gigabytes", {"schema": _doubling(30)}, "2000 parts"),
        ("an unknown member", "of another release", {"more": 1}, "an entry of"),
    ):
        content = json.dumps({"schemas": [whole | changes]}).encode()
        yield Schema(name=name, why=why, file="registry.json", content=content, says=says)


def _array_of(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _fixed(size: int) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size}


SCHEMAS: Final = list(_schemas())
