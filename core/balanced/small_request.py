"""`balanced` for few lists that fill no SPU: the same choices as for many, in plain Python.

What `few_shares` leaves open between equal keys is decided for leaders, then for who follows; then
the lists are put together.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.balanced.list_filling import Task, choose_racks, fill_rows
from spu_assigner.core.balanced.small_quotas import (
    NUMBER_MASK,
    Choice,
    SmallRequest,
    choose_by_key,
    entries_of,
)
from spu_assigner.core.base.replica_lists import IdMatrix
from spu_assigner.core.state.ledger import CountArray
from spu_assigner.core.state.loads import MIXED_BITS, NUMBER_BITS

LOOKED_AT_FIRST: Final = 4  # times as many SPUs as are needed: often some are passed over


def place_few(request: SmallRequest) -> IdMatrix:
    """Place the lists, one row each, leader first.

    Cost: O(n) in numpy, O(cells log cells) in plain Python.
    """
    choice = choose_by_key(request)
    leading, leads = _choose_leaders(request, choice)
    mixed = request.layout.mixed(request.seed)
    _choose_others(request, choice, mixed)
    return request.ids[_rows(request, leading, choice.sure, leads, mixed)]


def _choose_leaders(request: SmallRequest, choice: Choice) -> tuple[list[int], dict[int, int]]:
    """The leader of each list, and how many each leads; what they need of the choice they take.

    By ascending key, then position; an SPU leads no more than it gets.
    """
    sure, tied, rack_of = choice.sure, choice.tied, request.layout.rack_of
    size, start = len(request.ids), request.begin
    first = request.first_keys(request.led)
    positions = request.layout.positions(start)
    order = _leading_order(request, choice, first, positions)
    looked_at = LOOKED_AT_FIRST * request.lists
    heap = entries_of(first, positions, order[:looked_at])
    beyond = entries_of(first, positions, order[looked_at : looked_at + 1])
    leads: dict[int, int] = {}
    leading: list[tuple[int, int]] = []
    while len(leading) < request.lists:
        if beyond and (not heap or heap[0] > beyond[0]):
            heap += entries_of(first, positions, order[looked_at:])
            heapify(heap)
            beyond = []
        entry = heap[0]
        position = entry & NUMBER_MASK
        spu = (position + start) % size
        number = leads.get(spu, 0) + 1
        if number > sure.get(spu, 0):
            if not tied[spu] or not choice.take(rack_of[spu]):
                heappop(heap)
                continue
            sure[spu] = number
            tied[spu] = False
        leads[spu] = number
        leading.append((number, position))
        heapreplace(heap, request.entry_after(entry, request.led, spu, number))
    if len(leads) == len(leading):
        spread = sorted(position for _, position in leading)
    else:
        spread = [
            position
            for _, position in sorted(
                (((2 * number - 1) << 32) // leads[(position + start) % size], position)
                for number, position in leading
            )
        ]
    return [(position + start) % size for position in spread], leads


def _leading_order(
    request: SmallRequest, choice: Choice, first: CountArray, positions: CountArray
) -> CountArray:
    """Those that get a replica, or may, in the order in which they are to lead."""
    able = choice.tied.copy()
    able[list(choice.sure)] = True
    if request.layout.capacity is None:
        spus = np.flatnonzero(able)
        return spus[np.lexsort((positions[spus], first[spus]))]
    packed = ((first << NUMBER_BITS) + positions)[able]
    packed.sort()
    spus = ((packed & NUMBER_MASK) + request.begin) % len(request.ids)
    return np.asarray(spus)


def _choose_others(request: SmallRequest, choice: Choice, mixed: CountArray) -> None:
    """Enter as sure those that get what is still open: who leads most, as the others are kept to
    lead the next topics; and rather those that get nothing yet."""
    open_count = sum(choice.forced) + choice.free
    if not open_count:
        return
    sure, rack_of = choice.sure, request.layout.rack_of
    aside = []
    for spu in _following_order(request, choice.tied, mixed, LOOKED_AT_FIRST * open_count):
        if spu in sure:
            aside.append(spu)
        elif choice.take(rack_of[spu]):
            sure[spu] = 1
            open_count -= 1
            if not open_count:
                return
    for spu in aside:
        if choice.take(rack_of[spu]):
            sure[spu] += 1


def _following_order(
    request: SmallRequest, tied: NDArray[np.bool_], mixed: CountArray, looked_at: int
) -> Iterator[int]:
    spus = np.flatnonzero(tied)
    led = request.first_keys(request.led)[spus]
    if request.layout.capacity is None:
        order = spus[np.lexsort((mixed[spus], -led))]
    else:
        packed = ((int(led.max(initial=0)) - led) << MIXED_BITS) + mixed[spus]
        packed = (packed << NUMBER_BITS) + spus
        packed.sort()
        order = packed & NUMBER_MASK
    yield from order[:looked_at].tolist()
    yield from order[looked_at:].tolist()


def _rows(
    request: SmallRequest,
    leading: list[int],
    quotas: dict[int, int],
    leads: dict[int, int],
    mixed: CountArray,
) -> NDArray[np.int64]:
    """The lists as rows of numbers of SPUs."""
    layout, rule, lists = request.layout, request.rule, request.lists
    is_each_once = len(quotas) == lists * request.replicas
    if not is_each_once and (layout.is_one or max(rule.upper) > 1):
        return _rows_with_care(request, quotas, leads)
    if is_each_once:
        once = np.array([spu for spu in quotas if spu not in leads], dtype=np.int64)
        cells: list[int] = once[np.lexsort((once, mixed[once]))].tolist()
    else:
        cells = _following_cells(quotas, leads, mixed)
    if layout.is_one:
        followers = np.array(cells, dtype=np.int64).reshape(lists, request.replicas - 1)
        return np.column_stack((leading, followers))
    to_follow: list[list[int]] = [[] for _ in rule.lower]
    for spu in reversed(cells):
        to_follow[layout.rack_of[spu]].append(spu)
    rows = []
    for leader, racks in zip(leading, _racks_of_rows(request, leading, to_follow), strict=True):
        rows.append([leader, *[to_follow[rack].pop() for rack in racks]])
    return np.array(rows, dtype=np.int64)


def _following_cells(quotas: dict[int, int], leads: dict[int, int], mixed: CountArray) -> list[int]:
    """Each SPU as often as it is to follow, evenly spread, equals in mixed order."""
    spus = sorted(quotas)
    cells = [
        (((2 * turn + 1) << 32) // count, bits, spu)
        for spu, bits in zip(spus, mixed[spus].tolist(), strict=True)
        if (count := quotas[spu] - leads.get(spu, 0))
        for turn in range(count)
    ]
    cells.sort()
    return [spu for _, _, spu in cells]


def _racks_of_rows(
    request: SmallRequest, leading: list[int], to_follow: list[list[int]]
) -> list[list[int]]:
    """For each list the racks of its followers.

    Where a list takes several SPUs of a rack, each SPU is to occur once in all of them.
    """
    rule, lists, rack_of = request.rule, request.lists, request.layout.rack_of
    leading_racks = [rack_of[leader] for leader in leading]
    count = len(rule.lower)
    if rule.lower[0]:
        extra = [
            len(spus) + leading_racks.count(rack) - rule.lower[rack] * lists
            for rack, spus in enumerate(to_follow)
        ]
        dealt = [rack for rack, more in enumerate(extra) for _ in range(more)]
        rows = []
        for row, home in enumerate(leading_racks):
            racks = [rack for rack, least in enumerate(rule.lower) for _ in range(least)]
            racks += dealt[(row + request.seed) % lists :: lists]
            racks.remove(home)
            rows.append(racks)
        return rows
    if count == request.replicas:
        rows = []
        for row, home in enumerate(leading_racks, request.seed):
            turn = row % max(count - 1, 1)
            others = [*range(home + 1, count), *range(home)]
            rows.append(others[turn:] + others[:turn])
        return rows
    follow = [len(spus) for spus in to_follow]
    to_get = follow.copy()
    for home in leading_racks:
        to_get[home] += 1
    return choose_racks(
        to_get, follow, leading_racks, followers=request.replicas - 1, seed=request.seed
    )


def _rows_with_care(
    request: SmallRequest, quotas: dict[int, int], leads: dict[int, int]
) -> NDArray[np.int64]:
    """Rows in which an SPU could come twice."""
    layout, rule = request.layout, request.rule
    spus = sorted(quotas, key=lambda spu: (layout.rack_of[spu], spu))
    numbers = np.array(spus)
    racks = np.arange(len(spus)) if layout.is_one else layout.racks[numbers]
    ones = np.ones_like(numbers)
    rows = fill_rows(
        Task(
            ids=request.ids[numbers].astype(np.int64),
            racks=racks,
            starts=np.searchsorted(racks, np.arange(int(racks[-1]) + 1)),
            lower=ones - 1 if layout.is_one else np.array(rule.lower),
            upper=ones if layout.is_one else np.array(rule.upper),
            quotas=np.array([quotas[spu] for spu in spus]),
            leaders=np.array([leads.get(spu, 0) for spu in spus]),
            positions=layout.positions(request.begin)[numbers],
            replicas=request.replicas,
            seed=request.seed,
        )
    )
    return numbers[rows]
