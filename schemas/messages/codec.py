"""Messages: frame and Avro together. All that the job reads from Kafka and writes to it.

Two encodings are read, and one of them is written, by choice of the caller:
Confluent's frame (0x00, schema id in 4 bytes, big-endian, Avro) and Avro's single-object encoding
(0xC3 0x01, CRC-64-AVRO of the schema in 8 bytes, little-endian, Avro). What does not decode
strictly is a `DecodeError`. Messages of earlier versions of a schema resolve to the current one.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.events import Event, SpuEvent, TopicAdopted, TopicCreate
from spu_assigner.core.base.limits import MANUAL_MESSAGE_SIZE_MAX, MESSAGE_SIZE_MAX
from spu_assigner.schemas.avro.meaning import Reader, Writer
from spu_assigner.schemas.avro.readers import compile_reader
from spu_assigner.schemas.avro.registry import Registered, Registry
from spu_assigner.schemas.avro.strict_reading import read_whole
from spu_assigner.schemas.avro.writers import compile_writer
from spu_assigner.schemas.errors import DeadLetterCode, DecodeError, EncodeError
from spu_assigner.schemas.messages.meanings import EVENT_TYPES, MEANING, TYPE_NAMES, Message
from spu_assigner.schemas.messages.wire import Wire

EventKind = Literal["spu", "topic"]

_WITH_LISTS: Final = ("TopicCreate", "TopicAdopted")  # events that may be longer than others

_JSON_LOOKED_AT: Final = 64  # bytes
_BEFORE_JSON: Final = b" \t\r\n\xef\xbb\xbf"  # blanks, and the mark of UTF-8
_OTHER_REGISTRY: Final = (
    " (ids are those of this product's schemas, see asyncapi.yaml; one that another registry gave "
    "means nothing here)"
)

_CONFLUENT_MARK: Final = b"\x00"
_CONFLUENT_SIZE: Final = 5
_SINGLE_OBJECT_MARK: Final = b"\xc3\x01"
_SINGLE_OBJECT_SIZE: Final = 10

EVENT_KINDS: Final[dict[str, EventKind]] = {  # of each event's type: the input it may come on
    name: "spu" if cls in get_args(SpuEvent) else "topic" for name, cls in EVENT_TYPES.items()
}

# How the messages of one version of one schema are read: its type, the input that it may come on
# (None: not an event), the size of the header, and the reader.
_Entrance = tuple[str, EventKind | None, int, Reader]


def decode_event(data: bytes | None, *, kind: EventKind) -> Event:
    """The event of a message on `spu-events` or `topic-events`.

    Raises:
        DecodeError: it is none; the code and message say why. Nothing else, whatever the bytes.
    """
    if data is None:
        raise DecodeError(DeadLetterCode.NULL_VALUE, "the value is null; expected an event")
    if type(data) is not bytes:
        data = bytes(data)
    type_name, found, header_size, read = _ENTRANCES.get(data[:_CONFLUENT_SIZE]) or _entrance(data)
    if found != kind:
        expected = ", ".join(name for name, each in EVENT_KINDS.items() if each == kind)
        raise _wrong_type(data, type_name, expected)
    size = len(data)
    if size > MESSAGE_SIZE_MAX and (
        size > MANUAL_MESSAGE_SIZE_MAX or type_name not in _WITH_LISTS
    ):  # A TopicCreate without manual lists cannot be as long: its names have limits.
        raise _too_large(size)
    try:
        event: Event = read_whole(read, data, header_size)
    except InvalidEventError as error:
        raise DecodeError(DeadLetterCode.INVALID_EVENT, str(error)) from error
    except DecodeError as error:
        if header_size != _CONFLUENT_SIZE:
            raise
        said = f"{error.message}; {_found_id(data, type_name)}{_OTHER_REGISTRY}"
        raise DecodeError(error.code, said) from None
    return event


def encode_event(event: Event, *, wire: Wire = Wire.CONFLUENT) -> bytes:
    """The message of an event.

    Raises:
        EncodeError: a number beyond the schema's, lists that are no manual lists, or over 64 KiB
            (1 MiB with lists).
    """
    header, write = _ENCODINGS[wire][type(event)]
    data = header + write(event)
    if len(data) > MESSAGE_SIZE_MAX:
        brings = isinstance(event, (TopicCreate, TopicAdopted)) and event.replicas is not None
        limit = MANUAL_MESSAGE_SIZE_MAX if brings else MESSAGE_SIZE_MAX
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
    type_name, kind, header_size, read = _ENTRANCES.get(data[:_CONFLUENT_SIZE]) or _entrance(data)
    if kind is not None:
        raise _wrong_type(data, type_name, "a record")
    record: Message = read_whole(read, data, header_size)
    return record


def encode_record(record: Message, *, wire: Wire = Wire.CONFLUENT) -> bytes:
    """The message of a record, entry, dead letter or marker; a deleted map has none.

    Raises:
        EncodeError: the map is deleted.
    """
    header, write = _ENCODINGS[wire][type(record)]
    return header + write(record)


def _entrance(data: bytes) -> _Entrance:
    """The entrance of a message; made when the first message of its kind is read."""
    size = _CONFLUENT_SIZE if data.startswith(_CONFLUENT_MARK) else _SINGLE_OBJECT_SIZE
    header = data[:size]
    if header in _ENTRANCES:
        return _ENTRANCES[header]
    if (entry := _VERSIONS.get(header)) is not None:
        name = entry.type_name
        read = compile_reader(entry.expanded, MEANING, current=_REGISTRY.current(name).expanded)
        made = _ENTRANCES[header] = name, EVENT_KINDS.get(name), size, read
        return made
    if data[:_JSON_LOOKED_AT].lstrip(_BEFORE_JSON)[:1] in (b"{", b"["):
        raise DecodeError(
            DeadLetterCode.UNDECODABLE,
            f"JSON, or a text like it, of {len(data)} bytes; expected Avro behind 00 and a schema "
            "id, or c301 and a fingerprint (`spu-assigner produce events` sends events of JSON)",
        )
    if len(header) < size or not header.startswith((_CONFLUENT_MARK, _SINGLE_OBJECT_MARK)):
        raise DecodeError(
            DeadLetterCode.UNDECODABLE,
            f"{len(data)} bytes that begin with {data[:10].hex() or 'nothing'}; "
            "expected 00 and a schema id, or c301 and a fingerprint",
        )
    if size == _CONFLUENT_SIZE:
        found, other = f"schema id {_id_of(header)}", _OTHER_REGISTRY
    else:
        found, other = f"schema fingerprint {header[2:].hex()}", ""
    raise DecodeError(
        DeadLetterCode.UNKNOWN_SCHEMA,
        f"{found} is not in the registry; expected one of this release's schemas{other}",
    )


def _wrong_type(data: bytes, type_name: str, expected: str) -> DecodeError:
    """An id says what a value is only if it was taken from this product's schemas."""
    if data.startswith(_CONFLUENT_MARK):
        message = f"{_found_id(data, type_name)}; expected {expected}{_OTHER_REGISTRY}"
    else:
        message = f"the value is a {type_name}; expected {expected}"
    return DecodeError(DeadLetterCode.WRONG_TYPE, message)


