"""Lists of SPUs alike as slices of a table: the one fast lane of the policy `balanced`.

Where a topic has no rules and no demand, and SPUs differ in their racks at most, the order of
preference comes to a turn: each SPU gets one replica in each *round*, and leads once in each
*block*. So the lists of a block are made once and kept with the ring; a request is the next rows.

- With more racks than replicas, of which none has more than 1 in replicas + 1 of the SPUs, a round
  deals each rack a replica for each of its SPUs, spread over the round; racks lead in proportion.
- With as many racks as replicas, of any sizes and capacities, each rack has one replica of each
  list, and they lead in proportion to their capacities.
- On a rack the SPUs that lead in a round do so in turn, by id; the others follow, in an order that
  is another one in each round.

Example: 6 SPUs without racks, lists of 2. Round 1: 0, 1, 2 lead, 3, 4, 5 follow: [0, 3], [1, 4],
[2, 5]. Round 2: 3, 4, 5 lead, the others follow, two further on: [3, 2], [4, 0], [5, 1].

The lists fit if the numbers of replicas and leaders of the SPUs are those that the rows before them
give, but for what is the same for all SPUs (of a rack): so it is after each request of the kind,
and whenever all are level. Other requests are placed as `request` says, which levels them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from math import lcm
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.replica_lists import IdMatrix, ReplicaLists, Table
from spu_assigner.core.placement.eligibility import PlacementField
from spu_assigner.core.placement.leaders import Failovers, failovers_of
from spu_assigner.core.placement.preference import strides
from spu_assigner.core.placement.request import ListsRequest
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ledger import CountArray, Ledger
from spu_assigner.core.state.ring import Ring
from spu_assigner.core.state.takeovers import Takeovers

ONE_BY_ONE: Final = 512  # lists of a request, whose failovers are chosen beside all topics
PIECE: Final = 96  # lists, among which they are chosen once for all larger requests
ROWS_MAX: Final = 16_384  # of a table; blocks are repeated after that,
BLOCKS_MAX: Final = 256  # or after so many
NOBODY: Final = -1
STEP: Final = 0.6180339887498949  # of the orders of followers from round to round


LeadingRacks = tuple[list[int], list[int]]  # of the lists of a block: the rack, and how many before


class Rack(NamedTuple):
    """A rack whose SPUs have one capacity; without racks an SPU alone."""

    members: list[int]  # as places in the ring
    weight: int  # their capacity, beside those on other racks

    @property
    def lists(self) -> int:
        """How many it leads of a block."""
        return len(self.members) * self.weight


class RoundTable:
    """The lists of one ring, of one length, block by block."""

    def __init__(self, ring: Ring, racks: Sequence[Rack], replicas: int) -> None:
        self._ids, self._racks, self._replicas = ring.ids, racks, replicas
        self._weights = np.empty(ring.size, dtype=np.int64)
        for rack in racks:
            self._weights[rack.members] = rack.weight
        self._size = int(self._weights.sum())  # lists of a block
        self._is_full = len(racks) == replicas  # each list has one of each rack
        # Of blocks, which are repeated then,
        self._count = min(max(ROWS_MAX // self._size, 1), BLOCKS_MAX)
        if self._is_full:  # as soon as all are level again
            period = lcm(*(len(rack.members) for rack in racks), self._size) // self._size
            self._count = max(self._count // period, 1) * period
        self._blocks: dict[int, Table] = {}
        self._period = self._count * self._size  # lists
        self._pieces: list[IdMatrix] = []  # the first ones, failover targets second,
        self._failovers: Failovers | None = None  # and what is taken over in them
        self._given: ReplicaLists | None = None  # the last lists, until it is known what came of it
        self._version = -1  # of the ledger before them
        self._next = 0  # the index after them

    def index(self, ledger: Ledger) -> int | None:
        """Of the list that comes next; None: others than these were given, or taken away, since
        all were level."""
        if ledger.version == self._version + 1 and ledger.newest is self._given is not None:
            return self._next
        held, led = ledger.counts(self._ids), ledger.leaders(self._ids)
        begin = int(led.sum())
        return begin if self._is_next(held, led, begin) else None

    def lists(self, begin: int, partitions: int) -> ReplicaLists:
        """So many lists from this index on."""
        number, first = divmod(begin, self._size)
        block = self._block(number)
        if first + partitions <= block.count:
            return block.lists(first, partitions)
        return ReplicaLists(self._rows(begin, partitions))

    def note(self, lists: ReplicaLists, ledger: Ledger, begin: int) -> None:
        """These lists are counted next, if they are given; then the index is this one."""
        self._given, self._version, self._next = lists, ledger.version, begin

    @cached_property
    def _leading(self) -> LeadingRacks:
        return _leading_racks([rack.lists for rack in self._racks])

    def _block(self, number: int) -> Table:
        number %= self._count
        known = self._blocks.get(number)
        if known is None:
            if self._is_full:
                places = _full_block(self._racks, self._leading, number)
            else:
                places = _block(self._racks, self._leading[0], self._replicas, number)
            if len(self._blocks) * self._size > ROWS_MAX:
                self._blocks.clear()
            known = self._blocks[number] = Table(self._ids[places])
        return known

    def ordered(self, begin: int, partitions: int, failovers: Failovers) -> IdMatrix:
        """The lists, failover targets second. Of very many those of each whole piece are even over
        the table; those of the first and the last one beside all topics."""
        if partitions <= ONE_BY_ONE:
            return self._one_by_one(self._rows(begin, partitions), failovers)
        found, counted = [self._ids[:0].reshape(0, self._replicas)], failovers.counted
        while partitions:
            number, first = divmod(begin % self._period, PIECE)
            length = min(PIECE, self._period - number * PIECE)
            count = min(length - first, partitions)
            if count == length:
                found.append(self._piece(number, failovers.field))
            else:
                before = ReplicaLists(np.concatenate(found))
                counted.count(before)
                found.append(self._one_by_one(self._rows(begin, count), failovers))
                counted.count(before, -1)
            begin += count
            partitions -= count
        return np.concatenate(found)

    def _piece(self, number: int, field: PlacementField) -> IdMatrix:
        """Lists that exchange followers within them. Failovers are counted from the first piece on,
        so that they do not depend on what was asked before."""
        if self._failovers is None:
            spus = [(spu.spu_id, spu.rack, spu.capacity) for spu in field.described]
            self._failovers = Failovers(field, Takeovers(spus, ()))
        while len(self._pieces) <= number:
            begin = len(self._pieces) * PIECE
            rows = self._rows(begin, min(PIECE, self._period - begin))
            self._pieces.append(self._one_by_one(rows, self._failovers, is_kept=True))
        return self._pieces[number]

    def _one_by_one(
        self, rows: IdMatrix, failovers: Failovers, *, is_kept: bool = False
    ) -> IdMatrix:
        """Lists that are ordered beside what is counted."""
        places = np.searchsorted(self._ids, rows).tolist()
        failovers.order_all(places, is_kept=is_kept)
        found: IdMatrix = self._ids[np.array(places)]
        return found

    def _rows(self, begin: int, count: int) -> IdMatrix:
        found = []
        while count:
            number, first = divmod(begin, self._size)
            rows = self._block(number).rows[first : first + count]
            found.append(rows)
            begin += len(rows)
            count -= len(rows)
        return np.concatenate(found)

    def _is_next(self, held: CountArray, led: CountArray, begin: int) -> bool:
        """Whether the rows before this index give these numbers, but for the same for all."""
        begin %= self._period
        number, first = divmod(begin, self._size)
        before = np.searchsorted(self._ids, self._block(number).rows[:first])
        rest = led - np.bincount(before[:, 0], minlength=len(self._ids))
        if (rest * self._weights[0] != rest[0] * self._weights).any():
            return False
        if not self._is_full:
            rest = held - np.bincount(before.ravel(), minlength=len(self._ids))
            return bool((rest == rest[0]).all())
        for rack, (members, _) in enumerate(self._racks):
            rest = held[members]
            turn, done = divmod(begin, len(members))
            rest[_turn_of_rack(self._racks, self._leading, rack, turn)[:done]] -= 1
            if (rest != rest[0]).any():
                return False
        return True


def lists_of_rounds(
    state: ClusterState, field: PlacementField, asked: ListsRequest
) -> ReplicaLists | None:
    """The lists of a request whose topic has no rules and no demand; None: they are none of a
    table."""
    ring, ledger = state.ring, state.ledger
    partitions, replicas, ignore_rack = asked.partitions, asked.replicas, asked.ignore_rack
    key: Hashable = ("rounds", replicas, ignore_rack)
    if key not in ring.kept:
        racks = _racks_alike(ring, replicas, ignore_rack=ignore_rack)
        ring.kept[key] = None if racks is None else RoundTable(ring, racks, replicas)
    table: RoundTable | None = ring.kept[key]
    if table is None or ledger.free_floor(partitions) <= partitions:
        return None
    begin = table.index(ledger)
    if begin is None:
        return None
    failovers = failovers_of(state, field, ignore_rack=ignore_rack, replicas=replicas)
    if failovers is None:
        lists = table.lists(begin, partitions)
    else:
        lists = ReplicaLists(table.ordered(begin, partitions, failovers))
    table.note(lists, ledger, begin + partitions)
    return lists


def _racks_alike(ring: Ring, replicas: int, *, ignore_rack: bool) -> list[Rack] | None:
    """The racks of a ring; None: there is no table."""
    described = ring.described()
    if not described or any(spu.is_barred or spu.demoted for spu in described):
        return None
    by_rack: dict[str, list[int]] = {}
    for place, spu in enumerate(described):
        by_rack.setdefault("" if ignore_rack else spu.rack or "", []).append(place)
    members = [by_rack[rack] for rack in sorted(by_rack)]
    if len(members) == 1:
        members = [[place] for place in members[0]]
    weights = ring.weights // np.gcd.reduce(ring.weights)
    racks = [Rack(each, int(weights[each[0]])) for each in members]
    if any((weights[rack.members] != rack.weight).any() for rack in racks):
        return None
    if len(racks) == replicas:
        return racks if sum(rack.lists for rack in racks) <= ROWS_MAX else None
    most = max(len(rack.members) for rack in racks)
    return racks if (replicas + 1) * most <= ring.size and int(weights.max()) == 1 else None


def _block(racks: Sequence[Rack], leading: Sequence[int], replicas: int, number: int) -> IdMatrix:
    """The lists of a block: each SPU leads one of them, and is in as many as a list has places."""
    sizes = [len(rack.members) for rack in racks]
    lists = sum(sizes)
    is_even = sizes == sizes[:1] * len(sizes)
    # Racks in the order in which they take a replica each, as often as they have SPUs.
    order = [*range(len(racks))] if is_even else leading
    leads = [NOBODY] * (lists * replicas)
    shift = number * (1 + int(len(order) * STEP))
    leads[::replicas] = [order[(shift + at) % len(order)] for at in range(lists)]
    of_racks = _turns(order, leads, replicas, number * replicas)
    found: NDArray[np.int32] = np.empty(len(of_racks), dtype=np.int32)
    hits: list[list[int]] = [[] for _ in racks]
    for at, rack in enumerate(of_racks):
        hits[rack].append(at)
    for rack, (members, _) in enumerate(racks):
        own, leader, size = hits[rack], number * (rack + 1), len(members)
        if size == 1:
            found[own] = members[0]
            continue
        leads = []
        for at in own:
            leads.append(NOBODY if at % replicas else leader % size)
            leader += at % replicas == 0
        turns = _turns(range(size), leads, 0, (number * len(racks) + rack) * replicas)
        found[own] = np.array(members, dtype=np.int32)[turns]
    return found.reshape(-1, replicas)


def _full_block(racks: Sequence[Rack], leads: LeadingRacks, number: int) -> IdMatrix:
    """The lists of a block where each has one SPU of each rack."""
    leading = np.array(leads[0])
    columns = []
    for at, (members, _) in enumerate(racks):
        turn, done = divmod(number * len(leading), len(members))
        column: list[int] = []
        while len(column) < done + len(leading):
            column += _turn_of_rack(racks, leads, at, turn)
            turn += 1
        columns.append(np.array(members, dtype=np.int32)[column[done : done + len(leading)]])
    others = (leading[:, np.newaxis] + np.arange(len(racks))) % len(racks)
    return np.array(columns).T[np.arange(len(leading))[:, np.newaxis], others]


def _turn_of_rack(racks: Sequence[Rack], block: LeadingRacks, rack: int, turn: int) -> list[int]:
    """The SPUs of a rack, as numbers, in the order in which they get the replicas of a round."""
    leading, led = block
    size, count = len(leading), len(racks[rack].members)
    # By how many the one that leads first in a block is shifted from block to block: few enough
    # that none leads twice in a round, of those that lead at the end of a block and then.
    most = 2 * -(-count * racks[rack].lists // size)
    shift = rack if len(racks) + most <= count else 0
    leads = []
    for number in range(turn * count, (turn + 1) * count):
        turns, at = divmod(number, size)
        leads.append((turns * shift + led[at]) % count if leading[at] == rack else NOBODY)
    return _turns(range(count), leads, 0, turn * len(racks) + rack)


def _leading_racks(lists: Sequence[int]) -> LeadingRacks:
    """The rack that leads each list of a block, of which each leads so many, and how many it leads
    before."""
    places = [
        ((2 * number + 1) / count, rack, number)
        for rack, count in enumerate(lists)
        for number in range(count)
    ]
    places.sort()
    return [rack for _, rack, _ in places], [number for *_, number in places]


def _turns(order: Sequence[int], leads: Sequence[int], apart: int, number: int) -> list[int]:
    """What comes at each place: in each round of places all of `order`, once each time it has it.

    It is the one of `leads`, unless that is `NOBODY`; the others come in an order of the round,
    counted from `number`. Each `apart` places are different ones; 0: they are so anyway.
    """
    found: list[int] = []
    is_mixed = len({*order}) < len(order)  # Neighbours in the order would be in the same lists.
    for begin in range(0, len(leads), len(order)):
        of_round = leads[begin : begin + len(order)]
        leading = {*of_round}
        others = [each for each in order if is_mixed or each not in leading]
        for leader in of_round if is_mixed else ():
            if leader != NOBODY:
                others.remove(leader)
        turn, count = number + begin // len(order), len(others)
        first = int(turn * STEP * count) % max(count, 1)
        others = others[first:] + others[:first]
        if is_mixed and others:
            steps = strides(count)
            step = steps[turn % len(steps)]
            others = [others[at * step % count] for at in range(count)]
        for leader in of_round:
            if leader != NOBODY:
                found.append(leader)
                continue
            at = 0
            if apart:
                own = found[len(found) - len(found) % apart :]
                while at < len(others) and others[at] in own:
                    at += 1
                if at == len(others):
                    at = 0
                    others[0] = _exchanged(found, begin, apart, others[0], own)
            found.append(others.pop(at))
    return found


def _exchanged(found: list[int], begin: int, apart: int, given: int, own: Sequence[int]) -> int:
    """What a list before takes this one for, which a list has already."""
    for at in range(len(found) - 1, begin - 1, -1):
        first = at - at % apart
        if at != first and found[at] not in own and given not in found[first : first + apart]:
            taken, found[at] = found[at], given
            return taken
    raise InvariantError(f"{apart} racks of a list are not to be had")
