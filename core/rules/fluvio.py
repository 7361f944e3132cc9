"""Fluvio's rules: round robin without racks, a walk along the diagonals of the racks with them.

Five SPUs 0 … 4 without racks, three replicas: rows 0 … 5 are [0, 1, 2], [1, 2, 3], [2, 3, 4],
[3, 4, 0], [4, 0, 1], [0, 2, 3]: in the second turn followers are one further from their leader.

Racks [0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]: the sequence is 0 4 8 9 1 5 6 10 2 3 7 11, and
row 1 of four replicas is [4, 8, 9, 1].

Source: Fluvio 0.11.10 documentation, "Replica Assignment", CRA.
"""

from __future__ import annotations

from collections.abc import Sequence

from spu_assigner.core.base.replica_lists import IdArray, IdMatrix
from spu_assigner.core.rules.turning import ids_by_rack, turn_rows


def round_robin(ring: IdArray, *, start: int, partitions: int, replicas: int) -> IdMatrix:
    """Place each partition on the next SPU, its followers after a gap that grows with each turn.

    Period: N * (N - replicas + 1). Cost: one copy for each turn of the ring and each column.
    """
    followers = [(replica, 0) for replica in range(1, replicas)]
    return turn_rows(ring, start, partitions, followers, len(ring) - replicas + 1)


def walk(sequence: IdArray, *, start: int, partitions: int, replicas: int) -> IdMatrix:
    """Place each partition on neighbours in the sequence, one step further each time: period N."""
    followers = [(replica, 0) for replica in range(1, replicas)]
    return turn_rows(sequence, start, partitions, followers, 1)


def diagonal(ids: Sequence[int], racks: Sequence[str]) -> list[int]:
    """Order SPUs, with the rack of each, by reading the matrix of racks along its diagonals.

    Rows are racks by size descending, then name, ids ascending in a row, W the length of the first.
    Column k = 0 … W - 1 takes from each row r `row[((k + r) % W) % len(row)]`, unless it is taken
    already. Cost: O(n log n).
    """
    rows = sorted(ids_by_rack(ids, racks).items(), key=lambda row: (-len(row[1]), row[0]))
    width = len(rows[0][1]) if rows else 0
    placed = []
    for number, (_, row) in enumerate(rows):
        begin = number % width  # what column 0 reads; column 1 reads the next, and so on
        length = len(row)
        for cell, spu_id in enumerate(row):
            column = (cell - begin) % length
            if begin + column >= width:  # not met before the end of the width: met after it
                column = width - begin + cell
            placed.append((column, number, spu_id))
    placed.sort()
    return [spu_id for _, _, spu_id in placed]
