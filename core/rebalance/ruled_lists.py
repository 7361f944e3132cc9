"""Lists whose topics have rules: where their replicas may go, and the pool that passes them.

Rules:
- Where a replica may go depends on the list as it is before the rebalance, and on nothing that the
  rebalance does. So each replica is a unit of its own, and any part of the moves may be made.
- Of each list one replica may go to another group of a level, or another rack: the one on the
  fullest SPU. The others stay within their groups. No SPU may be taken by two replicas of a list.
- Racks as ever: a replica goes to no rack that another of its list is on.
- Lists without rules go to no SPU that is closed to them.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.replica_lists import IdArray, IdMatrix
from spu_assigner.core.rebalance.flow import Flags, Positions
from spu_assigner.core.rebalance.transfer_candidates import ReplicaPool, Transfer
from spu_assigner.core.state.leading import LeaderChoice
from spu_assigner.core.state.ledger import CountArray

KEPT_MAX: Final = 2**26  # flags of lists that are kept
ZONES_MAX: Final = 64  # beyond that SPUs differ by their racks alone


class TopicRules(Protocol):
    """The rules of a topic; flags are by position of the SPUs that take part."""

    @property
    def allowed(self) -> Flags:
        """The SPUs that the topic's rules on single SPUs allow, whoever is there."""

    @property
    def stays(self) -> Flags:
        """The SPUs that replicas of the topic do not leave."""

    def takers(self, row: Sequence[int], at: int) -> Flags:
        """The SPUs that may take that replica of a list (of ids), whoever is in it."""

    def alike(self, spu_id: int) -> Flags:
        """The SPUs that are in the same group at each level."""

    def leaders(self, row: Sequence[int]) -> list[bool]:
        """Which members may lead a list in place of the one that does, or are it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledTopics:
    """What binds the topics that may move; sequences and keys are by their index."""

    rules: Sequence[TopicRules | None]
    closed: Flags  # SPUs to which replicas of topics without rules do not go, and that they keep
    choices: Mapping[int, LeaderChoice] = field(default_factory=dict)  # where they have their own


@dataclass(frozen=True, slots=True, kw_only=True)
class Zones:
    """SPUs of one rack that are alike to the rules."""

    of: CountArray  # of each SPU, 0 … without gaps
    racks: CountArray  # of each zone
    is_open: NDArray[np.bool_]  # shape (lists, zones)

    def rooms(self, free: IdMatrix) -> IdMatrix:
        """For how many replicas of each list a zone has room, from those of racks."""
        rooms = np.minimum(free[:, self.racks], np.bincount(self.of))
        return np.where(self.is_open, rooms, 0).astype(np.int16)


class ListArrays(Protocol):
    """The lists of all topics, one below the other."""

    @property
    def topics(self) -> IdArray:
        """Of each list."""

    @property
    def ids(self) -> IdMatrix:
        """Padded with -1."""

    @property
    def places(self) -> IdMatrix:
        """Positions of the SPUs that take part; of others and of padding how many these are."""


class RuledLists:
    """The lists under rules among all that may move."""

    def __init__(
        self,
        topics: RuledTopics,
        lists: ListArrays,
        *,
        racks: IdMatrix,
        rack_of: CountArray,
        fullness: Sequence[int],
    ) -> None:
        """`racks` is parallel to the lists, `fullness` and `rack_of` are of the SPUs."""
        self.closed = topics.closed
        self._rules = {
            row: rules
            for row, topic in enumerate(lists.topics.tolist())
            if (rules := topics.rules[topic]) is not None
        }
        self._ids, self.places, self._racks = lists.ids.copy(), lists.places.copy(), racks
        self._rack_of, self._fullness = rack_of, fullness
        self._kept: dict[int, NDArray[np.bool_]] = {}

    @property
    def rows(self) -> list[int]:
        """The lists under rules, ascending."""
        return list(self._rules)

    def has(self, row: int) -> bool:
        """Whether a list is under rules."""
        return row in self._rules

    def takers(self, row: int, at: int) -> Flags:
        """The SPUs that may take that replica of a list."""
        return np.asarray(self._of(row)[at])

    def may_lead(self, row: int, taker: int) -> bool:
        """Whether that member of a list may lead it."""
        at = int(np.flatnonzero(self.places[row] == taker)[0])
        return bool(self._rules[row].leaders(_members(self._ids, row))[at])

    def zones(self) -> Zones:
        """The SPUs by what the rules say of them."""
        masks = {rules.allowed.tobytes(): rules.allowed for rules in self._rules.values()}
        columns = [self._rack_of, self.closed, *(masks[key] for key in sorted(masks))]
        known, of = np.unique(np.array(columns, dtype=np.int64), axis=1, return_inverse=True)
        if known.shape[1] > ZONES_MAX:
            columns = [self._rack_of]
            known, of = np.unique(np.array(columns), axis=1, return_inverse=True)
        of = of.ravel()
        open_to_all = np.bincount(of[~self.closed], minlength=known.shape[1]) > 0
        is_open = np.tile(open_to_all, (len(self.places), 1))
        for row in self._rules:
            may_hold = np.asarray(self._of(row).any(axis=0))
            members = self.places[row]
            np.put(may_hold, members[members < len(of)], True)
            is_open[row] = np.bincount(of[may_hold], minlength=known.shape[1]) > 0
        return Zones(of=of, racks=known[0], is_open=is_open)

    def _of(self, row: int) -> NDArray[np.bool_]:
        """Shape (replicas, SPUs)."""
        known = self._kept.get(row)
        if known is None:
            if len(self._kept) * self._ids.shape[1] * len(self._rack_of) > KEPT_MAX:
                self._kept.clear()
            known = self._kept[row] = self._found(row)
        return known

    def _found(self, row: int) -> NDArray[np.bool_]:
        rules, members = self._rules[row], _members(self._ids, row)
        places, racks = self.places[row].tolist(), self._racks[row].tolist()
        spus = len(self._rack_of)
        able = np.zeros((len(members), spus), dtype=np.bool_)
        moving = [
            at for at in range(len(members)) if places[at] < spus and not rules.stays[places[at]]
        ]
        free = max(moving, key=lambda at: (self._fullness[places[at]], -at), default=-1)
        is_elsewhere = ~np.isin(self._rack_of, racks)
        for at in moving:
            takers = rules.takers(members, at)
            is_near = self._rack_of == racks[at]
            if at == free:
                takers = takers & (is_near | is_elsewhere)
            else:
                takers = takers & is_near & rules.alike(members[at])
            able[at] = takers
        able[:, [place for place in places if place < spus]] = False
        # Of those that may take several replicas of the list each is given one to take.
        numbers = able.cumsum(axis=0) - 1
        which = (np.arange(spus) + row) % np.maximum(able.sum(axis=0), 1)
        return np.asarray(able & (numbers == which))


class RuledPool:
    """Replicas with and without rules: `flow.Pool`."""

    def __init__(
        self, lists: RuledLists, racks: IdMatrix, rack_of: CountArray, *, topics: IdArray
    ) -> None:
        """`racks` and `topics` are parallel to the lists' places."""
        self._lists = lists
        spus = len(rack_of)
        is_ruled = np.zeros((len(lists.places), 1), dtype=np.bool_)
        is_ruled[lists.rows] = True
        others = np.where(is_ruled, spus, lists.places)
        self._others = ReplicaPool(others, racks, rack_of, topics=topics, closed=lists.closed)
        self._now: dict[tuple[int, int], int] = {}  # of a replica that is elsewhere
        self._own: list[list[tuple[int, int]]] = [[] for _ in range(spus)]  # row, place in it
        self._new: list[list[tuple[int, int]]] = [[] for _ in range(spus)]
        for row in lists.rows:
            for at, spu in enumerate(lists.places[row].tolist()):
                if spu < spus:
                    self._own[spu].append((row, at))
        self._reach: dict[int, list[tuple[int, Positions]]] = {}

    def reach(self, giver: int) -> Iterator[tuple[int, Positions]]:
        """See `flow.Pool`."""
        known = self._reach.get(giver)
        if known is None:
            known = self._reach[giver] = list(self._reach_of(giver))
        yield from sorted([*self._others.reach(giver), *known], key=lambda each: each[0])

    def find(self, giver: int, taker: int, cost: int) -> int:
        """See `flow.Pool`."""
        units = self._own[giver] if cost == 1 else self._new[giver]
        for row, at in units:
            if cost == -1:
                if self._lists.places[row, at] == taker:
                    return row
            elif self._lists.takers(row, at)[taker]:
                return row
        return self._others.find(giver, taker, cost)

    def deal(self, excess: CountArray, lack: CountArray) -> CountArray:
        """See `flow.Pool`: of replicas without rules."""
        return self._others.deal(excess, lack)

    def is_narrow(self, row: int, giver: int, taker: int) -> bool:
        """See `flow.Pool`: replicas under rules do not hinder each other."""
        return not self._lists.has(row) and self._others.is_narrow(row, giver, taker)

    def transfer(self, row: int, giver: int, taker: int) -> None:
        """See `flow.Pool`."""
        if not self._lists.has(row):
            self._others.transfer(row, giver, taker)
            return
        unit = next(
            unit
            for units in (self._own[giver], self._new[giver])
            for unit in units
            if unit[0] == row
        )
        is_own = self._now.pop(unit, None) is None
        (self._own if is_own else self._new)[giver].remove(unit)
        if self._lists.places[unit] == taker:
            insort(self._own[taker], unit)
        else:
            insort(self._new[taker], unit)
            self._now[unit] = taker
        for spu in (giver, taker):
            self._reach.pop(spu, None)

    def changes(self) -> list[Transfer]:
        """What is elsewhere now, without moves in a circle, which change no number."""
        places = self._lists.places
        ruled = [Transfer(unit[0], int(places[unit]), taker) for unit, taker in self._now.items()]
        return _without_circles(sorted([*self._others.changes(), *ruled]))

    def _reach_of(self, giver: int) -> Iterator[tuple[int, Positions]]:
        if self._new[giver]:
            back = [int(self._lists.places[unit]) for unit in self._new[giver]]
            yield -1, np.unique(back)
        for units, cost in ((self._new[giver], 0), (self._own[giver], 1)):
            found = np.zeros(len(self._own), dtype=np.bool_)
            for row, at in units:
                found |= self._lists.takers(row, at)
            found[giver] = False
            if found.any():
                yield cost, np.flatnonzero(found)


