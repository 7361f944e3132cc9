"""Even out replicas over SPUs at the least cost: a minimum-cost flow by successive shortest paths.

A path of transfers takes one replica from its first SPU and gives one to its last. A transfer costs
1 if the taker did not hold that replica at first, less 1 if the giver did not either: so the cost
of all that passed is the number of replicas that are elsewhere.

Rules:
- What can go in one step goes first, many at once (`ReplicaPool.deal`): nothing costs less.
- Then paths follow one by one, as long as one makes the sum of the squared distances outside the
  bands smaller, or takes moves back: one that makes it the least, of those one of the least cost,
  of those one with the fewest steps. No circle of transfers ever costs less than nothing, so the
  end is the least sum at the least cost.

Source: Ahuja, Magnanti, Orlin, "Network Flows", 1993, sections 9.7 (successive shortest paths) and
14.5 (convex costs).
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from math import floor
from typing import Final

import numpy as np
from spu_assigner.core.rebalance.fair_share import Bands, Shares
from spu_assigner.core.rebalance.lists import Step
from spu_assigner.core.rebalance.replica_pool import ReplicaPool
from spu_assigner.core.state.ledger import CountArray

FAR: Final = 2**60
LOAD_BITS: Final = 20  # of the fraction of a replica by which loads are compared
LOOK: Final = 20_000  # what a look at an SPU costs, beside those at its replicas

Hop = tuple[int, int, int]  # giver, taker, cost


def even_out(
    pool: ReplicaPool, counts: CountArray, bands: Bands, *, looks_max: int
) -> tuple[CountArray, bool]:
    """Pass replicas of the pool until no SPU can be brought nearer to its band.

    Returns the counts that come of it, and whether the search ended after `looks_max` before that.
    """
    flow = _Flow(pool, counts, bands, looks_max)
    flow.deal()
    least = bands.moves(counts)
    while (flow.is_outside() or pool.moved() > least) and (hops := flow.shortest_path()):
        flow.transfer(hops)
    return flow.counts, pool.looks >= looks_max


class _Flow:
    """The search for paths; node i is the SPU at position i."""

    def __init__(self, pool: ReplicaPool, counts: CountArray, bands: Bands, looks: int) -> None:
        self.counts, self._looks_max = counts.copy(), looks
        self._pool, self._bands = pool, bands
        self._limits = np.maximum(bands.limits, counts)
        self._unit = 2 * len(counts) + 4  # more than twice the steps of any path
        self._bound = -FAR  # no path is better than the one before

    def deal(self) -> None:
        """Pass in one step from above the bands to below them, then what is left above to any with
        room, or to what is left below from any that can spare one."""
        floors, ceilings, pool = self._bands.floors, self._bands.ceilings, self._pool
        self.counts += pool.deal(self.counts - ceilings, floors - self.counts)
        is_above, is_below = self.counts > ceilings, self.counts < floors
        if is_above.any() != is_below.any():
            edges = ceilings if is_above.any() else floors
            self.counts += pool.deal(self.counts - edges, edges - self.counts)

    def shortest_path(self) -> list[Hop]:
        """The best path; empty: none makes anything better, or the looks are used up.

        Its length is weight of the squares * unit² + cost * unit + steps. Lengths may be negative,
        but no circle is, so Dijkstra's algorithm ends if it looks at an SPU again that is nearer.
        """
        # What it adds to a path's length to start, or end, at each node; FAR: it cannot.
        weight, now = self._unit * self._unit, self._penalties(self.counts)
        starts = weight * (self._penalties(self.counts - 1) - now)
        ends = weight * (self._penalties(self.counts + 1) - now)
        ends = np.where(self.counts < self._limits, ends, FAR)
        distances = starts.copy()
        heap = list(zip(starts.tolist(), range(len(starts)), strict=True))
        heapify(heap)
        least_rest = int(ends.min()) - weight // 2
        before: dict[int, Hop] = {}
        best, last = 0, -1
        while heap:
            distance, node = heappop(heap)
            if distance > distances[node]:
                continue
            if best <= self._bound or distance + least_rest >= best:
                break
            self._pool.looks += LOOK
            if self._pool.looks >= self._looks_max:
                return []
            for cost, takers in self._pool.reach(node):
                length = distance + cost * self._unit + 1
                nearer = takers[distances[takers] > length]
                distances[nearer] = length
                for taker in nearer.tolist():
                    before[taker] = (node, taker, cost)
                    heappush(heap, (length, taker))
                totals = length + ends[nearer]
                if len(totals) and totals.min() < best:
                    best, last = int(totals.min()), int(nearer[totals.argmin()])
        if last < 0:
            return []
        self._bound = (best // self._unit + 1) * self._unit - 1
        hops = [before[last]]
        while (giver := hops[-1][0]) in before:
            hops.append(before[giver])
        return hops[::-1]

    def is_outside(self) -> bool:
        """Whether any SPU is outside its band; else paths can only take moves back."""
        return bool(self._penalties(self.counts).any())

    def _penalties(self, counts: CountArray) -> CountArray:
        """The square of the distance outside the band."""
        below, above = self._bands.floors - counts, counts - self._bands.ceilings
        outside = np.maximum(0, np.maximum(below, above))
        return np.asarray(outside * outside)

    def transfer(self, hops: list[Hop]) -> None:
        """Pass one replica along a path.

        Two hops of one list into the same room of a rack are one: the first gives to the last.
        """
        found: list[tuple[tuple[int, int], int]] = []
        for giver, taker, cost in hops:
            unit = self._pool.find(giver, taker, cost)
            for at, (earlier, via) in enumerate(found):
                narrow = self._pool.is_narrow(unit, taker) and self._pool.is_narrow(earlier, via)
                if narrow and earlier[0] == unit[0]:
                    unit = earlier
                    del found[at:]
                    break
            found.append((unit, taker))
        for unit, taker in found:
            self._pool.transfer(unit, taker)
        self.counts[hops[0][0]] -= 1
        self.counts[hops[-1][1]] += 1


def in_order(
    steps: Sequence[Step], counts: CountArray, planned: CountArray, shares: Shares, bands: Bands, /
) -> Iterator[Step]:
    """The steps in the order to be made; `planned` are the counts after all of them.

    The most overloaded giver comes first, each to the least loaded SPUs that are to take from it.
    A move waits until its taker has room, below its band's ceiling or what it is to have in the
    end. Steps in a circle, which change no count, are left out: they alone can come to wait for
    each other.
    """
    loads = [
        (count << LOAD_BITS) - floor(share * 2**LOAD_BITS)
        for count, share in zip(counts.tolist(), shares, strict=True)
    ]
    room = (np.maximum(bands.ceilings, planned) - counts).tolist()
    waiting = defaultdict[int, deque[Step]](deque)  # by taker
    by_taker = _by_load(steps, [step.taker for step in steps], loads)
    by_giver = _by_load(by_taker, [step.giver for step in by_taker], [-load for load in loads])
    for step in by_giver:
        ready: Step | None = step
        while ready is not None:
            if room[ready.taker] <= 0:
                waiting[ready.taker].append(ready)
                break
            yield ready
            room[ready.taker] -= 1
            room[ready.giver] += 1
            ready = waiting[ready.giver].popleft() if waiting[ready.giver] else None


def _by_load(steps: Sequence[Step], spus: Sequence[int], loads: Sequence[int]) -> list[Step]:
    """Those of the SPUs with the least load first, which is one replica more for each step."""
    before, keys = Counter[int](), list[int]()
    for spu in spus:
        keys.append(loads[spu] + (before[spu] << LOAD_BITS))
        before[spu] += 1
    return [steps[at] for at in sorted(range(len(steps)), key=keys.__getitem__)]
