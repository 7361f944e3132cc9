"""Placing a request by constraints, list by list, each the best that leaves room for the others.

Who leads a list: of those that may, one that is not demoted, then one that the first selector of
`leaders` selects, then the one with the lowest share of its capacity led, lists of the request
included, then the lowest id.

Where slots are so short that the best list would not, the rest of the request is given at once:
numbers of replicas first, then dealt in the order of the groups, so that each group is as even over
the lists as can be. Where hard levels cross, or leaders are short too, lists are searched for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.replica_lists import IdArray
from spu_assigner.core.base.resources import Need
from spu_assigner.core.constraints.fitting import Fitting, Rooms, without
from spu_assigner.core.constraints.list_choice import NO_ROOM, ListChoice, Row, Steps
from spu_assigner.core.constraints.rule_table import RuleTable, bits
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.resource_use import FloatArray

TINY: Final = 2.0**-1000  # in place of a capacity of 0, to divide by


class SpuRoom:
    """What these SPUs have and what is used of it, replica slots first.

    Amounts are whole numbers below 2**53, which floating point holds; shares are rounded to the
    nearest number that it has, so equal ones stay equal, and a smaller one is never the larger.
    """

    def __init__(
        self,
        state: ClusterState,
        table: RuleTable,
        mask: int,
        need: Need | None,
        *,
        as_empty: bool = False,
    ) -> None:
        amounts = {} if need is None else {name: each for name, *each in need.by_name()}
        room = _room_table(state, table, mask, tuple(amounts))
        each = [amounts.get(name, [0, 0]) for name in room.names]
        self._follower = [1, *[follower for follower, _ in each]]
        self._leader = [1, *[leader for _, leader in each]]
        self._lead_more = [a - b for a, b in zip(self._leader, self._follower, strict=True)]
        self.leads_alike = not any(self._lead_more)
        self._at = room.at
        self._touched: dict[int, tuple[list[float], list[float]]] = {}
        self._places = room.places
        self._capacities = room.capacities
        self._used = np.zeros_like(room.capacities)
        if not as_empty and len(room.ids):
            self._used[0] = state.ledger.counts(room.ids)
            self._used[1:] = state.resource_use.of_each(room.ids, room.names)

    def loads(self) -> dict[int, float]:
        """Of each SPU with room its dominant share with one follower more."""
        return self._loads_of(self._follower)

    def rooms(self) -> dict[int, int]:
        """Of each SPU with room how many followers it has room for."""
        if not self._places:
            return {}
        self._settle()
        amounts = np.array(self._follower, dtype=np.float64)
        is_asked = amounts > 0
        free = self._capacities[is_asked] - self._used[is_asked]
        rooms = np.floor_divide(free, amounts[is_asked, np.newaxis]).min(axis=0).tolist()
        return {
            place: int(room) for place, room in zip(self._places, rooms, strict=True) if room > 0
        }

    def of(self, place: int) -> int:
        """How many followers one has room for."""
        capacities, of_each = self._of(place)
        return max(
            0,
            min(
                int((capacity - used) // amount)
                for capacity, used, amount in zip(capacities, of_each, self._follower, strict=True)
                if amount
            ),
        )

    def slots(self, place: int) -> int:
        """How many replica slots it has left."""
        capacities, used = self._of(place)
        return int(capacities[0] - used[0])

    def load(self, place: int) -> float:
        """The dominant share of one with one follower more; `NO_ROOM`: it has none for it."""
        return self._share(place, self._follower)

    def lead_load(self, place: int) -> float:
        """Likewise with one of its followers leading."""
        return self._share(place, self._lead_more)

    def give(self, place: int, count: int = 1) -> None:
        """Give it followers; fewer than 0: take them away."""
        self._add(place, [count * amount for amount in self._follower])

    def let_lead(self, place: int) -> None:
        """Let one of its followers lead."""
        if not self.leads_alike:
            self._add(place, self._lead_more)

    def barred_leaders(self) -> int:
        """The SPUs, a bit for each, that have room for a follower and none for a leader."""
        if self.leads_alike:
            return 0
        able = self._loads_of(self._leader)
        return sum(1 << place for place in self.loads() if place not in able)

    def _of(self, place: int) -> tuple[list[float], list[float]]:
        """Capacities and use of one, as lists: they are faster, for few."""
        known = self._touched.get(place)
        if known is None:
            at = self._at[place]
            known = self._capacities[:, at].tolist(), self._used[:, at].tolist()
            self._touched[place] = known
        return known

    def _add(self, place: int, amounts: Sequence[int]) -> None:
        _, used = self._of(place)
        for at, amount in enumerate(amounts):
            used[at] += amount

    def _settle(self) -> None:
        """Take what the lists say into the arrays."""
        for place, (_, used) in self._touched.items():
            self._used[:, self._at[place]] = used
        self._touched.clear()

    def _loads_of(self, amounts: Sequence[int]) -> dict[int, float]:
        if not self._places:
            return {}
        self._settle()
        asked = np.array(amounts, dtype=np.float64)[:, np.newaxis]
        after = self._used + asked
        fits = np.logical_or(after <= self._capacities, asked <= 0)
        is_able: list[bool] = np.all(fits, axis=0).tolist()
        shares = (after / np.maximum(self._capacities, TINY)).max(axis=0)
        pairs = zip(self._places, shares.tolist(), is_able, strict=True)
        return {place: share for place, share, able in pairs if able}

    def _share(self, place: int, amounts: Sequence[int]) -> float:
        largest = 0.0
        capacities, of_each = self._of(place)
        for capacity, used, amount in zip(capacities, of_each, amounts, strict=True):
            after = used + amount
            if amount > 0 and after > capacity:
                return NO_ROOM
            share = after / (capacity or TINY)
            largest = max(largest, share)
        return largest


@dataclass(frozen=True, slots=True)
class _RoomTable:
    """What some SPUs have; kept until an SPU changes."""

    names: tuple[str, ...]  # of resources
    places: list[int]
    at: dict[int, int]  # of each place, where it stands among these
    ids: IdArray
    capacities: FloatArray  # shape (1 + resources, SPUs)


def _room_table(
    state: ClusterState, table: RuleTable, mask: int, needed: tuple[str, ...]
) -> _RoomTable:
    key = "room", id(table.place), mask, needed
    known = state.rule_tables.get(key)
    if isinstance(known, _RoomTable):
        return known
    places = list(bits(mask))
    spus = [state.spus[SpuId(table.ids[place])] for place in places]
    has = [dict(spu.resources) for spu in spus]
    names = tuple(sorted({*needed, *(name for each in has for name in each)}))
    capacities = np.zeros((1 + len(names), len(places)))
    if places:
        capacities[0] = [spu.capacity for spu in spus]
    for row, name in enumerate(names, start=1):
        capacities[row] = [each.get(name, 0) for each in has]
    made = state.rule_tables[key] = _RoomTable(
        names=names,
        places=places,
        at={place: at for at, place in enumerate(places)},
        ids=np.array([spu.spu_id for spu in spus], dtype=np.int32),
        capacities=capacities,
    )
    return made


@dataclass(slots=True)
class Placing:
    """A request on the way; `mask` are the SPUs that all rules on single SPUs allow."""

    state: ClusterState
    table: RuleTable
    mask: int
    need: Need | None
    replicas: int

    def rows(self, partitions: int) -> list[Row] | None:
        """The lists, leader first, as SPU ids; None: they cannot be given, or none was found."""
        table, steps = self.table, Steps()
        room = SpuRoom(self.state, table, self.mask, self.need)
        barred = table.barred_leaders | room.barred_leaders()
        most = (partitions + 1) * self.replicas
        choice = ListChoice(table, room.loads(), barred, taken_max=most)
        leads = _Leads(self.state, table, room)
        is_scarce = min(room.rooms().values(), default=0) < partitions
        given: list[Row] = []
        while len(given) < partitions:
            left = partitions - len(given)
            row = choice.best((), self.replicas, steps)
            if row is None:
                return None
            if is_scarce and left > 1 and min(map(room.of, row)) < left:
                rest = self._scarce(room, barred, row, left, steps)
                if rest is None:
                    return None
                if len(rest) == left:
                    return given + [leads.ordered(each, barred, len(given)) for each in rest]
                row = rest[0]
            for place in row:
                room.give(place)
            given.append(leads.ordered(row, barred, len(given)))
            for place in row:
                choice.reload(place, room.load(place))
            if not room.leads_alike:
                now = table.barred_leaders | room.barred_leaders()
                if now != barred:
                    barred = now
                    choice = ListChoice(table, room.loads(), barred, taken_max=most)
        return given

    def _scarce(
        self, room: SpuRoom, barred: int, row: Row, lists: int, steps: Steps
    ) -> list[Row] | None:
        """The list if it leaves room for so many, itself included, or another, or all of them."""
        rooms = room.rooms()
        fitting = Fitting(self.table, barred, self.replicas, steps)
        if fitting.by_count(without(rooms, row), lists - 1):
            return [row]
        whole = fitting.by_count(rooms, lists)
        if whole is False:
            return None
        if whole and self.table.is_nested and not any(barred >> place & 1 for place in rooms):
            return dealt(self.table, rooms, room, lists, self.replicas)
        found = fitting.leaving_room(rooms, lists, room.loads())
        return None if found is None else [found]


class _Leads:
    """Who leads the lists of a request."""

    def __init__(self, state: ClusterState, table: RuleTable, room: SpuRoom) -> None:
        self._state = state
        self._table = table
        self._room = room
        ids = np.array(table.ids, dtype=np.int32)
        self._before: list[int] = state.ledger.leaders(ids).tolist()
        self._led: dict[int, int] = {}

    def ordered(self, row: Row, barred: int, number: int) -> Row:
        """The SPU ids of a list, leader first; the followers' order varies with its number."""
        able = [place for place in row if not barred >> place & 1]
        leader = min(able, key=self._cost)
        self._led[leader] = self._count(leader) + 1
        self._room.let_lead(leader)
        others = sorted(place for place in row if place != leader)
        turn = number % max(len(others), 1)
        return [self._table.ids[place] for place in (leader, *others[turn:], *others[:turn])]

    def _count(self, place: int) -> int:
        return self._led.get(place) or self._before[place]

    def _cost(self, place: int) -> tuple[int, int, float, float, int]:
        table = self._table
        capacity = max(self._state.spus[SpuId(table.ids[place])].capacity, 1)
        share = (self._count(place) + 1) / capacity
        load = 0.0 if self._room.leads_alike else self._room.lead_load(place)
        return table.demoted >> place & 1, table.ranks[place], load, share, place


