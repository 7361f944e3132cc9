"""Where the replicas of a failure that lasts could be re-created, and how many SPUs are missing.

Every replica of a failed SPU that was online is to be re-created, those of lost partitions too:
they come back empty, or out of a copy, and need their slots. The rule is that of a repair: an SPU
that takes new replicas, is not in the list and has a free slot; on a rack that no other replica of
the list is on where one has a free slot, then with the lowest share of its capacity used, then with
the lowest id. Partitions are gone through in order.

As many find a slot as can: where one finds none though slots are free, others change places for it
(augmenting paths of a flow from partitions to SPUs). The rest is dealt by the same rule without
regard to slots: who gets of it would be over its capacity. The SPUs to add are the fewest with
which every replica has a slot; an added one is on a rack of its own and has, of each partition, one
replica at most.

Cost: O(replicas · (R + log SPUs)), in plain Python; a few microseconds a replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np
from spu_assigner.core.base.replica_lists import PADDING
from spu_assigner.core.whatif.failure import FailureAnalysis, FailureOutcome
from spu_assigner.core.whatif.layout import CountArray

SHARE_BITS: Final = 32  # of the fraction by which shares of capacity are compared
NO_LIMIT: Final = 2**62  # slots where capacities are not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Recreation:
    """What the re-creation of a failure's replicas comes to; SPUs by number."""

    replicas: int  # to be re-created
    given: CountArray  # replicas that each SPU gets, with those beyond its capacity
    over: CountArray  # of these, those beyond its capacity
    without_slot: int  # replicas that find no slot
    without_spu: int  # of these, those that no SPU can take at all: all are in the list
    on_used_rack: int  # replicas re-created on a rack that another of the list is on
    spus_to_add: int | None  # so that each has a slot; None: no number of such SPUs will do
    added_capacity: int | None  # of each added SPU; None: capacities are not known


def usual_capacity(analysis: FailureAnalysis) -> int | None:
    """The capacity that most online SPUs have, the larger of equally frequent ones."""
    capacities = analysis.layout.capacities
    if capacities is None or not analysis.layout.online.any():
        return None
    values, counts = np.unique(capacities[analysis.layout.online], return_counts=True)
    return int(values[counts == counts.max()].max())


def recreation(
    analysis: FailureAnalysis, outcome: FailureOutcome, *, added_capacity: int | None = None
) -> Recreation:
    """Re-create what a failure takes.

    Args:
        added_capacity: of an SPU that would be added; None: the usual one of the cluster.
    """
    if analysis.layout.capacities is None:
        added_capacity = None
    elif added_capacity is None:
        added_capacity = usual_capacity(analysis)
    orders = _orders(analysis, outcome)
    placing = _placing(analysis, outcome, orders)
    missing = len(placing.unplaced)
    slotted = list(placing.given)
    without_spu = placing.deal_rest()
    count = analysis.count
    return Recreation(
        replicas=outcome.replicas,
        given=np.array(placing.given[:count], dtype=np.int64),
        over=np.array(placing.given[:count]) - np.array(slotted[:count]),
        without_slot=missing,
        without_spu=without_spu,
        on_used_rack=placing.on_used_rack(),
        spus_to_add=_spus_to_add(
            _least_to_add(
                analysis, outcome, orders, slots_missing=missing, capacity=added_capacity
            ),
            added_capacity,
            lambda added: (
                not _placing(
                    analysis, outcome, orders, added=added, capacity=added_capacity
                ).unplaced
            ),
        ),
        added_capacity=added_capacity,
    )


@dataclass(slots=True)
class _ShortPartition:
    """A partition that lost replicas."""

    kept: tuple[int, ...]  # SPUs that still hold it
    missing: int  # replicas to be re-created


def _orders(analysis: FailureAnalysis, outcome: FailureOutcome) -> list[_ShortPartition]:
    is_failed = np.zeros(analysis.count + 1, dtype=np.bool_)
    is_failed[outcome.failed] = True
    is_failed[PADDING] = True
    lists = analysis.layout.live[analysis.rows_of(outcome.failed)]
    gone = is_failed[lists] & (lists != PADDING)
    kept = np.where(is_failed[lists], PADDING, lists)
    return [
        _ShortPartition(tuple(each for each in row if each != PADDING), missing)
        for row, missing in zip(kept.tolist(), gone.sum(axis=1).tolist(), strict=True)
    ]


def _spus_to_add(least: int, capacity: int | None, is_enough: Callable[[int], bool]) -> int | None:
    """The fewest SPUs of this capacity with which every replica has a slot.

    Args:
        least: fewer will not do; 0 if none is needed.
    """
    if least and capacity == 0:
        return None
    while least and not is_enough(least):
        least += 1
    return least


