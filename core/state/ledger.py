"""What each SPU has, and what it holds: slots, leaders, resources; and so which are in the ring.

Counting is put off. A request of P partitions gives an SPU at most P replicas: while the smallest
number of free slots in the ring, less all partitions placed since, stays above 0, no SPU has become
saturated, and the maps may be counted together later.
"""

from __future__ import annotations

from itertools import compress
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.limits import RESOURCES_MAX
from spu_assigner.core.base.records import SpuChanged
from spu_assigner.core.base.replica_lists import IdArray, ReplicaLists
from spu_assigner.core.base.resources import Need
from spu_assigner.core.base.structs import FrozenStruct

CountArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

PENDING_MAX: Final = 256  # maps that wait to be counted; they hold views of tables
NO_LIMIT: Final = 2**62  # more than any SPU has

# Rows of the table. Three more for each resource: what there is, and of what is used the lower and
# the upper half, so that sums of any amounts fit in 64 bits each.
_ID, _CAPACITY, _ONLINE, _CORDONED, _REPLICAS, _LEADERS, _RESOURCES = range(7)
_HALF: Final = 2**32


class Loads(FrozenStruct, frozen=True, kw_only=True):
    """SPUs by ascending id; every array has shape (n,) and is only read."""

    ids: IdArray
    capacities: CountArray  # replica slots
    replicas: CountArray  # held now, over all topics
    leaders: CountArray  # lists led now, over all topics


