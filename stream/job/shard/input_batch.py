"""The messages of one batch that a shard has read, and the order in which they are applied.

Offset order within a partition is never broken. Between partitions the broker's time decides (for a
message that is older than its predecessor, the predecessor's), then SPU events before topic events,
then partition, then offset.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray
from spu_assigner.stream.job.shard.bundle import InputSource, SourceRange

_COUNT: Final = struct.Struct("<q")
_SIX: Final = ("source", "partition", "offset", "time_ms", "key size", "value size")
Longs = NDArray[np.int64]
# Source, partition, offset, the broker's time in ms, key, value.
Row = tuple[int, int, int, int, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Messages of one shard, in any order, column by column."""

    source: Longs
    partition: Longs
    offset: Longs
    time_ms: Longs
    keys: list[bytes | None]
    values: list[bytes | None]

    @classmethod
    def of_rows(cls, rows: Sequence[Row]) -> Self:
        longs = np.array([row[:4] for row in rows], dtype=np.int64).reshape(len(rows), 4)
        return cls(
            source=longs[:, 0],
            partition=longs[:, 1],
            offset=longs[:, 2],
            time_ms=longs[:, 3],
            keys=[row[4] for row in rows],
            values=[row[5] for row in rows],
        )

    @classmethod
    def of_bytes(cls, pieces: Sequence[bytes]) -> Self:
        """From what Spark's step sends, in any number of pieces.

        A piece is little-endian: how many rows, i64; their source, partition, offset, time_ms, size
        of the key and size of the value (-1: none), each a column of i64; then key and value of
        each row.
        """
        columns = [np.empty((len(_SIX), 0), dtype=np.int64)]
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for piece in pieces:
            (count,) = _COUNT.unpack_from(piece)
            end = _COUNT.size + 8 * len(_SIX) * count
            longs = np.frombuffer(piece[_COUNT.size : end], dtype="<i8").reshape(len(_SIX), count)
            columns.append(longs)
            for key_size, value_size in zip(longs[4].tolist(), longs[5].tolist(), strict=True):
                start = end
                if key_size < 0:
                    keys.append(None)
                else:
                    end += key_size
                    keys.append(piece[start:end])
                start = end
                if value_size < 0:
                    values.append(None)
                else:
                    end += value_size
                    values.append(piece[start:end])
        source, partition, offset, time_ms, *_ = np.concatenate(columns, axis=1)
        return cls(
            source=source,
            partition=partition,
            offset=offset,
            time_ms=time_ms,
            keys=keys,
            values=values,
        )

    def order(self) -> list[int]:
        """The indices of the messages in the order to apply them."""
        merged = merge_order(
            source=self.source, partition=self.partition, offset=self.offset, time_ms=self.time_ms
        )
        order: list[int] = merged.tolist()
        return order

    def ranges(self) -> list[SourceRange]:
        """What was read of each input partition."""
        places = self.source << 32 | self.partition
        found = []
        for place in np.unique(places).tolist():
            offsets = self.offset[places == place]
            found.append(
                SourceRange(
                    source=InputSource(place >> 32),
                    partition=place & 0xFFFFFFFF,
                    first=int(offsets.min()),
                    last=int(offsets.max()),
                    count=len(offsets),
                )
            )
        return found


def merge_order(*, source: Longs, partition: Longs, offset: Longs, time_ms: Longs) -> Longs:
    """The indices of the messages in the order to apply them; arrays of one length, any order."""
    if len(offset) == 1:
        return np.zeros(1, dtype=np.int64)
    by_place = np.lexsort((offset, partition, source))
    source, partition = source[by_place], partition[by_place]
    effective = time_ms[by_place]
    changes = np.flatnonzero((np.diff(source) != 0) | (np.diff(partition) != 0)) + 1
    starts = [0, *changes.tolist()]
    ends = [*starts[1:], len(effective)]
    for start, end in zip(starts, ends, strict=True):
        np.maximum.accumulate(effective[start:end], out=effective[start:end])
    # A stable sort keeps what was sorted by place: source, partition, offset.
    merged: Longs = by_place[np.argsort(effective, kind="stable")]
    return merged
