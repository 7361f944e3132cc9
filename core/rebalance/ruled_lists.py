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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
from spu_assigner.core.base.replica_lists import IdArray, IdMatrix
from spu_assigner.core.constraints.moving import TopicMoves
from spu_assigner.core.constraints.spu_labels import Flags
from spu_assigner.core.rebalance.lists import ClusterLists
from spu_assigner.core.state.leading import LeaderChoice
from spu_assigner.core.state.ledger import CountArray

KEPT_MAX: Final = 2**26  # flags of lists that are kept
ZONES_MAX: Final = 64  # beyond that SPUs differ by their racks alone


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledTopics:
    """What binds the topics that may move; sequences and keys are by their index."""

    rules: Sequence[TopicMoves | None]
    closed: Flags  # SPUs to which replicas of topics without rules do not go, and that they keep
    choices: Sequence[LeaderChoice]  # of leaders; topics may share one


class RuledLists:
    """The lists under rules among all that may move.

    A *zone* are the SPUs of one rack that are alike to the rules.
    """

    def __init__(
        self, topics: RuledTopics, lists: ClusterLists, ids: IdArray, *, fullness: Sequence[int]
    ) -> None:
        """`ids` and `fullness` are of the SPUs."""
        self.closed, self._choices, self._ids = topics.closed, topics.choices, ids
        self._rules = {
            row: rules
            for row, topic in enumerate(lists.topics.tolist())
            if (rules := topics.rules[topic]) is not None
        }
        has_rules = [rules is not None for rules in topics.rules]
        self.is_ruled: Flags = np.array(has_rules)[lists.topics]  # by list
        self._at_first = replace(lists, ids=lists.ids.copy(), places=lists.places.copy())
        self._fullness = fullness
        tables = [rules.table for rules in self._rules.values()]
        masks = {table.allowed.tobytes(): table.allowed for table in tables}
        columns = [lists.rack_of, self.closed, *(masks[key] for key in sorted(masks))]
        if len(np.unique(columns, axis=1).T) > ZONES_MAX:
            columns = columns[:1]
        zones, zone_of = np.unique(np.array(columns, dtype=np.int64), axis=1, return_inverse=True)
        self.zone_of: CountArray = zone_of.ravel()  # of each SPU, 0 … without gaps
        self._zone_racks = zones[0]
        kept = KEPT_MAX // max(1, lists.ids.shape[1] * lists.spus)
        self._of = lru_cache(maxsize=kept)(self._found)

    def takers(self, row: int, at: int) -> Flags:
        """The SPUs that may take that replica of a list."""
        return np.asarray(self._of(row)[at])

    def by_choice(self, lists: ClusterLists) -> list[tuple[LeaderChoice, CountArray]]:
        """The choices that leave out demoted SPUs, each with the lists whose leaders it chooses."""
        topics: dict[LeaderChoice, list[int]] = {}
        for topic, choice in enumerate(self._choices):
            if choice.demoted:
                topics.setdefault(choice, []).append(topic)
        return [(each, np.flatnonzero(np.isin(lists.topics, of))) for each, of in topics.items()]

    def is_demoted(self, spu: int, topic: int) -> bool:
        """Whether an SPU takes no lead of a topic."""
        return int(self._ids[spu]) in self._choices[topic].demoted

    def able_to_lead(self, lists: ClusterLists) -> Flags:
        """Which members may lead the lists."""
        able = np.ones(lists.ids.shape, dtype=np.bool_)
        for choice, rows in self.by_choice(lists):
            able[rows] = ~np.isin(lists.ids[rows], choice.demoted)
        for row, rules in self._rules.items():
            found = rules.table.leaders(lists.members(row))
            able[row, : len(found)] &= found
        return able

    def room(self, rows: CountArray) -> IdMatrix:
        """For how many replicas of each of these lists each zone has room, beside those that stay;
        shape (lists, zones)."""
        lists, zone_of, sizes = self._at_first, self.zone_of, np.bincount(self.zone_of)
        racks, stays = lists.racks[rows], ~lists.is_movable[rows]
        is_open = np.bincount(zone_of[~self.closed], minlength=len(sizes)) > 0
        room = np.tile(is_open, (len(rows), 1)).astype(np.int32)
        for at in np.flatnonzero(self.is_ruled[rows]).tolist():
            places, may_hold = lists.places[rows[at]], self._of(int(rows[at])).any(axis=0)
            may_hold[places[places < lists.spus]] = True
            room[at] = np.bincount(zone_of[may_hold], minlength=len(sizes)) > 0
        for zone, size in enumerate(sizes.tolist()):
            here = racks == self._zone_racks[zone]
            free = np.maximum(1, here.sum(axis=1)) - (here & stays).sum(axis=1)
            room[:, zone] *= np.minimum(free, size)
        return room

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