def _found_id(data: bytes, type_name: str) -> str:
    return f"its schema id {_id_of(data)} is that of {type_name} here"


def _id_of(data: bytes) -> int:
    return int.from_bytes(data[1:_CONFLUENT_SIZE], "big")


def _too_large(size: int) -> DecodeError:
    return DecodeError(
        DeadLetterCode.TOO_LARGE,
        f"the value has {size} bytes; at most {MESSAGE_SIZE_MAX} are taken, "
        f"{MANUAL_MESSAGE_SIZE_MAX} for a TopicCreate or TopicAdopted with lists",
    )


def confluent_header(entry: Registered) -> bytes:
    """What precedes the Avro bytes in Confluent's frame."""
    return _CONFLUENT_MARK + entry.id.to_bytes(4, "big")


def single_object_header(entry: Registered) -> bytes:
    """What precedes the Avro bytes in Avro's single-object encoding."""
    return _SINGLE_OBJECT_MARK + bytes.fromhex(entry.fingerprint)


_REGISTRY: Final = Registry.load()
_HEADER_MAKERS: Final = {Wire.CONFLUENT: confluent_header, Wire.SINGLE_OBJECT: single_object_header}
_VERSIONS: Final = {
    make(entry): entry for entry in _REGISTRY.entries for make in _HEADER_MAKERS.values()
}
_ENTRANCES: Final[dict[bytes, _Entrance]] = {}  # by header
_WRITERS: Final = {
    name: compile_writer(_REGISTRY.current(name).expanded, MEANING) for name in TYPE_NAMES.values()
}
_ENCODINGS: Final[dict[Wire, dict[type[Event | Message], tuple[bytes, Writer]]]] = {
    wire: {cls: (make(_REGISTRY.current(name)), _WRITERS[name]) for cls, name in TYPE_NAMES.items()}
    for wire, make in _HEADER_MAKERS.items()
}
