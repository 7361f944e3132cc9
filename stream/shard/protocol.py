"""What a worker and a shard's keeper say to each other: plain bytes, read by length.

Nothing here can name a class or run anything, so that bytes of others (the values of messages, the
entries of the state) are never more than bytes. Layout, numbers big-endian but for the columns:

    message = tag u8, body
    Ask       query name, prefix, policy, wire, secret, each as a blob; rows u32; four columns of
              rows * i64 as they lie in memory (both ends are on one machine); keys; values
    Bundle    the bundle                   Get, Remove  the key
    Put       the key as a blob, the value Items, Done  empty
    Failed    what is told as a blob, the trace
    Value     u8 whether there is one, the value
    Piece     entries u32, each two blobs: key, value; without entries: that was all

    blob    = size i32 (-1: none), bytes
    keys, values = rows sizes i32 (-1: none) as they lie in memory, then the bytes of all
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, assert_never

import numpy as np
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import Policy
from spu_assigner.schemas.messages.wire import Wire
from spu_assigner.stream.shard.batch import Batch, Options
from spu_assigner.stream.shard.columns import NONE, BytesColumn

_SIZE: Final = struct.Struct(">i")


class KeeperMessageError(AssignerError):
    """Bytes between worker and keeper are none of these messages: the two are of two releases."""


class _Tag(IntEnum):
    ASK = 1
    BUNDLE = 2
    GET = 3
    PUT = 4
    REMOVE = 5
    ITEMS = 6
    DONE = 7
    FAILED = 8
    VALUE = 9
    PIECE = 10


@dataclass(frozen=True, slots=True)
class Ask:
    """The worker: process this batch."""

    batch: Batch
    options: Options


@dataclass(frozen=True, slots=True)
class Bundle:
    """The keeper: this goes out."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Get:
    """The keeper: what does the state hold under a key?"""

    key: str


@dataclass(frozen=True, slots=True)
class Put:
    """The keeper: the state is to hold this; not answered."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Remove:
    """The keeper: the state is to forget a key; not answered."""

    key: str


@dataclass(frozen=True, slots=True)
class Items:
    """The keeper: what does the state hold?"""


@dataclass(frozen=True, slots=True)
class Done:
    """The keeper: the batch is processed."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The keeper: the batch cannot be processed."""

    told: str
    trace: str


@dataclass(frozen=True, slots=True)
class Value:
    """The worker's answer to `Get`."""

    value: bytes | None


@dataclass(frozen=True, slots=True)
class Piece:
    """The worker's answer to `Items`, part by part; an empty one ends it."""

    entries: Sequence[tuple[str, bytes]]


Message = Ask | Bundle | Get | Put | Remove | Items | Done | Failed | Value | Piece


def encode(message: Message) -> bytes:
    """A message's bytes."""
    match message:
        case Ask(batch, options):
            return _ask(batch, options)
        case Bundle(data):
            return b"%c%b" % (_Tag.BUNDLE, data)
        case Get(key):
            return b"%c%b" % (_Tag.GET, key.encode())
        case Put(key, value):
            return b"%c%b%b" % (_Tag.PUT, _blob(key.encode()), value)
        case Remove(key):
            return b"%c%b" % (_Tag.REMOVE, key.encode())
        case Items():
            return b"%c" % _Tag.ITEMS
        case Done():
            return b"%c" % _Tag.DONE
        case Failed(told, trace):
            told_bytes = told.encode(errors="backslashreplace")
            return b"%c%b%b" % (
                _Tag.FAILED,
                _blob(told_bytes),
                trace.encode(errors="backslashreplace"),
            )
        case Value(value):
            return b"%c%c%b" % (_Tag.VALUE, value is not None, value or b"")
        case Piece(entries):
            parts = [b"%c%b" % (_Tag.PIECE, _SIZE.pack(len(entries)))]
            for key, value in entries:
                parts += (_blob(key.encode()), _blob(value))
            return b"".join(parts)
    assert_never(message)


