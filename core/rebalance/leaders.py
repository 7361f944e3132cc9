"""Who leads which list after a rebalance: even over the SPUs, then within each topic.

Rules, each before the next:
1. The sum over SPUs of leads squared ÷ capacity is the least that the lists permit. So two SPUs of
   equal capacity differ by at most one wherever some order of the lists lets them.
2. No SPU leads more than twice its fair share of a topic, rounded up, while the leads can pass
   along lists to SPUs below theirs. The fair share is by capacity, over those that may lead lists
   of the topic.
3. Within each topic the squares are small: single leads that cost the cluster nothing, and
   exchanges of two lists, until none of them makes the sum smaller.

Leads pass along paths: the first SPU leads one list less, the last one more, those between as many
as before. An SPU without a path that helps is done with all that can be reached from it: whoever
comes later leads no more than it.

Worked example: `[0, 1], [1, 2], [0, 2]` is led 2, 1, 0 times; no list leads from 0 straight to the
fair order but the last: `[0, 1], [1, 2], [2, 0]`.

Source: Harvey, Ladner, Lovász, Tamir, "Semi-matchings for bipartite graphs and load balancing",
2006 (paths to the least loaded until none is left are optimal for all convex costs).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

import numpy as np
from spu_assigner.core.base.replica_lists import IdArray, IdMatrix
from spu_assigner.core.state.ledger import CountArray

SHARE_BITS: Final = 32  # of the fraction of a lead by capacity
LOOKS_MAX: Final = 1_500_000  # at members of lists; some 2 s
BOUND_LOOKS_MAX: Final = 200_000  # likewise, for leads beyond their bounds of topics,
PATH_LOOKS_MAX: Final = 4_000  # and for one of them
EXCHANGES: Final = 16  # lists that are looked at for one exchange
GOLDEN_STEP: Final = 1_640_531_513  # a prime near 2**32 / phi**2: multiples lie all over
FREE: Final = -1  # no topic: any list may come next on a path

Node = tuple[int, int]  # an SPU, and the topic of the list that it must hand on; FREE: of any
Hop = tuple[int, int]  # a list, and who leads it from now on


@dataclass(frozen=True, slots=True)
class EvenedLeaders:
    """What came of it."""

    leader_of: dict[int, int]  # of the lists that another member leads
    is_cut: bool  # the search ended at its limit


def even_leaders(
    topics: IdArray, places: IdMatrix, led: CountArray, capacities: CountArray
) -> EvenedLeaders:
    """Choose leaders of lists, one below the other, whose leader is an SPU that may lead.

    `topics` are those of the lists; `places` has the positions of the members, len(capacities) for
    those that may not lead; `led` is what SPUs lead, other lists too.
    """
    leads = _LeadSearch(topics, places, led, capacities)
    if not leads.leader:
        return EvenedLeaders({}, is_cut=False)
    leads.even_out()
    has_changed = True
    while has_changed:
        has_changed = leads.bound_topics()
        has_changed |= leads.spread_topics()
    first = places[:, 0].tolist()
    return EvenedLeaders(
        {row: spu for row, spu in leads.leader.items() if spu != first[row]}, leads.is_cut
    )


class _LeadSearch:
    def __init__(
        self, topics: IdArray, places: IdMatrix, led: CountArray, capacities: CountArray
    ) -> None:
        spus = len(capacities)
        rows = np.flatnonzero((places[:, 0] < spus) & ((places < spus).sum(axis=1) > 1))
        self._ids, self._topics, self._places = rows, topics[rows], places[rows]
        self._count, self._looks = spus, 0
        self._led, self._capacities = led.tolist(), np.maximum(capacities, 1).tolist()
        self._topic = dict(zip(rows.tolist(), self._topics.tolist(), strict=True))
        lists = self._places.tolist()
        for at in np.flatnonzero((self._places == spus).any(axis=1)).tolist():
            lists[at] = [spu for spu in lists[at] if spu < spus]
        self._members = dict(zip(rows.tolist(), lists, strict=True))
        self.leader = {row: members[0] for row, members in self._members.items()}
        self._rows: list[dict[int, None]] = [{} for _ in range(spus)]  # that each leads
        for row, spu in self.leader.items():
            self._rows[spu][row] = None
        leads = zip(self.leader.values(), self._topic.values(), strict=True)
        self._of_topic: dict[Node, int] = Counter(leads)  # how many of each topic each leads
        self._by_topic: dict[int, dict[int, dict[int, None]]] = {}  # their lists, once asked for
        self._bound_looks = 0
        self._more, self._less = [0] * spus, [0] * spus
        for spu in range(spus):
            self._weigh(spu)
        self._lists = np.bincount(self._topics).tolist() if len(rows) else []  # of each topic
        width = spus + 1
        pairs = np.sort((self._topics.astype(np.int64)[:, None] * width + self._places).ravel())
        pairs = pairs[np.diff(pairs, prepend=-1) > 0]
        of, able = np.divmod(pairs[pairs % width < spus], width)
        slots = np.bincount(of, weights=np.maximum(capacities, 1)[able])
        self._slots = slots.astype(np.int64).tolist()  # of those that may lead lists of a topic

    @property
    def is_cut(self) -> bool:
        return self._looks > LOOKS_MAX

    def even_out(self) -> None:
        """Rule 1: in single steps, then along paths, the SPU with the most by capacity first."""
        more, less, has_changed = self._more, self._less, True
        while has_changed and not self.is_cut:
            has_changed = False
            rows = self._improvable()
            self._looks += len(rows)
            for row in rows:
                members = self._members[row]
                least = min([more[spu] for spu in members])
                if least < less[self.leader[row]]:
                    best = [spu for spu in members if more[spu] == least]
                    if len(best) > 1:
                        best.sort(key=lambda spu: self._in_topic(spu, row))
                    self._pass([(row, best[0])])
                    has_changed = True
        heap = [(-self._less[spu], spu) for spu in range(self._count) if self._rows[spu]]
        heapify(heap)
        done: set[int] = set()
        while heap and not self.is_cut:
            key, spu = heappop(heap)
            if spu in done or -key != self._less[spu]:
                continue
            path = self._way_down(spu, done)
            self._pass(path)
            for each in (spu, path[-1][1]) if path else ():
                heappush(heap, (-self._less[each], each))

    def _way_down(self, start: int, done: set[int]) -> list[Hop]:
        """A shortest path to an SPU that may have one lead more; none: all it reaches are done."""
        most = self._less[start]
        before: dict[Node, tuple[Node, int]] = {}
        queue: list[Node] = [(start, FREE)]
        seen = {start}
        for node in queue:
            for row in self._rows[node[0]]:
                for spu in self._members[row]:
                    self._looks += 1
                    if spu in seen or spu in done:
                        continue
                    seen.add(spu)
                    before[spu, FREE] = node, row
                    if self._more[spu] < most:
                        return _path(before, (spu, FREE))
                    queue.append((spu, FREE))
        done |= seen
        return []

    def bound_topics(self) -> bool:
        """Rule 2; whether anything was passed."""
        beyond = sorted(
            (topic, spu)
            for (spu, topic), count in self._of_topic.items()
            if count > 1 and count > self._bound(spu, topic)
        )
        has_changed = False
        for topic, spu in beyond:
            while self._of_topic[spu, topic] > self._bound(spu, topic):
                path = self._way_out(spu, topic)
                if not path:
                    break
                self._pass(path)
                has_changed = True
        return has_changed

    def _way_out(self, start: int, topic: int) -> list[Hop]:
        """How a lead of the topic leaves an SPU so that no other goes beyond its bound, and the
        cluster stays as even: to one with as much room as the SPU leaves, or back to it."""
        before: dict[Node, tuple[Node, int]] = {}
        queue: list[Node] = [(start, topic)]
        last = min(self._bound_looks + PATH_LOOKS_MAX, BOUND_LOOKS_MAX)
        for node in queue:
            spu, bound_to = node
            rows = self._rows[spu] if bound_to == FREE else self._led_of(spu)[bound_to]
            for row in rows:
                of = self._topic[row]
                for taker in self._members[row]:
                    self._bound_looks += 1
                    if taker == spu:
                        continue
                    has_room = self._has_room(taker, row)
                    following = taker, FREE if has_room else of
                    is_back = taker == start
                    if is_back and (of == topic or not has_room):
                        continue
                    if following in before:
                        continue
                    before[following] = node, row
                    if is_back or (has_room and self._more[taker] <= self._less[start]):
                        path = _path(before, following)
                        if len({each for each, _ in path}) == len(path):
                            return path
                    else:
                        queue.append(following)
                if self._bound_looks > last:
                    return []
        return []

    def _led_of(self, spu: int) -> dict[int, dict[int, None]]:
        """The lists that an SPU leads, by topic."""
        if spu not in self._by_topic:
            found = self._by_topic[spu] = dict[int, dict[int, None]]()
            for row in self._rows[spu]:
                found.setdefault(self._topic[row], {})[row] = None
        return self._by_topic[spu]

    def spread_topics(self) -> bool:
        """Rule 3; whether anything was passed."""
        has_changed = False
        for row in self._gathered():
            leader, members = self.leader[row], self._members[row]
            held = self._in_topic(leader, row)
            self._looks += 1
            if self.is_cut:
                break
            for spu in sorted(members, key=lambda spu: self._in_topic(spu, row)):
                gain = held - self._in_topic(spu, row) - 1
                if gain <= 0 or not self._has_room(spu, row):
                    continue
                is_free = self._more[spu] <= self._less[leader]
                hops = [] if is_free else self._exchange(spu, leader, gain, row)
                if hops is not None:
                    self._pass([(row, spu), *hops])
                    has_changed = True
                    break
        return has_changed

    def _exchange(self, spu: int, other: int, gain: int, row: int) -> list[Hop] | None:
        """The list of another topic that one SPU leads and another is to lead instead."""
        for back in islice(self._rows[spu], EXCHANGES):
            self._looks += 1
            if other not in self._members[back] or self._topic[back] == self._topic[row]:
                continue
            loss = self._in_topic(other, back) - self._in_topic(spu, back) + 1
            if loss < gain and self._has_room(other, back):
                return [(back, other)]
        return None

    def _pass(self, hops: list[Hop]) -> None:
        for row, taker in hops:
            giver, topic = self.leader[row], self._topic[row]
            del self._rows[giver][row]
            if giver in self._by_topic:
                del self._by_topic[giver][topic][row]
            self._rows[taker][row] = None
            if taker in self._by_topic:
                self._by_topic[taker].setdefault(topic, {})[row] = None
            self.leader[row] = taker
            for spu, change in ((giver, -1), (taker, 1)):
                self._led[spu] += change
                self._of_topic[spu, topic] = self._of_topic.get((spu, topic), 0) + change
                self._weigh(spu)

    def _improvable(self) -> list[int]:
        """The lists that a member would lead at a lower cost, as things are."""
        led, capacities = np.array(self._led), np.array(self._capacities)
        more = np.append(((2 * led + 1) << SHARE_BITS) // capacities, np.iinfo(np.int64).max)
        less = ((2 * led - 1) << SHARE_BITS) // capacities
        ids = self._ids[more[self._places].min(axis=1) < less[self._leaders()]]
        count = len(ids)  # of all topics in turn
        turned = np.argsort(np.arange(count) * GOLDEN_STEP % max(count, 1), kind="stable")
        found: list[int] = ids[turned].tolist()
        return found

    def _gathered(self) -> list[int]:
        """The lists whose leader leads at least two more of their topic than a member."""
        base = self._topics.astype(np.int64) * (self._count + 1)
        known, leads = np.unique(base + self._leaders(), return_counts=True)
        members = base[:, None] + self._places
        at = np.minimum(np.searchsorted(known, members), len(known) - 1)
        counts = np.where(known[at] == members, leads[at], 0)
        counts[self._places == self._count] = np.iinfo(np.int64).max
        held = leads[np.searchsorted(known, base + self._leaders())]
        found: list[int] = self._ids[counts.min(axis=1) <= held - 2].tolist()
        return found

    def _leaders(self) -> CountArray:
        return np.fromiter(self.leader.values(), dtype=np.int64, count=len(self.leader))

    def _weigh(self, spu: int) -> None:
        """Note what one lead more adds to the sum of squares, and what the last one did."""
        led, capacity = self._led[spu], self._capacities[spu]
        self._more[spu] = ((2 * led + 1) << SHARE_BITS) // capacity
        self._less[spu] = ((2 * led - 1) << SHARE_BITS) // capacity

    def _in_topic(self, spu: int, row: int) -> int:
        return self._of_topic.get((spu, self._topic[row]), 0)

    def _has_room(self, spu: int, row: int) -> bool:
        return self._in_topic(spu, row) < self._bound(spu, self._topic[row])

    def _bound(self, spu: int, topic: int) -> int:
        """Twice its fair share of the topic, rounded up."""
        asked = 2 * self._lists[topic] * self._capacities[spu]
        return int(-(-asked // self._slots[topic]))


def _path(before: dict[Node, tuple[Node, int]], last: Node) -> list[Hop]:
    """The hops that lead there, the first one first."""
    hops = []
    node = last
    while node in before:
        previous, row = before.pop(node)
        hops.append((row, node[0]))
        node = previous
    return hops[::-1]
