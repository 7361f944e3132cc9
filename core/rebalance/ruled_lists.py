"""Lists whose topics have rules: where their replicas may go.

Rules:
- Where a replica may go depends on the list as it is before the rebalance, and on nothing that the
  rebalance does. So each replica is a unit of its own, and any part of the moves may be made.
- Of each list one replica may go to another group of a level, or another rack: the one on the
  fullest SPU. The others stay within their groups. No SPU may be taken by two replicas of a list.
- Racks as ever: a replica goes to no rack that another of its list is on.
- Lists without rules go to no SPU that is closed to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.replica_lists import IdArray, IdMatrix
from spu_assigner.core.constraints.moving import TopicMoves
from spu_assigner.core.rebalance.lists import ClusterLists
from spu_assigner.core.state.leading import LeaderChoice
from spu_assigner.core.state.ledger import CountArray

KEPT_MAX: Final = 2**26  # flags of lists that are kept
ZONES_MAX: Final = 64  # beyond that SPUs differ by their racks alone

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledTopics:
    """What binds the topics that may move; sequences and keys are by their index."""

    rules: Sequence[TopicMoves | None]
    closed: Flags  # SPUs to which replicas of topics without rules do not go, and that they keep
    choices: Mapping[int, LeaderChoice] = field(default_factory=dict)  # where they have their own


@dataclass(frozen=True, slots=True, kw_only=True)
class Zones:
    """SPUs of one rack that are alike to the rules."""

    of: CountArray  # of each SPU, 0 … without gaps
    racks: CountArray  # of each zone
    is_open: Flags  # to lists without rules
    ruled: IdArray  # the other lists, ascending
    may_hold: Flags  # shape (ruled lists, zones)

    def room(self, lists: ClusterLists, rows: CountArray) -> IdMatrix:
        """For how many replicas of each of these lists each zone has room, beside those that stay;
        shape (lists, zones)."""
        racks, stays = lists.racks[rows], ~lists.is_movable[rows]
        room = np.tile(self.is_open, (len(rows), 1)).astype(np.int32)
        is_ruled = np.isin(rows, self.ruled)
        room[is_ruled] = self.may_hold[np.searchsorted(self.ruled, rows[is_ruled])]
        for zone, size in enumerate(np.bincount(self.of).tolist()):
            here = racks == self.racks[zone]
            free = np.maximum(1, here.sum(axis=1)) - (here & stays).sum(axis=1)
            room[:, zone] *= np.minimum(free, size)
        return room


class RuledLists:
    """The lists under rules among all that may move."""

    def __init__(
        self, topics: RuledTopics, lists: ClusterLists, *, fullness: Sequence[int]
    ) -> None:
        """`fullness` is of the SPUs."""
        self.closed, self.choices = topics.closed, topics.choices
        self._rules = {
            row: rules
            for row, topic in enumerate(lists.topics.tolist())
            if (rules := topics.rules[topic]) is not None
        }
        self._at_first, self._fullness = lists.copy(), fullness
        kept = KEPT_MAX // max(1, lists.ids.shape[1] * lists.spus)
        self._of = lru_cache(maxsize=kept)(self._found)

    @property
    def rows(self) -> IdArray:
        """The lists under rules, ascending."""
        return np.array([*self._rules], dtype=np.int32)

    def has(self, row: int) -> bool:
        """Whether a list is under rules."""
        return row in self._rules

    def takers(self, row: int, at: int) -> Flags:
        """The SPUs that may take that replica of a list."""
        return np.asarray(self._of(row)[at])

    def may_lead(self, row: int, taker: int) -> bool:
        """Whether that member of a list, as it was at first, may lead it."""
        if row not in self._rules:
            return True
        at = self._at_first.places[row].tolist().index(taker)
        return bool(self._rules[row].table.leaders(self._at_first.members(row))[at])

    def able_to_lead(self, lists: ClusterLists) -> Flags:
        """Which members may lead the lists, as far as the rules of topics go."""
        able = np.ones(lists.ids.shape, dtype=np.bool_)
        for row, rules in self._rules.items():
            found = rules.table.leaders(lists.members(row))
            able[row, : len(found)] = found
        return able

    def zones(self) -> Zones:
        """The SPUs by their racks, and what the rules say of them."""
        rack_of, places = self._at_first.rack_of, self._at_first.places
        tables = [rules.table for rules in self._rules.values()]
        masks = {table.allowed.tobytes(): table.allowed for table in tables}
        columns = [rack_of, self.closed, *(masks[key] for key in sorted(masks))]
        known, of = np.unique(np.array(columns, dtype=np.int64), axis=1, return_inverse=True)
        if known.shape[1] > ZONES_MAX:
            known, of = np.unique(np.array([rack_of]), axis=1, return_inverse=True)
        of = of.ravel()
        rows, may_hold = self.rows, np.zeros((len(self._rules), known.shape[1]), dtype=np.bool_)
        for at, row in enumerate(rows.tolist()):
            can_hold = np.asarray(self._of(row).any(axis=0))
            np.put(can_hold, places[row][places[row] < len(of)], True)
            may_hold[at] = np.bincount(of[can_hold], minlength=known.shape[1])
        is_open = np.bincount(of[~self.closed], minlength=known.shape[1]) > 0
        return Zones(of=of, racks=known[0], is_open=is_open, ruled=rows, may_hold=may_hold)

    def _found(self, row: int) -> Flags:
        """Which SPUs may take which replica of a list; shape (replicas, SPUs)."""
        lists, rules = self._at_first, self._rules[row]
        members, spus = lists.members(row), lists.spus
        places, racks = lists.places[row].tolist(), lists.racks[row].tolist()
        able = np.zeros((len(members), spus), dtype=np.bool_)
        moving = [
            at for at in range(len(members)) if places[at] < spus and not rules.stays[places[at]]
        ]
        free = max(moving, key=lambda at: (self._fullness[places[at]], -at), default=-1)
        is_elsewhere = ~np.isin(lists.rack_of, racks)
        for at in moving:
            takers, is_near = rules.takers(members, at), lists.rack_of == racks[at]
            if at == free:
                able[at] = takers & (is_near | is_elsewhere)
            else:
                able[at] = takers & is_near & rules.table.alike(members[at])
        able[:, [place for place in places if place < spus]] = False
        # Of those that may take several replicas of the list each is given one to take.
        numbers = able.cumsum(axis=0) - 1
        which = (np.arange(spus) + row) % np.maximum(able.sum(axis=0), 1)
        return np.asarray(able & (numbers == which))
