"""The best SPUs for new lists, a whole list at a time.

A list that is begun takes its SPUs out of the heaps until it is given, so that the tops of the
heaps are always the best of each kind: a place costs one look at a tier.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

import numpy as np
from spu_assigner.core.base.resources import Need
from spu_assigner.core.constraints.work import Work
from spu_assigner.core.placement.choose import Chooser
from spu_assigner.core.placement.eligibility import PlacementField
from spu_assigner.core.placement.preference import (
    NEVER,
    POSITION_BITS,
    POSITION_MASK,
    TOPIC_MAX,
    TWOFOLD,
    Positions,
    chain_positions,
    share,
)
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ledger import CountArray

AHEAD_MIN: Final = 2**11  # shares that are known before they are needed,
AHEAD_MAX: Final = 2**20  # also for the next requests


class ListChooser(Chooser):
    """Chooses SPUs for the new lists of one topic."""

    leads: Positions

    def __init__(
        self, state: ClusterState, field: PlacementField, need: Need | None, *, replicas: int
    ) -> None:
        """`replicas`: about so many are to come."""
        ahead = min(max(replicas, AHEAD_MIN), AHEAD_MAX) // max(field.size, 1)
        super().__init__(state, field, need, ahead=1 + ahead)
        self._floor = min(filter(None, map(self.room, range(field.size))), default=0)
        self._is_spent = False  # an SPU has got more replicas than shares are known

    def begin_lists(self, start: int, lists: int, replicas: int, led: CountArray) -> None:
        """Choose for so many lists of this length; `led`: see `turn_on`."""
        self._of_topic, self._twice = {}, 0
        self.is_scarce = self._floor < lists  # some SPU with room has none for all lists
        self._most = None if self.is_scarce else (lists + 1) * replicas
        self._floor -= lists
        self.keys = self._shared
        self.turn_on(start, 0, led)

    def can_go_on(self, lists: int) -> bool:
        """Whether it may begin so many lists more, after what it has handed out was given."""
        return self._floor >= lists and not self._is_spent

    def take_list(self, length: int, work: Work, first: Sequence[int] = ()) -> list[int] | None:
        """The best list of this length that begins so, as places in the field; None: too few SPUs
        have room, or a `max` or `min` cannot be held. Its SPUs are handed out by `commit`, or given
        back by `put_back`, before another one is taken."""
        field, fronts, heaps, mark = self.field, self._fronts, self._heaps, work.mark
        at_position = self._positions.at
        if self.table is not None:
            work.look(length * self.table.looks)
            return self._take_of_many(length, first)
        turn, row, keys, kind_of = field.first_turn, [*first], self.keys, field.kind_of
        if first:
            self.take_out(first)
            for at in first:
                turn = field.turn_after(turn, kind_of[at])
        for _ in range(length - len(row)):
            if turn.mark is not mark:
                turn.mark = mark
                work.look_once(turn.counts, field.looks_a_turn)
            for tier in turn.tiers:
                tops: tuple[int, ...] = tier[1](fronts)
                best = min(tops)
                if best != NEVER:
                    break
            else:
                self.put_back(row)
                return None
            at = at_position[best & POSITION_MASK] if row else self._first_of(tier[0], tops, length)
            kind = kind_of[at]
            row.append(at)
            heap = heaps[kind]
            if heap[0] == keys[at]:
                heappop(heap)
            elif keys[at] in heap:  # Equal but in position: the first takes its place.
                heap[heap.index(keys[at])] = heap[0]
                heappop(heap)
            fronts[kind] = heap[0] if heap else NEVER
            turn = turn.after.get(kind) or field.turn_after(turn, kind)
        if field.is_demanding and field.lacks(turn.counts):
            self.put_back(row)
            return None
        return row

    def take_out(self, row: Sequence[int]) -> None:
        """Take these SPUs as a list, whichever they are."""
        if self.table is None:
            for at in row:
                kind = self.field.kind_of[at]
                heap = self._heaps[kind]
                if self.keys[at] in heap:  # It may be one of those that are left out.
                    heap.remove(self.keys[at])
                    heapify(heap)
                self._fronts[kind] = heap[0] if heap else NEVER

    def put_back(self, row: Sequence[int]) -> None:
        """Let the SPUs of a list that is not given be as before."""
        if self.table is None:
            for at in row:
                kind, key = self.field.kind_of[at], self.keys[at]
                heappush(self._heaps[kind], key)
                self._fronts[kind] = min(self._fronts[kind], key)

    def commit(self, row: Sequence[int]) -> None:
        """Hand out a replica to each SPU of a list that was taken."""
        if self.table is not None:
            for at in row:
                self._change(at, 1)
            return
        counts, of_topic, first, whole = self._counts, self._of_topic, self._first, self.field.whole
        keys, heaps, fronts, position_of = self.keys, self._heaps, self._fronts, self._positions.of
        kind_of, ahead, twice = self.field.kind_of, self._ahead, self._twice
        all_shared = self._shared
        capacities, twofold = self.field.capacity_list, self._least_twofold
        for at in row:
            counts[at] = count = counts[at] + 1
            of_topic[at] = held = of_topic.get(at, 0) + 1
            given = count - first[at]
            if given < len(ahead):
                shared = ahead[given][at]
            else:
                shared, self._is_spent = self._share(at), len(ahead) > 1
            all_shared[at] = shared
            if shared == NEVER:
                keys[at] = NEVER
                continue
            low = held if held < TOPIC_MAX else TOPIC_MAX
            now = shared | low << POSITION_BITS | position_of[at]
            if held >= twofold and held * whole >= twice * capacities[at]:
                now += TWOFOLD
            keys[at] = now
            heap = heaps[kind_of[at]]
            heappush(heap, now)
            fronts[kind_of[at]] = heap[0]

    def turn_on(self, start: int, turn: int, led: CountArray) -> None:
        """Let positions count from another chain index, in another order.

        `led`: the share of its capacity that each SPU leads. Of equal SPUs the one that leads least
        comes first for the first place of a list, the one that leads most for the others.
        """
        positions, ranks = chain_positions(self.field.size, start, turn), self.field.rank_array
        self._positions = Positions(positions, -led)
        self.leads = Positions(positions, *(() if ranks is None else (ranks,)), led)
        self._take_keys(np.array(self.keys, dtype=np.int64))

    def front_at(self, kind: int) -> int | None:
        """The best SPU of a kind; None: it has none with room."""
        front = self._fronts[kind] if self.table is None else self.front(kind, ())
        return None if front == NEVER else self.at_of_key(front)

    def room(self, at: int) -> int:
        """How many replicas an SPU has room for."""
        given = self._counts[at] - self._first[at]
        rooms = [
            (has[at] - used[at]) // takes - given
            for _, takes, _, used, has in self._resources
            if takes
        ]
        return max(min(rooms), 0)

    def can_lead(self, at: int) -> bool:
        """Whether an SPU has room for a replica that leads."""
        given = self._counts[at] - self._first[at]
        return all(
            not leader or used[at] + takes * given + leader <= has[at]
            for _, takes, leader, used, has in self._resources
        )

    def lead_share(self, at: int) -> int:
        """The dominant share of an SPU with a replica that leads."""
        given = self._counts[at] - self._first[at]
        return max(
            share(used[at] + takes * given + leader, has[at])
            for _, takes, leader, used, has in self._resources
        )

    def _first_of(self, kinds: Sequence[int], tops: Sequence[int], length: int) -> int:
        """The SPU of these kinds, with these best keys, for the first place of a new list: of those
        kinds that come to be in it, and of equal SPUs of each, the one that leads least."""
        if len(kinds) > length:
            most = sorted(tops)[length]
            kinds = [kind for kind, top in zip(kinds, tops, strict=True) if top < most]
        keys, at_position, best = self.keys, self.leads.at, POSITION_MASK
        for kind in kinds:
            heap = self._lead_heaps[kind]
            while heap:
                entered = heap[0]
                position = entered & POSITION_MASK
                now = keys[at_position[position]]
                if now ^ entered <= POSITION_MASK:  # Equal but in position.
                    best = min(best, position)
                    break
                if now == NEVER:
                    heappop(heap)
                else:
                    heapreplace(heap, now & ~POSITION_MASK | position)
        return at_position[best]

    def _take_of_many(self, length: int, first: Sequence[int]) -> list[int] | None:
        """The same, of very many kinds."""
        row = [self.field.id_list[at] for at in first]
        while len(row) < length:
            spu_id = self.best(row)
            if spu_id is None:
                return None
            row.append(spu_id)
        field = self.field
        if field.is_demanding and field.lacks(field.counts(map(field.of_id, row))):
            return None
        return [field.at_of[spu_id] for spu_id in row]
