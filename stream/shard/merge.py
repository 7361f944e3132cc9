"""The order in which a batch's messages are applied: the input partitions merged by broker time.

Offset order within a partition is never broken. Between partitions the broker's time decides (for a
message that is older than its predecessor, the predecessor's), then SPU events before topic events,
then partition, then offset.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]


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