def dealt(table: RuleTable, rooms: Rooms, room: SpuRoom, lists: int, replicas: int) -> list[Row]:
    """So many lists at once, which must fit; levels must be nested, and any SPU may lead."""
    quotas = dict.fromkeys(rooms, 0)
    counts: list[dict[int, int]] = [{} for _ in table.levels]
    for _ in range(lists * replicas):
        best = None
        for place, count in quotas.items():
            if count == min(rooms[place], lists):
                continue
            costs = []
            for level, of_level in zip(table.levels, counts, strict=True):
                known = of_level.get(level.groups[place], 0)
                if level.max is not None and known >= level.max * lists:
                    break
                costs.append(known // lists)
            else:
                option = (costs, -table.weights[place], table.ranks[place], room.load(place), place)
                if best is None or option < best:
                    best = option
        if best is None:
            raise InvariantError(f"{lists} lists of {replicas} were said to fit, and do not")
        place = best[-1]
        quotas[place] += 1
        room.give(place)
        for level, of_level in zip(table.levels, counts, strict=True):
            group = level.groups[place]
            of_level[group] = of_level.get(group, 0) + 1
    in_order = sorted(quotas, key=lambda place: ([lv.groups[place] for lv in table.levels], place))
    sequence = [place for place in in_order for _ in range(quotas[place])]
    return [sequence[number::lists] for number in range(lists)]
