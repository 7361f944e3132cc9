"""The messages of one batch that a shard has read, and the order in which they are applied.

Offset order within a partition is never broken. Between partitions the broker's time decides (for a
message that is older than its predecessor, the predecessor's), then SPU events before topic events,
then partition, then offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Final, Self

import numpy as np
from spu_assigner.stream.job.shard.bundle import InputSource, SourceRange

_COUNT: Final = struct.Struct("<q")
_COLUMNS: Final = 6  # source, partition, offset, time, size of the key, size of the value
_FIRST: Final = itemgetter(0)
_PARTITION: Final = itemgetter(0, 1)
_PLACE: Final = itemgetter(0, 1, 2)

# Source, partition, offset, the broker's time in ms, key, value.
Row = tuple[int, int, int, int, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one shard."""

    rows: list[Row]  # by source, partition and offset

    @classmethod
    def of_rows(cls, rows: Iterable[Row]) -> Self:
        """From rows in any order."""
        return cls(sorted(rows, key=_PLACE))

    @classmethod
    def of_bytes(cls, pieces: Iterable[bytes]) -> Self:
        """From what Spark's step sends, in any number of pieces.

        A piece is little-endian: how many rows, i64; their source, partition, offset, time_ms, size
        of the key and size of the value (-1: none), each a column of i64; then key and value of
        each row.
        """
        rows: list[Row] = []
        for piece in pieces:
            (count,) = _COUNT.unpack_from(piece)
            longs = np.frombuffer(piece, "<i8", count=_COLUMNS * count, offset=_COUNT.size)
            end = _COUNT.size + longs.nbytes
            for *place, key_size, value_size in longs.reshape(_COLUMNS, count).T.tolist():
                start, middle = end, end + max(key_size, 0)
                end = middle + max(value_size, 0)
                key = None if key_size < 0 else piece[start:middle]
                value = None if value_size < 0 else piece[middle:end]
                rows.append((*place, key, value))
        return cls.of_rows(rows)

    def ordered(self) -> list[Row]:
        """The messages in the order to apply them."""
        timed = [
            (time_ms, row)
            for _, rows in groupby(self.rows, _PARTITION)
            for own in [list(rows)]
            for time_ms, row in zip(accumulate((row[3] for row in own), max), own, strict=True)
        ]
        timed.sort(key=_FIRST)  # It is stable: rows of one time stay as they are.
        return [row for _, row in timed]

    def ranges(self) -> list[SourceRange]:
        """What was read of each input partition."""
        return [
            SourceRange(
                source=InputSource(source),
                partition=partition,
                first=offsets[0],
                last=offsets[-1],
                count=len(offsets),
            )
            for (source, partition), rows in groupby(self.rows, _PARTITION)
            for offsets in [[row[2] for row in rows]]
        ]
