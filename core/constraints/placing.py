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

from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.resources import Need
from spu_assigner.core.constraints.fitting import Fitting, Rooms, without
from spu_assigner.core.constraints.list_choice import ListChoice, Row, Steps
from spu_assigner.core.constraints.rule_table import RuleTable, bits
from spu_assigner.core.state.cluster_state import ClusterState

# Amounts are below 2**53, so different shares differ by more than 2**-106.
SHARE_BITS: Final = 107
FULL: Final = 2**200  # the share of an SPU that has to give what it has not


class SpuRoom:
    """What these SPUs have and what is used of it, replica slots first."""

    def __init__(
        self,
        state: ClusterState,
        table: RuleTable,
        mask: int,
        need: Need | None,
        *,
        as_empty: bool = False,
    ) -> None:
        amounts = [] if need is None else need.by_name()
        self._follower = [1, *[follower for _, follower, _ in amounts]]
        self._leader = [1, *[leader for _, _, leader in amounts]]
        self.leads_alike = self._follower == self._leader
        self._capacities: dict[int, list[int]] = {}
        self._used: dict[int, list[int]] = {}
        needed = [name for name, _, _ in amounts]
        for place in bits(mask):
            spu_id = SpuId(table.ids[place])
            spu = state.spus[spu_id]
            has, uses = dict(spu.resources), state.resource_use.of(spu_id)
            names = [*needed, *(name for name in has if name not in needed)] if has else needed
            self._capacities[place] = [spu.capacity, *[has.get(name, 0) for name in names]]
            self._used[place] = [0] * (len(names) + 1)
            if not as_empty:
                count = state.ledger.count(spu_id)
                self._used[place] = [count, *[uses.get(name, 0) for name in names]]

    def of(self, place: int) -> int:
        """How many followers an SPU has room for."""
        return max(
            0,
            min(
                [
                    (capacity - used) // amount
                    for capacity, used, amount in zip(
                        self._capacities[place], self._used[place], self._follower, strict=False
                    )
                    if amount
                ]
            ),
        )

    def all(self) -> dict[int, int]:
        """Of each SPU with room how many followers it has room for."""
        return {place: room for place in self._used if (room := self.of(place))}

    def load(self, place: int) -> int:
        """The dominant share of an SPU with one follower more, in units of 2**-SHARE_BITS."""
        return self._share(place, self._follower)

    def lead_load(self, place: int) -> int:
        """Likewise with one of its followers leading."""
        more = [a - b for a, b in zip(self._leader, self._follower, strict=True)]
        return self._share(place, more)

    def slots(self, place: int) -> int:
        """How many replica slots it has left."""
        return self._capacities[place][0] - self._used[place][0]

    def give(self, place: int, count: int = 1) -> None:
        """Give it followers; fewer than 0: take them away."""
        used = self._used[place]
        for at, amount in enumerate(self._follower):
            used[at] += count * amount

    def let_lead(self, place: int) -> None:
        """Let one of its followers lead."""
        used = self._used[place]
        for at, (leader, follower) in enumerate(zip(self._leader, self._follower, strict=True)):
            used[at] += leader - follower

    def barred_leaders(self) -> int:
        """The SPUs, a bit for each, that have room for a follower and none for a leader."""
        if self.leads_alike:
            return 0
        return sum(
            1 << place
            for place in self._used
            if self.of(place) and self._share(place, self._leader) == FULL
        )

    def _share(self, place: int, amounts: Sequence[int]) -> int:
        largest = 0
        capacities, used = self._capacities[place], self._used[place]
        for at, capacity in enumerate(capacities):
            after = used[at] + amounts[at] if at < len(amounts) else used[at]
            if at < len(amounts) and amounts[at] and after > capacity:
                return FULL
            if after:
                largest = max(largest, (after << SHARE_BITS) // capacity if capacity else FULL)
        return largest


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
        choice = ListChoice(table, room.all(), room.load, barred)
        leads = _Leads(self.state, table, room)
        given: list[Row] = []
        while len(given) < partitions:
            left = partitions - len(given)
            row = choice.best((), self.replicas, steps)
            if row is None:
                return None
            if left > 1 and min(map(room.of, row)) < left:
                rest = self._scarce(room, barred, row, left, steps)
                if rest is None:
                    return None
                if len(rest) == left:
                    return given + [leads.ordered(each, barred, len(given)) for each in rest]
                row = rest[0]
            before = [(place, room.load(place)) for place in row]
            for place in row:
                room.give(place)
            given.append(leads.ordered(row, barred, len(given)))
            for place, load in before:
                choice.reload(place, load, room.load(place) if room.of(place) else None)
            if not room.leads_alike:
                now = table.barred_leaders | room.barred_leaders()
                if now != barred:
                    barred = now
                    choice = ListChoice(table, room.all(), room.load, barred)
        return given

    def _scarce(
        self, room: SpuRoom, barred: int, row: Row, lists: int, steps: Steps
    ) -> list[Row] | None:
        """The list if it leaves room for so many, itself included, or another, or all of them."""
        rooms = room.all()
        fitting = Fitting(self.table, barred, self.replicas, steps)
        if fitting.by_count(without(rooms, row), lists - 1):
            return [row]
        whole = fitting.by_count(rooms, lists)
        if whole is False:
            return None
        if whole and self.table.is_nested and not any(barred >> place & 1 for place in rooms):
            return dealt(self.table, rooms, room, lists, self.replicas)
        found = fitting.leaving_room(rooms, lists, room.load)
        return None if found is None else [found]


class _Leads:
    """Who leads the lists of a request."""

    def __init__(self, state: ClusterState, table: RuleTable, room: SpuRoom) -> None:
        self._state = state
        self._table = table
        self._room = room
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
        known = self._led.get(place)
        if known is None:
            known = self._led[place] = self._state.ledger.leader_count(self._table.ids[place])
        return known

    def _cost(self, place: int) -> tuple[int, int, int, int, int]:
        table = self._table
        capacity = max(self._state.spus[SpuId(table.ids[place])].capacity, 1)
        share = (self._count(place) + 1 << SHARE_BITS) // capacity
        load = 0 if self._room.leads_alike else self._room.lead_load(place)
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
