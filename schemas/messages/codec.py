"""Messages: frame and Avro together. All that the job reads from Kafka and writes to it.

Two encodings are read, and one of them is written, by choice of the caller:
Confluent's frame (0x00, schema id in 4 bytes, big-endian, Avro) and Avro's single-object encoding
(0xC3 0x01, CRC-64-AVRO of the schema in 8 bytes, little-endian, Avro). What does not decode
strictly is a `DecodeError`. Messages of earlier versions of a schema resolve to the current one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any, Final, Literal

import fastavro
from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.events import Event, TopicCreate
from spu_assigner.core.base.limits import MANUAL_MESSAGE_SIZE_MAX, MESSAGE_SIZE_MAX
from spu_assigner.core.base.records import GrantedCreate, ReplicaMap, Status, TopicStatus
from spu_assigner.schemas.avro.registry import Registered, Registry
from spu_assigner.schemas.avro.strict_reading import Reader, compile_reader, read_whole
from spu_assigner.schemas.errors import DeadLetterCode, DecodeError, EncodeError
from spu_assigner.schemas.messages.decoding import BUILDERS, HOT_READERS, Builder
from spu_assigner.schemas.messages.encoding import MESSAGE_BODIES, Message, granted_create_bodies
from spu_assigner.schemas.messages.event_encoding import EVENT_BODIES
from spu_assigner.schemas.messages.wire import Wire

EventKind = Literal["spu", "topic"]

_CONFLUENT_MARK: Final = b"\x00"
_CONFLUENT_SIZE: Final = 5
_SINGLE_OBJECT_MARK: Final = b"\xc3\x01"
_SINGLE_OBJECT_SIZE: Final = 10

# The version with which a type is written where that is not the current one, which is kept for what
# it cannot hold: so a batch of an earlier release that this one repeats has the same bytes.
_WRITTEN: Final = {"TopicStatus": 2}  # all but RELEASED

EVENT_KINDS: Final[dict[str, EventKind]] = {  # of each event's type: the input it may come on
    "SpuJoined": "spu",
    "SpuLeft": "spu",
    "TopicCreate": "topic",
    "TopicDelete": "topic",
    "TopicRelease": "topic",
    "TopicGrow": "topic",
    "ClusterRebalance": "topic",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entrance:
    """How the messages of one version of one schema are read."""

    type_name: str
    kind: EventKind | None  # None: no event
    header_size: int
    read: Reader


def decode_event(data: bytes | None, *, kind: EventKind) -> Event:
    """The event of a message on `spu-events` or `topic-events`.

    Raises:
        DecodeError: it is none; the code and message say why. Nothing else, whatever the bytes.
    """
    if data is None:
        raise DecodeError(DeadLetterCode.NULL_VALUE, "the value is null; expected an event")
    if type(data) is not bytes:
        data = bytes(data)
    entrance = _ENTRANCES.get(data[:_CONFLUENT_SIZE]) or _entrance(data)
    if entrance.kind != kind:
        expected = ", ".join(name for name, its_kind in EVENT_KINDS.items() if its_kind == kind)
        raise DecodeError(
            DeadLetterCode.WRONG_TYPE, f"the value is a {entrance.type_name}; expected {expected}"
        )
    size = len(data)
    if size > MESSAGE_SIZE_MAX and (
        size > MANUAL_MESSAGE_SIZE_MAX or entrance.type_name != "TopicCreate"
    ):  # A TopicCreate without manual lists cannot be as long: its names have limits.
        raise _too_large(size)
    try:
        event: Event = read_whole(entrance.read, data, entrance.header_size)
    except InvalidEventError as error:
        raise DecodeError(DeadLetterCode.INVALID_EVENT, str(error)) from error
    return event


def encode_event(event: Event, *, wire: Wire = Wire.CONFLUENT) -> bytes:
    """The message of an event.

    Raises:
        EncodeError: a number beyond the schema's, lists that are no manual lists, or over 64 KiB
            (1 MiB with manual lists).
    """
    type_name, body = EVENT_BODIES[type(event)]
    data = _HEADERS[wire][type_name] + body(event)
    if len(data) > MESSAGE_SIZE_MAX:
        manual = isinstance(event, TopicCreate) and event.replicas is not None
        limit = MANUAL_MESSAGE_SIZE_MAX if manual else MESSAGE_SIZE_MAX
        if len(data) > limit:
            raise EncodeError(f"the event has {len(data)} bytes; at most {limit} are taken")
    return data


def decode_record(data: bytes) -> Message:
    """The record, entry, dead letter or marker of a message of the job's own.

    Raises:
        DecodeError: it is none; the code and message say why. Nothing else, whatever the bytes.
    """
    if type(data) is not bytes:
        data = bytes(data)
    entrance = _ENTRANCES.get(data[:_CONFLUENT_SIZE]) or _entrance(data)
    if entrance.kind is not None:
        raise DecodeError(
            DeadLetterCode.WRONG_TYPE, f"the value is a {entrance.type_name}; expected a record"
        )
    record: Message = read_whole(entrance.read, data, entrance.header_size)
    return record


def encode_record(record: Message, *, wire: Wire = Wire.CONFLUENT) -> bytes:
    """The message of a record, entry, dead letter or marker; a deleted map has none.

    Raises:
        EncodeError: the map is deleted.
    """
    header, body = _RECORDS[wire][type(record)]
    if _is_release(record):
        header = _RELEASE_HEADERS[wire]
    return header + body(record)


def encoder(wire: Wire) -> Callable[[Message], bytes]:
    """`encode_record` for one encoding: it is asked for two messages of each event."""
    records, release_header = _RECORDS[wire], _RELEASE_HEADERS[wire]

    def encode(record: Message) -> bytes:
        header, body = records[type(record)]
        return (release_header if _is_release(record) else header) + body(record)

    return encode


def granted_create_encoder(wire: Wire) -> Callable[[GrantedCreate], tuple[bytes, bytes]]:
    """What `encode_record` gives for the map and the status that a granted create stands for."""
    map_header, status_header = (_RECORDS[wire][each][0] for each in (ReplicaMap, TopicStatus))

    def encode(record: GrantedCreate) -> tuple[bytes, bytes]:
        map_body, status_body = granted_create_bodies(record)
        return map_header + map_body, status_header + status_body

    return encode


def _is_release(record: Message) -> bool:
    return type(record) is TopicStatus and record.status is Status.RELEASED


def type_name_of(record: Message | Event) -> str:
    """The name of its schema."""
    bodies: dict[Any, tuple[str, Any]] = {**EVENT_BODIES, **MESSAGE_BODIES}
    return bodies[type(record)][0]


def _entrance(data: bytes) -> _Entrance:
    entrance = _ENTRANCES.get(data[:_SINGLE_OBJECT_SIZE])
    if entrance is not None:
        return entrance
    if data.startswith(_CONFLUENT_MARK) and len(data) >= _CONFLUENT_SIZE:
        found = f"schema id {int.from_bytes(data[1:_CONFLUENT_SIZE], 'big')}"
        raise DecodeError(DeadLetterCode.UNKNOWN_SCHEMA, f"{found} is not in the registry")
    if data.startswith(_SINGLE_OBJECT_MARK) and len(data) >= _SINGLE_OBJECT_SIZE:
        found = f"schema fingerprint {data[2:_SINGLE_OBJECT_SIZE].hex()}"
        raise DecodeError(DeadLetterCode.UNKNOWN_SCHEMA, f"{found} is not in the registry")
    raise DecodeError(
        DeadLetterCode.UNDECODABLE,
        f"{len(data)} bytes that begin with {data[:10].hex() or 'nothing'}; "
        "expected 00 and a schema id, or c301 and a fingerprint",
    )


def _too_large(size: int) -> DecodeError:
    return DecodeError(
        DeadLetterCode.TOO_LARGE,
        f"the value has {size} bytes; at most {MESSAGE_SIZE_MAX} are taken, "
        f"{MANUAL_MESSAGE_SIZE_MAX} for a TopicCreate with manual lists",
    )


def written_version(registry: Registry, type_name: str) -> Registered:
    """The version with which messages of a type are written, but those that it cannot hold."""
    version = _WRITTEN.get(type_name)
    if version is None:
        return registry.current(type_name)
    return registry.versions(type_name)[version - 1]


def confluent_header(entry: Registered) -> bytes:
    """What precedes the Avro bytes in Confluent's frame."""
    return _CONFLUENT_MARK + entry.id.to_bytes(4, "big")


