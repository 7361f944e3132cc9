"""How many replicas each SPU is to get of few lists that fill no SPU: `quotas`, replica by replica.

A request is small in comparison to what a pass over the ring in numpy costs, so there are few
such passes, and the rest is plain Python over those SPUs alone that can be concerned. Replicas are
given in ascending order of key, which is optimal, since the bounds are nested.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heapreplace
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.balanced.quotas import keys
from spu_assigner.core.base.replica_lists import IdArray
from spu_assigner.core.state.ledger import CountArray
from spu_assigner.core.state.loads import COUNT_BITS, NUMBER_BITS, Layout, RackRule

NUMBER_MASK: Final = 2**NUMBER_BITS - 1
STEP: Final = 1 << NUMBER_BITS  # one more in the key of an entry
ENTRY_MASK: Final = (1 << NUMBER_BITS + COUNT_BITS) - 1


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
        number = int(counts[spu]) + given + 1
        key: int = ((2 * number - 1) << 62) // int(self.layout.capacities[spu])
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
    """Give replicas by ascending key; what equal keys leave open stays open."""
    first = request.first_keys(request.held)
    seeds = _seeds(request, first)
    if request.rule.is_bound:
        return _bound_choice(request, first, seeds)
    return _shared_choice(request, first, seeds[0])


def _seeds(request: SmallRequest, first: CountArray) -> list[list[int]]:
    """Entries of those SPUs that can be concerned, ascending: for each rack where the rule binds
    all, else together."""
    layout, rule, lists = request.layout, request.rule, request.lists
    total = lists * request.replicas
    if layout.capacity is not None:
        packed = layout.packed + (first << NUMBER_BITS)
        packed.sort()
        entries = packed & ENTRY_MASK
    else:
        order, every = np.lexsort((first, layout.racks)), layout.turned
    racks = []
    if rule.is_bound or rule.lower[0]:
        spans = [
            slice(begin, min(end, begin + most * lists))
            for begin, end, most in zip(layout.starts, layout.starts[1:], rule.upper, strict=False)
        ]
        for span in spans:
            if layout.capacity is not None:
                racks.append(entries[span].tolist())
            else:
                racks.append(entries_of(first, every, order[span]))
        return racks if rule.is_bound else [sorted(chain.from_iterable(racks))]
    within = layout.ranks < lists  # at most one replica a list
    if layout.capacity is not None:
        entries = entries[within]
        entries.sort()
        return [entries[:total].tolist()]
    order = order[within]
    return [entries_of(first, every, order[np.argsort(first[order], kind="stable")[:total]])]


def entries_of(first: CountArray, ties: CountArray, spus: CountArray) -> list[int]:
    """Of each SPU its key and what decides between equal keys, in one integer."""
    return [
        key << NUMBER_BITS | tie
        for key, tie in zip(first[spus].tolist(), ties[spus].tolist(), strict=True)
    ]


def _bound_choice(request: SmallRequest, first: CountArray, seeds: list[list[int]]) -> Choice:
    """Each rack takes what the rule says, whatever the others take."""
    lasts: list[int] = []
    given: dict[int, tuple[int, int]] = {}
    for heap, most in zip(seeds, request.rule.upper, strict=True):
        target = most * request.lists
        level = _level(request, heap, target)
        if level is None:
            for _ in range(target):
                last = _give(request, heap, given)
        else:
            last = level
            given.update(_below(heap, level))
        lasts.append(last)
    targets = [most * request.lists for most in request.rule.upper]
    return _left_open(request, first, given, lasts, least=targets, most=targets)


def _shared_choice(request: SmallRequest, first: CountArray, heap: list[int]) -> Choice:
    """Racks take what they must, and compete for the rest."""
    rule, lists, rack_of = request.rule, request.lists, request.layout.rack_of
    lower, upper = [count * lists for count in rule.lower], [count * lists for count in rule.upper]
    total = lists * request.replicas
    free = total - sum(lower)
    shared = 0
    taken = [0] * len(lower)
    lasts: dict[int, int] = {}
    given: dict[int, tuple[int, int]] = {}
    while total:
        rack = rack_of[heap[0] & NUMBER_MASK]
        if taken[rack] >= lower[rack]:
            if not free or taken[rack] == upper[rack]:
                heappop(heap)
                continue
            free -= 1
            if not free:
                shared = heap[0] >> NUMBER_BITS
        lasts[rack] = _give(request, heap, given)
        taken[rack] += 1
        total -= 1
    keys_reached = [shared] * len(lower)
    for rack, last in lasts.items():
        if last > shared or (last < shared and taken[rack] == upper[rack]):
            keys_reached[rack] = last
            lower[rack] = upper[rack] = taken[rack]
    return _left_open(request, first, given, keys_reached, least=lower, most=upper)


def _level(request: SmallRequest, entries: list[int], total: int) -> int | None:
    """The key at which SPUs of one capacity have the total; None where that is not so simple."""
    if request.layout.capacity is None:
        return None
    lowest = level = entries[0] >> NUMBER_BITS
    count = 0
    for count, entry in enumerate(entries):
        key = entry >> NUMBER_BITS
        needed = (key - level) * count
        if needed >= total:
            break
        total -= needed
        level = key
    else:
        count += 1
    level += (total - 1) // count
    return level if level - lowest < request.lists else None


def _below(entries: list[int], level: int) -> dict[int, tuple[int, int]]:
    """What SPUs of one capacity get at keys below a level."""
    given = {}
    for entry in entries:
        key = entry >> NUMBER_BITS
        if key >= level:
            break
        given[entry & NUMBER_MASK] = (level - key, level - 1)
    return given


def _give(request: SmallRequest, heap: list[int], given: dict[int, tuple[int, int]]) -> int:
    """Give the replica of least key; its key is returned, and noted beside the number given."""
    entry = heap[0]
    spu = entry & NUMBER_MASK
    key = entry >> NUMBER_BITS
    number = given[spu][0] + 1 if spu in given else 1
    given[spu] = (number, key)
    if number == request.lists:
        heappop(heap)
    else:
        heapreplace(heap, request.entry_after(entry, request.held, spu, number))
    return key


def _left_open(
    request: SmallRequest,
    first: CountArray,
    given: dict[int, tuple[int, int]],
    lasts: list[int],
    *,
    least: list[int],
    most: list[int],
) -> Choice:
    """Each rack has its replicas up to a key; those at that very key could as well be others."""
    rack_of = request.layout.rack_of
    if len(set(lasts)) == 1:
        tied = first == lasts[0]
    else:
        tied = first == np.array(lasts)[request.layout.racks]
    sure: dict[int, int] = {}
    sums = [0] * len(lasts)
    for spu, (number, key) in given.items():
        rack, certain = rack_of[spu], number
        if key == lasts[rack]:
            certain -= 1
            tied[spu] = True
        else:
            after = request.entry_after(key << NUMBER_BITS | spu, request.held, spu, number)
            tied[spu] = number < request.lists and after >> NUMBER_BITS == lasts[rack]
        if certain:
            sure[spu] = certain
            sums[rack] += certain
    forced = [max(count - here, 0) for count, here in zip(least, sums, strict=True)]
    return Choice(
        sure=sure,
        tied=tied,
        forced=forced,
        room=[count - here for count, here in zip(most, sums, strict=True)],
        free=request.lists * request.replicas - sum(sums) - sum(forced),
    )
