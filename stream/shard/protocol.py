"""The messages between a worker and a shard's server: plain bytes, read by length.

Nothing here can name a class or run anything, so that bytes of others (the values of messages, the
entries of the state) are never more than bytes. Layout, numbers big-endian but for the columns:

    message = tag u8, body
    ProcessBatch            query name, prefix, policy, wire, secret, each as a blob; rows u32; four
                            columns of rows * i64 as they lie in memory (both ends are on one
                            machine); keys; values
    BundleReady             the bundle
    GetState, RemoveState   the key
    PutState                the key as a blob, the value
    ListState, BatchDone    empty
    BatchFailed             the error as a blob, the trace
    StateValue              u8 whether there is one, the value
    StatePiece              entries u32, each two blobs: key, value; without entries: that was all

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


class ShardProtocolError(AssignerError):
    """Bytes between worker and shard server are no message: the two are of two releases."""


class _Tag(IntEnum):
    PROCESS_BATCH = 1
    BUNDLE_READY = 2
    GET_STATE = 3
    PUT_STATE = 4
    REMOVE_STATE = 5
    LIST_STATE = 6
    BATCH_DONE = 7
    BATCH_FAILED = 8
    STATE_VALUE = 9
    STATE_PIECE = 10


@dataclass(frozen=True, slots=True)
class ProcessBatch:
    """The worker: process this batch."""

    batch: Batch
    options: Options


@dataclass(frozen=True, slots=True)
class BundleReady:
    """The server: this goes out."""

    data: bytes


@dataclass(frozen=True, slots=True)
class GetState:
    """The server: what does the state hold under a key?"""

    key: str


@dataclass(frozen=True, slots=True)
class PutState:
    """The server: the state is to hold this; not answered."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class RemoveState:
    """The server: the state is to forget a key; not answered."""

    key: str


@dataclass(frozen=True, slots=True)
class ListState:
    """The server: what does the state hold?"""


@dataclass(frozen=True, slots=True)
class BatchDone:
    """The server: the batch is processed."""


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """The server: the batch cannot be processed."""

    error: str
    trace: str


@dataclass(frozen=True, slots=True)
class StateValue:
    """The worker's answer to `GetState`."""

    value: bytes | None


@dataclass(frozen=True, slots=True)
class StatePiece:
    """The worker's answer to `ListState`, part by part; an empty one ends it."""

    entries: Sequence[tuple[str, bytes]]


ShardMessage = (
    ProcessBatch
    | BundleReady
    | GetState
    | PutState
    | RemoveState
    | ListState
    | BatchDone
    | BatchFailed
    | StateValue
    | StatePiece
)


def encode(message: ShardMessage) -> bytes:
    """A message's bytes."""
    match message:
        case ProcessBatch(batch, options):
            return _process_batch(batch, options)
        case BundleReady(data):
            return b"%c%b" % (_Tag.BUNDLE_READY, data)
        case GetState(key):
            return b"%c%b" % (_Tag.GET_STATE, key.encode())
        case PutState(key, value):
            return b"%c%b%b" % (_Tag.PUT_STATE, _blob(key.encode()), value)
        case RemoveState(key):
            return b"%c%b" % (_Tag.REMOVE_STATE, key.encode())
        case ListState():
            return b"%c" % _Tag.LIST_STATE
        case BatchDone():
            return b"%c" % _Tag.BATCH_DONE
        case BatchFailed(error, trace):
            error_bytes = error.encode(errors="backslashreplace")
            return b"%c%b%b" % (
                _Tag.BATCH_FAILED,
                _blob(error_bytes),
                trace.encode(errors="backslashreplace"),
            )
        case StateValue(value):
            return b"%c%c%b" % (_Tag.STATE_VALUE, value is not None, value or b"")
        case StatePiece(entries):
            parts = [b"%c%b" % (_Tag.STATE_PIECE, _SIZE.pack(len(entries)))]
            for key, value in entries:
                parts += (_blob(key.encode()), _blob(value))
            return b"".join(parts)
    assert_never(message)


def decode(data: bytes) -> ShardMessage:
    """The message that the bytes are.

    Raises:
        ShardProtocolError: they are none.
    """
    reader = _Reader(data)
    try:
        tag = _Tag(reader.take(1)[0])
        message = _read(tag, reader)
    except (ValueError, IndexError, struct.error) as reason:
        raise ShardProtocolError(
            f"{len(data)} bytes that begin with {data[:16].hex()} are no message between worker "
            f"and shard server ({reason}); start the job anew, so that both are of one release"
        ) from reason
    if reader.left:
        raise ShardProtocolError(
            f"a {tag.name} between worker and shard server has {reader.left} bytes too many; "
            "start the job anew, so that both are of one release"
        )
    return message


def _read(tag: _Tag, reader: _Reader) -> ShardMessage:
    match tag:
        case _Tag.PROCESS_BATCH:
            return _read_process_batch(reader)
        case _Tag.BUNDLE_READY:
            return BundleReady(reader.rest())
        case _Tag.GET_STATE:
            return GetState(reader.rest().decode())
        case _Tag.PUT_STATE:
            return PutState(reader.text(), reader.rest())
        case _Tag.REMOVE_STATE:
            return RemoveState(reader.rest().decode())
        case _Tag.LIST_STATE:
            return ListState()
        case _Tag.BATCH_DONE:
            return BatchDone()
        case _Tag.BATCH_FAILED:
            return BatchFailed(reader.text(), reader.rest().decode())
        case _Tag.STATE_VALUE:
            return StateValue(reader.rest() if reader.take(1) != b"\0" else None)
        case _Tag.STATE_PIECE:
            return StatePiece([(reader.text(), reader.some()) for _ in range(reader.size())])
    assert_never(tag)


def _process_batch(batch: Batch, options: Options) -> bytes:
    texts = (
        options.query_name,
        options.topic_prefix,
        options.default_policy.value,
        options.wire.value,
        options.server_secret,
    )
    columns = (batch.source, batch.partition, batch.offset, batch.time_ms)
    return b"".join(
        (
            b"%c" % _Tag.PROCESS_BATCH,
            *(_blob(None if text is None else text.encode()) for text in texts),
            _SIZE.pack(len(batch.keys)),
            *(column.astype(np.int64, copy=False).tobytes() for column in columns),
            *_bytes_column(batch.keys),
            *_bytes_column(batch.values),
        )
    )


def _read_process_batch(reader: _Reader) -> ProcessBatch:
    options = Options(
        query_name=reader.text(),
        topic_prefix=reader.text(),
        default_policy=Policy(reader.text()),
        wire=Wire(reader.text()),
        server_secret=None if (secret := reader.blob()) is None else secret.decode(),
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
    return ProcessBatch(batch, options)


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