class Ledger:
    """One table of all SPUs of a cluster, as columns in ascending order of id."""

    def __init__(self) -> None:
        self._table = np.zeros((_RESOURCES, 0), dtype=np.int64)
        self._names: tuple[str, ...] = ()  # of the resources that have rows
        self._is_dense = False  # ids are 0 … n-1: an id is its own column
        self._pending: list[tuple[ReplicaLists, Need | None]] = []
        self.version = 0  # of what is counted: one further with each map
        self.newest: ReplicaLists | None = None  # the last map that was added, if none went since
        self.ring_may_differ = True  # from what it was when the state last asked
        self._free_floor = 0  # no ring member has fewer free slots than this
        self._used_up: set[tuple[int, str]] = set()  # SPU and resource, at the last look
        self.is_stale = False  # more may be used up, or less, than at the last look

    def enter(self, ids: NDArray[np.integer]) -> None:
        """Make room for SPUs: of a map that is restored before they are described."""
        known = self._table[_ID]
        if self._is_dense and int(ids.max(initial=0)) < len(known):
            return
        at = np.searchsorted(known, ids)
        if len(known) and (known.take(at, mode="clip") == ids).all():
            return
        unknown = sorted({*ids.tolist()}.difference(known.tolist()))  # `unique` loads `numpy.ma`.
        places = np.searchsorted(known, unknown)
        self._table = np.insert(self._table, places, 0, axis=1)
        places += np.arange(len(unknown))
        self._table[_ID, places] = unknown
        self._table[_RESOURCES::3, places] = NO_LIMIT
        self._see_columns()

    def describe(self, spu: SpuChanged) -> None:
        """Enter an SPU, or change it."""
        self.enter(np.array([spu.spu_id]))
        at = int(np.searchsorted(self._table[_ID], spu.spu_id))
        self._table[_CAPACITY : _CORDONED + 1, at] = spu.capacity, spu.online, spu.is_closed
        self._lose_floor()
        has = dict(spu.resources)
        self._enter_names([*has])
        self._table[_RESOURCES::3, at] = [has.get(name, NO_LIMIT) for name in self._names]
        self.is_stale |= bool(self._names)

    def forget(self, spu_id: int) -> None:
        """Strike out an SPU that holds nothing."""
        at = int(np.searchsorted(self._table[_ID], spu_id))
        self._table = np.delete(self._table, at, axis=1)
        self._see_columns()
        self._used_up = {each for each in self._used_up if each[0] != spu_id}

    def add(self, lists: ReplicaLists, need: Need | None = None) -> None:
        """Count a map of SPUs that are known, some time."""
        self._pending.append((lists, need))
        if len(self._pending) >= PENDING_MAX:
            self._settle()
        self.version += 1
        self.newest = lists
        self._free_floor -= lists.count
        self.ring_may_differ |= self._free_floor <= 0
        self.is_stale |= need is not None

    def subtract(self, lists: ReplicaLists, need: Need | None = None) -> None:
        """Take a map's replicas out of the count."""
        self._settle()
        self.version += 1
        self.newest = None
        self._count([(lists, need)], -1)
        self._lose_floor()
        self.is_stale |= need is not None and bool(self._used_up)

    def free_floor(self, needed: int) -> int:
        """No ring member has fewer free slots than this; measured again if not above `needed`."""
        if self._free_floor <= needed:
            self.ring_ids()
        return self._free_floor

    def ring_ids(self) -> IdArray:
        """The ids of online SPUs with a free slot that are not cordoned, ascending."""
        free = self._free()
        members = self._is_open() & (free > 0)
        self._free_floor = int(free[members].min(initial=NO_LIMIT))
        return np.asarray(self._table[_ID][members], dtype=np.int32)

    def count(self, spu_id: int) -> int:
        """Replicas held by one SPU, which must be known."""
        self._settle()
        return int(self._table[_REPLICAS, np.searchsorted(self._table[_ID], spu_id)])

    def counts(self, ids: IdArray) -> CountArray:
        """Replicas held by each of these SPUs, which must be known."""
        return self._row_of(_REPLICAS, ids)

    def leaders(self, ids: IdArray) -> CountArray:
        """Lists led by each of these SPUs, which must be known."""
        return self._row_of(_LEADERS, ids)

    def capacities(self, ids: IdArray) -> CountArray:
        """Replica slots of each of these SPUs, which must be known."""
        return self._row_of(_CAPACITY, ids)

    def free(self, ids: IdArray) -> CountArray:
        """Free slots of each of these SPUs, below 0 where a capacity was lowered."""
        return self.capacities(ids) - self.counts(ids)

    def outside_ring(self) -> tuple[list[int], list[int], list[int]]:
        """The ids of SPUs that are offline, cordoned while online, and saturated, ascending."""
        is_full = self._is_open() & (self._free() <= 0)
        online, cordoned = self._table[_ONLINE : _CORDONED + 1] > 0
        ids = self._table[_ID]
        return ids[~online].tolist(), ids[online & cordoned].tolist(), ids[is_full].tolist()

    def totals(self) -> tuple[int, int, int, int]:
        """Slots of the online SPUs, replicas on them, replicas on all, and lists. O(SPUs)."""
        self._settle()
        _, capacities, online, _, replicas, leaders = self._table[:_RESOURCES]
        on_all, lists = int(replicas.sum()), int(leaders.sum())
        return int(capacities @ online), int(replicas @ online), on_all, lists

    def used(self, spu_id: int) -> dict[str, int]:
        """What is used of each resource on an SPU; what is not named is not used."""
        self._settle()
        column: list[int] = self._table[_RESOURCES:, self._table[_ID] == spu_id].ravel().tolist()
        amounts = zip(self._names, column[1::3], column[2::3], strict=False)
        return {name: low + high * _HALF for name, low, high in amounts if low or high}

    def used_of_each(self, ids: IdArray, names: tuple[str, ...]) -> FloatArray:
        """What is used of these resources on each of these SPUs, shape (names, SPUs).

        Exact below 2**53, which is more than any SPU has.
        """
        used, known = self._used(), self._table[_ID]
        if not np.array_equal(ids, known):
            at = known.searchsorted(ids)
            at[np.append(known, -1)[at] != ids] = len(known)  # that it does not know: the last one
            used = np.concatenate((used, np.zeros((len(used), 1))), axis=1)[:, at]
        if names == self._names:
            return used
        rows = [self._names.index(name) if name in self._names else -1 for name in names]
        return np.concatenate((used, np.zeros((1, len(ids)))))[rows]

    def look(self) -> list[tuple[int, str, bool]]:
        """What has changed since the last look: SPU, resource, whether it is used up now."""
        used = self._used()  # first: it may give the table more rows
        left = self._table[_RESOURCES::3] - used
        rows, columns = np.nonzero(left <= 0)
        ids = self._table[_ID, columns].tolist()
        before, names = self._used_up, [self._names[row] for row in rows.tolist()]
        self._used_up = set(zip(ids, names, strict=True))
        self.is_stale = False
        return [(*each, each in self._used_up) for each in sorted(before ^ self._used_up)]

    def largest_shares(self) -> dict[str, float]:
        """Of the resources of which an SPU has used the most, the largest share of one; by name."""
        used, has = self._used(), self._table[_RESOURCES::3]
        shares = np.divide(used, has, out=np.zeros_like(used), where=has > 0).max(1, initial=0.0)
        is_there = np.any(has < NO_LIMIT, axis=1).tolist()
        named = compress(zip(shares.tolist(), self._names, strict=True), is_there)
        largest = sorted(named, key=lambda each: (-each[0], each[1]))[:RESOURCES_MAX]
        return {name: share for share, name in sorted(largest, key=itemgetter(1))}

    def _free(self) -> CountArray:
        self._settle()
        return np.asarray(self._table[_CAPACITY] - self._table[_REPLICAS])

    def _is_open(self) -> NDArray[np.bool_]:
        """Which SPUs may take new replicas if they have a free slot."""
        return np.asarray(self._table[_ONLINE] > self._table[_CORDONED])

    def _row_of(self, row: int, ids: IdArray) -> CountArray:
        self._settle()
        values: CountArray = self._table[row]
        return np.asarray(values[ids if self._is_dense else self._table[_ID].searchsorted(ids)])

    def _used(self) -> FloatArray:
        self._settle()
        lower, upper = self._table[_RESOURCES + 1 :: 3], self._table[_RESOURCES + 2 :: 3]
        return np.asarray(upper * float(_HALF) + lower)

    def _settle(self) -> None:
        if self._pending:
            pending, self._pending = self._pending, []
            self._count(pending, 1)

    def _count(self, maps: list[tuple[ReplicaLists, Need | None]], sign: int) -> None:
        held = self._tally(np.concatenate([lists.flat() for lists, _ in maps]))
        led = self._tally(np.concatenate([lists.matrix[:, 0] for lists, _ in maps]))
        self._table[_REPLICAS] += held if sign > 0 else -held
        self._table[_LEADERS] += led if sign > 0 else -led
        for lists, need in maps:
            if need is not None:
                self._count_use(lists, need, sign)

    def _count_use(self, lists: ReplicaLists, need: Need, sign: int) -> None:
        names, follower, leader = zip(*need.by_name(), strict=True)
        self._enter_names(names)
        led = self._tally(lists.matrix[:, 0])
        replicas = np.array((self._tally(lists.flat()) - led, led)) * sign
        amounts = np.array((follower, leader)).T
        rows = [_RESOURCES + 3 * self._names.index(name) for name in names]
        self._table[[row + 1 for row in rows]] += amounts % _HALF @ replicas
        if (upper := amounts // _HALF).any():
            self._table[[row + 2 for row in rows]] += upper @ replicas

    def _tally(self, ids: IdArray) -> CountArray:
        at = ids if self._is_dense else np.searchsorted(self._table[_ID], ids)
        return np.bincount(at, minlength=self._table.shape[1])

    def _see_columns(self) -> None:
        ids = self._table[_ID]
        self._is_dense = len(ids) > 0 and int(ids[-1]) == len(ids) - 1
        self._lose_floor()

    def _lose_floor(self) -> None:
        self._free_floor, self.ring_may_differ = 0, True

    def _enter_names(self, names: list[str] | tuple[str, ...]) -> None:
        """Rows for these resources; those of which SPUs have and use nothing go."""
        new = [name for name in names if name not in self._names]
        if not new:
            return
        size = self._table.shape[1]
        rows = self._table[_RESOURCES:].reshape(len(self._names), 3, size)
        is_used = (rows != ((NO_LIMIT,), (0,), (0,))).any(axis=(1, 2)).tolist()
        kept = [at for at, name in enumerate(self._names) if is_used[at] or name in names]
        new_rows = np.zeros((len(new), 3, size), dtype=np.int64)
        new_rows[:, 0] = NO_LIMIT
        self._names = (*(self._names[at] for at in kept), *new)
        both = np.concatenate((rows[kept], new_rows)).reshape(-1, size)
        self._table = np.concatenate((self._table[:_RESOURCES], both))
