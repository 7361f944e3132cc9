"""`balanced` on a ring of SPUs that differ in nothing but their load: counts kept between requests.

Where all have one capacity, and racks do not matter or each list has a replica on each of them,
most requests are simple: no SPU gets more than one replica. Then the choices of `small_request`
follow from levels. In each rack the SPUs of the lowest count are taken first; those of the next one
fill up:

- leaders are those of least lists led, then by position, among all that may get a replica;
- the others of the lowest count follow, if there are not too many of them;
- the rest is taken of the level that is left over, who leads most first, then in mixed order;
- followers are dealt in mixed order, rack by rack to the lists that are led elsewhere.

`lists` returns None for all other requests: `small_request` places them. Tests compare the two.
What each fast lane of `balanced` gains: `tests/bench/results/lanes.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import sub
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.replica_lists import IdArray, ReplicaLists
from spu_assigner.core.state.ledger import CountArray, Ledger
from spu_assigner.core.state.loads import MIXED_BITS, NUMBER_BITS, Layout

_FOLLOWER_BITS: Final = MIXED_BITS + NUMBER_BITS  # what decides between those who lead as many
_LED_MAX: Final = 2**31
_ONE_LED: Final = 1 << NUMBER_BITS  # one list more, in the key of a leader
# Arrays without dimensions: numpy takes them in half the time of a Python int.
_ZERO: Final = np.array(0)
_NUMBER_MASK: Final = np.array(2**NUMBER_BITS - 1)
_FOLLOWER_MASK: Final = np.array(2**_FOLLOWER_BITS - 1)
_MIXED_BITS: Final = np.array(MIXED_BITS)
_SURE_BIT: Final = np.array(62)  # above the lists led in the key of a follower


class Evenness(NamedTuple):
    """How SPUs stand whose replicas, and leaders, differ by one at most."""

    open_count: int
    is_open: NDArray[np.bool_]  # of the fewest replicas
    is_due: NDArray[np.bool_]  # of the fewest leaders


@dataclass(slots=True)
class LastPlaced:
    """The last request's lists, until it is known whether they were applied."""

    lists: ReplicaLists
    rows: NDArray[np.integer[Any]]  # numbers of SPUs, leader first