def _least_to_add(
    analysis: FailureAnalysis,
    outcome: FailureOutcome,
    orders: Sequence[_ShortPartition],
    *,
    slots_missing: int,
    capacity: int | None,
) -> int:
    """How many SPUs it takes at least: for the slots, and for the longest list."""
    if not slots_missing:
        return 0
    takers = analysis.takers.copy()
    takers[outcome.failed] = False
    is_taker, there = takers.tolist(), int(np.count_nonzero(takers))
    needs: list[int] = [each.missing + sum(is_taker[spu] for spu in each.kept) for each in orders]
    return max(max(needs) - there, -(-slots_missing // capacity) if capacity else 1)


def _placing(
    analysis: FailureAnalysis,
    outcome: FailureOutcome,
    orders: Sequence[_ShortPartition],
    *,
    added: int = 0,
    capacity: int | None = None,
) -> _Placing:
    """The re-creation, as far as there are slots."""
    count = analysis.count
    is_failed = {*outcome.failed.tolist()}
    takers = [each for each in np.flatnonzero(analysis.takers).tolist() if each not in is_failed]
    layout = analysis.layout
    number_of = {rack: number for number, rack in enumerate(dict.fromkeys(layout.racks))}
    racks = [number_of[rack] for rack in layout.racks]
    racks += range(len(number_of), len(number_of) + added)
    if layout.capacities is None or analysis.free is None:
        capacities, free = [1] * (count + added), [NO_LIMIT] * (count + added)
    else:
        capacities = [*layout.capacities.tolist(), *[capacity or 0] * added]
        free = [*analysis.free.tolist(), *[capacity or 0] * added]
    placing = _Placing(
        orders=orders,
        takers=[*takers, *range(count, count + added)],
        racks=racks,
        capacities=capacities,
        held=[*layout.held.tolist(), *[0] * added],
        free=free,
    )
    placing.run()
    return placing


class _Placing:
    """Replicas being re-created."""

    def __init__(
        self,
        *,
        orders: Sequence[_ShortPartition],
        takers: Sequence[int],
        racks: Sequence[int],
        capacities: Sequence[int],
        held: Sequence[int],
        free: list[int],
    ) -> None:
        self.given = [0] * len(held)
        self.unplaced: list[int] = []  # partitions, one for each replica
        self._orders = orders
        self._takers = takers
        self._racks = racks
        self._capacities = capacities
        self._held = held
        self._free = free
        self._members = [{*order.kept} for order in orders]
        self._chosen: dict[int, dict[int, None]] = {}  # SPU: partitions that it was given, in order
        self._heaps = _RackHeaps(racks, [self._entry(each) for each in takers if free[each] > 0])

    def _entry(self, spu: int) -> tuple[int, int]:
        """Sorts as the rule does: by share of capacity, then by id."""
        held = self._held[spu] + self.given[spu]
        capacity = self._capacities[spu]
        return ((held << SHARE_BITS) // capacity if capacity else NO_LIMIT), spu

    def run(self) -> None:
        """Place what finds a slot."""
        for partition, order in enumerate(self._orders):
            for _ in range(order.missing):
                spu = self._heaps.take(self._members[partition])
                if spu is None:
                    self.unplaced.append(partition)
                    continue
                self._give(partition, spu)
                if self._free[spu] > 0:
                    self._heaps.put(self._entry(spu))
        if self.unplaced:
            self._change_places()

    def _give(self, partition: int, spu: int) -> None:
        self._members[partition].add(spu)
        self.given[spu] += 1
        self._free[spu] -= 1

    def _take_back(self, partition: int, spu: int) -> None:
        self._members[partition].discard(spu)
        self.given[spu] -= 1
        self._free[spu] += 1

    def _change_places(self) -> None:
        """Place what is unplaced by moving others, as long as a way leads to a free slot."""
        if not any(self._free[each] > 0 for each in self._takers):
            return
        for partition, (order, members) in enumerate(zip(self._orders, self._members, strict=True)):
            for spu in sorted(members.difference(order.kept)):
                self._chosen.setdefault(spu, {})[partition] = None
        is_open = {each for each in self._takers if self._free[each] > 0}
        left: list[int] = []
        dead: set[int] = set()  # SPUs from which no way leads to a free slot, for good
        for partition in self.unplaced:
            if not is_open or not self._move_along(partition, is_open, dead):
                left.append(partition)
            else:  # One of them has a slot less; those on the way have as many as before.
                is_open = {each for each in is_open if self._free[each] > 0}
        self.unplaced = left

    def _move_along(self, partition: int, is_open: set[int], dead: set[int]) -> bool:
        """Give the partition one replica more, by moving others; False: there is no way."""
        came: dict[int, tuple[int, int | None]] = {}  # SPU: the partition that goes there, whence
        steps: list[int] = []
        asked = {partition}

        def reach(moved: int, whence: int | None) -> int | None:
            """Note where the partition can go; the SPU with a free slot, if it is one of them."""
            near = is_open - self._members[moved]
            for each in [min(near)] if near else self._takers:
                if each not in came and each not in dead and each not in self._members[moved]:
                    came[each] = moved, whence
                    steps.append(each)
            return min(near) if near else None

        end = reach(partition, None)
        for spu in steps:  # It grows meanwhile: breadth first.
            if end is not None:
                break
            for other in self._chosen.get(spu, ()):
                if end is None and other not in asked:
                    asked.add(other)
                    end = reach(other, spu)
        if end is None:
            dead.update(came)
            return False
        self._follow(end, came)
        return True

    def _follow(self, spu: int, came: dict[int, tuple[int, int | None]]) -> None:
        """Move all that lie on the way to an SPU with a free slot, the last first."""
        target: int | None = spu
        while target is not None:
            partition, whence = came[target]
            if whence is not None:
                self._take_back(partition, whence)
                del self._chosen[whence][partition]
            self._give(partition, target)
            self._chosen.setdefault(target, {})[partition] = None
            target = whence

    def deal_rest(self) -> int:
        """Give what found no slot to SPUs beyond their capacity.

        Returns how many replicas no SPU can take, since all are in the list.
        """
        if not self.unplaced:
            return 0
        heaps = _RackHeaps(self._racks, map(self._entry, self._takers))
        without_spu = 0
        for partition in self.unplaced:
            spu = heaps.take(self._members[partition])
            if spu is None:
                without_spu += 1
                continue
            self._give(partition, spu)
            heaps.put(self._entry(spu))
        return without_spu

    def on_used_rack(self) -> int:
        """Replicas that were re-created on a rack that another of their list is on."""
        found = 0
        for order, members in zip(self._orders, self._members, strict=True):
            racks = len({self._racks[spu] for spu in members})
            before = len({self._racks[spu] for spu in order.kept})
            found += len(members) - len(order.kept) - (racks - before)
        return found


class _RackHeaps:
    """SPUs of each rack by share, and the racks by their first: the least one is found soon."""

    def __init__(self, racks: Sequence[int], entries: Iterable[tuple[int, int]]) -> None:
        self._racks = racks
        self._heaps: dict[int, list[tuple[int, int]]] = {}
        for entry in entries:
            self._heaps.setdefault(racks[entry[1]], []).append(entry)
        for heap in self._heaps.values():
            heapify(heap)
        self._first = [heap[0] for heap in self._heaps.values()]
        heapify(self._first)

    def put(self, entry: tuple[int, int]) -> None:
        """Put an SPU in that is not there."""
        heap = self._heaps.setdefault(self._racks[entry[1]], [])
        before = heap[0] if heap else None
        heappush(heap, entry)
        if before is None:
            heappush(self._first, entry)
        elif entry < before:
            self._first.remove(before)
            self._first.append(entry)
            heapify(self._first)

    def take(self, members: set[int]) -> int | None:
        """Take out the least SPU that may join a list of these; None: there is none.

        On a rack that none of these is on, where there is one.
        """
        used = {self._racks[spu] for spu in members}
        passed: list[tuple[int, int]] = []
        first = self._first
        found: tuple[int, int] | None = None
        while first:
            entry = heappop(first)
            if self._racks[entry[1]] not in used:
                found = entry
                break
            passed.append(entry)
        for entry in passed:
            heappush(first, entry)
        if found is None:
            return self._take_any(members)
        heap = self._heaps[self._racks[found[1]]]
        heappop(heap)
        if heap:
            heappush(first, heap[0])
        return found[1]

    def _take_any(self, members: set[int]) -> int | None:
        """Take out the least SPU that is none of these, whatever its rack."""
        best: list[tuple[int, int]] | None = None
        passed: list[tuple[int, int]] = []
        for heap in self._heaps.values():
            while heap and heap[0][1] in members:
                passed.append(heappop(heap))
            if heap and (best is None or heap[0] < best[0]):
                best = heap
        found = None if best is None else heappop(best)[1]
        for entry in passed:
            heappush(self._heaps[self._racks[entry[1]]], entry)
        self._first = [each[0] for each in self._heaps.values() if each]
        heapify(self._first)
        return found
