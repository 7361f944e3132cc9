"""The units that a rebalance evens out: replicas (they move) and leaderships (they cost nothing).

Both are `flow.Pool`s over rows, the replica lists of many topics one below the other. SPUs are
positions 0 … n-1; n stands for whatever takes no part: offline members and the padding.

`deal` passes many units in a few array operations, for a part of them in each of its rounds; what
is left then is passed unit by unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.replica_lists import IdMatrix
from spu_assigner.core.rebalance.flow import Flags, Positions
from spu_assigner.core.state.ledger import CountArray

ROUNDS_MAX: Final = 64  # of one deal
EMPTY_ROUNDS: Final = 4  # after so many that passed nothing a deal ends
DEAL_SHIFT: Final = 7_919  # rows further in the next round; a prime, so that all come in turn


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
        closed: Flags | None = None,
    ) -> None:
        """`racks` is parallel to `places`, -1 for padding; `rack_of` has those of the SPUs;
        `closed`: those that take nothing."""
        self._closed = closed
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
        self._look_at(np.arange(len(places)))
        self._holdings = Holdings(places, self._now, self._spus)

    def deal(self, excess: CountArray, lack: CountArray) -> CountArray:
        """See `flow.Pool`: rounds within racks, and between any two SPUs, in turns."""
        if self._closed is not None:
            lack = np.where(self._closed, 0, lack)
        change, empty = np.zeros_like(excess), 0
        for number in range(ROUNDS_MAX):
            to_give, to_take = excess + change.clip(max=0), lack - change.clip(min=0)
            if empty == EMPTY_ROUNDS or not to_give.any() or not to_take.any():
                break
            passed = self._deal_some(to_give, to_take, number, within_racks=number % 2 == 0)
            empty = 0 if len(passed) else empty + 1
            np.subtract.at(change, passed[:, 0], 1)
            np.add.at(change, passed[:, 1], 1)
        self._look_at(np.flatnonzero((self._now != self._at_first).any(axis=1)))
        self._holdings = Holdings(self._at_first, self._now, self._spus)
        return change

    def _deal_some(
        self, excess: CountArray, lack: CountArray, number: int, *, within_racks: bool
    ) -> IdMatrix:
        """One round: SPUs that give, each with one that takes; of each row one replica at most."""
        is_own = (self._now == self._at_first) & (self._now < self._spus)
        owners = np.where(is_own, self._now, self._spus).ravel()
        units = np.flatnonzero(np.append(excess > 0, False)[owners])
        units = units[np.argsort(owners[units], kind="stable")]
        held = np.bincount(owners[units], minlength=self._spus)
        first_unit = np.cumsum(held) - held
        givers, givers_rank = _in_turns(np.minimum(excess, held), 0)
        takers, _ = _in_turns(lack, number + 1)
        if within_racks:
            at_giver, at_taker = _matched(self._rack_of[givers], self._rack_of[takers])
            givers, givers_rank, takers = givers[at_giver], givers_rank[at_giver], takers[at_taker]
        count = min(len(givers), len(takers))
        givers, givers_rank, takers = givers[:count], givers_rank[:count], takers[:count]
        each = np.maximum(np.bincount(givers, minlength=self._spus), 1)[givers]
        # Rows from all of a giver's, at even distances: each topic gives its part.
        spread = givers_rank * held[givers] // each + number * DEAL_SHIFT
        flat = units[first_unit[givers] + spread % np.maximum(held[givers], 1)]
        rows, places = np.divmod(flat, self._now.shape[1])
        fit = (self._now[rows] != takers[:, None]).all(axis=1)
        fit &= (self._at_first[rows] != takers[:, None]).all(axis=1)
        to, is_far = self._rack_of[takers], self._rack_of[givers] != self._rack_of[takers]
        there = (self._racks[rows] == to[:, None]).sum(axis=1)
        limit = np.maximum(1, (self._racks_at_first[rows] == to[:, None]).sum(axis=1))
        at = np.flatnonzero(fit & ~(is_far & (there >= limit)))
        at = at[np.unique(rows[at], return_index=True)[1]]
        self._now[rows[at], places[at]] = takers[at]
        self._racks[rows[at], places[at]] = to[at]
        return np.column_stack((givers[at], takers[at]))

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
                return int(rows[np.argmax(fit)])
        raise InvariantError(f"no replica that {giver} can pass to {taker} at cost {cost}")

    def is_narrow(self, row: int, giver: int, taker: int) -> bool:
        """See `flow.Pool`: between racks."""
        return bool(self._rack_of[giver] != self._rack_of[taker])

    def transfer(self, row: int, giver: int, taker: int) -> None:
        """See `flow.Pool`."""
        at = int(np.flatnonzero(self._now[row] == giver)[0])
        self._now[row, at], self._racks[row, at] = taker, self._rack_of[taker]
        self._look_at(np.array([row]))
        is_takers_own = bool((self._at_first[row] == taker).any())
        self._holdings.transfer(row, giver=giver, taker=taker, is_takers_own=is_takers_own)

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


class LeaderPool:
    """Leaderships: any online member of a list may take it from the online SPU that leads."""

    def __init__(self, places: IdMatrix, spus: int) -> None:
        self._spus = spus
        self._members = places
        self._at_first = places[:, 0]
        self._now = self._at_first.copy()
        self._holdings = Holdings(places[:, :1], places[:, :1], spus)

    def deal(self, excess: CountArray, lack: CountArray) -> CountArray:
        """See `flow.Pool`: in each round lists go to the member that lacks most."""
        change = np.zeros_like(excess)
        for _ in range(ROUNDS_MAX):
            to_give, to_take = excess + change.clip(max=0), lack - change.clip(min=0)
            gives = np.append(to_give > 0, False)[self._now] & (self._now == self._at_first)
            rows = np.flatnonzero(gives)
            lacks = np.append(to_take, 0)[self._members[rows]]
            best = lacks.argmax(axis=1)
            lacks, takers = lacks.max(axis=1), self._members[rows, best]
            at = np.flatnonzero(lacks > 0)
            if len(at) == 0:
                break
            at = at[np.argsort(-lacks[at], kind="stable")]
            at = at[_first_of_each(self._now[rows[at]], to_give)]
            at = at[_first_of_each(takers[at], to_take)]
            np.subtract.at(change, self._now[rows[at]], 1)
            np.add.at(change, takers[at], 1)
            self._now[rows[at]] = takers[at]
        self._holdings = Holdings(self._at_first[:, None], self._now[:, None], self._spus)
        return change

    def reach(self, giver: int) -> Iterator[tuple[int, Positions]]:
        """See `flow.Pool`."""
        own, new = self._holdings.own[giver], self._holdings.new[giver]
        if len(new):
            yield -1, np.unique(self._at_first[new])
        for rows, refund in ((new, 1), (own, 0)):
            if len(rows):
                member_of = np.bincount(self._members[rows].ravel(), minlength=self._spus + 1)
                member_of[[giver, self._spus]] = 0
                yield 1 - refund, np.flatnonzero(member_of)

    def find(self, giver: int, taker: int, cost: int) -> int:
        """See `flow.Pool`."""
        rows = self._holdings.own[giver] if cost == 1 else self._holdings.new[giver]
        fit = (self._members[rows] == taker).any(axis=1)
        fit &= (self._at_first[rows] == taker) == (cost == -1)
        if not fit.any():
            raise InvariantError(f"no list that {giver} can leave to {taker} at cost {cost}")
        return int(rows[np.argmax(fit)])

    def is_narrow(self, row: int, giver: int, taker: int) -> bool:
        """See `flow.Pool`: a list has one leader, so no two transfers meet in it."""
        return False

    def transfer(self, row: int, giver: int, taker: int) -> None:
        """See `flow.Pool`."""
        self._now[row] = taker
        is_takers_own = bool(self._at_first[row] == taker)
        self._holdings.transfer(row, giver=giver, taker=taker, is_takers_own=is_takers_own)

    def changes(self) -> list[Transfer]:
        """The lists that another SPU leads now."""
        rows = np.flatnonzero(self._now != self._at_first)
        return [
            Transfer(row, int(self._at_first[row]), int(self._now[row])) for row in rows.tolist()
        ]


def _in_turns(amounts: CountArray, shift: int) -> tuple[Positions, Positions]:
    """Each position as often as its amount says, that of which most is left first; with what came
    of it before. `shift` turns the order among those of which as much is left."""
    positions = np.repeat(np.arange(len(amounts)), amounts)
    before = np.arange(len(positions)) - np.repeat(np.cumsum(amounts) - amounts, amounts)
    left = amounts[positions] - before
    turned = (positions + shift * left) % max(len(amounts), 1) if shift else positions
    order = np.lexsort((turned, -left))
    return positions[order], before[order]


def _first_of_each(of: Positions, limits: CountArray) -> Positions:
    """The indexes of the first so many entries that are of each position, ascending."""
    order = np.argsort(of, kind="stable")
    counts = np.bincount(of, minlength=len(limits))
    rank = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[rank < limits[of[order]]])


def _matched(of_givers: CountArray, of_takers: CountArray) -> tuple[Positions, Positions]:
    """Indexes of givers and takers, those of one rack matched in their order."""
    keys = []
    for racks in (of_givers, of_takers):
        order = np.argsort(racks, kind="stable")
        counts = np.bincount(racks)
        rank = np.arange(len(racks)) - np.repeat(np.cumsum(counts) - counts, counts)
        key = np.empty(len(racks), dtype=np.int64)
        key[order] = racks[order] * (len(of_givers) + len(of_takers)) + rank
        keys.append(key)
    _, givers, takers = np.intersect1d(keys[0], keys[1], assume_unique=True, return_indices=True)
    order = np.argsort(givers)
    return givers[order], takers[order]
