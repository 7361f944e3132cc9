"""Reading what an audit looks at: every topic once, into a file of its own.

The order of reading makes one picture of topics that grow meanwhile. First the audit: its last
marker is the fixed end. Then all outputs, inputs and `assigner-commits`, each to where it ends by
then. Then the audit once more, so that every batch of which a message was seen has its marker.

The judge goes along all partitions at once, batch by batch, and Kafka hands them over as it likes;
so messages are put into a temporary file, packed, and read back partition by partition.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
from confluent_kafka import Message
from spu_assigner.stream.config.connection import Connection
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.errors import ClientError
from spu_assigner.stream.kafka.topics import ASSIGNER_AUDIT, ASSIGNER_COMMITS
from spu_assigner.stream.verify.model import INPUTS, OUTPUTS, History, Part, Read, VerifyError

SETTLE_SECONDS: Final = (
    5.0  # a transaction's end is everywhere within milliseconds, a dead one's not
)
PIECE_SIZE: Final = 128 * 1024  # of a partition: packed, written and read back together
TOLD_EVERY: Final = 10_000  # messages

_LEAD: Final = struct.Struct(">qqiiH")  # offset, time, sizes of key and value (-1: none), headers
_HEADER: Final = struct.Struct(">Hi")  # sizes of name and value
Place = tuple[str, int]


class Spool:
    """Messages on disk, given back by partition, in the order they came."""

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self._file = tempfile.TemporaryFile(prefix="spu-assigner-verify-")  # noqa: SIM115
        self._begun: dict[Place, bytearray] = {}
        self._pieces: dict[Place, list[tuple[int, int, int]]] = {}  # at, size, size unpacked

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, place: Place, message: Message) -> None:
        """Put one message away."""
        begun = self._begun.setdefault(place, bytearray())
        before = len(begun)
        _pack(begun, message)
        self.count += 1
        self.size += len(begun) - before
        if len(begun) >= PIECE_SIZE:
            self._write(place)

    def reads(self, place: Place) -> Iterator[Read]:
        """The messages of a partition, from the first."""
        if self._begun.get(place):
            self._write(place)
        for at, size, unpacked in self._pieces.get(place, ()):
            self._file.seek(at)
            packed = self._file.read(size)
            data = pa.decompress(packed, decompressed_size=unpacked, codec="lz4_raw", asbytes=True)
            yield from _unpack(place, data)

    def _write(self, place: Place) -> None:
        begun = self._begun.pop(place)
        packed = pa.compress(bytes(begun), codec="lz4_raw", asbytes=True)
        at = self._file.seek(0, 2)
        self._file.write(packed)
        self._pieces.setdefault(place, []).append((at, len(packed), len(begun)))


class Spooled:
    """The messages of one partition; may be gone through again and again."""

    def __init__(self, spool: Spool, place: Place) -> None:
        self._spool = spool
        self._place = place

    def __iter__(self) -> Iterator[Read]:
        return self._spool.reads(self._place)


def read_history(
    connection: Connection, query: str, spool: Spool, tell: Callable[[Spool], None]
) -> History:
    """Read everything into the spool; `tell` is called now and then.

    Raises:
        VerifyError: Kafka cannot be reached, or topics are missing.
    """
    try:
        return _read_history(connection, query, spool, tell)
    except ClientError as reason:
        raise VerifyError(str(reason)) from reason


def _read_history(
    connection: Connection, query: str, spool: Spool, tell: Callable[[Spool], None]
) -> History:
    with Reader(connection, [ASSIGNER_AUDIT], from_beginning=True) as audit:
        _drain(audit, spool, tell)
        judged_to = audit.spans()[ASSIGNER_AUDIT, 0][1]
        with Reader(
            connection, [*OUTPUTS, *INPUTS, ASSIGNER_COMMITS], from_beginning=True
        ) as others:
            others.settle(SETTLE_SECONDS)
            _drain(others, spool, tell)
            spans = others.spans()
        audit.settle(SETTLE_SECONDS)
        _drain(audit, spool, tell)
        spans |= audit.spans()
    parts = {
        place: Part(
            topic=place[0],
            partition=place[1],
            begin=begin,
            end=end,
            messages=Spooled(spool, place),
        )
        for place, (begin, end) in spans.items()
    }
    return History(
        query=query,
        prefix=connection.prefix,
        audit=parts[ASSIGNER_AUDIT, 0],
        commits=parts[ASSIGNER_COMMITS, 0],
        outputs=[part for (topic, _), part in parts.items() if topic in OUTPUTS],
        inputs=[part for (topic, _), part in parts.items() if topic in INPUTS],
        judged_to=judged_to,
    )


def _drain(reader: Reader, spool: Spool, tell: Callable[[Spool], None]) -> None:
    for topic, message in reader.drain_messages():
        spool.add((topic, int(message.partition() or 0)), message)
        if spool.count % TOLD_EVERY == 0:
            tell(spool)


def _pack(into: bytearray, message: Message) -> None:
    key, value = message.key(), message.value()
    headers: Any = message.headers() or ()
    into += _LEAD.pack(
        message.offset(),
        message.timestamp()[1],
        -1 if key is None else len(key),
        -1 if value is None else len(value),
        len(headers),
    )
    into += key or b""
    into += value or b""
    for name, told in headers:
        encoded = name.encode()
        into += _HEADER.pack(len(encoded), -1 if told is None else len(told))
        into += encoded
        into += told or b""


def _unpack(place: Place, data: bytes) -> Iterator[Read]:
    topic, partition = place
    position, end = 0, len(data)

    def taken(size: int) -> bytes | None:
        nonlocal position
        if size < 0:
            return None
        position += size
        return data[position - size : position]

    while position < end:
        offset, time_ms, key_size, value_size, count = _LEAD.unpack_from(data, position)
        position += _LEAD.size
        key, value = taken(key_size), taken(value_size)
        headers: list[tuple[str, bytes | None]] = []
        for _ in range(count):
            name_size, told_size = _HEADER.unpack_from(data, position)
            position += _HEADER.size
            name = (taken(name_size) or b"").decode()
            headers.append((name, taken(told_size)))
        yield Read(topic, partition, offset, time_ms, key, value, tuple(headers))