def single_object_header(entry: Registered) -> bytes:
    """What precedes the Avro bytes in Avro's single-object encoding."""
    return _SINGLE_OBJECT_MARK + bytes.fromhex(entry.fingerprint)


def entrances(registry: Registry) -> dict[bytes, _Entrance]:
    """How to read every version of every schema, by the header of the message."""
    found = {}
    for entry in registry.entries:
        current = registry.current(entry.type_name)
        read = _reader(entry, current, BUILDERS[entry.type_name])
        for header in (confluent_header(entry), single_object_header(entry)):
            found[header] = _Entrance(
                type_name=entry.type_name,
                kind=EVENT_KINDS.get(entry.type_name),
                header_size=len(header),
                read=read,
            )
    return found


def _reader(entry: Registered, current: Registered, build: Builder) -> Reader:
    """A reader of one version that gives what the current version would."""
    hot = HOT_READERS.get(entry.type_name)
    if entry is current and hot is not None:
        return hot(entry.expanded)
    read_fields = compile_reader(entry.expanded)
    resolve = None
    if entry is not current and not differ_in_symbols(entry.expanded, current.expanded):
        writer = fastavro.parse_schema(entry.schema, _write_hint=False)
        reader = fastavro.parse_schema(current.schema, _write_hint=False)
        resolve = partial(fastavro.schemaless_reader, writer_schema=writer, reader_schema=reader)

    def read(data: bytes, position: int) -> tuple[Any, int]:
        fields, end = read_fields(data, position)
        if resolve is not None:  # fastavro sees only what the strict reader has passed.
            fields = resolve(BytesIO(data[position:end]))
        return build(fields), end

    return read


