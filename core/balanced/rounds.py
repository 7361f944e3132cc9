"""`balanced` on SPUs alike, round by round: lists that do not depend on how many are asked for.

Where all SPUs of the ring have one capacity, racks do not matter, and loads are even, there is a
rule for the next list that keeps them so, whatever the requests are: one of 16 partitions gets the
lists that two of 8 would get. So lists are made many at once and sliced, as those of a policy that
reads a table. In each *round* every SPU gets one replica:

- A list is led by the first SPU, from the chain index on by id, of those that lead least.
- The SPUs that lead no list which begins in the round follow, in an order that changes from turn
  to turn of the leads (`_follower_keys`).
- A list in which the round ends goes on with the next one, whose first followers are those in
  its order that are not in the list.

20 SPUs, lists of 3, from chain index 0: 0 … 6 lead in the first round, whose 20 replicas are six
lists and two replicas of the seventh; the third one of that is the first of the next round.

After each list the replicas of any two SPUs differ by one at most, and so do the lists they lead:
no choice is more even. Where the round stands follows from the loads and the chain index, so the
lists are the same from wherever in the round they are made.

*Loads are even* if replicas and leaders differ by one at most, and whoever is to lead in the rest
of the round has not had its replica. Other requests are placed as `policy` says, which makes loads
even again. The reason of a map says which of the two it was, so that both can be replayed.

Where racks matter, `rack_rounds` makes the lists; they are asked for, kept and sliced here.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from operator import sub
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.balanced.policy import SMALL_REQUEST_CELLS_MAX
from spu_assigner.core.balanced.rack_rounds import rack_rounds_of
from spu_assigner.core.base.replica_lists import IdArray, ReplicaLists, Table
from spu_assigner.core.state.ledger import CountArray, Ledger
from spu_assigner.core.state.loads import NUMBER_BITS, Layout, Loads

# Up to so many SPUs followers are put in order by who would take over what (`failover`).
SPUS_MIN: Final = 17
SPUS_A_REPLICA_MIN: Final = 4  # so that the ends of a round never meet
AHEAD_FIRST: Final = 64  # lists; doubled each time, since something else may come between
AHEAD_MAX: Final = 2_048  # 60 KB of three replicas each, with what is derived from them

# Orders of followers, each for as many turns of leads as SPUs follow in a round.
EPOCHS: Final = 16

# Arrays without dimensions: numpy takes them in half the time of a Python int.
_NUMBER_MASK: Final = np.array(2**NUMBER_BITS - 1, dtype=np.int32)
_NO_FOLLOWER: Final = np.array(1 << 2 * NUMBER_BITS, dtype=np.int32)  # after all others


class Evenness(NamedTuple):
    """How SPUs stand whose replicas, and leaders, differ by one at most."""

    open_count: int
    is_open: NDArray[np.bool_]  # of the fewest replicas
    is_due: NDArray[np.bool_]  # of the fewest leaders


def has_rounds(layout: Layout, replicas: int) -> bool:
    """Whether lists of so many replicas may be placed so on this ring."""
    size = len(layout.rack_of)
    if layout.capacity is None or size < max(SPUS_MIN, SPUS_A_REPLICA_MIN * replicas):
        return False
    return layout.is_one or rack_rounds_of(layout, replicas) is not None


def place_in_rounds(
    loads: Loads, *, partitions: int, replicas: int, start: int
) -> NDArray[np.int32] | None:
    """Place the partitions where nobody can be filled; None: `place_balanced` is to do it."""
    if partitions * replicas > SMALL_REQUEST_CELLS_MAX:
        return None
    layout = loads.layout or Layout.of(loads.ids, loads.racks, loads.capacities)
    if not has_rounds(layout, replicas):
        return None
    rows = _next_rows(
        layout, loads.replicas, loads.leaders, replicas=replicas, start=start, to=partitions
    )
    if rows is None or len(rows) < partitions:
        return None
    return loads.ids[rows[:partitions]]


class RoundsAhead:
    """The next lists of a ring, as long as nothing else is placed or taken away; kept with it."""

    __slots__ = (
        "_ahead",
        "_first",
        "_has_rounds",
        "_ids",
        "_is_shared",
        "_layout",
        "_placed",
        "_replicas",
        "_table",
        "_version",
    )

    def __init__(self, ids: IdArray, layout: Layout, replicas: int, *, is_shared: bool) -> None:
        """`is_shared`: lists stay as they are, so that what is derived from them can be shared."""
        self._ids = ids
        self._layout = layout
        self._replicas = replicas
        self._has_rounds = has_rounds(layout, replicas)
        self._is_shared = is_shared
        self._ahead = 0
        self._table: Table | None = None
        self._first = 0  # the chain index of the table's first list
        self._placed: ReplicaLists | None = None  # until it is known whether they were applied
        self._version = -1  # of the ledger with the lists before; none yet

    def lists(self, ledger: Ledger, *, partitions: int, start: int) -> ReplicaLists | None:
        """As `place_in_rounds` places them."""
        if not self._has_rounds or partitions * self._replicas > SMALL_REQUEST_CELLS_MAX:
            return None
        table, version = self._table, ledger.version
        if version != self._version:
            is_next = version == self._version + 1 and ledger.newest is self._placed
            self._version = version
            if not is_next:
                table, self._ahead = None, 0
        begin = start - self._first
        if table is None or begin + partitions > table.count:
            table = self._table = self._look_ahead(ledger, start, partitions)
            if table is None:
                return None
            begin = 0
        placed = table.lists(begin, partitions)
        self._placed = placed if self._is_shared else ReplicaLists(placed.matrix.copy())
        return self._placed

    def _look_ahead(self, ledger: Ledger, start: int, partitions: int) -> Table | None:
        """A table that begins with these lists; twice as many as the last time."""
        held, led = ledger.counts(self._ids), ledger.leaders(self._ids)
        wanted = max(self._ahead, partitions)
        rows = _next_rows(self._layout, held, led, replicas=self._replicas, start=start, to=wanted)
        if rows is None or len(rows) < partitions:
            return None
        self._ahead = min(max(2 * self._ahead, AHEAD_FIRST), AHEAD_MAX)
        self._first = start
        return Table(self._ids[rows])


def _next_rows(
    layout: Layout, held: CountArray, led: CountArray, *, replicas: int, start: int, to: int
) -> NDArray[np.int32] | None:
    """So many lists as numbers of SPUs, or fewer, or more; None: there are none."""
    if not layout.is_one:
        of_racks = rack_rounds_of(layout, replicas)
        return None if of_racks is None else of_racks.rows(held, led, start=start, wanted=to)
    is_open, is_due = held == held.min(), led == led.min()
    if int(held.max() - held.min()) > 1 or int(led.max() - led.min()) > 1:
        return None
    even = Evenness(int(np.count_nonzero(is_open)), is_open, is_due)
    return _rows(layout, even, replicas=replicas, start=start, wanted=to)


def _rows(
    layout: Layout, even: Evenness, *, replicas: int, start: int, wanted: int
) -> NDArray[np.int32] | None:
    """So many lists and the rest of their last round, as numbers of SPUs; fewer, if whoever is to
    lead in a round has its replica already; None: there is not one.

    Cost: O(rounds * SPUs), vectorised.
    """
    open_count, is_open, is_due = even
    size = len(is_open)
    rounds = 1 + max(-(-(wanted * replicas - open_count) // size), 0)
    ends = [open_count + size * number for number in range(rounds)]  # in replicas from here
    begun = [-(-end // replicas) for end in ends]  # lists that begin before them
    heads = [begun[0], *map(sub, begun[1:], begun)]  # lists that begin in each round
    leaders = _leaders(is_due, start % size, begun[-1])
    if open_count < size and not is_open[leaders[: heads[0]]].all():
        return None

    keys = _follower_keys(size, replicas, start, ends, begun)
    if open_count < size:
        keys[0, ~is_open] = _NO_FOLLOWER
    keys[np.repeat(np.arange(rounds), heads), leaders] = _NO_FOLLOWER
    keys.sort(axis=1)
    is_follower = keys < _NO_FOLLOWER
    followers = keys[is_follower]
    followers &= _NUMBER_MASK

    count = ends[-1] // replicas
    if len(followers) > ends[-1] - begun[-1]:
        count = _sound(is_follower, ends, heads, replicas)
    if not count:
        return None
    rows = np.empty((count, replicas), dtype=np.int32)
    rows[:, 0] = leaders[:count]
    followers = followers[: count * (replicas - 1)]
    _keep_apart(followers, leaders, ends, replicas, count)
    rows[:, 1:] = followers.reshape(count, replicas - 1)
    return rows


def _sound(is_follower: NDArray[np.bool_], ends: list[int], heads: list[int], replicas: int) -> int:
    """How many lists there are before a round in which somebody would have to lead who is not
    open, or twice: more are left to follow in it."""
    begin = 0
    for number, (end, head) in enumerate(zip(ends, heads, strict=True)):
        if int(np.count_nonzero(is_follower[number])) > end - begin - head:
            break
        begin = end
    return begin // replicas


def _leaders(is_due: NDArray[np.bool_], begin: int, count: int) -> CountArray:
    """Who leads the next lists: those that lead least by position from `begin` on, then all in
    turn."""
    due = np.concatenate((is_due[begin:], is_due[:begin])).nonzero()[0][:count]
    leaders = np.arange(begin, begin + count)
    leaders[: len(due)] = due + begin
    leaders %= len(is_due)
    return leaders


def _follower_keys(
    size: int, replicas: int, start: int, ends: list[int], begun: list[int]
) -> NDArray[np.int32]:
    """For each round the rank of each SPU as a follower, then its number; shape (rounds, SPUs).

    SPUs are counted from behind those that lead in the round. A rank is that count times a factor,
    and a step further in each turn of leads, modulo how many follow: so each SPU comes right
    behind each leader of the round equally often. The last one led the list in which the round
    began, and cannot follow in it: it takes another one's rank, who comes after all others.
    """
    turns, rest = divmod(start * replicas, size * replicas)
    turn_size, behind_first = size * replicas, start % size
    parameters: list[int] = []
    for end, head in zip(ends, begun, strict=True):
        others = size - head - (size - end) // replicas - 1
        parameters.append((behind_first + head) % size)
        begun_left = (size - end) % replicas  # followers of the list in which the round begins
        parameters += _ranking(others, turns + (rest + end) // turn_size, replicas, begun_left)
    columns = np.array(parameters, dtype=np.int32).reshape(len(ends), -1, 1)
    behind, others_of, factors, shifts, last_ranks = columns.swapaxes(0, 1)
    numbers = np.arange(size, dtype=np.int32)
    counted = numbers - behind
    counted += (counted < 0) * np.int32(size)
    keys = counted * factors
    keys += shifts
    keys %= others_of
    np.copyto(keys, others_of, where=keys == last_ranks)
    np.copyto(keys, last_ranks, where=counted == others_of)
    np.copyto(keys, counted, where=counted > others_of)
    keys <<= NUMBER_BITS
    keys |= numbers
    return np.asarray(keys)


@lru_cache(maxsize=1_024)
def _ranking(others: int, turn: int, replicas: int, begun: int) -> tuple[int, int, int, int]:
    """How the followers of a round are ranked, but the last one: modulo, factor, shift; and what
    that one's rank is: the last place in a list, behind the `begun` first ranks."""
    count = max(others, 1)  # Of lists of one replica nobody follows.
    epoch, shift = divmod(turn, count)
    factor = _factor(count, 1 + (epoch % EPOCHS + 1) * 5 * count // 8 % count)
    step, each = _factor(count, replicas - 1), max(replicas - 1, 1)
    places = max((count - begun) // each - 1, 1)
    return count, factor, shift * step % count, begun + each * (turn % places + 1) + each - 1


def _factor(count: int, least: int) -> int:
    """The first number from `least` on that has no divisor in common with the count."""
    factor = max(least, 1)
    while gcd(factor, count) > 1:
        factor += 1
    return factor


def _keep_apart(
    followers: NDArray[np.int32], leaders: CountArray, ends: list[int], replicas: int, count: int
) -> None:
    """Let nobody come twice in the lists in which rounds end; in the array."""
    for end in ends:
        number, before = divmod(end, replicas)  # a list, and its members from before the end
        if not before or number >= count:
            continue
        begin = number * (replicas - 1)
        members = [leaders.item(number), *followers[begin : begin + replicas - 1].tolist()]
        if len(set(members)) == replicas:
            continue
        new = begin + before - 1
        first = followers[new : new + replicas].tolist()
        others = [spu for spu in first if spu not in members[:before]][: replicas - before]
        put_off = [spu for spu in first if spu not in others]
        followers[new : new + replicas] = [*others, *put_off]
