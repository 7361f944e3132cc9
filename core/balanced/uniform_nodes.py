"""`balanced` on a ring of SPUs that differ in nothing but their load: counts kept between requests.

Where all have one capacity and racks do not matter, most requests are simple: no SPU gets more than
one replica. Then the choices of `small_request` can be told by levels. The SPUs of the lowest count
are taken first; those of the next one fill up:

- leaders are those of least lists led, then by position, among all that may get a replica;
- the others of the lowest count follow, if there are not too many of them;
- the rest is taken of the level that is left over, who leads most first, then in mixed order;
- followers are dealt in mixed order.

Whatever is not so simple is refused here and placed by `small_request`; tests hold one to the
other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.replica_lists import IdArray, ReplicaLists
from spu_assigner.core.state.ledger import CountArray, Ledger
from spu_assigner.core.state.loads import MIXED_BITS, NUMBER_BITS, Layout

NUMBER_MASK: Final = 2**NUMBER_BITS - 1
FOLLOWER_BITS: Final = MIXED_BITS + NUMBER_BITS  # what decides between those who lead as many
FOLLOWER_MASK: Final = 2**FOLLOWER_BITS - 1
_ONE_LED: Final = 1 << NUMBER_BITS  # one list more, in the key of a leader
_LED_MAX: Final = 2**31


@dataclass(slots=True)
class Given:
    """What the last request was given, until it is known whether it was applied."""

    lists: ReplicaLists
    rows: NDArray[np.intp]  # numbers of SPUs, leader first; nobody is there twice


class UniformNodes:
    """The loads of such a ring. SPUs are numbered by ascending id."""

    __slots__ = (
        "_counts",
        "_follow_base",
        "_given",
        "_ids",
        "_is_dense",
        "_layout",
        "_lead_keys",
        "_levels",
        "_version",
    )

    def __init__(self, ids: IdArray, layout: Layout) -> None:
        self._ids = ids
        self._layout = layout
        self._version = -1  # of the ledger; none yet
        self._given: Given | None = None
        self._counts: CountArray  # replicas of each SPU,
        self._levels: dict[int, int]  # and how many SPUs have each count
        self._lead_keys: CountArray  # lists led, then room for a position
        # In the key of a follower: lists led, most first, room for mixed bits, the number.
        self._follow_base = (_LED_MAX << FOLLOWER_BITS) + np.arange(len(ids))
        self._is_dense = bool((ids == np.arange(len(ids))).all())

    def lists(
        self, ledger: Ledger, *, partitions: int, replicas: int, start: int
    ) -> ReplicaLists | None:
        """As `place_balanced` places them where nobody can be filled; None: it is not simple."""
        self._catch_up(ledger)
        layout, counts, total = self._layout, self._counts, partitions * replicas
        lowest = min(self._levels)
        at_lowest, above = self._levels[lowest], self._levels.get(lowest + 1, 0)
        if total > at_lowest + above:
            return None
        # Those of the lowest count get one for sure unless they are enough by themselves. What is
        # open is taken of the highest level that is needed.
        is_one_level = total <= at_lowest
        open_level = lowest if is_one_level else lowest + 1
        open_count = total if is_one_level else total - at_lowest

        begin = start % len(counts)
        keys = self._lead_keys + layout.positions(begin)
        if at_lowest + (0 if is_one_level else above) < len(counts):
            keys = keys[counts <= open_level]
        keys.sort()
        keys = keys[:partitions]
        places = keys & NUMBER_MASK
        is_open = counts == open_level
        if is_one_level:
            open_count -= partitions
        else:
            by_sure = ~is_open[layout.turned[places + begin]]
            open_count -= partitions - int(np.count_nonzero(by_sure))
            if open_count < 0 or leads_twice(keys, by_sure):
                return None
        places.sort()
        leaders = layout.turned[places + begin]

        follow_keys = self._keys_of_followers(start)
        is_open[leaders] = False
        others = follow_keys[is_open]
        others.sort()
        others = others[:open_count]
        if not is_one_level:
            is_sure = counts == lowest
            is_sure[leaders] = False
            others = np.concatenate((others, follow_keys[is_sure]))
        others &= FOLLOWER_MASK
        others.sort()
        rows = np.empty((partitions, replicas), dtype=np.intp)
        rows[:, 0] = leaders
        rows[:, 1:] = (others & NUMBER_MASK).reshape(partitions, replicas - 1)
        lists = self._as_lists(rows)
        self._given = Given(lists, rows)
        return lists

    def _keys_of_followers(self, start: int) -> CountArray:
        """Who leads most comes first, then whoever does in mixed order."""
        keys = self._layout.mixed_keys(start % 2**32)
        keys += self._follow_base
        keys -= self._lead_keys << MIXED_BITS
        return keys

    def _as_lists(self, rows: NDArray[np.intp]) -> ReplicaLists:
        return ReplicaLists(rows.astype(np.int32) if self._is_dense else self._ids[rows])

    def _catch_up(self, ledger: Ledger) -> None:
        """Count what was placed since the last request: as a rule just that one's lists."""
        if ledger.version == self._version:
            return
        given, self._given = self._given, None
        if given is None or ledger.version != self._version + 1 or ledger.newest is not given.lists:
            self._measure(ledger)
        else:
            self._count(given)
        self._version = ledger.version

    def _measure(self, ledger: Ledger) -> None:
        counts, led = ledger.counts(self._ids), ledger.leaders(self._ids)
        self._counts = counts
        self._lead_keys = led << NUMBER_BITS
        self._measure_levels()

    def _count(self, given: Given) -> None:
        self._counts[given.rows.ravel()] += 1
        self._lead_keys[given.rows[:, 0]] += _ONE_LED
        self._count_levels(given)

    def _measure_levels(self) -> None:
        self._levels = levels_of(self._counts)

    def _count_levels(self, given: Given) -> None:
        move(self._levels, given.rows.size)


def levels_of(counts: CountArray) -> dict[int, int]:
    """How many SPUs have each count."""
    levels, sizes = np.unique(counts, return_counts=True)
    return dict(zip(levels.tolist(), sizes.tolist(), strict=True))


def move(levels: dict[int, int], count: int) -> None:
    """Let so many SPUs have one replica more: those of the lowest count, then of the next."""
    lowest = min(levels)
    first = min(count, levels[lowest])
    # From above, or those who come to a level would be taken for those who leave it.
    for level, moved in ((lowest + 1, count - first), (lowest, first)):
        if moved:
            levels[level] -= moved
            levels[level + 1] = levels.get(level + 1, 0) + moved
    for level in (lowest, lowest + 1):
        if levels.get(level) == 0:
            del levels[level]


def leads_twice(keys: CountArray, by_sure: NDArray[np.bool_]) -> bool:
    """Whether one that leads with what it gets for sure would lead again before the last does."""
    if keys[0] + _ONE_LED >= keys[-1]:
        return False
    again = keys[by_sure]
    return bool(len(again)) and bool(again[0] + _ONE_LED < keys[-1])
