"""The order in which the moves of a rebalance are to be made.

The most overloaded giver first, to the least loaded SPU that is to take from it and has room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from math import floor
from typing import Final

import numpy as np
from spu_assigner.core.rebalance.fair_share import Bands, Shares
from spu_assigner.core.rebalance.lists import Step
from spu_assigner.core.state.ledger import CountArray

LOAD_BITS: Final = 20  # of the fraction of a replica by which loads are compared
FULL: Final = 2**62


def in_order(
    steps: Sequence[Step], counts: CountArray, planned: CountArray, shares: Shares, bands: Bands, /
) -> Iterator[Step]:
    """The steps in the order to be made; `planned` are the counts after all of them.

    A taker has room below its band's ceiling or what it is to have in the end. Steps in a circle,
    which change no count, are left out: they alone can come to wait for each other.
    """
    fair = [floor(share * 2**LOAD_BITS) for share in shares]
    held = counts.tolist()
    room = (np.maximum(bands.ceilings, planned) - counts).tolist()
    loads = np.full(len(held), FULL)  # of SPUs that have room

    def load(place: int) -> int:
        return int((held[place] << LOAD_BITS) - fair[place])

    def look_at(place: int) -> None:
        loads[place] = load(place) if room[place] > 0 else FULL

    pending: dict[int, dict[int, deque[int]]] = {}
    givers_to: dict[int, list[int]] = {}
    for row, giver, taker, _ in steps:
        of_giver = pending.setdefault(giver, {})
        if taker not in of_giver:
            of_giver[taker] = deque()
            givers_to.setdefault(taker, []).append(giver)
        of_giver[taker].append(row)
    takers_of = {giver: np.array(sorted(pending[giver])) for giver in pending}
    for place in givers_to:
        look_at(place)
    heap = [(-load(giver), giver) for giver in pending]
    heapify(heap)
    while heap:
        key, giver = heappop(heap)
        if giver not in pending or -key != load(giver):
            continue  # It has another key since.
        takers = takers_of[giver]
        at = loads[takers].argmin()
        taker = int(takers[at])
        if room[taker] <= 0:
            continue  # All are full: it comes back once one of them has given.
        yield Step(pending[giver][taker].popleft(), giver, taker)
        if not pending[giver][taker]:
            del pending[giver][taker]
            takers_of[giver] = np.concatenate((takers[:at], takers[at + 1 :]))
        if not pending[giver]:
            del pending[giver]
        held[giver], room[giver] = held[giver] - 1, room[giver] + 1
        held[taker], room[taker] = held[taker] + 1, room[taker] - 1
        for place in (giver, taker):
            look_at(place)
        waiting = givers_to.get(giver, ()) if room[giver] == 1 else ()
        for place in (giver, taker, *waiting):
            if place in pending:
                heappush(heap, (-load(place), place))
