"""The units that a rebalance evens out: replicas.

A `flow.Pool` over rows, the replica lists of many topics one below the other. SPUs are
positions 0 … n-1; n stands for whatever takes no part: offline members and the padding.

Among moves that cost the same those are made that spread over topics: `deal` passes what takes one
step, to each SPU of each topic its part and from other lists first; `find` takes the topic of
which the taker has the fewest replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.replica_lists import IdArray, IdMatrix
from spu_assigner.core.rebalance.flow import Flags, Positions
from spu_assigner.core.state.ledger import CountArray

TURNS: Final = 3  # of one deal
LOOKS_EACH: Final = 32  # at units, for one that an SPU may take; fewer, where there are
LOOKS_MAX: Final = 400_000  # more in all; some 1 s
LOOKS_LEAST: Final = 6


class Transfer(NamedTuple):
    """A unit that is elsewhere now."""

    row: int
    giver: int
    taker: int


class Holdings:
    """For each SPU the rows it holds a unit of, ascending: `own`, where it did at first, and `new`.

    Arrays are replaced, never written to.
    """

    __slots__ = ("new", "own")

    def __init__(self, at_first: IdMatrix, now: IdMatrix, spus: int) -> None:
        """The holders of the units of each row, `spus` where there is none."""
        is_own = now == at_first
        self.own = _rows_of(np.where(is_own, now, spus), spus)
        self.new = _rows_of(np.where(is_own, spus, now), spus)

    def transfer(self, row: int, *, giver: int, taker: int, is_takers_own: bool) -> None:
        """Enter that a unit has passed."""
        source = self.new if _holds(self.new[giver], row) else self.own
        source[giver] = source[giver][source[giver] != row]
        target = self.own if is_takers_own else self.new
        at = np.searchsorted(target[taker], row)
        target[taker] = np.insert(target[taker], at, row)


def _rows_of(places: IdMatrix, spus: int) -> list[Positions]:
    flat = places.ravel()
    units = np.flatnonzero(flat < spus)
    order = units[np.argsort(flat[units], kind="stable")]
    bounds = np.searchsorted(flat[order], np.arange(spus + 1))
    rows = order // places.shape[1]
    return [rows[bounds[i] : bounds[i + 1]] for i in range(spus)]


def _holds(rows: Positions, row: int) -> bool:
    at = int(np.searchsorted(rows, row))
    return at < len(rows) and int(rows[at]) == row


class ReplicaPool:
    """Replicas: an SPU may take one of a list it is not in, if the list's racks permit it.

    In each list a rack has a limit: the replicas it had there at first, or 1 if it had none. A rack
    is full where it has reached it. At first every rack that is in a list is full there, so
    `_full` holds the racks of its members, each once; it is kept up to date as replicas pass.
    """

    def __init__(
        self,
        places: IdMatrix,
        racks: IdMatrix,
        rack_of: CountArray,
        *,
        topics: IdArray,
        closed: Flags | None = None,
    ) -> None:
        """`racks` is parallel to `places`, -1 for padding; `rack_of` has those of the SPUs;
        `topics`: of the rows, ascending; `closed`: SPUs that take nothing."""
        self._closed, self._topics = closed, topics
        self._spus = len(rack_of)
        self._rack_count = 1 + max(int(racks.max()), int(rack_of.max()))
        self._rack_of = rack_of
        self._racks_at_first = np.where(racks < 0, self._rack_count, racks)
        self._racks = self._racks_at_first.copy()
        self._at_first = places
        self._now = places.copy()
        self._full = self._racks.copy()
        self._loose = np.full_like(places, self._spus)  # members whose rack is not full there
        self._away = np.full_like(places, self._spus)  # who was a member at first and is not now
        for column in range(1, places.shape[1]):
            is_again = (self._racks[:, :column] == self._racks[:, column, None]).any(axis=1)
            self._full[is_again, column] = self._rack_count
        self._found: Holdings | None = None  # of what passes one by one, once any does

    def deal(self, excess: CountArray, lack: CountArray) -> CountArray:
        """See `flow.Pool`: in the first turn of each list one replica at most."""
        if self._closed is not None:
            lack = np.where(self._closed, 0, lack)
        change = np.zeros_like(excess)
        for turn in range(TURNS):
            to_give, to_take = excess + change.clip(max=0), lack - change.clip(min=0)
            if not to_give.any() or not to_take.any():
                break
            self._deal_once(to_give, to_take, change, turn)
        self._look_at(np.flatnonzero((self._now != self._at_first).any(axis=1)))
        self._found = None
        return change

    @property
    def _holdings(self) -> Holdings:
        if self._found is None:
            self._found = Holdings(self._at_first, self._now, self._spus)
        return self._found

    def _deal_once(
        self, excess: CountArray, lack: CountArray, change: CountArray, turn: int
    ) -> None:
        """Give each SPU replicas at even distances among all that may go, which are by topic: so
        each topic gives it its part. Of those near in the topic the SPU gives that holds most of
        it, then the one that has most to give."""
        is_own = (self._now == self._at_first) & (self._now < self._spus)
        units = np.flatnonzero((np.append(excess > 0, False)[self._now] & is_own).ravel())
        if len(units) == 0:
            return
        rows, columns = (each.tolist() for each in np.divmod(units, self._now.shape[1]))
        of_topics, givers = self._topics[rows], self._now.ravel()[units].tolist()
        first_of, topics = np.searchsorted(of_topics, of_topics).tolist(), of_topics.tolist()
        left, count = excess.tolist(), len(units)
        following = list(range(count + 1))  # of each unit itself, or one behind it if it is gone
        moved: set[int] = set()
        if turn == 0:
            moved.update(np.flatnonzero((self._now != self._at_first).any(axis=1)).tolist())
        held: dict[int, Counter[int]] = {}  # replicas of a topic, by SPU
        total = int(min(excess.sum(), lack.sum()))
        looks = min(LOOKS_EACH, max(LOOKS_LEAST, LOOKS_MAX // max(total, 1)))
        for at, taker in self._places_dealt(lack, total, count):
            unit, best, most = max(first_of[at], at - looks // 2), -1, (-1, -1)
            for _ in range(looks):
                unit = _first_left(following, unit)
                if unit == count:
                    break
                giver, topic = givers[unit], topics[unit]
                if left[giver] == 0 or rows[unit] in moved:
                    following[unit] = unit + 1
                    continue
                if best >= 0 and topic != topics[best]:
                    break
                if topic not in held:
                    held[topic] = Counter(self._now[slice(*self._span(topic))].ravel().tolist())
                key = held[topic][giver], left[giver]
                if key > most and self._fits(rows[unit], giver, taker):
                    best, most = unit, key
                unit += 1
            if best < 0:
                continue
            row, column, giver = rows[best], columns[best], givers[best]
            self._now[row, column], self._racks[row, column] = taker, self._rack_of[taker]
            following[best] = best + 1
            if turn == 0:
                moved.add(row)
            left[giver] -= 1
            for spu, more in ((giver, -1), (taker, 1)):
                held[topics[best]][spu] += more
                change[spu] += more

    def _span(self, topic: int) -> tuple[int, int]:
        """The rows of a topic: the first, and the one behind the last."""
        return (
            int(np.searchsorted(self._topics, topic)),
            int(np.searchsorted(self._topics, topic, "right")),
        )

    @staticmethod
    def _places_dealt(lack: CountArray, total: int, count: int) -> list[tuple[int, int]]:
        """Where each SPU begins to look, ascending: those that lack most take so many in all."""
        takers = np.repeat(np.arange(len(lack)), lack)
        before = np.arange(len(takers)) - np.repeat(np.cumsum(lack) - lack, lack)
        order = np.lexsort((takers, before - lack[takers]))[:total]
        takers, before = takers[order], before[order]
        each = np.bincount(takers, minlength=len(lack))
        known = np.flatnonzero(each)
        shift = np.zeros(len(lack), dtype=np.int64)
        shift[known] = np.arange(len(known))
        steps = before * len(known) + shift[takers]
        places = steps * count // (each[takers] * max(len(known), 1))
        order = np.lexsort((takers, places))
        return list(zip(places[order].tolist(), takers[order].tolist(), strict=True))

    def _fits(self, row: int, giver: int, taker: int) -> bool:
        """Whether an SPU may take a replica of another that has not passed."""
        if taker in self._now[row].tolist() or taker in self._at_first[row].tolist():
            return False
        rack = int(self._rack_of[taker])
        if rack == self._rack_of[giver]:
            return True
        return bool(
            self._racks[row].tolist().count(rack)
            < max(1, self._racks_at_first[row].tolist().count(rack))
        )

    def reach(self, giver: int) -> Iterator[tuple[int, Positions]]:
        """See `flow.Pool`: SPUs that are to have back what was theirs come first."""
        own, new = self._holdings.own[giver], self._holdings.new[giver]
        for rows, refund in ((new, 1), (own[self._away[own, 0] != self._spus], 0)):
            if len(rows):
                yield -refund, self._back(rows, giver)
        for rows, refund in ((new, 1), (own, 0)):
            if len(rows):
                yield 1 - refund, np.flatnonzero(self._open_to(rows, giver))

    def find(self, giver: int, taker: int, cost: int) -> int:
        """See `flow.Pool`."""
        own, new = self._holdings.own[giver], self._holdings.new[giver]
        for rows, refund in ((new, 1), (own, 0)):
            fit = ~(self._now[rows] == taker).any(axis=1)
            if self._rack_of[giver] != self._rack_of[taker]:
                fit &= ~(self._full[rows] == self._rack_of[taker]).any(axis=1)
            was_there = (self._at_first[rows] == taker).any(axis=1)
            fit &= was_there == (cost + refund == 0)
            if cost + refund in (0, 1) and fit.any():
                return self._least_of_topic(rows[fit], taker)
        raise InvariantError(f"no replica that {giver} can pass to {taker} at cost {cost}")

    def _least_of_topic(self, rows: Positions, taker: int) -> int:
        """The first row of the topic of which an SPU has the fewest replicas."""
        held = (self._holdings.own[taker], self._holdings.new[taker])
        known, topics = np.sort(self._topics[np.concatenate(held)]), self._topics[rows]
        counts = np.searchsorted(known, topics, "right") - np.searchsorted(known, topics)
        return int(rows[np.argmin(counts)])

    def is_narrow(self, row: int, giver: int, taker: int) -> bool:
        """See `flow.Pool`: between racks."""
        return bool(self._rack_of[giver] != self._rack_of[taker])

    def transfer(self, row: int, giver: int, taker: int) -> None:
        """See `flow.Pool`."""
        at = int(np.flatnonzero(self._now[row] == giver)[0])
        self._now[row, at], self._racks[row, at] = taker, self._rack_of[taker]
        self._look_at(np.array([row]))
        if self._found is not None:
            is_takers_own = bool((self._at_first[row] == taker).any())
            self._found.transfer(row, giver=giver, taker=taker, is_takers_own=is_takers_own)

    def _look_at(self, rows: Positions) -> None:
        """Bring up to date what is kept of these rows beside their members."""
        now, racks = self._now[rows], self._racks[rows]
        at_first, racks_at_first = self._at_first[rows], self._racks_at_first[rows]
        away = np.full_like(now, self._spus)
        count = np.zeros(len(rows), dtype=np.int64)
        for column in range(now.shape[1]):
            rack = racks[:, column, None]
            limit = np.maximum(1, (racks_at_first == rack).sum(axis=1))
            is_full = (racks == rack).sum(axis=1) >= limit
            is_first = ~(racks[:, :column] == rack).any(axis=1)
            self._full[rows, column] = np.where(
                is_full & is_first, racks[:, column], self._rack_count
            )
            self._loose[rows, column] = np.where(is_full, self._spus, now[:, column])
            member = at_first[:, column]
            is_away = (member < self._spus) & ~(now == member[:, None]).any(axis=1)
            away[is_away, count[is_away]] = member[is_away]
            count += is_away
        self._away[rows] = away

    def changes(self) -> list[Transfer]:
        """What is elsewhere now, by row.

        In a row, replicas that stay in their rack are paired first. Then any of the changes of a
        row may be made without the others.
        """
        rows = np.flatnonzero(self._away[:, 0] != self._spus)
        racks = [*self._rack_of.tolist(), -1]
        columns = (self._at_first[rows], self._away[rows], self._now[rows])
        changes = []
        for row, at_first, away, now in zip(
            rows.tolist(), *[each.tolist() for each in columns], strict=True
        ):
            taken = [spu for spu in now if spu not in at_first]
            left = []
            for giver in away[: len(taken)]:
                rack = racks[giver]
                taker = next((spu for spu in taken if racks[spu] == rack), None)
                if taker is None:
                    left.append(giver)
                else:
                    taken.remove(taker)
                    changes.append(Transfer(row, giver, taker))
            changes += [Transfer(row, *pair) for pair in zip(left, taken, strict=True)]
        return changes

    def _back(self, rows: Positions, giver: int) -> Positions:
        """Who may take the giver's replica of any of these rows and was a member at first."""
        away = self._away[rows]
        racks = np.append(self._rack_of, -1)[away]
        is_full = (self._full[rows][:, None, :] == racks[:, :, None]).any(axis=2)
        is_open = ~is_full | (racks == self._rack_of[giver])
        return np.unique(away[is_open & (away != self._spus)])

    def _open_to(self, rows: Positions, giver: int) -> Flags:
        """Who may take the giver's replica of any of these rows."""
        full = np.bincount(self._full[rows].ravel(), minlength=self._rack_count + 1)
        loose = np.bincount(self._loose[rows].ravel(), minlength=self._spus + 1)[: self._spus]
        closed = full[self._rack_of] + loose  # rows whose rack is full, or that have the SPU
        held = np.bincount(self._now[rows].ravel(), minlength=self._spus + 1)[: self._spus]
        is_neighbour = self._rack_of == self._rack_of[giver]
        is_open = np.asarray(np.where(is_neighbour, held, closed) < len(rows))
        return is_open if self._closed is None else np.logical_and(is_open, ~self._closed)


def _first_left(following: list[int], unit: int) -> int:
    """The first unit from here on that is not gone."""
    if following[unit] == unit:
        return unit
    last = unit
    while following[last] != last:
        last = following[last]
    while following[unit] != last:  # The way is shorter the next time.
        following[unit], unit = last, following[unit]
    return last
