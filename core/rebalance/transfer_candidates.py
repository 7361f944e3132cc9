"""The units that a rebalance evens out: replicas (they move) and leaderships (they cost nothing).

Both are `flow.Pool`s over rows, the replica lists of many topics one below the other. SPUs are
positions 0 … n-1; n stands for whatever takes no part: offline members and the padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.replica_lists import IdMatrix
from spu_assigner.core.rebalance.flow import Flags, Positions
from spu_assigner.core.state.ledger import CountArray


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

    def __init__(self, places: IdMatrix, spus: int) -> None:
        """`places`: the holders of the units of each row, `spus` where there is none."""
        flat = places.ravel()
        order = np.argsort(flat, kind="stable")
        bounds = np.searchsorted(flat[order], np.arange(spus + 1))
        rows = order // places.shape[1]
        self.own = [rows[bounds[i] : bounds[i + 1]] for i in range(spus)]
        self.new = [rows[:0]] * spus

    def transfer(self, row: int, *, giver: int, taker: int, is_takers_own: bool) -> None:
        """Enter that a unit has passed."""
        source = self.new if _holds(self.new[giver], row) else self.own
        source[giver] = source[giver][source[giver] != row]
        target = self.own if is_takers_own else self.new
        at = np.searchsorted(target[taker], row)
        target[taker] = np.insert(target[taker], at, row)


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
        full = np.where(racks < 0, self._rack_count, racks)
        self._racks_at_first = full.copy()
        for column in range(1, full.shape[1]):
            repeated = (full[:, :column] == self._racks_at_first[:, column, None]).any(axis=1)
            full[repeated, column] = self._rack_count
        self._full = full
        self._at_first = places
        self._now = places.copy()
        self._loose = np.full_like(places, self._spus)  # members whose rack is not full there
        self._away = np.full_like(places, self._spus)  # who was a member at first and is not now
        self._holdings = Holdings(places, self._spus)

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
        now, at_first = self._now[row], self._at_first[row].tolist()
        now[now == giver] = taker
        members = now.tolist()
        away = [spu for spu in at_first if spu not in members]
        self._away[row] = away + [self._spus] * (len(members) - len(away))
        self._holdings.transfer(row, giver=giver, taker=taker, is_takers_own=taker in at_first)
        racks_at_first = self._racks_at_first[row].tolist()
        racks = [
            rack if spu == self._spus else int(self._rack_of[spu])
            for spu, rack in zip(members, racks_at_first, strict=True)
        ]
        for at, rack in enumerate(racks):
            is_full = racks.count(rack) >= max(1, racks_at_first.count(rack))
            is_first = rack not in racks[:at]
            self._full[row, at] = rack if is_full and is_first else self._rack_count
            self._loose[row, at] = self._spus if is_full else members[at]

    def changes(self) -> list[Transfer]:
        """What is elsewhere now, by row.

        In a row, replicas that stay in their rack are paired first. Then any of the changes of a
        row may be made without the others.
        """
        changes = []
        for row in np.flatnonzero(self._away[:, 0] != self._spus).tolist():
            at_first = self._at_first[row].tolist()
            gone = [spu for spu in self._away[row].tolist() if spu != self._spus]
            taken = [spu for spu in self._now[row].tolist() if spu not in at_first]
            left = []
            for giver in gone:
                rack = self._rack_of[giver]
                taker = next((spu for spu in taken if self._rack_of[spu] == rack), None)
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
        self._holdings = Holdings(places[:, :1], spus)

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
