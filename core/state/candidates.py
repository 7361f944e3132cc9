"""The SPUs that may get replicas of a living topic without constraints, the best first.

An SPU of the ring that is not in the list: on a rack that no other replica is on where that is
wanted, then with the lowest share of its capacity used, then the lowest id. Of a topic that needs
resources it is the dominant share, and who lacks one gets nothing.

Each rack has a heap of its SPUs, and there is one of the best SPU of each rack: shares only rise as
replicas are handed out, so what a heap says of an SPU is no more than its share is now.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, Protocol

import numpy as np
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ring import Ring

SHARE_BITS: Final = 32  # of the fraction by which shares of capacity are compared
_NEVER: Final = int(np.iinfo(np.int64).max)

Load = tuple[int, int]  # the share of an SPU, and its position in the ring


class ResourceRoom(Protocol):
    """A resource of the members of the ring, and what a replica takes of it."""

    @property
    def capacities(self) -> Sequence[int]:
        """What each has."""

    @property
    def used(self) -> list[int]:
        """What is used; written to as replicas are handed out."""

    @property
    def follower(self) -> int:
        """What a follower takes."""

    @property
    def most(self) -> int:
        """What a replica takes at most."""


class Candidates:
    """The ring's members with their loads, as they become while replicas are handed out."""

    def __init__(
        self,
        state: ClusterState,
        ring: Ring,
        changes: Mapping[int, int] | None = None,
        resources: Sequence[ResourceRoom] = (),
    ) -> None:
        """Of a ring, with counts that have changed by so many.

        `resources` that a replica needs, which is handed out; it may come to lead.
        """
        self.filled: list[int] = []  # that became saturated, in this order
        self._state = state
        self._ids: list[int] = ring.ids.tolist()
        self._place = {spu_id: at for at, spu_id in enumerate(self._ids)}
        self._rack_of: list[str] = ring.racks().tolist()
        capacities, counts = state.ledger.capacities(ring.ids), state.ledger.counts(ring.ids)
        if changes:
            more = [changes.get(spu_id, 0) for spu_id in self._ids]
            counts += np.array(more, dtype=np.int64)
        self._capacities: list[int] = capacities.tolist()
        self._counts: list[int] = counts.tolist()
        self._shares: list[int] = ((counts << SHARE_BITS) // np.maximum(capacities, 1)).tolist()
        self._resources = resources
        for at, spu_id in enumerate(self._ids if resources else ()):
            for resource in resources:  # What leaves a list takes at least a follower's.
                resource.used[at] += min((changes or {}).get(spu_id, 0), 0) * resource.follower
            self._weigh(at)
        self._heaps: dict[str, list[Load]] = {}
        for at, (share, rack) in enumerate(zip(self._shares, self._rack_of, strict=True)):
            self._heaps.setdefault(rack, []).append((share, at))
        for heap in self._heaps.values():
            heapify(heap)
        self._tops = [heap[0] for heap in self._heaps.values()]  # one of each rack
        heapify(self._tops)

    def take_work(self) -> int:
        """What was looked at, beside what each replica takes: nothing."""
        return 0

    def fill(self, row: Collection[int], _wanted: int) -> int | None:
        """The best further SPU for a list; None: every one is in the list, or full by now."""
        return self._take(row, racks_of(self._state, row))

    def replace(
        self, row: Collection[int], gone: int, _leaving: Collection[int], _wanted: int
    ) -> int | None:
        """The best SPU in place of one of a list; None: likewise."""
        racks = racks_of(self._state, [spu_id for spu_id in row if spu_id != gone])
        was_apart = (self._state.spus[SpuId(gone)].rack or "") not in racks
        return self._take(row, racks if was_apart else ())

    def give(self, spu_id: int) -> bool:
        """Hand out a replica to this SPU of the ring, if it has a free slot, and room for it."""
        at = self._place[spu_id]
        if self._shares[at] == _NEVER:
            return False
        self._give(at)
        return True

    def _take(self, row: Collection[int], apart_from: Collection[str]) -> int | None:
        """The best SPU for a list that holds `row`, if possible on none of these racks."""
        best = self._best(row, apart_from)
        if best is None and apart_from:
            best = self._best(row, ())
        return None if best is None else self._give(best[1])

    def _best(self, row: Collection[int], apart_from: Collection[str]) -> Load | None:
        best: Load | None = None
        tops, aside = self._tops, []
        while tops and (best is None or tops[0] < best):
            rack = self._rack_of[tops[0][1]]
            if rack in apart_from:
                aside.append(heappop(tops))
                continue
            heap = self._heaps[rack]
            top = self._top(heap)
            if top is None:  # All of the rack are full, for good.
                heappop(tops)
            elif top != tops[0]:
                heapreplace(tops, top)
            else:
                aside.append(heappop(tops))
                found = top if self._ids[top[1]] not in row else self._top_beside(heap, row)
                if found is not None and (best is None or found < best):
                    best = found
        for each in aside:
            heappush(tops, each)
        return best

    def _top(self, heap: list[Load]) -> Load | None:
        """The best SPU of a rack, as shares are now; None: all are full."""
        while heap:
            share, at = heap[0]
            now = self._shares[at]
            if now == _NEVER:
                heappop(heap)
            elif now != share:
                heapreplace(heap, (now, at))
            else:
                return heap[0]
        return None

    def _top_beside(self, heap: list[Load], row: Collection[int]) -> Load | None:
        """The best SPU of a rack that a list does not hold."""
        aside = []
        while (found := self._top(heap)) is not None and self._ids[found[1]] in row:
            aside.append(heappop(heap))
        for each in aside:
            heappush(heap, each)
        return found

    def _give(self, at: int) -> int:
        count, capacity = self._counts[at] + 1, self._capacities[at]
        self._counts[at] = count
        self._shares[at] = (count << SHARE_BITS) // capacity if count < capacity else _NEVER
        if self._resources:
            for resource in self._resources:
                resource.used[at] += resource.most
            self._weigh(at)
        spu_id = self._ids[at]
        if count >= capacity:
            self.filled.append(spu_id)
        return spu_id

    def _weigh(self, at: int) -> None:
        """Let the share of an SPU be its dominant one; one without room is as if it were full."""
        for resource in self._resources:
            capacity, used = resource.capacities[at], resource.used[at]
            if resource.most and used + resource.most > capacity:
                self._shares[at] = _NEVER
            elif self._shares[at] != _NEVER and capacity:
                share = min((used << SHARE_BITS) // capacity, _NEVER - 1)
                self._shares[at] = max(self._shares[at], share)


def racks_of(state: ClusterState, row: Collection[int]) -> set[str]:
    """The racks that a list is on; an SPU without a rack is on rack ""."""
    return {state.spus[SpuId(spu_id)].rack or "" for spu_id in row}
