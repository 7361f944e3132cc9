"""The messages of one batch that a shard has read, and the order in which they are applied.

Offset order within a partition is never broken. Between partitions the broker's time decides (for a
message that is older than its predecessor, the predecessor's), then SPU events before topic events,
then partition, then offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from spu_assigner.stream.shard.bundle import InputSource, SourceRange

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
    def of_arrow(cls, table: Any) -> Self:
        """From an Arrow table with these columns, `key` and `value`."""
        return cls(
            **{
                name: table.column(name).to_numpy().astype(np.int64)
                for name in ("source", "partition", "offset", "time_ms")
            },
            keys=table.column("key").to_pylist(),
            values=table.column("value").to_pylist(),
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
