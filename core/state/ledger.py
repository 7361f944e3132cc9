"""How many replicas each SPU holds and how many lists it leads, and so who is in the ring.

Counting is put off: a request of P partitions gives an SPU at most P replicas, so as long as the
smallest number of free slots in the ring, less all partitions placed since it was measured, stays
above 0, nobody can have become saturated and the maps may wait to be counted together.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.replica_lists import IdArray, ReplicaLists

CountArray = NDArray[np.int64]
Number = TypeVar("Number", np.int64, np.bool_)

PENDING_MAX: Final = 256  # maps that wait to be counted; they hold views of tables
NO_LIMIT: Final = 2**62


class Totals(NamedTuple):
    """What all SPUs of a cluster come to."""

    online: int  # SPUs
    cordoned: int  # of them
    saturated: int  # of them, not counting cordoned ones
    capacity: int  # of them
    used: int  # replicas on them
    replicas: int  # on all SPUs
    leaders: int  # likewise


class Ledger:
    """Replica counts of the SPUs of a cluster, as arrays in ascending order of id."""

    __slots__ = (
        "_capacities",
        "_cordoned",
        "_counts",
        "_dense",
        "_ids",
        "_leaders",
        "_online",
        "_pending",
        "known_floor",
        "newest",
        "version",
    )

    def __init__(self) -> None:
        self._ids = np.zeros(0, dtype=np.int64)
        self._counts = np.zeros(0, dtype=np.int64)
        self._leaders = np.zeros(0, dtype=np.int64)
        self._capacities = np.zeros(0, dtype=np.int64)
        self._online = np.zeros(0, dtype=np.bool_)
        self._cordoned = np.zeros(0, dtype=np.bool_)
        self._dense = True  # ids are 0 … n-1: an id is its own position
        self._pending: list[ReplicaLists] = []
        self.version = 0  # of what is counted: one further with each map
        self.newest: ReplicaLists | None = None  # the last map that was added, if none went since
        # No ring member has fewer free slots than this; it is measured by `free_floor`.
        self.known_floor = NO_LIMIT

    def describe(self, *, spu_id: int, capacity: int, online: bool, cordoned: bool = False) -> None:
        """Enter an SPU, or change it."""
        at = int(np.searchsorted(self._ids, spu_id))
        if at == len(self._ids) or self._ids[at] != spu_id:
            self._settle()
            self._ids = _with(self._ids, at, spu_id)
            self._counts = _with(self._counts, at, 0)
            self._leaders = _with(self._leaders, at, 0)
            self._capacities = _with(self._capacities, at, capacity)
            self._online = _with(self._online, at, online)
            self._cordoned = _with(self._cordoned, at, cordoned)
            self._dense = self._is_dense()
        else:
            self._capacities[at] = capacity
            self._online[at] = online
            self._cordoned[at] = cordoned
        self.known_floor = 0  # unknown: measure before the next use

    def forget(self, spu_id: int) -> None:
        """Strike out an SPU that holds nothing."""
        self._settle()
        at = int(np.searchsorted(self._ids, spu_id))
        self._ids = np.delete(self._ids, at)
        self._counts = np.delete(self._counts, at)
        self._leaders = np.delete(self._leaders, at)
        self._capacities = np.delete(self._capacities, at)
        self._online = np.delete(self._online, at)
        self._cordoned = np.delete(self._cordoned, at)
        self._dense = self._is_dense()
        self.known_floor = 0

    def _is_dense(self) -> bool:
        return len(self._ids) > 0 and int(self._ids[-1]) == len(self._ids) - 1

    def knows(self, ids: NDArray[np.int32]) -> bool:
        """Whether every one of these ids has been described."""
        if len(self._ids) == 0:
            return ids.size == 0
        at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return bool((self._ids[at] == ids).all())

    def knows_up_to(self, spu_id: int) -> bool:
        """Whether every id from 0 to this one has been described; a look that costs nothing."""
        return self._dense and spu_id < len(self._ids)

    def add(self, lists: ReplicaLists) -> bool:
        """Count a map, some time.

        Returns whether the ring may have changed. Every id must have been described.
        """
        self._pending.append(lists)
        if len(self._pending) >= PENDING_MAX:
            self._settle()
        self.version += 1
        self.newest = lists
        self.known_floor = floor = self.known_floor - lists.count
        return floor <= 0

    def subtract(self, lists: ReplicaLists) -> None:
        """Take a map's replicas out of the count."""
        self._settle()
        self.version += 1
        self.newest = None
        self._counts -= self._tally(lists.flat())
        self._leaders -= self._tally(lists.matrix[:, 0])
        self.known_floor = 0

    def free_floor(self, needed: int) -> int:
        """No ring member has fewer free slots than this; measured again if not above `needed`."""
        if self.known_floor <= needed:
            self._settle()
            members = self._members()
            free = self._capacities[members] - self._counts[members]
            self.known_floor = int(free.min()) if len(free) else NO_LIMIT
        return self.known_floor

    def ring_ids(self) -> IdArray:
        """The ids of online SPUs with a free slot that are not cordoned, ascending."""
        self._settle()
        return self._ids[self._members()].astype(np.int32)

    def count(self, spu_id: int) -> int:
        """Replicas held by one SPU, which must have been described."""
        self._settle()
        return int(self._counts[np.searchsorted(self._ids, spu_id)])

    def counts(self, ids: IdArray) -> CountArray:
        """Replicas held by each of these SPUs, which must have been described."""
        self._settle()
        return self._of(self._counts, ids)

    def leaders(self, ids: IdArray) -> CountArray:
        """Lists led by each of these SPUs, which must have been described."""
        self._settle()
        return self._of(self._leaders, ids)

    def capacities(self, ids: IdArray) -> CountArray:
        """Replica slots of each of these SPUs, which must have been described."""
        return np.asarray(self._capacities[np.searchsorted(self._ids, ids)])

    def free(self, ids: IdArray) -> CountArray:
        """Free slots of each of these SPUs, below 0 where a capacity was lowered."""
        self._settle()
        at = np.searchsorted(self._ids, ids)
        return np.asarray(self._capacities[at] - self._counts[at])

    def saturated_ids(self) -> list[int]:
        """The ids of online SPUs without a free slot that are not cordoned, ascending."""
        self._settle()
        full: list[int] = self._ids[self._open() & (self._counts >= self._capacities)].tolist()
        return full

    def outside_ring(self) -> tuple[list[int], list[int], list[int]]:
        """The ids of SPUs that are offline, cordoned while online, and saturated, ascending."""
        self._settle()
        full = self._open() & (self._counts >= self._capacities)
        masks = ~self._online, self._online & self._cordoned, full
        offline, cordoned, saturated = (self._ids[mask].tolist() for mask in masks)
        return offline, cordoned, saturated

    def totals(self) -> Totals:
        """Sums over all SPUs. O(SPUs)."""
        self._settle()
        counts, online = self._counts, self._online
        count = int(np.count_nonzero(online))
        if count == len(online):  # as nearly always
            capacity, used = int(self._capacities.sum()), int(counts.sum())
            full, replicas = int(np.count_nonzero(counts >= self._capacities)), used
        else:
            capacity, used = int(self._capacities[online].sum()), int(counts[online].sum())
            full = int(np.count_nonzero(online & (counts >= self._capacities)))
            replicas = int(counts.sum())
        cordoned = int(np.count_nonzero(self._cordoned & online))
        if cordoned:
            full = int(np.count_nonzero(self._open() & (counts >= self._capacities)))
        return Totals(count, cordoned, full, capacity, used, replicas, int(self._leaders.sum()))

    def _of(self, values: CountArray, ids: IdArray) -> CountArray:
        if len(ids) == len(self._ids):  # All have been described, so these are all there are.
            return values.copy()
        return np.asarray(values[ids if self._dense else self._ids.searchsorted(ids)])

    def _open(self) -> NDArray[np.bool_]:
        """Who may take new replicas if it has a free slot."""
        return np.asarray(self._online & ~self._cordoned)

    def _members(self) -> NDArray[np.bool_]:
        return np.asarray(self._open() & (self._counts < self._capacities))

    def _tally(self, ids: NDArray[np.int32]) -> CountArray:
        at = ids if self._dense else np.searchsorted(self._ids, ids)
        return np.bincount(at, minlength=len(self._ids)).astype(np.int64, copy=False)

    def _settle(self) -> None:
        if self._pending:
            pending, self._pending = self._pending, []
            ids, leaders = pending[0].flat(), pending[0].matrix[:, 0]
            if len(pending) > 1:
                ids = np.concatenate([lists.flat() for lists in pending])
                leaders = np.concatenate([lists.matrix[:, 0] for lists in pending])
            self._counts += self._tally(ids)
            self._leaders += self._tally(leaders)


def _with(array: NDArray[Number], at: int, value: int) -> NDArray[Number]:
    """The array with one value more; several times faster than `np.insert`."""
    longer = np.empty(len(array) + 1, dtype=array.dtype)
    longer[:at] = array[:at]
    longer[at] = value
    longer[at + 1 :] = array[at:]
    return longer
