"""A whole request: its lists one by one, each the best that leaves room for those after it.

A list takes its SPUs by the order of preference (`preference`), place by place. Then one of them
leads it (`leaders`).

Room. With N lists to come, this one included, an SPU can be in min(room, N) of them. They fit if
these numbers together come to N times the replicas of a list; what they come to beyond that is the
slack. An SPU is *critical* if it has room for N lists or more: each list that it is not in costs a
unit of the slack. So where the slack is smaller than their number, as many critical SPUs as it
lacks are the first places of a list. What fits is never refused, and with ample room nothing is
forced.

Example: SPUs 0, 1, 2 with 3, 1 and 1 free slots. For two lists of 2 the numbers are 2, 1 and 1, the
slack is 0, and the critical SPU 0 is in both: [0, 1], [0, 2].

Where levels cross, or hard levels or leaders are short too, lists are counted, dealt or searched
for instead (`list_search`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.replica_lists import ReplicaLists, tally
from spu_assigner.core.base.resources import Need
from spu_assigner.core.constraints.rule_table import BARRED
from spu_assigner.core.constraints.work import TooMuchWorkError, Work
from spu_assigner.core.placement.eligibility import PlacementField
from spu_assigner.core.placement.leaders import (
    LOOKS,
    LOOKS_A_LIST,
    KeptKeys,
    LedLists,
    counted_failovers,
    order_failovers,
)
from spu_assigner.core.placement.list_search import ListSearch, Rooms, Row, without
from spu_assigner.core.placement.new_lists import ListChooser
from spu_assigner.core.placement.preference import NEVER, slot_shares
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.leading import SHARE_SHIFT
from spu_assigner.core.state.ledger import CountArray, Ledger
from spu_assigner.core.state.topic import Topic

# What is counted as looks, by measurement.
LOOKS_A_REPLICA: Final = 16
LOOKS_TO_COUNT: Final = 2  # at each SPU its room,
LOOKS_TO_DEAL: Final = 4  # and at each kind for each replica that is dealt
TURN_MIN: Final = 2  # lists


class ListsRequest(NamedTuple):
    """New lists of one topic."""

    partitions: int
    replicas: int
    need: Need | None
    start: int  # the chain index
    ignore_rack: bool
    held: Mapping[int, int] = {}  # replicas of the topic that SPUs have already, by id,
    led: Mapping[int, int] = {}  # lists that they lead,
    lists: int = 0  # and how many there are

    def of_topic(self, topic: Topic) -> ListsRequest:
        """The same, for a living topic."""
        lists = topic.replicas.lists()
        held, led = (
            dict(zip(*tally(each), strict=True)) for each in (lists.flat(), lists.matrix[:, 0])
        )
        return self._replace(held=held, led=led, lists=len(lists))


def place_lists(
    state: ClusterState, field: PlacementField, asked: ListsRequest, work: Work
) -> ReplicaLists | None:
    """The lists, leader first; None: they do not fit.

    Cost: O(n) in numpy, then O(replicas * log n). What is known of SPUs after them serves the next
    request, if these lists are all that has changed until then.

    Raises:
        TooMuchWorkError: they take more than one request may; it says how many lists do not.
    """
    placing = field.placing
    if not (isinstance(placing, _NewLists) and placing.can_go_on(state.ledger, asked)):
        placing = field.placing = _NewLists(state, field, asked)
    placing.begin(state, asked, work)
    rows: list[Row] = []
    try:
        if not placing.fill(rows):
            return None
        placing.finish(rows)
    except TooMuchWorkError as error:
        error.given = len(rows)
        raise
    lists = ReplicaLists(field.ids[np.array(rows)])
    placing.given, placing.version = lists, state.ledger.version
    return lists


def slack(rooms: Sequence[int], lists: int, replicas: int) -> int:
    """What SPUs have room for beyond so many lists; below 0: they do not fit."""
    return sum([min(room, lists) for room in rooms]) - lists * replicas


class _NewLists:
    """Requests for lists of a field, one after the other, whose replicas need the same."""

    def __init__(self, state: ClusterState, field: PlacementField, asked: ListsRequest) -> None:
        self._field, self._need = field, asked.need
        by_name = () if asked.need is None else asked.need.by_name()
        self.leads_alike = all(follower == leader for _, follower, leader in by_name)
        self._are_alike = self.leads_alike and field.ranks == (0,)
        self._is_ruled = field.is_limited or field.is_demanding or BARRED in field.ranks
        replicas = asked.partitions * asked.replicas
        self._chooser = ListChooser(state, field, asked.need, replicas=2 * replicas)
        led: list[int] = state.ledger.leaders(field.ids).tolist()
        self.leads = KeptKeys(led, field.capacity_list, field.whole)  # by place in the field
        if field.ranks != (0,):
            self.leads.rank = [field.kinds[kind].rank for kind in field.kind_of].__getitem__
        self.given: ReplicaLists | None = None  # the last lists, until it is known if they are,
        self.version = -1  # and of the ledger before them

    def can_go_on(self, ledger: Ledger, asked: ListsRequest) -> bool:
        """Whether nothing has changed but that the last lists were given, which leave room."""
        is_next = ledger.newest is self.given is not None and ledger.version == self.version + 1
        return is_next and asked.need == self._need and self._chooser.can_go_on(asked.partitions)

    def begin(self, state: ClusterState, asked: ListsRequest, work: Work) -> None:
        """Begin a request."""
        self._asked, self._work, self.given = asked, work, None
        field, chooser = self._field, self._chooser
        replicas, lists = asked.replicas, asked.partitions
        shares = self._lead_shares()
        chooser.begin_lists(asked.start, lists, replicas, shares)
        chooser.bind(asked.held, sum(asked.held.values()) + lists * replicas)
        work.look(field.size)
        leads, positions = self.leads, chooser.leads
        leads.of_topic = {field.at_of[i]: n for i, n in asked.led.items() if i in field.at_of}
        leads.lists, leads.positions, leads.lasts = asked.lists + lists, positions.of, {}
        leads.keys = (shares << SHARE_SHIFT | positions.array).tolist()
        for at in leads.of_topic if leads.rank is None else range(field.size):
            leads.keys[at] = leads.key_now(at)
        self._failovers = counted_failovers(state, ignore_rack=asked.ignore_rack, replicas=replicas)
        can_lead = None if self.leads_alike else chooser.can_lead
        self._search = ListSearch(field, replicas, work, can_lead)
        self._is_short = chooser.is_scarce and self._is_ruled
        self._rooms: NDArray[np.int32] | None = None  # of each SPU, where some may be critical
        if chooser.is_scarce and not self._is_ruled:
            self._rooms = np.array([*map(chooser.room, range(field.size))], dtype=np.int32)

    def _lead_shares(self) -> CountArray:
        """Of its capacity what each SPU leads with one list more."""
        led = np.array(self.leads.led, dtype=np.int64)
        return slot_shares(led + 1, self._field.capacities)

    def fill(self, rows: list[Row]) -> bool:
        """Append the lists, leader first; whether all of them fit."""
        chooser, asked, field = self._chooser, self._asked, self._field
        # Lists in which each SPU is about once; few are not worth it.
        a_turn = max(field.size // asked.replicas, TURN_MIN)
        while (done := len(rows)) < asked.partitions:
            left = asked.partitions - done
            if done and done % a_turn == 0 and 2 * left >= a_turn and chooser.table is None:
                chooser.turn_on(asked.start + done, done // a_turn, self._lead_shares())
            row = self._next(left)
            if field.is_nested and not self._is_short:
                if row is None:
                    return False
                self._give(row, rows)
                continue
            chooser.put_back(row or ())
            found = self._instead_of(row, left)
            if found is None:
                return False
            for each in found:
                chooser.take_out(each)
                self._give(each, rows)
        return True

    def _give(self, row: Row, rows: list[Row]) -> None:
        """A list that was taken: its leader, and what it takes."""
        chooser, leads = self._chooser, self.leads
        self._work.look(LOOKS_A_REPLICA * len(row))
        if self.leads_alike:
            leader = min(row, key=leads.keys.__getitem__)
        else:
            leader = min(filter(chooser.can_lead, row), key=self._lead_key)
            chooser.count_lead(leader)
        leads.add(leader)
        at = row.index(leader)
        row[0], row[at] = leader, row[0]
        rows.append(row)
        chooser.commit(row)
        if self._rooms is not None:
            self._rooms[row] = [chooser.room(at) for at in row]

    def finish(self, rows: list[Row]) -> None:
        """Even out leaders, and let demoted SPUs stand last."""
        if self.leads_alike:
            LedLists(self.leads, rows, LOOKS + LOOKS_A_LIST * len(rows)).even_out()
        if self._failovers is not None:
            order_failovers(rows, self._field, self._failovers)
        field = self._field
        if field.ranks[-1] >= field.last_rank:
            for row in rows:
                row[1:] = sorted(row[1:], key=lambda at: field.kind_at(at).rank >= field.last_rank)

    def _next(self, left: int) -> Row | None:
        """The next list, taken; None: there is none."""
        first = [] if self._rooms is None else self._forced(self._rooms, left)
        if first is None:
            return None
        row = self._chooser.take_list(self._asked.replicas, self._work, first)
        return row if row is None or self._are_alike else self._led_better(row, first)

    def _forced(self, rooms: NDArray[np.int32], lists: int) -> Row | None:
        """The critical SPUs that the next of so many lists begins with; None: they do not fit."""
        field, forced = self._field, Row()
        able = int(np.minimum(rooms, lists).sum()) - lists * self._asked.replicas
        if able < 0:
            return None
        critical: Row = np.flatnonzero(rooms >= lists).tolist()
        while len(critical) > able:
            counts = field.counts(map(field.kind_at, forced))
            *_, at = min(
                (field.cost(field.kind_at(at), counts), self._chooser.keys[at], at)
                for at in critical
            )
            critical.remove(at)
            forced.append(at)
        return forced

    def _lead_key(self, at: int) -> tuple[int, int, int]:
        """Who leads, where that takes other amounts."""
        rank = self._field.kind_at(at).rank
        return rank, self._chooser.lead_share(at), self.leads.keys[at]

    def _led_better(self, row: Row, first: Sequence[int]) -> Row | None:
        """A list, taken, as good at the levels above as this one, of which a better leader is a
        member. Where no SPU of the list may lead: the best of those with one that may."""
        field, chooser, search = self._field, self._chooser, self._search
        rank = min(map(search.rank, row))
        if rank == field.ranks[0] < BARRED:
            return row
        best = row if rank < BARRED else None
        least = None if best is None else search.bound(best)
        chooser.put_back(row)
        for top in self._tops(rank) if len(first) < len(row) else ():
            is_new = top not in first
            trial = chooser.take_list(len(row), self._work, [*first, top]) if is_new else None
            if trial is not None:
                chooser.put_back(trial)
                score = search.bound(trial)
                if score is not None and (least is None or score < least):
                    best, least = trial, score
        if best is not None:
            chooser.take_out(best)
        return best

    def _tops(self, rank: int) -> list[int]:
        """Of each kind the best SPU of those that lead better than this rank."""
        kinds, chooser = self._field.kinds, self._chooser
        if self.leads_alike:
            fronts = [chooser.front_at(at) for at, kind in enumerate(kinds) if kind.rank < rank]
            return [at for at in fronts if at is not None]
        self._work.look(self._field.size)
        tops: dict[int, int] = {}
        for at in self._in_order():
            if self._search.rank(at) < rank:
                tops.setdefault(self._field.kind_of[at], at)
        return [*tops.values()]

    def _instead_of(self, row: Row | None, lists: int) -> list[Row] | None:
        """What is given of so many lists where the best by places is this one: it, or a better one,
        or another that leaves room for the others, or all of them; None: they do not fit."""
        work, search, field = self._work, self._search, self._field
        if not field.is_nested and work.steps > 0:
            row = search.best(dict.fromkeys(self._in_order(), 1), 1, row)
        if not self._is_short:
            return None if row is None else [row]
        work.look(LOOKS_TO_COUNT * field.size)
        all_rooms = enumerate(map(self._chooser.room, range(field.size)))
        rooms = {at: room for at, room in all_rooms if room > 0}
        if row is not None and search.fits(without(rooms, row), lists - 1):
            return [row]
        whole = search.fits(rooms, lists)
        if whole is False:
            return None
        rooms = {at: rooms[at] for at in self._in_order()}
        if whole and field.is_nested:  # A count decides only where all may lead.
            return self._dealt(rooms, lists)
        found = search.best(rooms, lists)
        return None if found is None else [found]

    def _in_order(self) -> list[int]:
        """The SPUs with room, the best first."""
        able = [at for at in range(self._field.size) if self._chooser.keys[at] != NEVER]
        return sorted(able, key=self._chooser.keys.__getitem__)

    def _dealt(self, rooms: Rooms, lists: int) -> list[Row]:
        """So many lists at once, which must fit; levels must be nested, and any SPU may lead.

        Numbers of replicas first, each to the best SPU as if all were one list; then dealt in the
        order of the cells, so that each cell is as even over the lists as can be.
        """
        field, replicas = self._field, self._asked.replicas
        quotas = dict.fromkeys(rooms, 0)
        counts, a_list = [0] * len(field.maxes), [0] * len(field.maxes)
        # Of SPUs that are alike to the rules, the one with the fewest of these replicas first.
        alike: dict[int, list[tuple[int, int, int]]] = {}
        for number, at in enumerate(rooms):
            heappush(alike.setdefault(field.kind_of[at], []), (0, number, at))
        self._work.look(lists * replicas * (LOOKS_TO_DEAL * (2 + len(alike))))
        for _ in range(lists * replicas):
            options = [
                (cost, field.kinds[number].rank, members[0], number)
                for number, members in alike.items()
                if (cost := field.cost(field.kinds[number], a_list)) is not None
            ]
            if not options:
                raise InvariantError(f"{lists} lists of {replicas} were said to fit, and do not")
            kind_number = min(options)[-1]
            _, number, at = heappop(alike[kind_number])
            quotas[at] += 1
            if quotas[at] < min(rooms[at], lists):
                heappush(alike[kind_number], (quotas[at], number, at))
            elif not alike[kind_number]:
                del alike[kind_number]
            for cell in field.kind_at(at).cells:
                counts[cell] += 1
                a_list[cell] = counts[cell] // lists
        in_order = sorted(
            quotas, key=lambda at: ([field.kind_at(at).cells[i] for i in field.outermost], at)
        )
        sequence = [at for at in in_order for _ in range(quotas[at])]
        return [sequence[number::lists] for number in range(lists)]
