"""Who leads the lists of a request, and who follows first: the failover target.

Of the members of a list that may lead, the first level that differs decides, the smaller value:

| level | value |
| --- | --- |
| 1 rank | the first selector of `leaders` that it meets; a demoted SPU is behind all others |
| 2 twofold | 1 if it leads twice its fair share of the topic's lists (rounded up), else 0 |
| 3 share | where a leader needs more than a follower: its dominant share as the leader |
| 4 share led | lists that it leads with this one ÷ capacity, over all topics |
| 5 topic | lists of the topic that it leads |
| 6 position | from the chain index on |

Example: SPUs 0 and 1 lead 10 lists each, 2 has just joined. Of a topic of 6 × 2 on three SPUs alike
the fair share is 2 lists, so 2 leads up to 4 of them and no more while another can.

Lists are led one by one as they are made; then leadership is passed on along the lists of the
request, from an SPU whose share led is larger to one whose share is smaller even with the list
(`even_leaders`): so one list does not depend on which others came before it.

The failover target leads when the leader's rack fails: the follower on another rack that has taken
over least from the leader's rack and, in a small cluster, from the leader itself, counted over all
topics (`core.state.takeovers`). It comes second; then the others, demoted ones last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.placement.eligibility import PlacementField
from spu_assigner.core.placement.preference import (
    FRACTION_BITS,
    POSITION_BITS,
    SHARE_BITS,
    SHARE_MAX,
    SHARE_SHIFT,
    TOPIC_MAX,
    TWOFOLD,
    Positions,
    slot_shares,
)
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ledger import CountArray
from spu_assigner.core.state.takeovers import COUNTS_MAX, NEVER, PAIR_WEIGHT, Counts, Takeovers

# Without racks only SPUs fail: with more of them than this nearly all follow each in turn.
SPUS_MAX_WITHOUT_RACKS: Final = 16
RANK_SHIFT: Final = SHARE_SHIFT + SHARE_BITS + 1
RANK_MASK: Final = (1 << RANK_SHIFT) - 1
ROWS_MAX: Final = 512  # lists, of which leadership is passed on along several
TRIES_MAX: Final = 4  # SPUs that lead most, from which a way is looked for at a time
NEARBY: Final = 8  # lists before and after a list, with which it may exchange followers


class LeaderCounts:
    """How many lists each SPU of a field leads, as a request is given."""

    def __init__(
        self,
        field: PlacementField,
        counts: CountArray,
        positions: Positions,
        led: Mapping[int, int],
        lists: int,
        *,
        shares: CountArray,
    ) -> None:
        """
        Args:
            field: whose SPUs they are.
            counts: of lists that each leads, over all topics.
            positions: of SPUs that are equal but in position.
            led: lists of the topic that SPUs lead, by id.
            lists: of the topic in the end.
            shares: of its capacity that each leads, with one list more.
        """
        self.field = field
        self.counts: list[int] = counts.tolist()
        self._of_topic = {field.at_of[each]: n for each, n in led.items() if each in field.at_of}
        self._positions = positions
        self._limits = field.limits(lists)  # lists that are twice the fair share of each SPU
        keys = shares << SHARE_SHIFT | positions.array
        self._keys: list[int] = keys.tolist()
        self._ranks = [kind.rank for kind in field.kinds] if field.ranks != (0,) else None
        if self._ranks:
            for at, kind in enumerate(field.kind_of):
                self._keys[at] += self._ranks[kind] << RANK_SHIFT
        for at in self._of_topic:
            self._keys[at] = self._key(at)

    def key(self, at: int) -> int:
        """The levels of an SPU but the third, as one integer."""
        return self._keys[at]

    def share(self, at: int) -> int:
        """The share of its capacity that an SPU leads with one list more; those that lead twice
        their fair share of the topic come after all others."""
        return (self._keys[at] & RANK_MASK) >> SHARE_SHIFT

    def least_share(self, members: Iterable[int]) -> int:
        """The least of their shares."""
        keys = self._keys
        return min([keys[at] & RANK_MASK for at in members]) >> SHARE_SHIFT

    def share_now(self, at: int) -> int:
        """The same without one more."""
        led = (2 * self.counts[at] - 1 << FRACTION_BITS) // (2 * self.field.capacity_list[at] or 1)
        is_beyond = self._of_topic.get(at, 0) > self._limits[at]
        return min(led, SHARE_MAX) + (is_beyond << SHARE_BITS)

    def shares_now(self) -> CountArray:
        """The share that each SPU leads, with one list more."""
        counts = np.array(self.counts, dtype=np.int64)
        return slot_shares(counts + 1, self.field.capacities)

    def rank(self, at: int) -> int:
        """The rank of an SPU."""
        return self.field.kinds[self.field.kind_of[at]].rank

    def choose(self, row: Sequence[int]) -> int:
        """The member that leads a list; at least one must be able to."""
        keys = self._keys
        best = row[0]
        least = keys[best]
        for at in row:
            if keys[at] < least:
                best, least = at, keys[at]
        return best

    def add(self, at: int, more: int = 1) -> None:
        """Count a list that it leads, or take it out."""
        self.counts[at] += more
        self._of_topic[at] = self._of_topic.get(at, 0) + more
        self._keys[at] = self._key(at)

    def _key(self, at: int) -> int:
        field, held = self.field, self._of_topic.get(at, 0)
        led = (2 * self.counts[at] + 1 << FRACTION_BITS) // (2 * field.capacity_list[at] or 1)
        low = min(held, TOPIC_MAX) << POSITION_BITS | self._positions.of[at]
        key = min(led, SHARE_MAX) << SHARE_SHIFT | low
        if held >= self._limits[at]:
            key += TWOFOLD
        return key + (self._ranks[field.kind_of[at]] << RANK_SHIFT) if self._ranks else key


def even_leaders(counts: LeaderCounts, rows: Sequence[list[int]]) -> None:
    """Let others lead lists where that makes the shares led more even, in place.

    A list is passed on to one of its members, or along several lists: the first takes one from the
    next. The SPU at the end then leads, with that list, less than the one at the beginning did. So
    the sum of squares falls each time, and it ends. Of very many lists each is passed on once, and
    to its own members.
    """
    if len(rows) > ROWS_MAX:
        for row in rows:
            counts.add(row[0], -1)
            best = counts.choose(row)
            counts.add(best)
            at = row.index(best)
            row[0], row[at] = best, row[0]
        return
    led: dict[int, list[list[int]]] = {}
    for row in rows:
        led.setdefault(row[0], []).append(row)
    members = {at for row in rows for at in row}
    tries = TRIES_MAX + len(rows)
    while tries > 0:
        least = counts.least_share(members)
        givers = [(-counts.share_now(at), at) for at, own in led.items() if own]
        for share, giver in sorted(givers)[:TRIES_MAX]:
            tries -= 1
            if -share <= least:
                return
            way = _way_from(counts, led, giver, -share)
            if way:
                break
        else:
            return
        for row, place in reversed(way):
            giver, taker = row[0], row[place]
            led[giver].remove(row)
            led.setdefault(taker, []).append(row)
            row[0], row[place] = taker, giver
            counts.add(giver, -1)
            counts.add(taker)


def _way_from(
    counts: LeaderCounts, led: dict[int, list[list[int]]], giver: int, share: int
) -> list[tuple[list[int], int]]:
    """The shortest way along which leadership of a list is passed on to an SPU whose share stays
    below this one: lists, each with the place of the member that takes it; the last one first."""
    reached: dict[int, tuple[list[int], int]] = {}
    queue = [giver]
    rank = counts.rank(giver)
    for at in queue:
        for row in led.get(at, ()):
            for place in range(1, len(row)):
                other = row[place]
                if other in reached or other == giver or counts.rank(other) != rank:
                    continue
                reached[other] = row, place
                if counts.share(other) < share:
                    return _back_from(other, giver, reached)
                queue.append(other)
    return []


def _back_from(
    taker: int, giver: int, reached: Mapping[int, tuple[list[int], int]]
) -> list[tuple[list[int], int]]:
    way = []
    while taker != giver:
        way.append(reached[taker])
        taker = reached[taker][0][0]
    return way


class Failovers:
    """Which follower of a list comes second, in places of a field.

    What the lists of the request add is counted in the state's own counts until `undo`: they are
    counted for good when the lists are given.
    """

    def __init__(
        self,
        state: ClusterState,
        field: PlacementField,
        *,
        ignore_rack: bool,
        replicas: int,
        counted: Takeovers | None = None,
    ) -> None:
        """`counted`: the counts; by default those of the state."""
        self.is_sought = _are_sought(state, ignore_rack=ignore_rack, replicas=replicas)
        self._done: list[tuple[list[Any], int, int]] = []
        self._kind_of = field.kind_of
        if self.is_sought:
            self._counted = counted = counted or state.takeovers()
            counted.settle()
            numbers = counted.numbers
            self._numbers = [numbers[spu_id] for spu_id in field.id_list]
            self._fairness = counted.fairness(by_capacity=not field.is_even)
            self._weights = self._fairness.weights

    def order_all(self, rows: Sequence[list[int]]) -> None:
        """Put the failover target of each list second, in place, and count it. Where each follower
        takes over more than is fair, the list exchanges one with a list nearby, for an SPU of the
        same kind."""
        enough: Sequence[float] = ()
        counted, fairness, numbers = self._counted, self._fairness, self._numbers
        rack_of, from_racks, from_spus = counted.rack_of, counted.from_racks, counted.from_spus
        weights, totals, done = self._weights, counted.rack_totals, self._done
        of_spu = counted.nothing
        for number, row in enumerate(rows):
            if number % NEARBY == 0:
                enough = counted.enough(fairness)
            leader = numbers[row[0]]
            home = rack_of[leader]
            of_rack = from_racks[home]
            if from_spus is not None:
                of_spu = from_spus[leader]
            limit = enough[home] if weights is None else enough[home] * fairness.factors[leader]
            place, least = self._least(row, of_rack, of_spu)
            if limit < least != NEVER and self._exchange(rows, number, least):
                place, least = self._least(row, of_rack, of_spu)
            if least == NEVER:
                continue
            row[1], row[place] = row[place], row[1]
            target = numbers[row[1]]
            of_rack[target] += 1
            totals[home] += 1
            done.append((of_rack, target, 1))
            done.append((totals, home, 1))
            if from_spus is not None:
                of_spu[target] += PAIR_WEIGHT
                done.append((of_spu, target, PAIR_WEIGHT))

    def _least(self, row: Sequence[int], of_rack: Counts, of_spu: Counts) -> tuple[int, float]:
        """Where the follower is that takes over least, the first of equals, and how much."""
        numbers, weights = self._numbers, self._weights
        found, least = 1, NEVER
        for place in range(1, len(row)):
            spu = numbers[row[place]]
            taken = of_rack[spu] + of_spu[spu]
            if weights is not None:
                taken *= weights[spu]
            if taken < least:
                found, least = place, taken
        return found, least

    def _exchange(self, rows: Sequence[list[int]], number: int, least: float) -> bool:
        """Let a list have a follower that takes over less, if one is nearby."""
        row, kind_of, numbers, found = rows[number], self._kind_of, self._numbers, None
        counted, weights, leader = self._counted, self._weights, numbers[row[0]]
        of_rack = counted.from_racks[counted.rack_of[leader]]
        of_spu = counted.nothing if counted.from_spus is None else counted.from_spus[leader]
        own = {kind_of[at]: at for at in row[1:]}
        for near in range(max(number - NEARBY, 0), min(number + NEARBY + 1, len(rows))):
            other = rows[near]
            # Targets that are found stay.
            for at in other[2:] if near < number else other[1:]:
                spu = numbers[at]
                taken = of_rack[spu] + of_spu[spu]
                if weights is not None:
                    taken *= weights[spu]
                if taken >= least or at in row:
                    continue
                given = own.get(kind_of[at])
                if given is not None and given not in other:
                    least, found = taken, (other, at, given)
        if found is None:
            return False
        other, at, given = found
        row[row.index(given)], other[other.index(at)] = at, given
        return True

    @contextmanager
    def beside(self, lists: ReplicaLists) -> Iterator[None]:
        """Let lists be ordered as if these had been given, and count none of them in the end."""
        self._counted.count(lists)
        self._counted.settle()
        yield
        self.undo()
        self._counted.count(lists, -1)

    def undo(self) -> None:
        """Count nothing of the request any more."""
        for counts, number, more in self._done:
            counts[number] -= more
        self._done.clear()


def _are_sought(state: ClusterState, *, ignore_rack: bool, replicas: int) -> bool:
    """Whether failovers are counted for such lists."""
    ring = state.ring
    if replicas < 2 or ignore_rack or not ring.size:
        return False
    known: bool | None = ring.kept.get("failovers")
    if known is None:
        racks = {spu.rack for spu in ring.described()}
        alone = state.online_count - state.racked_count
        known = (len(racks) + alone) * len(state.spus) <= COUNTS_MAX
        if len(racks) in (1, ring.size) and len(state.spus) > SPUS_MAX_WITHOUT_RACKS:
            known = False
        ring.kept["failovers"] = known
    return known


def demoted_last(field: PlacementField, row: list[int]) -> None:
    """Let demoted followers of a list of places stand last, in place."""
    kinds, kind_of = field.kinds, field.kind_of
    row[1:] = sorted(row[1:], key=lambda at: kinds[kind_of[at]].is_last)
