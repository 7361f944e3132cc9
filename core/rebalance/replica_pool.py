"""The replicas that a rebalance evens out: which SPU holds them, and which may take them.

SPUs are positions 0 … n-1; n stands for whatever takes no part: offline members and padding. A
replica is a row of the lists and a column. In a list without rules a rack has a limit: the replicas
it had there at first, or 1. Replicas under rules are independent of each other (`ruled_lists`).

Among moves that cost the same those are made that spread over topics: `deal` gives to each SPU of
each topic its part, from other lists first; `find` takes the topic of which the taker has the
fewest replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.rebalance.lists import ClusterLists, Step
from spu_assigner.core.rebalance.ruled_lists import RuledLists
from spu_assigner.core.state.ledger import CountArray

TURNS: Final = 3  # of one deal
LOOKS_EACH: Final = 32  # at replicas, for one that an SPU may take; fewer, where there are
LOOKS_MAX: Final = 250_000  # more in all; some 0.6 s
LOOKS_LEAST: Final = 6
CELLS_MAX: Final = 2**24  # replicas of an SPU, times SPUs that may take them
LOOKS_OF_RULED: Final = 2_000  # what it takes to ask the rules about a replica
NO_WAY: Final = 9  # more than it costs to pass a replica

Positions = NDArray[np.signedinteger[Any]]  # of SPUs, or rows
Unit = tuple[int, int]  # row and column


class ReplicaPool:
    """The lists while replicas pass."""

    def __init__(self, lists: ClusterLists, ruled: RuledLists) -> None:
        """The lists are only read."""
        racks, self._topics, self._ruled = lists.racks, lists.topics, ruled
        topics = np.arange(int(lists.topics[-1]) + 2, dtype=np.int32)
        self._starts: list[int] = np.searchsorted(lists.topics, topics).tolist()  # rows
        self._spus = lists.spus
        self._rack_count = 1 + max(int(racks.max()), int(lists.rack_of.max()))
        self._rack_of = np.append(lists.rack_of, self._rack_count)
        self._at_first, self._now = lists.places, lists.places.copy()
        self._racks_at_first = np.where(racks < 0, self._rack_count, racks)
        self._racks = self._racks_at_first.copy()
        self._closed = ruled.closed
        self._is_ruled = ruled.is_ruled
        self._reach: dict[int, list[tuple[int, Positions]]] = {}
        self.looks = 0  # at whether an SPU may take a replica, along paths

    def deal(self, excess: CountArray, lack: CountArray) -> CountArray:
        """Pass replicas without rules that have not passed yet, from SPUs with an excess to those
        with a lack, as long as that goes fast; how many more each SPU has then.

        In the first turn of each list one replica at most.
        """
        change = np.zeros_like(excess)
        lack = np.where(self._closed, 0, lack)
        for turn in range(TURNS):
            to_give, to_take = (excess + change).clip(min=0), (lack - change).clip(min=0)
            if not to_give.any() or not to_take.any():
                break
            self._deal_once(to_give, to_take, change, is_one_each=turn == 0)
        return change

    def _deal_once(
        self, excess: CountArray, lack: CountArray, change: CountArray, *, is_one_each: bool
    ) -> None:
        """Give each SPU replicas at even distances among all that may go, which are by topic. Of
        those near in the topic the SPU gives that holds most of it, then that with most to give."""
        may_go = np.append(excess > 0, False)[self._now] & (self._now == self._at_first)
        may_go[self._is_ruled] = False
        units = np.flatnonzero(may_go)
        rows, columns = (each.tolist() for each in np.divmod(units, self._now.shape[1]))
        of_topics, givers = self._topics[rows], self._now.ravel()[units].tolist()
        first_of, topics = np.searchsorted(of_topics, of_topics).tolist(), of_topics.tolist()
        left, count = excess.tolist(), len(units)
        gone = set[int]()  # units that passed,
        moved = set[int]()  # and lists that are not to give any more
        if is_one_each:
            moved.update(np.flatnonzero((self._now != self._at_first).any(axis=1)).tolist())
        held: dict[int, Counter[int]] = {}  # replicas of a topic, by SPU
        total = int(min(excess.sum(), lack.sum()))
        looks = min(LOOKS_EACH, max(LOOKS_LEAST, LOOKS_MAX // max(total, 1)))
        for at, taker in _dealt(lack, total, count) if count else ():
            begin, best, most = max(first_of[at], at - looks // 2), -1, (-1, -1)
            for unit in range(begin, min(begin + looks, count)):
                giver, topic = givers[unit], topics[unit]
                if best >= 0 and topic != topics[best]:
                    break
                if unit in gone or left[giver] == 0 or rows[unit] in moved:
                    continue
                if topic not in held:
                    span = slice(self._starts[topic], self._starts[topic + 1])
                    held[topic] = Counter(self._now[span].ravel().tolist())
                key = held[topic][giver], left[giver]
                if key > most and self._fits(rows[unit], giver, taker):
                    best, most = unit, key
            if best < 0:
                continue
            row, column, giver = rows[best], columns[best], givers[best]
            self._now[row, column], self._racks[row, column] = taker, self._rack_of[taker]
            gone.add(best)
            if is_one_each:
                moved.add(row)
            left[giver] -= 1
            for spu, more in ((giver, -1), (taker, 1)):
                held[topics[best]][spu] += more
                change[spu] += more

    def _fits(self, row: int, giver: int, taker: int) -> bool:
        """Whether an SPU that is in no list twice may take a replica that has not passed."""
        if taker in self._now[row].tolist() or taker in self._at_first[row].tolist():
            return False
        rack = int(self._rack_of[taker])
        if rack == self._rack_of[giver]:
            return True
        at_first = self._racks_at_first[row].tolist().count(rack)
        return bool(self._racks[row].tolist().count(rack) < max(1, at_first))

    def reach(self, giver: int) -> list[tuple[int, Positions]]:
        """Costs -1, 0, 1, and the SPUs that can take one of the giver's replicas at that cost."""
        if giver not in self._reach:
            costs = self._table(giver)[1]
            self._reach[giver] = [
                (cost, np.flatnonzero((costs == cost).any(axis=0))) for cost in (-1, 0, 1)
            ]
        return self._reach[giver]

    def find(self, giver: int, taker: int, cost: int) -> Unit:
        """A replica that can pass so, of the topic of which the taker has the fewest."""
        rows, costs = self._table(giver)
        rows = rows[costs[:, taker] == cost]
        if len(rows) == 0:
            raise InvariantError(f"no replica that {giver} can pass to {taker} at cost {cost}")
        known, topics = self._topics[self._rows_of(taker)], self._topics[rows]
        counts = np.searchsorted(known, topics, "right") - np.searchsorted(known, topics)
        row = int(rows[np.argmin(counts)])
        return row, self._now[row].tolist().index(giver)

    def _table(self, giver: int) -> tuple[Positions, NDArray[np.int8]]:
        """The rows of an SPU, of very many some; for each what it costs that an SPU takes the
        replica, or `NO_WAY`; shape (rows, SPUs)."""
        rows = self._rows_of(giver)
        rows = rows[:: 1 + len(rows) * self._spus // CELLS_MAX]
        self.looks += self._now.size + len(rows) * self._spus
        now, at_first, each = self._now[rows], self._at_first[rows], np.arange(len(rows))
        costs = np.zeros((len(rows), self._spus + 1), dtype=np.int8)
        costs[each[:, None], at_first] = -1
        costs += (at_first == giver).any(axis=1)[:, None]
        room = np.zeros((len(rows), self._rack_count + 1), dtype=np.int8)
        for racks in self._racks_at_first[rows].T:
            room[each, racks] += 1
        np.maximum(room, 1, out=room)
        for racks in self._racks[rows].T:
            room[each, racks] -= 1
        is_full = room <= 0
        is_full[:, self._rack_of[giver]] = False
        is_barred = is_full[:, self._rack_of] | np.append(self._closed, True)
        is_barred[each[:, None], now] = True
        costs[is_barred] = NO_WAY
        ruled = np.flatnonzero(self._is_ruled[rows])
        if len(ruled):
            self.looks += len(ruled) * LOOKS_OF_RULED
            places = (now[ruled] == giver).argmax(axis=1)
            units = zip(rows[ruled].tolist(), places.tolist(), strict=True)
            takers = np.array([self._ruled.takers(*unit) for unit in units])
            owners = at_first[ruled, places]
            costs[ruled, :-1] = np.where(takers, (owners == giver)[:, None], NO_WAY)
            is_away = owners != giver
            costs[ruled[is_away], owners[is_away]] = -1
        return rows, costs[:, :-1]

    def is_narrow(self, unit: Unit, taker: int) -> bool:
        """Whether another replica of the list might hinder this one from passing to that SPU."""
        is_near = self._rack_of[self._now[unit]] == self._rack_of[taker]
        return not is_near and not self._is_ruled[unit[0]]

    def transfer(self, unit: Unit, taker: int) -> None:
        """Let an SPU have a replica."""
        row, giver = unit[0], int(self._now[unit])
        for spu in (giver, taker) if self._is_ruled[row] else (*self._now[row].tolist(), taker):
            self._reach.pop(spu, None)
        self._now[unit], self._racks[unit] = taker, self._rack_of[taker]

    def moved(self) -> int:
        """How many replicas are elsewhere, or have changed places in their list."""
        return int((self._now != self._at_first).sum())

    def changes(self) -> list[Step]:
        """What is elsewhere now, by row.

        In a row without rules, replicas that stay in their rack are paired first. Then any of the
        changes of a row may be made without the others.
        """
        found = []
        for row in np.flatnonzero((self._now != self._at_first).any(axis=1)).tolist():
            before, now = self._at_first[row].tolist(), self._now[row].tolist()
            pairs = list(zip(before, now, strict=True))
            if not self._is_ruled[row]:
                pairs = list(self._paired(before, now))
            found += [Step(row, *pair) for pair in pairs if pair[0] != pair[1]]
        return found

    def _paired(self, before: list[int], now: list[int]) -> Iterator[tuple[int, int]]:
        taken, left = [spu for spu in now if spu not in before], []
        for giver in [spu for spu in before if spu not in now]:
            rack = self._rack_of[giver]
            taker = next((spu for spu in taken if self._rack_of[spu] == rack), None)
            if taker is None:
                left.append(giver)
            else:
                taken.remove(taker)
                yield giver, taker
        yield from zip(left, taken, strict=True)

    def _rows_of(self, spu: int) -> Positions:
        """Those in which an SPU is now, ascending."""
        return np.asarray(np.flatnonzero(self._now.ravel() == spu) // self._now.shape[1])


def _dealt(lack: CountArray, total: int, count: int) -> list[tuple[int, int]]:
    """Where among so many each SPU begins to look, ascending: in all those that lack most take so
    many."""
    takers = np.repeat(np.arange(len(lack)), lack)
    before = np.arange(len(takers)) - np.repeat(np.cumsum(lack) - lack, lack)
    order = np.lexsort((takers, before - lack[takers]))[:total]
    takers, before = takers[order], before[order]
    known, shift, each = np.unique(takers, return_inverse=True, return_counts=True)
    places = (before * len(known) + shift) * count // (each[shift] * max(len(known), 1))
    order = np.lexsort((takers, places))
    return list(zip(places[order].tolist(), takers[order].tolist(), strict=True))
