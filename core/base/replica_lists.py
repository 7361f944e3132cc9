"""Replica lists of one topic as an array, and tables of rows that many topics share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:  # Imported with the first array: who has none, as the job's driver, saves 15 MiB.
    import numpy as np
    from numpy.typing import NDArray

IdArray: TypeAlias = "NDArray[np.int32]"  # shape (n,)
IdMatrix: TypeAlias = "NDArray[np.int32]"  # (partitions, replicas), leader first, distinct in a row
PADDING: Final = -1  # fills short rows at their end

DENSE_RATIO: Final = 16  # counters a value that are cheaper than sorting
DENSE_MIN: Final = 4_096  # counters that cost nothing


class Table:
    """Consecutive rows of a policy's placement on one ring, of which many topics' lists are views.

    `cache` is for forms derived from the rows, such as the codec's bytes.
    """

    __slots__ = ("cache", "count", "rows")

    def __init__(self, rows: IdMatrix) -> None:
        rows.setflags(write=False)
        self.rows = rows
        self.count = len(rows)
        self.cache: dict[str, Any] = {}

    def lists(self, start: int, count: int) -> ReplicaLists:
        """Rows start … start + count - 1, which must be there."""
        lists = ReplicaLists(self.rows[start : start + count])
        lists.table, lists.start = self, start
        return lists


class ReplicaLists:
    """The replica lists (or cores) of one topic: a read-only int32 array (partitions, replicas).

    It is as wide as the longest list; short ones are padded with -1 at their end (`ragged`). Where
    the rows are those of a `Table` from `start` on, a codec may slice prepared bytes.
    """

    __slots__ = ("count", "matrix", "ragged", "start", "table")

    def __init__(self, matrix: IdMatrix, *, ragged: bool = False) -> None:
        """Take over an array; with `ragged` it may be padded, and is cut to its longest list."""
        if ragged:
            width = int((matrix != PADDING).sum(axis=1).max(initial=0))
            matrix = matrix[:, :width]
            ragged = bool((matrix == PADDING).any())
        self.matrix = matrix
        self.count = len(matrix)
        self.ragged = ragged
        self.table: Table | None = None
        self.start = 0

    @classmethod
    def of_lists(cls, lists: list[list[int]]) -> ReplicaLists:
        """From plain lists, of any length each."""
        import numpy as np

        width = max(map(len, lists))
        if all(len(each) == width for each in lists):
            return cls(np.array(lists, dtype=np.int32).reshape(len(lists), -1))
        padded = [each + [PADDING] * (width - len(each)) for each in lists]
        return cls(np.array(padded, dtype=np.int32), ragged=True)

    def tolist(self) -> list[list[int]]:
        """Plain lists of plain ints; a short list is short."""
        rows: list[list[int]] = self.matrix.tolist()
        if self.ragged:
            return [row[:length] for row, length in zip(rows, self.lengths(), strict=True)]
        return rows

    def followed_by(self, others: ReplicaLists) -> ReplicaLists:
        """These lists and then the others."""
        return ReplicaLists(stacked([self.matrix, others.matrix]), ragged=True)

    def flat(self) -> NDArray[np.int32]:
        """All ids, row by row, without padding: for counting."""
        if self.ragged:
            ids: IdArray = self.matrix[self.matrix != PADDING]
            return ids
        return self.matrix.reshape(-1)

    def lengths(self) -> list[int]:
        """The length of each list."""
        lengths: list[int] = (self.matrix != PADDING).sum(axis=1).tolist()
        return lengths

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[list[int]]:
        """The list of each partition, as `tolist` gives them."""
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        import numpy as np

        return isinstance(other, ReplicaLists) and np.array_equal(self.matrix, other.matrix)

    def __hash__(self) -> int:
        return hash(self.matrix.tobytes())

    def __repr__(self) -> str:
        return f"ReplicaLists({self.tolist()!r})"


def stacked(matrices: Sequence[IdMatrix]) -> IdMatrix:
    """All rows, one below the other, padded to the widest."""
    import numpy as np

    width = max((matrix.shape[1] for matrix in matrices), default=1)
    lists = np.full((sum(map(len, matrices)), width), PADDING, dtype=np.int32)
    end = 0
    for matrix in matrices:
        begin, end = end, end + len(matrix)
        lists[begin:end, : matrix.shape[1]] = matrix
    return lists


def tally(values: NDArray[np.integer[Any]]) -> tuple[list[int], list[int]]:
    """The distinct values, ascending, and how often each occurs; values are 0 or more."""
    import numpy as np

    flat = values.ravel()
    if int(flat.max(initial=0)) > DENSE_RATIO * len(flat) + DENSE_MIN:
        unique, counts = np.unique(flat, return_counts=True)
        return unique.tolist(), counts.tolist()
    all_counts = np.bincount(flat)
    unique = np.flatnonzero(all_counts)
    return unique.tolist(), all_counts[unique].tolist()
