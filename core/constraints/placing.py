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
from heapq import heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.replica_lists import IdArray
from spu_assigner.core.base.resources import Need
from spu_assigner.core.constraints.fitting import Fitting, Rooms, without
from spu_assigner.core.constraints.list_choice import (
    NO_ROOM,
    ListChoice,
    Row,
    spu_kinds,
)
from spu_assigner.core.constraints.rule_table import RuleTable, bits
from spu_assigner.core.constraints.work import TooMuchWorkError, Work
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.resource_use import FloatArray
from spu_assigner.core.state.ring import NO_CAPACITY

NEARLY_FULL: Final = (
    0.999  # a share below it is that of an SPU that has room, however it is rounded
)
AHEAD_MAX: Final = 2**16  # shares that are computed before they are asked for
# What is counted as looks for each SPU, by measurement: to have all in order, to count their room.
LOOKS_TO_ORDER: Final = 4
LOOKS_TO_COUNT: Final = 2
LOOKS_TO_DEAL: Final = 4  # of each kind, for each replica
SPUS_A_LOOK: Final = 12  # compared at once, as arrays

_Alike = tuple[tuple[int, ...], int, int]  # groups, weight, rank as a leader


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
        by_name = () if need is None else need.by_name()
        room = self._room = _room_table(state, table, mask, tuple([name for name, *_ in by_name]))
        self.places = room.places
        amounts = [[1, *[0] * len(room.names)] for _ in range(2)]
        for row, (_, *each) in zip(room.rows, by_name, strict=True):
            amounts[0][row], amounts[1][row] = each
        self.leads_alike = amounts[0] == amounts[1]
        self._follower, self._leader = np.array(amounts, dtype=np.float64)
        # What was given since the arrays were made.
        self._given: dict[int, int] = {}  # followers of each SPU, by place
        self._led: dict[int, int] = {}  # that lead
        self._ahead: dict[int, list[float]] = {}  # shares with 1, 2 … followers more
        self.is_ample = False  # all SPUs had room when shares were last computed
        if as_empty or not len(room.ids):
            self._used = np.zeros_like(room.capacities)
        else:
            self._used = np.empty_like(room.capacities)
            self._used[0] = state.ledger.counts(room.ids)
            self._used[1:] = state.resource_use.of_each(room.ids, room.names)

    def loads(self, followers: int = 1, most: int = 1) -> FloatArray:
        """Of each SPU its dominant share with one follower more; `NO_ROOM`: it has none for it.

        The shares with so many more are computed too, for `load`. `most`: how many followers one
        may be given; `is_ample` says whether every SPU has room for them.
        """
        self._settle()
        ahead = max(min(followers, AHEAD_MAX // max(len(self.places), 1)), 1)
        shares = self._shares(self._follower, [*range(1, ahead + 1), most])
        self._ahead = dict(zip(self.places, shares[:ahead].T.tolist(), strict=True))
        return np.asarray(shares[0])

    def rooms(self) -> dict[int, int]:
        """Of each SPU with room how many followers it has room for."""
        if not self.places:
            return {}
        self._settle()
        asked = self._follower.nonzero()[0]
        free = self._room.capacities[asked] - self._used[asked]
        rooms = np.floor_divide(free, self._follower[asked, np.newaxis]).min(axis=0).tolist()
        return {
            place: int(room) for place, room in zip(self.places, rooms, strict=True) if room > 0
        }

    def is_scarce(self, followers: int) -> bool:
        """Whether an SPU has room for a follower and not for so many."""
        is_short = self._is_short(followers)
        return bool((is_short & ~self._is_short(1)).any())

    def of(self, place: int) -> int:
        """How many followers one has room for."""
        capacities, of_each = self._of(place)
        return max(
            0,
            min(
                int((capacity - used) // amount)
                for capacity, used, amount in zip(
                    capacities, of_each, self._follower.tolist(), strict=True
                )
                if amount
            ),
        )

    def slots(self, place: int) -> int:
        """How many replica slots it has left."""
        capacities, used = self._of(place)
        return int(capacities[0] - used[0])

    def load(self, place: int) -> float:
        """The dominant share of one with one follower more; `NO_ROOM`: it has none for it."""
        ahead, given = self._ahead.get(place), self._given.get(place, 0)
        if ahead is not None and 0 <= given < len(ahead):
            return ahead[given]
        return self._share(place, self._follower)

    def lead_load(self, place: int) -> float:
        """Likewise with one of its followers leading."""
        return self._share(place, self._leader - self._follower)

    def give(self, place: int, count: int = 1) -> None:
        """Give it followers; fewer than 0: take them away."""
        self._given[place] = self._given.get(place, 0) + count

    def give_each(self, places: Row) -> list[float]:
        """Give each a follower, and return what `load` says of each then."""
        given, ahead = self._given, self._ahead
        loads = []
        for place in places:
            given[place] = count = given.get(place, 0) + 1
            known = ahead.get(place, ())
            if count < len(known):
                loads.append(known[count])
            else:
                loads.append(self._share(place, self._follower))
        return loads

    def let_lead(self, place: int) -> None:
        """Let one of its followers lead."""
        if not self.leads_alike:
            self._led[place] = self._led.get(place, 0) + 1
            self._ahead.pop(place, None)

    def barred_leaders(self) -> int:
        """The SPUs, a bit for each, that have room for a follower and none for a leader."""
        if self.leads_alike or not self.places:
            return 0
        self._settle()
        follows, leads = (self._shares(each, [1])[0] for each in (self._follower, self._leader))
        barred = np.flatnonzero((follows != NO_ROOM) & (leads == NO_ROOM))
        return sum(1 << self.places[at] for at in barred.tolist())

    def _of(self, place: int) -> tuple[list[float], list[float]]:
        """Capacities and use of one."""
        at = self._room.at[place]
        used = self._used[:, at] + self._given.get(place, 0) * self._follower
        used += self._led.get(place, 0) * (self._leader - self._follower)
        return self._room.capacities[:, at].tolist(), used.tolist()

    def _settle(self) -> None:
        """Take what was given into the arrays."""
        for counts, amounts in (
            (self._given, self._follower),
            (self._led, self._leader - self._follower),
        ):
            if counts:
                at = [self._room.at[place] for place in counts]
                self._used[:, at] += np.multiply.outer(amounts, [*counts.values()])
                counts.clear()
        self._ahead = {}

    def _is_short(self, followers: int) -> NDArray[np.bool_]:
        """The SPUs that have no room for so many followers."""
        self._settle()
        asked = followers * self._follower[:, np.newaxis]
        is_short = self._used + asked > self._room.capacities
        is_short &= asked > 0
        return np.asarray(is_short.any(axis=0))

    def _shares(self, amounts: FloatArray, counts: Sequence[int]) -> FloatArray:
        """Dominant shares with so many replicas more, shape (counts, SPUs)."""
        more = np.multiply.outer(amounts, counts)
        after = self._used[:, np.newaxis] + more[:, :, np.newaxis]
        shares: FloatArray = np.maximum.reduce(after / self._room.divisors, axis=0)
        self.is_ample = not shares.size or float(shares.max()) <= NEARLY_FULL
        if not self.is_ample:
            is_short = (after > self._room.capacities[:, np.newaxis]) & (more > 0)[:, :, np.newaxis]
            shares[is_short.any(axis=0)] = NO_ROOM
        return shares

    def _share(self, place: int, amounts: FloatArray) -> float:
        largest = 0.0
        capacities, of_each = self._of(place)
        for capacity, used, amount in zip(capacities, of_each, amounts.tolist(), strict=True):
            after = used + amount
            if amount > 0 and after > capacity:
                return NO_ROOM
            largest = max(largest, after / (capacity or NO_CAPACITY))
        return largest


@dataclass(frozen=True, slots=True)
class _RoomTable:
    """What some SPUs have; kept until an SPU changes."""

    names: tuple[str, ...]  # of resources
    places: list[int]
    at: dict[int, int]  # of each place, where it stands among these
    rows: list[int]  # of the needed resources in what follows, one of slots first
    ids: IdArray
    capacities: FloatArray  # shape (1 + resources, SPUs)
    divisors: FloatArray  # shape (1 + resources, 1, SPUs); `NO_CAPACITY` for a capacity of 0


def _room_table(
    state: ClusterState, table: RuleTable, mask: int, needed: tuple[str, ...]
) -> _RoomTable:
    key = "room", mask, needed
    known = table.kept.get(key)
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
    made = _RoomTable(
        names=names,
        places=places,
        at={place: at for at, place in enumerate(places)},
        rows=[1 + names.index(name) for name in needed],
        ids=np.array([spu.spu_id for spu in spus], dtype=np.int32),
        capacities=capacities,
        divisors=np.maximum(capacities, NO_CAPACITY)[:, np.newaxis],
    )
    table.keep(key, made)
    return made


@dataclass(slots=True)
class Placing:
    """A request on the way; `mask` are the SPUs that all rules on single SPUs allow."""

    state: ClusterState
    table: RuleTable
    mask: int
    need: Need | None
    replicas: int
    work: Work

    def rows(self, partitions: int) -> list[Row] | None:
        """The lists, leader first, as places in the table; None: they cannot be given, or none was
        found.

        Raises:
            TooMuchWorkError: they take more than one request may; it says how many do not.
        """
        given: list[Row] = []
        try:
            return self._rows(partitions, given)
        except TooMuchWorkError as error:
            error.given = len(given)
            raise

    def _rows(self, partitions: int, given: list[Row]) -> list[Row] | None:
        table, work = self.table, self.work
        room = SpuRoom(self.state, table, self.mask, self.need)
        barred, choice = self._choice(room, partitions)
        is_scarce = not room.is_ample and room.is_scarce(partitions)
        leads = _Leads(self.state, table, room)
        for left in range(partitions, 0, -1):
            row = choice.best((), self.replicas, work, is_whole=True)
            if row is None:
                return None
            if is_scarce and left > 1 and min(map(room.of, row)) < left:
                rest = self._scarce(room, barred, row, left)
                if rest is None:
                    return None
                if len(rest) == left:
                    return given + [leads.ordered(each, barred, len(given)) for each in rest]
                row = rest[0]
            loads = room.give_each(row)
            ordered = leads.ordered(row, barred, len(given))
            given.append(ordered)
            if left == 1:
                break
            if not room.leads_alike:
                loads[row.index(ordered[0])] = room.load(ordered[0])
            choice.reload(row, loads)
            if not room.leads_alike:
                work.look(len(room.places) // SPUS_A_LOOK)
                now = table.barred_leaders | room.barred_leaders()
                if now != barred:
                    barred, choice = self._choice(room, partitions)
        return given

    def _choice(self, room: SpuRoom, partitions: int) -> tuple[int, ListChoice]:
        """The SPUs that may not lead, and who chooses lists."""
        self.work.look(LOOKS_TO_ORDER * len(room.places))
        barred = self.table.barred_leaders | room.barred_leaders()
        kinds = spu_kinds(self.table, self.mask, room.places, barred)
        asked = (partitions + 1) * self.replicas
        ahead = min(partitions + 1, 2 + 2 * asked // max(len(room.places), 1))
        loads = room.loads(ahead, partitions)
        return barred, ListChoice(self.table, kinds, loads, barred, taken_max=asked)

    def _scarce(self, room: SpuRoom, barred: int, row: Row, lists: int) -> list[Row] | None:
        """The list if it leaves room for so many, itself included, or another, or all of them."""
        self.work.look(LOOKS_TO_COUNT * len(room.places))
        rooms = room.rooms()
        fitting = Fitting(self.table, barred, self.replicas, self.work)
        if fitting.by_count(without(rooms, row), lists - 1):
            return [row]
        whole = fitting.by_count(rooms, lists)
        if whole is False:
            return None
        if whole and self.table.is_nested and not any(barred >> place & 1 for place in rooms):
            return dealt(self, rooms, room, lists)
        loads = dict(zip(room.places, room.loads().tolist(), strict=True))
        found = fitting.leaving_room(rooms, lists, loads)
        return None if found is None else [found]


class _Leads:
    """Who leads the lists of a request."""

    def __init__(self, state: ClusterState, table: RuleTable, room: SpuRoom) -> None:
        self._table = table
        self._room = room
        counts = state.ledger.leaders(table.id_array)
        self._counts: list[int] = counts.tolist()
        # What each would lead of its capacity with one list more.
        self._shares: list[float] = ((counts + 1) / table.slots).tolist()

    def ordered(self, row: Row, barred: int, number: int) -> Row:
        """A list, leader first; the followers' order varies with its number."""
        table, shares = self._table, self._shares
        others = sorted(row)
        able = [place for place in others if not barred >> place & 1] if barred else others
        if not self._room.leads_alike:
            ranks, load = table.lead_ranks, self._room.lead_load
            *_, leader = min([(ranks[place], load(place), shares[place], place) for place in able])
            self._room.let_lead(leader)
        elif table.is_ranked:
            ranks = table.lead_ranks
            *_, leader = min([(ranks[place], shares[place], place) for place in able])
        else:
            leader = able[0]
            for place in able:
                if shares[place] < shares[leader]:
                    leader = place
        self._counts[leader] = count = self._counts[leader] + 1
        shares[leader] = (count + 1) / table.slots.item(leader)
        others.remove(leader)
        turn = number % len(others) if others else 0
        return [leader, *others[turn:], *others[:turn]] if turn else [leader, *others]


def dealt(placing: Placing, rooms: Rooms, room: SpuRoom, lists: int) -> list[Row]:
    """So many lists at once, which must fit; levels must be nested, and any SPU may lead."""
    table, replicas = placing.table, placing.replicas
    quotas = dict.fromkeys(rooms, 0)
    counts: list[dict[int, int]] = [{} for _ in table.levels]
    # Of SPUs that are alike to the rules, the one with the smallest load first.
    alike: dict[_Alike, list[tuple[float, int]]] = {}
    for place in rooms:
        groups = tuple([level.groups[place] for level in table.levels])
        kind = groups, table.weights[place], table.ranks[place]
        heappush(alike.setdefault(kind, []), (room.load(place), place))
    placing.work.look(lists * replicas * (LOOKS_TO_DEAL * (2 + len(alike))))
    for _ in range(lists * replicas):
        best = None
        for kind, members in alike.items():
            groups, weight, rank = kind
            costs, met = [], 0
            for level, of_level, group in zip(table.levels, counts, groups, strict=True):
                known = of_level.get(group, 0)
                if level.max is not None and known >= level.max * lists:
                    break
                met += bool(level.mins) and known < level.mins[group] * lists
                costs.append(known // lists)
            else:
                option = -met, costs, -weight, rank, members[0], kind
                if best is None or option < best:
                    best = option
        if best is None:
            raise InvariantError(f"{lists} lists of {replicas} were said to fit, and do not")
        kind = best[-1]
        _, place = heappop(alike[kind])
        quotas[place] += 1
        room.give(place)
        if quotas[place] < min(rooms[place], lists):
            heappush(alike[kind], (room.load(place), place))
        elif not alike[kind]:
            del alike[kind]
        for of_level, group in zip(counts, kind[0], strict=True):
            of_level[group] = of_level.get(group, 0) + 1
    in_order = sorted(quotas, key=lambda place: ([lv.groups[place] for lv in table.levels], place))
    sequence = [place for place in in_order for _ in range(quotas[place])]
    return [sequence[number::lists] for number in range(lists)]
