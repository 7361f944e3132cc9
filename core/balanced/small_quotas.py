"""How many replicas each SPU is to get of few lists that fill no SPU: `quotas`, replica by replica.

A request is small in comparison to what a pass over the ring in numpy costs, so there are few
such passes, and the rest is plain Python over those SPUs alone that can be concerned. Replicas are
given in ascending order of key, which is optimal, since the bounds are nested.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heapreplace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.balanced.quotas import keys
from spu_assigner.core.base.replica_lists import IdArray
from spu_assigner.core.state.ledger import CountArray
from spu_assigner.core.state.loads import NUMBER_BITS, Layout, RackRule

NUMBER_MASK: Final = 2**NUMBER_BITS - 1
STEP: Final = 1 << NUMBER_BITS  # one more in the key of an entry


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallRequest:
    """Lists to place on a ring; none of its SPUs has fewer free slots than `lists`."""

    layout: Layout
    rule: RackRule
    ids: IdArray
    held: CountArray
    led: CountArray
    lists: int
    replicas: int
    begin: int  # whose turn it is to lead: a number in id order
    seed: int  # varies who comes together, below 2**32

    def first_keys(self, counts: CountArray) -> CountArray:
        """The key of the next replica, or leader, of each SPU that has `counts`.

        Where all capacities are equal, the count does.
        """
        if self.layout.capacity is not None:
            return counts
        return keys(self.layout.capacities, counts + 1)

    def entry_after(self, entry: int, counts: CountArray, spu: int, given: int) -> int:
        """The entry, key and number, of what an SPU would get beyond those given."""
        if self.layout.capacity is not None:
            return entry + STEP
        key = ((2 * (counts.item(spu) + given) + 1) << 62) // self.layout.capacity_of[spu]
        after: int = key << NUMBER_BITS | entry & NUMBER_MASK
        return after


@dataclass(slots=True, kw_only=True)
class Choice:
    """What SPUs get for sure, and what is left open: a `tied` SPU may get one more.

    A rack must take `forced` more and may take `room`; `free` are taken beyond what is forced.
    """

    sure: dict[int, int]
    tied: NDArray[np.bool_]
    forced: list[int]
    room: list[int]
    free: int

    def take(self, rack: int) -> bool:
        """Let a rack take one more, if it may."""
        if self.room[rack] == 0:
            return False
        if self.forced[rack]:
            self.forced[rack] -= 1
        elif self.free:
            self.free -= 1
        else:
            return False
        self.room[rack] -= 1
        return True


def choose_by_key(request: SmallRequest) -> Choice:
    """Give replicas by ascending key; what equal keys leave open stays open.

    Racks take what they must, and compete for the rest.
    """
    rule, lists, rack_of = request.rule, request.lists, request.layout.rack_of
    upper = [count * lists for count in rule.upper]
    lower = upper.copy() if rule.is_bound else [count * lists for count in rule.lower]
    first = request.first_keys(request.held)
    given = _Given()
    if rule.is_bound:
        keys_reached = [
            given.give(request, heap, count) >> NUMBER_BITS
            for heap, count in zip(_concerned_by_rack(request, first, upper), upper, strict=True)
        ]
        return _left_open(request, first, given, keys_reached, least=upper, most=upper)
    heap = _concerned(request, first, upper, must_take=sum(lower) > 0)
    total = lists * request.replicas
    free = total - sum(lower)
    shared = 0
    taken = [0] * len(lower)
    lasts: dict[int, int] = {}  # the last entry of each rack
    while total:
        entry = heap[0]
        rack = rack_of[entry & NUMBER_MASK]
        if taken[rack] >= lower[rack]:
            if not free or taken[rack] == upper[rack]:
                heappop(heap)
                continue
            free -= 1
            if not free:
                shared = entry >> NUMBER_BITS
        lasts[rack] = given.give(request, heap, 1)
        taken[rack] += 1
        total -= 1
    keys_reached = [shared] * len(lower)
    for rack, entry in lasts.items():
        last = entry >> NUMBER_BITS
        if last > shared or (last < shared and taken[rack] == upper[rack]):
            keys_reached[rack] = last
            lower[rack] = upper[rack] = taken[rack]
    return _left_open(request, first, given, keys_reached, least=lower, most=upper)


@dataclass(slots=True)
class _Given:
    """How many replicas each SPU gets, the entry of its last one, and of the one after."""

    numbers: dict[int, int] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)
    after: dict[int, int] = field(default_factory=dict)  # none where it is in all lists

    def give(self, request: SmallRequest, heap: list[int], count: int) -> int:
        """Give so many to the first ones of a heap of entries; the last entry."""
        numbers, reached, after = self.numbers, self.reached, self.after
        lists, capacity_of, held = request.lists, request.layout.capacity_of, request.held.item
        is_even = request.layout.capacity is not None
        entry = -1
        for _ in range(count):
            entry = heap[0]
            spu = entry & NUMBER_MASK
            number = numbers[spu] = numbers.get(spu, 0) + 1
            reached[spu] = entry
            if number == lists:
                heappop(heap)
                after.pop(spu, None)
                continue
            if is_even:
                new = entry + STEP
            else:  # As `entry_after`; a call would take half as long again.
                new = ((2 * (held(spu) + number) + 1) << 62) // capacity_of[spu] << NUMBER_BITS
                new |= spu
            after[spu] = new
            heapreplace(heap, new)
        return entry


def _concerned_by_rack(
    request: SmallRequest, first: CountArray, upper: list[int]
) -> list[list[int]]:
    """Entries of the SPUs that may get a replica, ascending: of each rack as many as it takes."""
    layout = request.layout
    by_rack = np.lexsort((first, layout.racks))
    heaps: list[list[int]] = []
    for begin, end, count in zip(layout.starts, layout.starts[1:], upper, strict=False):
        spus = by_rack[begin : min(end, begin + count)]
        keys_of = first[spus].tolist()
        heaps.append(
            [key << NUMBER_BITS | spu for key, spu in zip(keys_of, spus.tolist(), strict=True)]
        )
    return heaps


def _concerned(
    request: SmallRequest, first: CountArray, upper: list[int], *, must_take: bool
) -> list[int]:
    """Entries of the SPUs that may get a replica, ascending: of each rack as many as it may take,
    and no more than there are replicas where no rack must take any."""
    layout = request.layout
    by_rack = np.lexsort((first, layout.racks))
    spus = by_rack[layout.ranks < np.array(upper)[layout.racks[by_rack]]]
    if not must_take:
        by_key = np.argsort(first[spus], kind="stable")
        spus = spus[by_key[: request.lists * request.replicas]]
    return [*entries(layout, first, layout.turned, spus)]


def entries(layout: Layout, first: CountArray, ties: CountArray, spus: CountArray) -> Iterator[int]:
    """Of each SPU its key and what decides between equal keys, in one integer; ascending."""
    of_spus, ties = first[spus], ties[spus]
    if layout.capacity is not None:  # Keys are counts: there is room for both in 64 bits.
        packed = of_spus << NUMBER_BITS | ties
        packed.sort()
        yield from packed.tolist()
        return
    order = np.lexsort((ties, of_spus))
    for key, tie in zip(of_spus[order].tolist(), ties[order].tolist(), strict=True):
        yield key << NUMBER_BITS | tie


def _left_open(
    request: SmallRequest,
    first: CountArray,
    given: _Given,
    lasts: list[int],
    *,
    least: list[int],
    most: list[int],
) -> Choice:
    """Each rack has its replicas up to a key; those at that very key could as well be others."""
    rack_of = request.layout.rack_of
    is_even = min(lasts) == max(lasts)
    tied = first == (lasts[0] if is_even else np.array(lasts)[request.layout.racks])
    sure: dict[int, int] = {}
    sums = [0] * len(lasts)
    turned: list[int] = []  # those of which it is not what their first key says
    for spu, number in given.numbers.items():
        rack, certain = rack_of[spu], number
        if given.reached[spu] >> NUMBER_BITS == lasts[rack]:
            certain -= 1
            if certain:
                turned.append(spu)
        elif number < request.lists and given.after[spu] >> NUMBER_BITS == lasts[rack]:
            turned.append(spu)
        if certain:
            sure[spu] = certain
            sums[rack] += certain
    tied[turned] = True
    forced = [max(count - here, 0) for count, here in zip(least, sums, strict=True)]
    return Choice(
        sure=sure,
        tied=tied,
        forced=forced,
        room=[count - here for count, here in zip(most, sums, strict=True)],
        free=request.lists * request.replicas - sum(sums) - sum(forced),
    )
