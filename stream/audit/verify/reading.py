"""Reading what an audit looks at: every topic once, into a file of its own.

The order of reading gives one picture of topics that grow meanwhile. First the audit: its last
marker is the fixed end. Then all outputs, inputs and `assigner-commits`, each to where it ends by
then. Then the audit again, so that every batch of which a message was seen has its marker.

The audit goes along all partitions at once, batch by batch, and Kafka delivers them in any order;
so messages are put into a temporary file, packed, and read back partition by partition.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
from confluent_kafka import Message
from spu_assigner.stream.audit.verify.model import INPUTS, OUTPUTS, History, Part, Read, VerifyError
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import ClientError
from spu_assigner.stream.kafka.topics import ASSIGNER_AUDIT, ASSIGNER_COMMITS

SETTLE_SECONDS: Final = (
    5.0  # a transaction's end is everywhere within milliseconds, a dead one's not
)
PIECE_SIZE: Final = 128 * 1024  # of a partition: packed, written and read back together
MESSAGE_SIZE: Final = 256  # what a message has besides key and value: headers, numbers
REPORTED_EVERY: Final = 10_000  # messages

_SCHEMA: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("time_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.map_(pa.string(), pa.binary())),
    ]
)
Place = tuple[str, int]


class Spool:
    """Messages on disk, given back by partition, in the order they came."""

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self._file = tempfile.TemporaryFile(prefix="spu-assigner-verify-")  # noqa: SIM115
        self._begun: defaultdict[Place, list[Any]] = defaultdict(list)
        self._begun_sizes: defaultdict[Place, int] = defaultdict(int)
        self._pieces: defaultdict[Place, list[tuple[int, int, int]]] = defaultdict(list)

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
        key, value = message.key(), message.value()
        time_ms, headers = message.timestamp()[1], message.headers() or []
        self._begun[place].append((message.offset(), time_ms, key, value, headers))
        size = len(key or b"") + len(value or b"") + MESSAGE_SIZE
        self.count += 1
        self.size += size
        self._begun_sizes[place] += size
        if self._begun_sizes[place] >= PIECE_SIZE:
            self._write(place)

    def reads(self, place: Place) -> Iterator[Read]:
        """The messages of a partition, from the first."""
        self._write(place)
        for at, size, unpacked in self._pieces[place]:
            self._file.seek(at)
            data = pa.decompress(self._file.read(size), unpacked, codec="lz4_raw")
            columns = pa.ipc.read_record_batch(data, _SCHEMA).columns
            for *fields, headers in zip(*(each.to_pylist() for each in columns), strict=True):
                yield Read._make((*place, *fields, tuple(headers)))

    def _write(self, place: Place) -> None:
        if self._begun[place]:
            columns = list(map(list, zip(*self._begun.pop(place), strict=True)))
            data = pa.record_batch(columns, schema=_SCHEMA).serialize()
            self._begun_sizes.pop(place)
            packed = pa.compress(data, codec="lz4_raw", asbytes=True)
            self._pieces[place].append((self._file.seek(0, 2), len(packed), data.size))
            self._file.write(packed)


@dataclass(frozen=True, slots=True)
class _Spooled:
    """The messages of one partition; may be gone through again and again."""

    spool: Spool
    place: Place

    def __iter__(self) -> Iterator[Read]:
        return self.spool.reads(self.place)


def read_history(
    connection: Connection, query: str, spool: Spool, progress: Callable[[], None]
) -> History:
    """Read everything into the spool; `progress` is called now and then.

    Raises:
        VerifyError: Kafka cannot be reached, or topics are missing.
    """

    def drain(reader: Reader) -> None:
        for topic, message in reader.drain_messages():
            spool.add((topic, int(message.partition() or 0)), message)
            if spool.count % REPORTED_EVERY == 0:
                progress()

    rest = [*OUTPUTS, *INPUTS, ASSIGNER_COMMITS]
    try:
        with Reader(connection, [ASSIGNER_AUDIT], from_beginning=True) as audit:
            drain(audit)
            end_offset = audit.spans()[ASSIGNER_AUDIT, 0][1]
            with Reader(connection, rest, from_beginning=True) as others:
                others.settle(SETTLE_SECONDS)
                drain(others)
                spans = others.spans()
            audit.settle(SETTLE_SECONDS)
            drain(audit)
            spans |= audit.spans()
    except ClientError as reason:
        raise VerifyError(str(reason)) from reason
    parts = {
        (topic, partition): Part(
            topic=topic,
            partition=partition,
            begin=begin,
            end=end,
            messages=_Spooled(spool, (topic, partition)),
        )
        for (topic, partition), (begin, end) in spans.items()
    }
    return History(
        query=query,
        prefix=connection.prefix,
        audit=parts[ASSIGNER_AUDIT, 0],
        commits=parts[ASSIGNER_COMMITS, 0],
        outputs=[part for (topic, _), part in parts.items() if topic in OUTPUTS],
        inputs=[part for (topic, _), part in parts.items() if topic in INPUTS],
        end_offset=end_offset,
    )
