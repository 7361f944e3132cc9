"""The order in which the moves of a rebalance are to be made.

The most overloaded giver first, each to the least loaded SPUs that are to take from it. A move to
an SPU that has no room waits until this one has given.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from math import floor
from typing import Final

import numpy as np
from spu_assigner.core.rebalance.fair_share import Bands, Shares
from spu_assigner.core.rebalance.lists import Step
from spu_assigner.core.state.ledger import CountArray

LOAD_BITS: Final = 20  # of the fraction of a replica by which loads are compared


def in_order(
    steps: Sequence[Step], counts: CountArray, planned: CountArray, shares: Shares, bands: Bands, /
) -> Iterator[Step]:
    """The steps in the order to be made; `planned` are the counts after all of them.

    A taker has room below its band's ceiling or what it is to have in the end. Steps in a circle,
    which change no count, are left out: they alone can come to wait for each other.
    """
    loads = [
        (count << LOAD_BITS) - floor(share * 2**LOAD_BITS)
        for count, share in zip(counts.tolist(), shares, strict=True)
    ]
    room = (np.maximum(bands.ceilings, planned) - counts).tolist()
    given, taken = Counter[int](), Counter[int]()
    by_taker, by_giver = list[tuple[int, Step]](), list[tuple[int, Step]]()
    for step in steps:
        by_taker.append((loads[step.taker] + (taken[step.taker] << LOAD_BITS), step))
        taken[step.taker] += 1
    for _, step in sorted(by_taker):
        by_giver.append(((given[step.giver] << LOAD_BITS) - loads[step.giver], step))
        given[step.giver] += 1
    waiting = defaultdict[int, deque[Step]](deque)  # by taker
    for _, step in sorted(by_giver, key=lambda pair: pair[0]):
        ready: Step | None = step
        while ready is not None:
            if room[ready.taker] <= 0:
                waiting[ready.taker].append(ready)
                break
            yield ready
            room[ready.taker] -= 1
            room[ready.giver] += 1
            ready = waiting[ready.giver].popleft() if waiting[ready.giver] else None