def differ_in_symbols(one: Any, other: Any) -> bool:
    """Whether two schemas differ in symbols of enums alone: then a value is the same in both."""
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(
                name == "symbols" or differ_in_symbols(one[name], other[name]) for name in one
            )
        case list(), list():
            pairs = zip(one, other, strict=False)
            return len(one) == len(other) and all(differ_in_symbols(*pair) for pair in pairs)
        case _:
            return bool(one == other)


_REGISTRY: Final = Registry.load()
_HEADER_MAKERS: Final = {
    Wire.CONFLUENT: confluent_header,
    Wire.SINGLE_OBJECT: single_object_header,
}
_ENTRANCES: Final = entrances(_REGISTRY)
_HEADERS: Final[dict[Wire, dict[str, bytes]]] = {
    wire: {name: make(written_version(_REGISTRY, name)) for name in _REGISTRY.type_names}
    for wire, make in _HEADER_MAKERS.items()
}
_RELEASE_HEADERS: Final = {
    wire: make(_REGISTRY.current("TopicStatus")) for wire, make in _HEADER_MAKERS.items()
}
_RECORDS: Final[dict[Wire, dict[type[Message], tuple[bytes, Callable[[Any], bytes]]]]] = {
    wire: {
        record_type: (_HEADERS[wire][type_name], body)
        for record_type, (type_name, body) in MESSAGE_BODIES.items()
    }
    for wire in Wire
}