def decode(data: bytes) -> Message:
    """The message that the bytes are.

    Raises:
        KeeperMessageError: they are none.
    """
    reader = _Reader(data)
    try:
        tag = _Tag(reader.take(1)[0])
        message = _read(tag, reader)
    except (ValueError, IndexError, struct.error) as reason:
        raise KeeperMessageError(
            f"{len(data)} bytes that begin with {data[:16].hex()} are no message between worker "
            f"and keeper ({reason}); start the job anew, so that both are of one release"
        ) from reason
    if reader.left:
        raise KeeperMessageError(
            f"a {tag.name} between worker and keeper has {reader.left} bytes too many; start the "
            "job anew, so that both are of one release"
        )
    return message


def _read(tag: _Tag, reader: _Reader) -> Message:
    match tag:
        case _Tag.ASK:
            return _asked(reader)
        case _Tag.BUNDLE:
            return Bundle(reader.rest())
        case _Tag.GET:
            return Get(reader.rest().decode())
        case _Tag.PUT:
            return Put(reader.text(), reader.rest())
        case _Tag.REMOVE:
            return Remove(reader.rest().decode())
        case _Tag.ITEMS:
            return Items()
        case _Tag.DONE:
            return Done()
        case _Tag.FAILED:
            return Failed(reader.text(), reader.rest().decode())
        case _Tag.VALUE:
            return Value(reader.rest() if reader.take(1) != b"\0" else None)
        case _Tag.PIECE:
            return Piece([(reader.text(), reader.some()) for _ in range(reader.size())])
    assert_never(tag)


def _ask(batch: Batch, options: Options) -> bytes:
    texts = (
        options.query_name,
        options.topic_prefix,
        options.default_policy.value,
        options.wire.value,
        options.keepers,
    )
    columns = (batch.source, batch.partition, batch.offset, batch.time_ms)
    return b"".join(
        (
            b"%c" % _Tag.ASK,
            *(_blob(None if text is None else text.encode()) for text in texts),
            _SIZE.pack(len(batch.keys)),
            *(column.astype(np.int64, copy=False).tobytes() for column in columns),
            *_bytes_column(batch.keys),
            *_bytes_column(batch.values),
        )
    )


def _asked(reader: _Reader) -> Ask:
    options = Options(
        query_name=reader.text(),
        topic_prefix=reader.text(),
        default_policy=Policy(reader.text()),
        wire=Wire(reader.text()),
        keepers=None if (secret := reader.blob()) is None else secret.decode(),
    )
    rows = reader.size()
    source, partition, offset, time_ms = (
        np.frombuffer(reader.take(8 * rows), dtype=np.int64) for _ in range(4)
    )
    batch = Batch(
        source=source,
        partition=partition,
        offset=offset,
        time_ms=time_ms,
        keys=reader.bytes_column(rows),
        values=reader.bytes_column(rows),
    )
    return Ask(batch, options)


def _blob(data: bytes | None) -> bytes:
    return _SIZE.pack(NONE) if data is None else _SIZE.pack(len(data)) + data


def _bytes_column(values: list[bytes | None] | BytesColumn) -> Iterable[bytes | memoryview]:
    column = BytesColumn.of_list(values) if isinstance(values, list) else values
    yield column.sizes.tobytes()
    yield column.data


class _Reader:
    """Bytes from front to back; past the end is a ValueError."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._position

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise ValueError(f"{size} bytes are wanted and {self.left} left")
        begin = self._position
        self._position += size
        return self._data[begin : self._position]

    def rest(self) -> bytes:
        return self.take(self.left)

    def size(self) -> int:
        (size,) = _SIZE.unpack(self.take(_SIZE.size))
        return int(size)

    def blob(self) -> bytes | None:
        size = self.size()
        return None if size == NONE else self.take(size)

    def some(self) -> bytes:
        blob = self.blob()
        if blob is None:
            raise ValueError("nothing where bytes are expected")
        return blob

    def text(self) -> str:
        return self.some().decode()

    def bytes_column(self, rows: int) -> list[bytes | None]:
        sizes = np.frombuffer(self.take(4 * rows), dtype=np.int32)
        data = self.take(int(np.maximum(sizes, 0).sum(dtype=np.int64)))
        return BytesColumn(sizes, data).tolist()