def able_to_lead(topics: RuledTopics, lists: ListArrays) -> NDArray[np.bool_]:
    """Which members may lead their lists, as far as the rules of topics go."""
    able = np.ones(lists.ids.shape, dtype=np.bool_)
    for topic, rules in enumerate(topics.rules):
        if rules is not None:
            for row in np.flatnonzero(lists.topics == topic).tolist():
                found = rules.leaders(_members(lists.ids, row))
                able[row, : len(found)] = found
    return able


def _members(ids: IdMatrix, row: int) -> list[int]:
    return [spu_id for spu_id in ids[row].tolist() if spu_id >= 0]


def _without_circles(changes: Sequence[Transfer]) -> list[Transfer]:
    """The changes but for those that lead from SPU to SPU back to where they began."""
    left = dict.fromkeys(changes)
    of: dict[int, list[Transfer]] = {}
    for change in changes:
        of.setdefault(change.giver, []).append(change)
    done: set[int] = set()
    for start in sorted(of):
        path: list[Transfer] = []
        on_path = {start: 0}  # how many changes lead to it
        spu = start
        while True:
            following = of.get(spu)
            if not following or spu in done:
                done.add(spu)
                del on_path[spu]
                if not path:
                    break
                last = path.pop()
                of[last.giver].remove(last)
                spu = last.giver
                continue
            change = following[0]
            if change.taker not in on_path:
                path.append(change)
                spu = change.taker
                on_path[spu] = len(path)
                continue
            circle = [*path[on_path[change.taker] :], change]
            for each in circle:
                del left[each]
                of[each.giver].remove(each)
            del path[on_path[change.taker] :]
            for each in circle[:-1]:
                del on_path[each.taker]
            spu = change.taker
    return list(left)
