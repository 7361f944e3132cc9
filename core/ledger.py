"""How many replicas each SPU holds, and so who is in the ring.

Counting is put off: a request of P partitions gives an SPU at most P replicas, so as long as the
smallest number of free slots in the ring, less all partitions placed since it was measured, stays
above 0, nobody can have become saturated and the maps may wait to be counted together.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.replicas import IdArray, IdMatrix

CountArray = NDArray[np.int64]

PENDING_MAX: Final = 256  # maps that wait to be counted; they hold views of tables
NO_LIMIT: Final = 2**62


class Ledger:
    """Replica counts of the SPUs of a cluster, as arrays in ascending order of id."""

    __slots__ = ("_capacities", "_counts", "_dense", "_free_floor", "_ids", "_online", "_pending")

    def __init__(self) -> None:
        self._ids = np.zeros(0, dtype=np.int64)
        self._counts = np.zeros(0, dtype=np.int64)
        self._capacities = np.zeros(0, dtype=np.int64)
        self._online = np.zeros(0, dtype=np.bool_)
        self._dense = True  # ids are 0 … n-1: an id is its own position
        self._pending: list[IdMatrix] = []
        self._free_floor = NO_LIMIT  # no ring member has fewer free slots than this

    def describe(self, *, spu_id: int, capacity: int, online: bool) -> None:
        """Enter an SPU, or change it."""
        at = int(np.searchsorted(self._ids, spu_id))
        if at == len(self._ids) or self._ids[at] != spu_id:
            self._settle()
            self._ids = np.insert(self._ids, at, spu_id)
            self._counts = np.insert(self._counts, at, 0)
            self._capacities = np.insert(self._capacities, at, capacity)
            self._online = np.insert(self._online, at, online)
            self._dense = int(self._ids[-1]) == len(self._ids) - 1
        else:
            self._capacities[at] = capacity
            self._online[at] = online
        self._free_floor = 0  # unknown: measure before the next use

    def knows(self, matrix: IdMatrix) -> bool:
        """Whether every id of the matrix has been described."""
        if len(self._ids) == 0:
            return matrix.size == 0
        at = np.minimum(np.searchsorted(self._ids, matrix), len(self._ids) - 1)
        return bool((self._ids[at] == matrix).all())

    def add(self, matrix: IdMatrix) -> bool:
        """Count a map, some time.

        Returns whether the ring may have changed. Every id must have been described.
        """
        self._pending.append(matrix)
        self._free_floor -= len(matrix)
        if len(self._pending) >= PENDING_MAX:
            self._settle()
        return self._free_floor <= 0

    def subtract(self, matrix: IdMatrix) -> None:
        """Take a map's replicas out of the count."""
        self._settle()
        self._counts -= self._tally(matrix)
        self._free_floor = 0

    def free_floor(self, needed: int) -> int:
        """No ring member has fewer free slots than this; measured anew if not above `needed`."""
        if self._free_floor <= needed:
            self._settle()
            members = self._members()
            free = self._capacities[members] - self._counts[members]
            self._free_floor = int(free.min()) if len(free) else NO_LIMIT
        return self._free_floor

    def ring_ids(self) -> IdArray:
        """The ids of online SPUs with a free slot, ascending."""
        self._settle()
        return self._ids[self._members()].astype(np.int32)

    def count(self, spu_id: int) -> int:
        """Replicas held by one SPU, which must have been described."""
        self._settle()
        return int(self._counts[np.searchsorted(self._ids, spu_id)])

    def free(self, ids: IdArray) -> CountArray:
        """Free slots of each of these SPUs, below 0 where a capacity was lowered."""
        self._settle()
        at = np.searchsorted(self._ids, ids)
        return np.asarray(self._capacities[at] - self._counts[at])

    def saturated_ids(self) -> list[int]:
        """The ids of online SPUs without a free slot, ascending."""
        self._settle()
        full: list[int] = self._ids[self._online & (self._counts >= self._capacities)].tolist()
        return full

    def _members(self) -> NDArray[np.bool_]:
        return np.asarray(self._online & (self._counts < self._capacities))

    def _tally(self, matrix: NDArray[np.int32]) -> CountArray:
        flat = matrix.ravel()
        at = flat if self._dense else np.searchsorted(self._ids, flat)
        return np.bincount(at, minlength=len(self._ids)).astype(np.int64)

    def _settle(self) -> None:
        if self._pending:
            pending, self._pending = self._pending, []
            self._counts += self._tally(np.concatenate([matrix.ravel() for matrix in pending]))
