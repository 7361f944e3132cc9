"""`balanced` on a ring of SPUs that differ in nothing but their load: counts kept between requests.

Where all have one capacity and racks do not matter, most requests are simple: no SPU gets more than
one replica. Then the choices of `few` can be told by levels. The SPUs of the lowest count are taken
first; those of the next one fill up:

- leaders are those of least lists led, then by position, among all that may get a replica;
- the others of the lowest count follow, if there are not too many of them;
- the rest is taken of the level that is left over, who leads most first, then in mixed order;
- followers are dealt in mixed order.

Whatever is not so simple is refused here and placed by `few`; tests hold one to the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.ledger import CountArray, Ledger
from spu_assigner.core.loads import MIXED_BITS, NUMBER_BITS, Layout
from spu_assigner.core.replicas import IdArray, ReplicaLists

_NUMBER_MASK: Final = 2**NUMBER_BITS - 1
_FOLLOWER_BITS: Final = MIXED_BITS + NUMBER_BITS  # what decides between those who lead as many
_FOLLOWER_MASK: Final = 2**_FOLLOWER_BITS - 1
_ONE_LED: Final = 1 << NUMBER_BITS  # one list more, in the key of a leader
_LED_MAX: Final = 2**31


@dataclass(slots=True)
class _Given:
    """What the last request was given, until it is known whether it was applied."""

    lists: ReplicaLists
    rows: NDArray[np.intp]  # numbers of SPUs, leader first
    lowest: int  # count before it
    is_one_level: bool


class EvenRing:
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
        self._given: _Given | None = None
        self._counts: CountArray  # replicas of each SPU,
        self._levels: dict[int, int]  # and how many SPUs have each count
        self._lead_keys: CountArray  # lists led, then room for a position
        # In the key of a follower: lists led, most first, room for mixed bits, the number.
        self._follow_base = (_LED_MAX << _FOLLOWER_BITS) + np.arange(len(ids))
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
        places = keys & _NUMBER_MASK
        is_open = counts == open_level
        if is_one_level:
            open_count -= partitions
        else:
            by_sure = ~is_open[layout.turned[places + begin]]
            open_count -= partitions - int(np.count_nonzero(by_sure))
            if open_count < 0 or _leads_twice(keys, by_sure):
                return None
        places.sort()
        leaders = layout.turned[places + begin]

        follow_keys = layout.mixed_keys(start % 2**32)
        follow_keys += self._follow_base
        follow_keys -= self._lead_keys << MIXED_BITS  # Who leads most comes first.
        is_open[leaders] = False
        others = follow_keys[is_open]
        others.sort()
        others = others[:open_count]
        if not is_one_level:
            is_sure = counts == lowest
            is_sure[leaders] = False
            others = np.concatenate((others, follow_keys[is_sure]))
        others &= _FOLLOWER_MASK
        others.sort()
        rows = np.empty((partitions, replicas), dtype=np.intp)
        rows[:, 0] = leaders
        rows[:, 1:] = (others & _NUMBER_MASK).reshape(partitions, replicas - 1)
        lists = ReplicaLists(rows.astype(np.int32) if self._is_dense else self._ids[rows])
        self._given = _Given(lists, rows, lowest, is_one_level)
        return lists

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
        levels, sizes = np.unique(counts, return_counts=True)
        self._counts = counts
        self._levels = dict(zip(levels.tolist(), sizes.tolist(), strict=True))
        self._lead_keys = led << NUMBER_BITS

    def _count(self, given: _Given) -> None:
        """Everybody in the lists got one replica."""
        rows, levels = given.rows, self._levels
        self._counts[rows.ravel()] += 1  # Nobody is there twice.
        self._lead_keys[rows[:, 0]] += _ONE_LED
        at_lowest = levels[given.lowest]
        raised = rows.size if given.is_one_level else at_lowest
        _move(levels, given.lowest, raised)
        _move(levels, given.lowest + 1, rows.size - raised)


def _move(levels: dict[int, int], level: int, count: int) -> None:
    """Let so many SPUs of a level have one replica more."""
    if count:
        levels[level] -= count
        if not levels[level]:
            del levels[level]
        levels[level + 1] = levels.get(level + 1, 0) + count


def _leads_twice(keys: CountArray, by_sure: NDArray[np.bool_]) -> bool:
    """Whether one that leads with what it gets for sure would lead again before the last does."""
    if keys[0] + _ONE_LED >= keys[-1]:
        return False
    again = keys[by_sure]
    return bool(len(again)) and bool(again[0] + _ONE_LED < keys[-1])
