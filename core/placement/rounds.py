"""Lists of SPUs alike as slices of a table: the one fast lane of the policy `balanced`.

Where a topic has no rules and no demand, and SPUs differ in their racks at most, the order of
preference comes to a turn: each SPU gets one replica in each *round*, and leads once in each
*block*. So the lists of a block are made once and kept with the ring; a request is the next rows.
They depend on the number of the block alone, whatever was asked for before.

- With more racks than replicas, of which none has more than 1 in replicas + 1 of the SPUs, a round
  deals each rack a replica for each of its SPUs, spread over the round; racks lead in proportion.
- With as many racks as replicas, of any sizes and capacities, each rack has one replica of each
  list, and they lead in proportion to their capacities.
- On a rack the SPUs that lead in a round do so in turn, by id; the others follow, in an order that
  is another one in each round. Where racks fail, a list takes the one of these first that has taken
  over least from its leader, in the blocks before it.

Example: 6 SPUs without racks, lists of 2. Round 1: 0, 1, 2 lead, 3, 4, 5 follow: [0, 3], [1, 4],
[2, 5]. Round 2: 3, 4, 5 lead, the others follow: [3, 1], [4, 2], [5, 0].

The lists fit if the numbers of replicas and leaders of the SPUs are those that the rows before them
give, but for what is the same for all SPUs (of a rack): so it is after each request of the kind,
and whenever all are level. Other requests are placed as `request` says, which levels them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import accumulate
from math import gcd, lcm
from typing import Final, NamedTuple

import numpy as np
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.replica_lists import ReplicaLists, Table
from spu_assigner.core.placement.leaders import counts_failovers
from spu_assigner.core.placement.preference import strides
from spu_assigner.core.placement.request import ListsRequest
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ledger import CountArray, Ledger
from spu_assigner.core.state.ring import Ring
from spu_assigner.core.state.takeovers import NEVER, Takeovers

ROWS_MAX: Final = 16_384  # of a table; blocks are repeated after that,
BLOCKS_MAX: Final = 256  # or after so many
POOL_LOOKS_MAX: Final = 16  # at SPUs of a rack, for the failover target of a list
NOBODY: Final = -1
STEP: Final = 0.6180339887498949  # of the orders of followers from round to round


class Rack(NamedTuple):
    """A rack whose SPUs have one capacity; without racks all SPUs."""

    members: list[int]  # as places in the ring
    weight: int  # their capacity, beside those on other racks

    @property
    def lists(self) -> int:
        """How many it leads of a block."""
        return len(self.members) * self.weight


class RoundTable:
    """The lists of one ring, of one length, block by block."""

    def __init__(
        self, ring: Ring, racks: Sequence[Rack], replicas: int, *, is_counted: bool
    ) -> None:
        """`is_counted`: failover targets are to be even."""
        self._ids, self._racks, self._replicas = ring.ids, racks, replicas
        self._spus = [(place, spu.rack) for place, spu in enumerate(ring.described())]
        self._is_counted = is_counted
        self._weights = np.empty(ring.size, dtype=np.int64)
        for rack in racks:
            self._weights[rack.members] = rack.weight
        self._weight_list: list[int] = self._weights.tolist()
        self._leading = in_proportion([rack.lists for rack in racks])  # of a block
        self._size = len(self._leading)  # lists of a block
        self._is_full = len(racks) == replicas  # each list has one of each rack
        # Of blocks: after so many failovers are counted anew, and after so many all is repeated.
        self._epoch = self._count = min(max(ROWS_MAX // self._size, 1), BLOCKS_MAX)
        if self._is_full:  # as soon as all are level again
            period = lcm(*(len(rack.members) for rack in racks), self._size) // self._size
            self._count = max(self._count // period, 1) * period
        self._first = NOBODY  # the first block of an epoch,
        self._blocks: list[Table] = []  # those from there on, as far as they are made,
        self._takeovers = Takeovers(())  # and what is taken over in them, by place
        self._leaders = NOBODY, np.array([NOBODY])  # of one block
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
        found = [block.rows[first:]]
        left = partitions - len(found[0])
        while left > 0:
            number += 1
            found.append(self._block(number).rows[:left])
            left -= self._size
        return ReplicaLists(np.concatenate(found))

    def note(self, lists: ReplicaLists, ledger: Ledger, begin: int) -> None:
        """These lists are counted next, if they are given; then the index is this one."""
        self._given, self._version, self._next = lists, ledger.version, begin

    def _is_next(self, held: CountArray, led: CountArray, begin: int) -> bool:
        """Whether the rows before this index give these numbers, but for the same for all."""
        begin %= self._count * self._size
        number, first = divmod(begin, self._size)
        if number != self._leaders[0]:
            self._leaders = number, np.array(self._by_rounds(number)[0][:: self._replicas])
        rest = led - np.bincount(self._leaders[1][:first], minlength=led.size)
        if (rest * self._weights[0] != rest[0] * self._weights).any():
            return False
        whole = [*range(led.size)]
        for members in [rack.members for rack in self._racks] if self._is_full else [whole]:
            start = number * self._size
            start -= start % len(members)  # Before a round of theirs, so they were level there.
            before = np.searchsorted(self._ids, self.lists(start, begin - start).matrix)
            rest = (held - np.bincount(before.ravel(), minlength=held.size))[members]
            if (rest != rest[0]).any():
                return False
        return True

    def _block(self, number: int) -> Table:
        number %= self._count
        first = number - number % self._epoch
        if first != self._first:
            self._first, self._blocks, self._takeovers = first, [], Takeovers(self._spus)
        for each in range(first + len(self._blocks), number + 1):
            self._blocks.append(Table(self._ids[np.array(self._lists(each))]))
        return self._blocks[number - first]

    def _lists(self, number: int) -> list[list[int]]:
        """The lists of a block; a follower is one of its rack that is left in the round."""
        spus, pools = self._by_rounds(number)
        rows = []
        for begin in range(0, len(spus), self._replicas):
            row, own = [spus[begin]], pools[begin + 1 : begin + self._replicas]
            if self._is_counted:
                self._take_target(row, own)
            for pool in own:
                for spu in pool:
                    if spu not in row:
                        break
                row.append(spu)
                pool.remove(spu)
            rows.append(row)
        return rows

    def _take_target(self, row: list[int], pools: list[list[int]]) -> None:
        """Let the SPU come second that has taken over least from the leader, of these pools."""
        of_rack, of_spu = self._takeovers.from_leader(row[0])
        weights = self._weight_list
        least, found = NEVER, None
        for number, pool in enumerate(pools):
            for spu in pool[:POOL_LOOKS_MAX]:
                share = (of_rack[spu] + of_spu[spu]) / weights[spu]
                if share < least and spu not in row:
                    least, found = share, (number, spu)
        if found is not None:
            number, target = found
            pools.pop(number).remove(target)
            self._takeovers.add(row[0], target)
            row.append(target)

    def _by_rounds(self, number: int) -> tuple[list[int], list[list[int]]]:
        """The SPU of each place of the lists of a block, before failovers are looked at; and those
        that may be there instead, as a list that such places share."""
        replicas = self._replicas
        hits: list[list[int]] = [[] for _ in self._racks]
        for place, rack in enumerate(self._racks_of(number)):
            hits[rack].append(place)
        spus = [NOBODY] * (self._size * replicas)
        pools: list[list[int]] = [[]] * len(spus)
        for rack, places in enumerate(hits):
            led = [*accumulate((place % replicas == 0 for place in places), initial=0)]
            at = 0
            while at < len(places):
                turn, done = divmod(number * len(places) + at, len(self._racks[rack].members))
                pool: list[int] = []
                for spu in self._round(rack, turn, led)[done : done + len(places) - at]:
                    place = places[at]
                    spus[place], at = spu, at + 1
                    if place % replicas:
                        pool.append(spu)
                        pools[place] = pool
        return spus, pools

    def _racks_of(self, number: int) -> list[int]:
        """The rack of each place of the lists of a block."""
        racks, leading = self._racks, self._leading
        if self._is_full or len(racks) == 1:
            return [(rack + at) % len(racks) for rack in leading for at in range(self._replicas)]
        # In the order in which they take a replica each, as often as they have SPUs.
        is_even = all(len(rack.members) == len(racks[0].members) for rack in racks)
        order = [*range(len(racks))] if is_even else leading
        leads = [NOBODY] * (self._size * self._replicas)
        shift = number * (1 + int(len(order) * STEP))
        leads[:: self._replicas] = [order[(shift + at) % len(order)] for at in range(self._size)]
        return _turns(order, leads, self._replicas, number * self._replicas)

    def _round(self, rack: int, turn: int, led: Sequence[int]) -> list[int]:
        """The SPUs of a rack in the order in which they get the replicas of a round.

        `led`: before each replica that the rack gets in a block, and at its end, in how many of
        them it leads.
        """
        members, size = self._racks[rack].members, len(led) - 1
        count = len(members)
        # From block to block another one leads first: so many further on that none leads twice in
        # a round, of those at the end of a block and then.
        begins = range(gcd(size, count), count, gcd(size, count))
        most = max([led[-1] - led[size - count + at] + led[at] for at in begins], default=0)
        able = count - most if self._replicas > 1 else 0
        shift = min(1 + rack % max(count - 1, 1), able)
        more = min(rack % count, able - shift)
        leading = []
        for number in range(turn * count, (turn + 1) * count):
            block, at = divmod(number, size)
            lead = block * shift + block // count * more + led[at]
            leading.append(lead % count if led[at + 1] > led[at] else NOBODY)
        leaders = {*leading}
        others = [at for at in range(count) if at not in leaders]
        others_on = iter(_mixed(others, turn * len(self._racks) + rack))
        return [members[next(others_on) if at == NOBODY else at] for at in leading]


def lists_of_rounds(state: ClusterState, asked: ListsRequest) -> ReplicaLists | None:
    """The lists of a request whose topic has no rules and no demand; None: they are none of a
    table."""
    ring, ledger = state.ring, state.ledger
    partitions, replicas, ignore_rack = asked.partitions, asked.replicas, asked.ignore_rack
    key: Hashable = ("rounds", replicas, ignore_rack)
    if key not in ring.kept:
        racks = _racks_alike(ring, replicas, ignore_rack=ignore_rack)
        is_counted = replicas > 1 and not ignore_rack and counts_failovers(ring, ring.size)
        ring.kept[key] = racks and RoundTable(ring, racks, replicas, is_counted=is_counted)
    table: RoundTable | None = ring.kept[key]
    if table is None or ledger.free_floor(partitions) <= partitions:
        return None
    begin = table.index(ledger)
    if begin is None:
        return None
    lists = table.lists(begin, partitions)
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
    if len(members) == 1 and ring.size == replicas:
        members = [[place] for place in members[0]]
    weights = ring.weights // np.gcd.reduce(ring.weights)
    racks = [Rack(each, int(weights[each[0]])) for each in members]
    if any((weights[rack.members] != rack.weight).any() for rack in racks):
        return None
    if len(racks) == replicas:
        return racks if sum(rack.lists for rack in racks) <= ROWS_MAX else None
    most = 1 if len(racks) == 1 else max(len(rack.members) for rack in racks)
    return racks if (replicas + 1) * most <= ring.size and int(weights.max()) == 1 else None


def in_proportion(lists: Sequence[int]) -> list[int]:
    """The rack that leads each list of a block, of which each leads so many."""
    places = [
        ((2 * number + 1) / count, rack)
        for rack, count in enumerate(lists)
        for number in range(count)
    ]
    return [rack for _, rack in sorted(places)]


def _turns(order: Sequence[int], leads: Sequence[int], apart: int, number: int) -> list[int]:
    """The rack at each place: in each round of places all of `order`, once each time it has it.

    It is the one of `leads`, unless that is `NOBODY`; the others come in an order of the round,
    counted from `number`. Each `apart` places are different ones.
    """
    found: list[int] = []
    for begin in range(0, len(leads), len(order)):
        of_round, others = leads[begin : begin + len(order)], [*order]
        for leader in of_round:
            if leader != NOBODY:
                others.remove(leader)
        others = _mixed(others, number + begin // len(order))
        for leader in of_round:
            if leader != NOBODY:
                found.append(leader)
                continue
            own = found[len(found) - len(found) % apart :]
            at = next((at for at, each in enumerate(others) if each not in own), 0)
            if others[at] in own:
                others[at] = _exchanged(found, begin, apart, others[at], own)
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


def _mixed(others: Sequence[int], turn: int) -> list[int]:
    """An order of a round, in which other ones are neighbours than in the one before it."""
    count = len(others)
    steps, first = strides(max(count, 1)), int(turn * STEP * count)
    return [others[(first + at * steps[turn % len(steps)]) % count] for at in range(count)]
