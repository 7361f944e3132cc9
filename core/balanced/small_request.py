"""`balanced` for few lists that fill no SPU: the same choices as for many, in plain Python.

What `few_shares` leaves open between equal keys is decided for leaders, then for who follows; then
the lists are put together.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.balanced.list_filling import Task, choose_racks, fill_rows, spread
from spu_assigner.core.balanced.small_quotas import (
    NUMBER_MASK,
    Choice,
    SmallRequest,
    choose_by_key,
    entries,
)
from spu_assigner.core.base.replica_lists import IdMatrix
from spu_assigner.core.state.ledger import CountArray

NOBODY: Final = 2**128  # after every entry


def place_few(request: SmallRequest) -> IdMatrix:
    """Place the lists, one row each, leader first.

    Cost: O(n) in numpy, O(cells log cells) in plain Python.
    """
    choice = choose_by_key(request)
    lead_keys = request.first_keys(request.led)
    leads = _choose_leaders(request, choice, lead_keys)
    mixed = request.layout.mixed(request.seed)
    _choose_others(request, choice, lead_keys, mixed)
    return request.ids[_rows(request, choice.sure, leads, mixed)]


def lists_of(
    request: SmallRequest, quotas: dict[int, int], leads: dict[int, int] | None
) -> IdMatrix:
    """Lists in which each SPU is as often as the first numbers say, and leads as often as the
    others do; None: leaders are even."""
    if leads is None:
        nothing = [0] * len(request.rule.lower)
        tied = np.zeros(len(request.ids), dtype=np.bool_)
        choice = Choice(sure=quotas, tied=tied, forced=nothing, room=nothing, free=0)
        leads = _choose_leaders(request, choice, request.first_keys(request.led))
    rows = None
    mixed = request.layout.mixed(request.seed)
    if request.layout.is_one:
        rows = _seated(request, quotas, leads, mixed)
    if rows is None:
        rows = _rows(request, quotas, leads, mixed)
    return request.ids[rows]


def _seated(
    request: SmallRequest, quotas: dict[int, int], leads: dict[int, int], mixed: CountArray
) -> NDArray[np.int64] | None:
    """Rows that SPUs take seats in, list after list, those with most replicas first.

    Who has as many seats to take as there are lists takes one in each. None: the last ones find
    seats only where they are already.
    """
    rows = [[leader] for leader in _leading(request, leads)]
    followers = request.replicas - 1
    seats = [*rows] * followers
    ties = mixed.tolist()
    for spu in sorted(quotas, key=lambda spu: (-quotas[spu], ties[spu])):
        for _ in range(quotas[spu] - leads.get(spu, 0)):
            at = 0
            while at < len(seats) and spu in seats[at]:
                at += 1
            if at == len(seats):
                return None
            seats.pop(at).append(spu)
    return np.array(rows)


def _choose_leaders(request: SmallRequest, choice: Choice, first: CountArray) -> dict[int, int]:
    """How many lists each SPU leads; what that needs of the choice is taken.

    By ascending key, then position; an SPU leads no more than it gets.
    """
    sure, tied, rack_of = choice.sure, choice.tied, request.layout.rack_of
    size, start = len(request.ids), request.begin
    positions = request.layout.positions(start)
    able = tied.copy()
    able[list(sure)] = True
    ahead = entries(request.layout, first, positions, able.nonzero()[0])
    again: list[int] = []  # a heap of those that lead already
    fresh = next(ahead)
    leads: dict[int, int] = {}
    left = request.lists
    while left:
        if again and again[0] < fresh:
            entry = heappop(again)
        else:
            entry, fresh = fresh, next(ahead, NOBODY)
        position = entry & NUMBER_MASK
        spu = (position + start) % size
        number = leads.get(spu, 0) + 1
        if number > sure.get(spu, 0):
            if not tied[spu] or not choice.take(rack_of[spu]):
                continue
            sure[spu] = number
            tied[spu] = False
        leads[spu] = number
        left -= 1
        heappush(again, request.entry_after(entry, request.led, spu, number))
    return leads


def _leading(request: SmallRequest, leads: dict[int, int]) -> list[int]:
    """The leader of each list: each is spread evenly over them, equals by position."""
    size, begin = len(request.ids), request.begin
    if len(leads) == request.lists:
        return sorted(leads, key=lambda spu: (spu - begin) % size)
    places = [
        (((2 * number + 1) << 32) // count, (spu - begin) % size, spu)
        for spu, count in leads.items()
        for number in range(count)
    ]
    return [spu for *_, spu in sorted(places)]


def _choose_others(
    request: SmallRequest, choice: Choice, lead_keys: CountArray, mixed: CountArray
) -> None:
    """Enter as sure those that get what is still open: who leads most, as the others are kept to
    lead the next topics; and rather those that get nothing yet."""
    open_count = sum(choice.forced) + choice.free
    if not open_count:
        return
    sure, room, rack_of = choice.sure, choice.room, request.layout.rack_of
    spus = np.flatnonzero(choice.tied)
    led = lead_keys[spus]
    aside = []
    for spu in spus[np.lexsort((mixed[spus], -led))].tolist():
        if spu in sure:
            aside.append(spu)
        elif room[rack_of[spu]] and choice.take(rack_of[spu]):
            sure[spu] = 1
            open_count -= 1
            if not open_count:
                return
    for spu in aside:
        if choice.take(rack_of[spu]):
            sure[spu] += 1


def _rows(
    request: SmallRequest, quotas: dict[int, int], leads: dict[int, int], mixed: CountArray
) -> NDArray[np.int64]:
    """The lists as rows of numbers of SPUs."""
    layout, rule, lists = request.layout, request.rule, request.lists
    if len(quotas) < lists * request.replicas and (layout.is_one or max(rule.upper) > 1):
        return _rows_with_care(request, quotas, leads)
    leading = _leading(request, leads)
    if request.replicas == 1:
        return np.array(leading)[:, np.newaxis]
    spus = np.array(sorted(quotas))
    owners, _, places = spread(np.array([quotas[spu] - leads.get(spu, 0) for spu in spus.tolist()]))
    cells = spus[owners][np.lexsort((mixed[spus][owners], places))]
    if layout.is_one:
        return np.column_stack((leading, cells.reshape(lists, request.replicas - 1)))
    to_follow: list[list[int]] = [[] for _ in rule.lower]
    for spu in reversed(cells.tolist()):
        to_follow[layout.rack_of[spu]].append(spu)
    rows = []
    for leader, racks in zip(leading, _racks_of_rows(request, leading, to_follow), strict=True):
        rows.append([leader, *[to_follow[rack].pop() for rack in racks]])
    return np.array(rows, dtype=np.int64)


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
