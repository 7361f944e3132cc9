"""The best SPU for one place of a list, as replicas are handed out.

Each kind has a heap of the keys of its SPUs (`preference`). A key that has risen since it was
entered is corrected when it comes to the top; one that has fallen is entered again. So a place
costs O(tier + log n), and what was kept from before never changes what is chosen.

Very many kinds (each SPU on a rack of its own) are compared in arrays (`many_kinds`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush, heapreplace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import Order
from spu_assigner.core.base.replica_lists import tally
from spu_assigner.core.base.resources import Need
from spu_assigner.core.constraints.rule_table import binding_constraints
from spu_assigner.core.placement.eligibility import PlacementField, ring_field, ruled_field
from spu_assigner.core.placement.many_kinds import KindTable
from spu_assigner.core.placement.preference import (
    NEVER,
    POSITION_BITS,
    POSITION_MASK,
    SHARE_SHIFT,
    TOPIC_MAX,
    TWOFOLD,
    Positions,
    chain_positions,
    share,
    shares,
    slot_share,
    slot_shares,
)
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ledger import CountArray
from spu_assigner.core.state.ring import Ring

KINDS_SCANNED_MAX: Final = 256  # one by one, for new lists; those of others differ more

Changes = Mapping[str | None, Mapping[int, int]]  # of each resource, None: of replicas; by SPU


class _Resource(NamedTuple):
    """One resource of the SPUs of a field; the first one is replica slots."""

    asks: int  # what must be free for a replica: `takes`, or what a leader takes if that is more
    takes: int  # what a replica takes,
    leader: int  # and one that leads
    used: list[int]  # before this one hands out any; and what leaders take beside
    has: list[int]


class Chooser:
    """Chooses SPUs for places of lists, of one topic after another."""

    def __init__(
        self,
        state: ClusterState,
        field: PlacementField,
        need: Need | None,
        *,
        changes: Changes | None = None,
        ahead: int = 0,
    ) -> None:
        """Of the SPUs of a field; it chooses after `begin`.

        Args:
            need: what a replica takes; there is room for it as a leader, too, but for new lists.
            changes: of what SPUs hold, since the state was as it is.
            ahead: lists are new, and of each SPU so many shares are known before they are needed.
        """
        self.filled: list[int] = []  # SPUs that became saturated, in this order
        self.field = field
        self._looks = 0
        self._is_new = ahead > 0
        self._is_plain = need is None
        self._resources, used, has = self._all_resources(state, need, changes)
        self._first = self._resources[0].used  # replicas on each SPU before,
        self._counts = self._first.copy()  # and now
        self.leads: Positions | None = None  # in the order in which SPUs are to lead
        self._of_topic: dict[int, int] = {}  # replicas of the topic on SPUs that have some
        self._twice = 0  # replicas of the topic, of which an SPU holds a fair share by capacity
        is_known = ahead and all(each.takes == each.leader for each in self._resources)
        # Level 5 of each SPU, as a part of its key, after it got so many; `NEVER`: it has no room.
        self._ahead = self._levels(used, has, ahead if is_known else 1)
        self._shared = self._ahead[0].copy()  # and now
        self._most: int | None = None  # SPUs of a kind that can come to be chosen
        self.keys: list[int] = []  # levels 4 to 8 of each SPU; `NEVER`: it has no room
        self._entered = 0  # keys that fell, since heaps were made
        self._heaps: list[list[int]] = []  # of each kind
        self._lead_heaps: list[list[int]] = []  # likewise, of new lists
        self._fronts: list[int] = []  # of each kind its best key, for `take_list`
        self.table: KindTable | None = None  # if there are very many kinds

    def begin(self, start: int) -> None:
        """Choose by positions from this chain index on."""
        self._positions = Positions(chain_positions(self.field.size, start))
        self._take_keys(np.array(self._shared, dtype=np.int64))

    def bind(self, of_topic: Mapping[int, int], total: int) -> None:
        """Choose for another topic from now on: SPUs hold so many of its replicas, by id, of a
        total with those that are to come."""
        before, twice, at_of = self._of_topic, self._twice, self.field.at_of
        now = {at_of[each]: n for each, n in of_topic.items() if n and each in at_of}
        self._of_topic, self._twice = now, 2 * total
        self._least_twofold = (
            self._twice * min(self.field.capacity_list, default=0) // self.field.whole
        )
        for at in {**before, **now}:
            if self._twice != twice or before.get(at, 0) != now.get(at, 0):
                self._rekey(at)
        # Keys that are entered again stay in their heaps; `take_list` looks at no outdated key.
        if self._entered > self.field.size or (self.leads is not None and self._of_topic):
            self._take_keys(np.array(self.keys, dtype=np.int64))

    def best(
        self, row: Collection[int], *, without: Collection[int] = (), wanted: int | None = None
    ) -> int | None:
        """The best SPU for one more replica of a list, none of these; None: no other may have it.

        `wanted`: how many the list is to have in the end; None: one more. A replica that helps no
        `min` is refused where all that are to come are demanded by one.
        """
        field = self.field
        alike = [*map(field.of_id, row)]
        counts = field.counts(alike)
        is_demanded = False
        if field.is_demanding and wanted is not None:
            is_demanded = field.lacks(counts) >= wanted - len(row)
        taken = {*row, *without} if without else row
        if self.table is not None:
            self._looks += self.table.looks
            key = self.table.best([cell for kind in alike for cell in kind.cells], taken)
        else:
            key = self._best_of_tiers(counts, taken)
        if key == NEVER:
            return None
        at = self.at_of_key(key)
        if is_demanded and all(counts[i] >= field.mins[i] for i in field.kind_at(at).cells):
            return None
        return field.id_list[at]

    def _best_of_tiers(self, counts: Sequence[int], taken: Collection[int]) -> int:
        for tier, _ in self.field.turn(tuple(counts)).tiers:
            self._looks += len(tier)
            best = min([self.front(kind, taken) for kind in tier])
            if best != NEVER:
                return best
        return NEVER

    def take(
        self, row: Collection[int], *, without: Collection[int] = (), wanted: int | None = None
    ) -> int | None:
        """The same, which is handed out."""
        spu_id = self.best(row, without=without, wanted=wanted)
        if spu_id is not None:
            self._change(self.field.at_of[spu_id], 1)
        return spu_id

    def give(self, spu_id: int) -> bool:
        """Hand out a replica to this SPU, if it has room for it."""
        at = self.field.at_of[spu_id]
        if self.keys[at] == NEVER:
            return False
        self._change(at, 1)
        return True

    def release(self, spu_id: int) -> None:
        """A replica of the topic leaves an SPU, which may be outside the field."""
        at = self.field.at_of.get(spu_id)
        if at is not None:
            self._change(at, -1)

    def pass_lead(self, before: int, after: int) -> None:
        """A list is led by another SPU; either may be outside the field."""
        for spu_id, more in ((before, -1), (after, 1)):
            at = self.field.at_of.get(spu_id)
            if at is not None:
                self.count_lead(at, more)
                self._rekey(at)

    def take_looks(self) -> int:
        """What was looked at since the last call, beside what each replica takes."""
        looks, self._looks = self._looks, 0
        return looks

    def _take_keys(self, levels: CountArray) -> None:
        """Levels 4 to 6 of each SPU, to which the position is added; `NEVER`: it has no room."""
        has_room, levels = levels != NEVER, levels & ~POSITION_MASK
        keys = np.where(has_room, levels | self._positions.array, NEVER)
        self.keys, self._entered = keys.tolist(), 0
        self._heaps = self._all_heaps(keys)
        self._fronts = [heap[0] if heap else NEVER for heap in self._heaps]
        if self.leads is not None:
            self._lead_heaps = self._all_heaps(np.where(has_room, levels | self.leads.array, NEVER))
        if len(self.field.kinds) > (KINDS_SCANNED_MAX if self._is_new else KINDS_SCANNED_MAX // 8):
            self.table = KindTable(self.field, self.front)

    def at_of_key(self, key: int) -> int:
        """The place in the field of the SPU that has this key."""
        return self._positions.at[key & POSITION_MASK]

    def front(self, kind: int, taken: Collection[int]) -> int:
        """The key of the best SPU of a kind that is none of these; `NEVER`: it has none."""
        heap, keys, ids = self._heaps[kind], self.keys, self.field.id_list
        aside, found = list[int](), NEVER
        while heap and found == NEVER:
            entered = heap[0]
            at = self.at_of_key(entered)
            if keys[at] == entered:
                aside.append(heappop(heap))
                found = NEVER if ids[at] in taken else entered
            elif entered < keys[at] != NEVER:  # It has risen.
                heapreplace(heap, keys[at])
            else:
                heappop(heap)
        for each in aside:
            heappush(heap, each)
        return found

    def _change(self, at: int, more: int) -> None:
        field = self.field
        self._counts[at] += more
        self._of_topic[at] = max(self._of_topic.get(at, 0) + more, 0)
        if more > 0 and self._counts[at] == field.capacity_list[at]:
            self.filled.append(field.id_list[at])
        self._rekey(at)

    def count_lead(self, at: int, more: int = 1) -> None:
        """A replica that is counted, or is next, leads; or it leads no longer."""
        for _, takes, leader, used, _ in self._resources:
            used[at] += more * (leader - takes)

    def _rekey(self, at: int) -> None:
        self._shared[at] = self._share(at)
        before, now = self.keys[at], self._key(at)
        self.keys[at] = now
        if now < before:
            kind = self.field.kind_of[at]
            heappush(self._heaps[kind], now)
            self._entered += 1
            if self.table is not None:
                self.table.enter(kind, now)

    def _share(self, at: int) -> int:
        """Level 5 of an SPU as a part of its key; `NEVER`: it has no room."""
        given, largest = self._counts[at] - self._first[at], 0
        for asks, takes, _, used, has in self._resources:
            now = used[at] + takes * given
            if asks and now + asks > has[at]:
                return NEVER
            of_this = slot_share if self._is_plain else share
            largest = max(largest, of_this(now + takes, has[at]))
        return largest << SHARE_SHIFT

    def _key(self, at: int) -> int:
        """Levels 4 to 8 of an SPU as it is now."""
        shared, held = self._shared[at], self._of_topic.get(at, 0)
        if shared == NEVER:
            return NEVER
        low = min(held, TOPIC_MAX) << POSITION_BITS | self._positions.of[at]
        is_twofold = held and held * self.field.whole >= self._twice * self.field.capacity_list[at]
        return (shared | low) + (TWOFOLD if is_twofold else 0)

    def _all_resources(
        self, state: ClusterState, need: Need | None, changes: Changes | None
    ) -> tuple[list[_Resource], CountArray, CountArray]:
        """Replica slots and, where a topic needs some, every other resource of the SPUs: also what
        a replica does not take counts as a share. With what is used, and what there is of them;
        shape (resources, SPUs)."""
        field = self.field
        takes: dict[str | None, tuple[int, int]] = {None: (1, 1)}
        by_name = () if need is None else need.by_name()
        takes |= {name: (follower, leader) for name, follower, leader in by_name}
        others, has, has_lists = field.resources(frozenset(name for name, *_ in by_name))
        used = state.ledger.counts(field.ids)[np.newaxis]
        if others:
            of_each = state.ledger.used_of_each(field.ids, others)
            used = np.concatenate((used, of_each), dtype=np.int64, casting="unsafe")
        names = None, *others
        if changes:
            used += np.array(
                [[changes.get(name, {}).get(i, 0) for i in field.id_list] for name in names],
                dtype=np.int64,
            )
        resources = []
        for name, of_spus, has_list in zip(names, used.tolist(), has_lists, strict=True):
            follower, leader = takes.get(name, (0, 0))
            asks = follower if self._is_new else max(follower, leader)
            resources.append(_Resource(asks, follower, leader, of_spus, has_list))
        return resources, used, has

    def _levels(self, used: CountArray, has: CountArray, count: int) -> list[list[int]]:
        """Level 5 of each SPU after it got 0, 1, … of so many replicas."""
        asks, takes = np.array([each[:2] for each in self._resources]).T[:, :, None, None]
        after = used[:, None] + takes * np.arange(1, count + 1)[:, None]
        is_full = ((asks > 0) & (after + asks - takes > has[:, None])).any(axis=0)
        levels = (slot_shares if self._is_plain else shares)(after, has[:, None]).max(axis=0)
        found: list[list[int]] = np.where(is_full, NEVER, levels << SHARE_SHIFT).tolist()
        return found

    def _all_heaps(self, keys: CountArray) -> list[list[int]]:
        """The keys of each kind, ascending; of no more SPUs than can come to be chosen."""
        by_kind, most = keys[self.field.order], self._most
        heaps = []
        for begin, end in pairwise(self.field.ends):
            of_kind = by_kind[begin:end]
            if most is not None and end - begin > 2 * most:
                of_kind = np.partition(of_kind, most)[: most + 1]
            of_kind.sort()
            heap: list[int] = of_kind.tolist()
            while heap and heap[-1] == NEVER:
                heap.pop()
            heaps.append(heap)
        return heaps


def topic_chooser(
    state: ClusterState, name: str, *, ring: Ring | None = None, changes: Changes | None = None
) -> Chooser:
    """Chooses for the lists of a living topic; on another ring, or after changes."""
    topic, constraints = state.topics[name], binding_rules(state, name)
    if constraints is None:
        ring = state.ring if ring is None else ring
        field = ring_field(state, ring, ignore_rack=topic.ignore_rack)
    else:
        field = ruled_field(state, name, constraints, ignore_rack=topic.ignore_rack)
    start = state.chain_index(Order.BALANCED) if state.ring.size else 0
    chooser = Chooser(state, field, topic.need, changes=changes)
    chooser.begin(start)
    bind_topic(chooser, state, name)
    return chooser


def bind_topic(chooser: Chooser, state: ClusterState, name: str) -> None:
    """Let a chooser go on with another living topic, to whose replicas the same rules apply."""
    topic = state.topics[name]
    lists = topic.replicas.lists()
    ids, counts = tally(lists.flat())
    chooser.bind(dict(zip(ids, counts, strict=True)), sum(topic.lengths_wanted(len(lists))))


def binding_rules(state: ClusterState, name: str) -> Constraints | None:
    """The rules for new replicas of a living topic; None: they may go to the ring as it is."""
    topic = state.topics[name]
    if topic.policy is not Policy.BALANCED and topic.constraints is None:
        return None
    return binding_constraints(state, name, topic.constraints)