class UniformRing:
    """The loads of such a ring. SPUs are numbered by ascending id, racks as in the layout."""

    __slots__ = (
        "_counts",
        "_deal_base",
        "_follow_base",
        "_ids",
        "_is_dense",
        "_layout",
        "_lead_keys",
        "_levels",
        "_others",
        "_placed",
        "_smallest",
        "_version",
    )

    def __init__(self, ids: IdArray, layout: Layout) -> None:
        self._ids = ids
        self._layout = layout
        self._version = -1  # of the ledger; none yet
        self._placed: LastPlaced | None = None
        self._counts: CountArray  # replicas of each SPU,
        self._levels: list[dict[int, int]]  # and how many SPUs of each rack have each count
        self._lead_keys: CountArray  # lists led, then room for a position
        # In the key of a follower: lists led, most first, room for mixed bits, the number.
        self._follow_base = (_LED_MAX << _FOLLOWER_BITS) + np.arange(len(ids))
        self._is_dense = bool((ids == np.arange(len(ids))).all())
        self._smallest = min(map(sub, layout.starts[1:], layout.starts))  # rack
        count = len(layout.starts) - 1
        # In the key by which followers are dealt: the rack, room for mixed bits, the number.
        self._deal_base = (layout.racks << _FOLLOWER_BITS) + np.arange(len(ids))
        # The racks of a list's followers, in each turn: those behind its leader's, then the first.
        others = [[*range(home + 1, count), *range(home)] for home in range(count)]
        self._others = np.array(
            [[each[turn:] + each[:turn] for turn in range(count - 1)] for each in others],
            dtype=np.int16,
        )

    @classmethod
    def of(cls, ids: IdArray, layout: Layout) -> UniformRing | None:
        """None: the SPUs differ in capacity."""
        return None if layout.capacity is None else cls(ids, layout)

    def takes(self, replicas: int) -> bool:
        """Whether racks do not matter to lists of so many replicas, or they have one on each."""
        return self._layout.is_one or self._layout.rule(replicas).upper == [1] * replicas

    def evenness(self, ledger: Ledger) -> Evenness | None:
        """Who is to get the next replica and the next lead; None: some are more than one apart.

        Of SPUs on one rack.
        """
        self._catch_up(ledger)
        levels = self._levels[0]
        lowest = min(levels)
        if len(levels) > 2 or max(levels) > lowest + 1:
            return None
        least = np.minimum.reduce(self._lead_keys)
        if np.maximum.reduce(self._lead_keys) > least + _ONE_LED:
            return None
        return Evenness(levels[lowest], self._counts == lowest, self._lead_keys == least)

    def note(self, lists: ReplicaLists, rows: NDArray[np.integer[Any]]) -> None:
        """Know lists that were placed elsewhere by what `evenness` gave, and numbers of their SPUs;
        those with fewest replicas were taken first."""
        self._placed = LastPlaced(lists, rows)

    def lists(
        self, ledger: Ledger, *, partitions: int, replicas: int, start: int
    ) -> ReplicaLists | None:
        """As `place_balanced` places them where nobody can be filled; None: it is not simple."""
        layout = self._layout
        each = partitions * replicas if layout.is_one else partitions  # of a rack
        if each > self._smallest:
            return None
        self._catch_up(ledger)
        counts = self._counts
        levels: list[int] = []  # of each rack the one that is open,
        open_counts: list[int] = []  # and how many of it get a replica
        able = sure = 0  # SPUs that may get one, and those that get one for sure
        for rack_levels in self._levels:
            lowest = min(rack_levels)
            at_lowest, above_it = rack_levels[lowest], rack_levels.get(lowest + 1, 0)
            if each > at_lowest + above_it:
                return None
            is_one_level = each <= at_lowest
            levels.append(lowest if is_one_level else lowest + 1)
            open_counts.append(each if is_one_level else each - at_lowest)
            able += at_lowest if is_one_level else at_lowest + above_it
            sure += 0 if is_one_level else at_lowest

        begin = start % len(counts)
        # 0: open, -1: gets one for sure
        is_even = min(levels) == max(levels)
        above = counts - (levels[0] if is_even else np.array(levels)[layout.racks])
        by_place = layout.turned[begin:]
        keys = self._lead_keys + layout.positions(begin)
        if able < len(counts):
            keys = keys[above <= _ZERO]
        keys.sort()
        keys = keys[:partitions]
        if sure and keys.item(0) + _ONE_LED < keys.item(-1):
            by_sure = keys[above[by_place[keys & _NUMBER_MASK]] < _ZERO]
            if len(by_sure) and by_sure.item(0) + _ONE_LED < keys.item(-1):
                return None  # One that gets one for sure would lead again before the last does.
        keys &= _NUMBER_MASK
        keys.sort()
        leaders = by_place[keys]
        left = open_counts  # once those that lead have theirs
        if layout.is_one:
            left[0] -= partitions - (int(np.count_nonzero(above[leaders])) if sure else 0)
        else:
            for spu, is_open in zip(leaders.tolist(), (above[leaders] + 1).tolist(), strict=True):
                left[layout.rack_of[spu]] -= is_open
        if min(left) < 0:
            return None

        above[leaders] = 1  # They follow nobody.
        rows = np.empty((partitions, replicas), dtype=np.intp)
        rows[:, 0] = leaders
        if layout.is_one:
            count = partitions * (replicas - 1)
            followers = self._followers(above, start, count)
            rows[:, 1:] = followers.reshape(partitions, replicas - 1)
        else:
            followers = self._followers_of_racks(above, start, left)
            rows[:, 1:] = self._dealt(followers, layout.racks[leaders], start)
        lists = ReplicaLists(rows.astype(np.int32) if self._is_dense else self._ids[rows])
        self._placed = LastPlaced(lists, rows)
        return lists

    def _followers(self, above: CountArray, start: int, count: int) -> CountArray:
        """Who follows, in mixed order: all that get one for sure, then so many others, who leads
        most first, then in mixed order."""
        keys = self._follow_keys(self._layout.mixed_keys(start % 2**32))
        keys += above << _SURE_BIT
        chosen = keys[above <= _ZERO]
        chosen.sort()
        chosen = chosen[:count]
        chosen &= _FOLLOWER_MASK
        chosen.sort()
        chosen &= _NUMBER_MASK
        return chosen

    def _followers_of_racks(self, above: CountArray, start: int, left: list[int]) -> CountArray:
        """The same rack by rack, with so many others of each."""
        mixed_keys = self._layout.mixed_keys(start % 2**32)
        count = sum(left)
        if count:
            others = self._follow_keys(mixed_keys)[above == _ZERO]
            others.sort()
            others &= _NUMBER_MASK
            rack_of, chosen = self._layout.rack_of, []
            for spu in others.tolist():
                if left[rack_of[spu]]:
                    left[rack_of[spu]] -= 1
                    chosen.append(spu)
                    if len(chosen) == count:
                        break
            above[chosen] = -1
        mixed_keys += self._deal_base
        followers = mixed_keys[above < _ZERO]
        followers.sort()
        followers &= _NUMBER_MASK
        return followers

    def _dealt(self, followers: CountArray, homes: CountArray, start: int) -> CountArray:
        """The followers of each list, who are given rack by rack.

        A rack's followers go, one after the other, to the lists that are led elsewhere.
        """
        turns = (np.arange(len(homes)) + start % 2**32) % self._others.shape[1]
        racks = self._others[homes, turns]
        dealt = np.empty_like(followers)
        dealt[racks.ravel().argsort(kind="stable")] = followers
        return dealt.reshape(racks.shape)

    def _follow_keys(self, mixed_keys: CountArray) -> CountArray:
        """Of each SPU: lists led, most first, then mixed bits, then its number."""
        keys = self._follow_base + mixed_keys
        keys -= self._lead_keys << _MIXED_BITS
        return keys

    def _catch_up(self, ledger: Ledger) -> None:
        """Count what was placed since the last request: as a rule just that one's lists."""
        if ledger.version == self._version:
            return
        placed, self._placed = self._placed, None
        if (
            placed is not None
            and ledger.version == self._version + 1
            and ledger.newest is placed.lists
        ):
            size = len(self._counts)
            self._counts += np.bincount(placed.rows.ravel(), minlength=size)
            led = np.bincount(placed.rows[:, 0], minlength=size)
            led <<= NUMBER_BITS
            self._lead_keys += led
            for levels in self._levels:
                _move(levels, placed.rows.size // len(self._levels))
        else:
            self._counts = ledger.counts(self._ids)
            self._lead_keys = ledger.leaders(self._ids) << NUMBER_BITS
            self._levels = self._count_levels()
        self._version = ledger.version

    def _count_levels(self) -> list[dict[int, int]]:
        """How many SPUs of each rack have each count."""
        levels: list[dict[int, int]] = [{} for _ in self._layout.starts[1:]]
        lowest = int(self._counts.min())
        width = int(self._counts.max()) - lowest + 1
        if width > len(self._counts):  # Far apart: there are fewer counts than numbers between.
            for rack, count in zip(self._layout.rack_of, self._counts.tolist(), strict=True):
                levels[rack][count] = levels[rack].get(count, 0) + 1
            return levels
        keys = self._layout.racks * width + (self._counts - lowest)
        found = np.bincount(keys, minlength=width * len(levels))
        for key in found.nonzero()[0].tolist():
            levels[key // width][lowest + key % width] = found.item(key)
        return levels


def _move(levels: dict[int, int], count: int) -> None:
    """Give so many replicas to SPUs of the lowest count, one each, then to those of the next."""
    while count:
        lowest = min(levels)
        moved = min(count, levels[lowest])
        levels[lowest] -= moved
        if not levels[lowest]:
            del levels[lowest]
        levels[lowest + 1] = levels.get(lowest + 1, 0) + moved
        count -= moved
