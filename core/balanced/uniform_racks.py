"""`balanced` where each list has a replica on each rack, and SPUs differ in nothing else but load.

As in `even_ring`, by levels, but each rack has its own: from each come as many replicas as there
are lists. Leaders are found over all racks together. The followers of a rack are dealt in mixed
order to the lists that are led elsewhere, and stand there by the turn of the row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.balanced.uniform_nodes import (
    FOLLOWER_BITS,
    FOLLOWER_MASK,
    NUMBER_MASK,
    Given,
    UniformNodes,
    leads_twice,
    levels_of,
    move,
)
from spu_assigner.core.base.replica_lists import IdArray, ReplicaLists
from spu_assigner.core.state.ledger import CountArray, Ledger
from spu_assigner.core.state.loads import Layout


class UniformRacks(UniformNodes):
    """The loads of such a ring. SPUs are numbered by ascending id, racks as in the layout."""

    __slots__ = ("_others", "_rack_keys", "_rack_levels", "_rack_numbers")

    def __init__(self, ids: IdArray, layout: Layout) -> None:
        super().__init__(ids, layout)
        count = len(layout.starts) - 1
        self._rack_numbers = np.arange(count)
        self._rack_keys = layout.racks << FOLLOWER_BITS
        self._others = np.array([_turned(rack, count) for rack in range(count)])
        self._rack_levels: list[dict[int, int]]

    def lists(
        self, ledger: Ledger, *, partitions: int, replicas: int, start: int
    ) -> ReplicaLists | None:
        """As `place_balanced` places them where nobody can be filled; None: it is not simple."""
        self._catch_up(ledger)
        layout, counts = self._layout, self._counts
        levels: list[int] = []  # of each rack the one that is open,
        open_counts: list[int] = []  # and how many of it get a replica
        for rack_levels in self._rack_levels:
            lowest = min(rack_levels)
            at_lowest = rack_levels[lowest]
            is_one_level = partitions <= at_lowest
            if not is_one_level and partitions > at_lowest + rack_levels.get(lowest + 1, 0):
                return None
            levels.append(lowest if is_one_level else lowest + 1)
            open_counts.append(partitions if is_one_level else partitions - at_lowest)

        begin = start % len(counts)
        above = counts - np.array(levels)[layout.racks]  # 0: open, -1: gets one for sure
        keys = (self._lead_keys + layout.positions(begin))[above <= 0]
        keys.sort()
        keys = keys[:partitions]
        places = keys & NUMBER_MASK
        by_key = layout.turned[places + begin]
        by_sure = above[by_key] < 0
        by_open = np.bincount(layout.racks[by_key[~by_sure]], minlength=len(levels)).tolist()
        left = [count - led for count, led in zip(open_counts, by_open, strict=True)]
        if min(left) < 0 or leads_twice(keys, by_sure):
            return None
        places.sort()
        leaders = layout.turned[places + begin]

        above[leaders] = 1  # They follow nobody.
        followers = self._followers(above, self._keys_of_followers(start), np.array(left))
        rows = np.empty((partitions, replicas), dtype=np.intp)
        rows[:, 0] = leaders
        rows[:, 1:] = followers[self._deal(layout.racks[leaders], start % 2**32)]
        lists = self._as_lists(rows)
        self._given = Given(lists, rows)
        return lists

    def _followers(
        self, above: CountArray, keys: CountArray, left: CountArray
    ) -> NDArray[np.int64]:
        """Who follows, rack by rack in mixed order: all that get one for sure, so many others."""
        others = keys[above == 0]
        others.sort()
        is_of = self._layout.racks[others & NUMBER_MASK][:, np.newaxis] == self._rack_numbers
        is_chosen = (is_of & (is_of.cumsum(axis=0) <= left)).any(axis=1)
        chosen = np.concatenate((others[is_chosen], keys[above < 0]))
        chosen &= FOLLOWER_MASK
        chosen |= self._rack_keys[chosen & NUMBER_MASK]
        chosen.sort()
        chosen &= NUMBER_MASK
        return chosen

    def _deal(self, homes: CountArray, seed: int) -> CountArray:
        """For each follower of each list where among the followers it stands.

        A rack's followers go, one after the other, to the lists that are led elsewhere.
        """
        lists = np.arange(len(homes))
        is_home = homes[:, np.newaxis] == self._rack_numbers
        led_there = is_home.cumsum(axis=0)
        followers = len(homes) - led_there[-1]
        starts = followers.cumsum() - followers
        next_of = (
            starts + lists[:, np.newaxis] - led_there
        )  # Right where the list is led elsewhere.
        racks = self._others[homes, (lists + seed) % (len(self._rack_numbers) - 1)]
        places: CountArray = next_of[lists[:, np.newaxis], racks]
        return places

    def _measure_levels(self) -> None:
        self._rack_levels = [
            levels_of(self._counts[self._layout.racks == rack]) for rack in self._rack_numbers
        ]

    def _count_levels(self, given: Given) -> None:
        partitions = len(given.rows)
        for levels in self._rack_levels:
            move(levels, partitions)


def _turned(home: int, count: int) -> list[list[int]]:
    """The racks of a list's followers, in each turn: those behind its leader's, beginning anew."""
    others = [*range(home + 1, count), *range(home)]
    return [others[turn:] + others[:turn] for turn in range(count - 1)]
