"""What the rules share: rows that turn round the ring, turn by turn.

A rule turns an order of the ring into replica lists: int32 arrays of shape (partitions, replicas),
SPU ids, leader first, all distinct. An index counts partitions of one long topic, and may grow for
ever: placement repeats after a period, stated at each function, N the length of the ring. The ring
has as many SPUs as a list has replicas, or more: the caller sees to that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from spu_assigner.core.base.replica_lists import IdArray, IdMatrix


def turn_rows(
    ring: IdArray, start: int, partitions: int, followers: list[tuple[int, int]], span: int
) -> IdMatrix:
    """Rows start, start + 1, … of a placement that turns round the ring, turn by turn.

    In turn t the leader at position x has its follower (base, phase) at position
    x + base + (t + phase) % span.
    """
    size = len(ring)
    rows = min(partitions, size * span)
    turn, position = divmod(start, size)
    twice = np.concatenate((ring, ring))  # base + span <= size: slices end inside
    placed: IdMatrix = np.empty((rows, len(followers) + 1), dtype=np.int32)
    row = 0
    while row < rows:
        end = min(size, position + rows - row)
        block = placed[row : row + end - position]
        block[:, 0] = twice[position:end]
        for column, (base, phase) in enumerate(followers, 1):
            offset = base + (turn + phase) % span
            block[:, column] = twice[position + offset : end + offset]
        row += end - position
        turn, position = turn + 1, 0
    return np.resize(placed, (partitions, placed.shape[1]))  # over and over


def ids_by_rack(ids: Sequence[int], racks: Sequence[str]) -> dict[str, list[int]]:
    """The ids of each rack, ascending."""
    rows: dict[str, list[int]] = {}
    for spu_id, rack in sorted(zip(ids, racks, strict=True)):
        rows.setdefault(rack, []).append(spu_id)
    return rows
