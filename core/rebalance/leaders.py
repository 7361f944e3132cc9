"""Who leads which list after a rebalance: even over the SPUs, then within each topic.

Rules, each before the next:
1. The sum over SPUs of leads squared ÷ capacity is the least that the lists permit.
2. No SPU leads more than twice its fair share of a topic, rounded up, while the leads can pass
   along lists to SPUs below theirs. The fair share is by capacity, over those that may lead lists
   of the topic.
3. Within each topic the squares are small: leads pass along paths that make their sum smaller.

Example: `[0, 1], [1, 2], [0, 2]` is led 2, 1, 0 times → `[0, 1], [1, 2], [2, 0]`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

import numpy as np
from spu_assigner.core.base.replica_lists import IdArray, IdMatrix
from spu_assigner.core.placement.leaders import Hop, KeptKeys, LedLists, path_to
from spu_assigner.core.state.ledger import CountArray

LOOKS_MAX: Final = 750_000  # at members of lists; some 1 s
BOUND_LOOKS_MAX: Final = 4_000  # likewise, for one lead beyond its bound of a topic,
SPREAD_LOOKS_MAX: Final = 64  # and for one within it, beside those at its own lists
FREE: Final = -1  # no topic: any list may come next on a path
NO_HOP: Final[Hop] = (-1, -1)  # from a lead that stays to one that makes up for it

Node = tuple[int, int]  # an SPU, and the topic of the list that it must hand on; FREE: of any


def even_leaders(
    topics: IdArray, places: IdMatrix, led: CountArray, capacities: CountArray
) -> tuple[dict[int, int], bool]:
    """Choose leaders of lists, one below the other, whose leader is an SPU that may lead.

    `topics` are those of the lists; `places` has the positions of the members, len(capacities) for
    those that may not lead; `led` is what SPUs lead, other lists too.

    Returns the new leaders by list, and whether the search ended at its limit.
    """
    able = places < len(capacities)
    numbers = np.flatnonzero(able[:, 0] & (able.sum(axis=1) > 1))
    rows = [[spu for spu in row if spu < len(capacities)] for row in places[numbers].tolist()]
    before = [row[0] for row in rows]
    lists = _TopicLists(rows, topics[numbers].tolist(), led.tolist(), capacities.tolist())
    lists.even_out()
    lists.spread()
    changed = zip(numbers.tolist(), rows, before, strict=True)
    leader_of = {number: row[0] for number, row, leader in changed if row[0] != leader}
    return leader_of, lists.looks <= 0


class _TopicLists(LedLists):
    """The lists of several topics."""

    def __init__(
        self, rows: list[list[int]], topics: list[int], led: list[int], capacities: list[int]
    ) -> None:
        capacities = [capacity or 1 for capacity in capacities]
        counts = KeptKeys(led, capacities)
        counts.keys = [counts.key_now(spu) for spu in range(len(led))]
        super().__init__(counts, rows, LOOKS_MAX, topics)
        self._sizes: dict[int, tuple[int, int]] = {}  # lists of topics, slots that may lead them
        begin = 0
        for topic, count in Counter(topics).items():  # They are ascending.
            able = set[int]().union(*rows[begin : begin + count])
            self._sizes[topic] = count, sum(capacities[spu] for spu in able)
            begin += count

    def _bound(self, spu: int, topic: int) -> int:
        """Twice the fair share of the topic, rounded up."""
        lists, slots = self._sizes[topic]
        return -(-2 * lists * self.counts.capacities[spu] // slots)

    def spread(self) -> None:
        """Rules 2 and 3."""
        has_changed = True
        while has_changed and self.looks > 0:
            has_changed = False
            for spu in sorted(self.led):
                for topic in list(self.led[spu]):
                    while path := self._way_out(spu, topic):
                        self.pass_on(path)
                        has_changed = True

    def _way_out(self, start: int, topic: int) -> list[Hop]:
        """How a lead of the topic leaves an SPU so that no other goes beyond its bound, and the
        cluster stays as even: to one with as much room as the SPU leaves, or back to it.

        Unless it is one beyond its bound, each hop keeps the sum of squares below what it was. If
        that one finds no way, it may go where the cluster becomes less even, and a lead of an SPU
        that makes up for it goes on.
        """
        led = self.led_of(start, topic)
        if led < 2 or self.looks <= 0:
            return []
        most, is_beyond = self.counts.last(start), led > self._bound(start, topic)
        last = self.looks - (BOUND_LOOKS_MAX if is_beyond else SPREAD_LOOKS_MAX + 4 * led)
        before: dict[Node, tuple[Node, Hop]] = {}
        ends: list[Node] = []  # where it could stay, were the cluster not less even then
        queue: list[tuple[Node, int]] = [((start, topic), 0)]
        for node, more in queue:
            own = self.led.get(node[0], {})
            for of in own if node[1] == FREE else (node[1],):
                for number in own[of]:
                    for taker in self.rows[number][1:]:
                        self.looks -= 1
                        held = self.led_of(taker, of)
                        grows = more + held - len(own[of]) + 1  # half of what the squares grow by
                        if grows >= 0 and not is_beyond:
                            continue
                        has_room, is_back = held < self._bound(taker, of), taker == start
                        following = taker, FREE if has_room else of
                        if following in before or (is_back and (of == topic or not has_room)):
                            continue
                        before[following] = node, (number, taker)
                        if not is_back and not (has_room and self.counts.keys[taker] <= most):
                            queue.append((following, grows))
                            ends += [following] * has_room
                            continue
                        path = [hop for hop in path_to(following, before) if hop != NO_HOP]
                        if len({each for each, _ in path}) == len(path):
                            return path
                if self.looks < last:
                    return []
            if is_beyond and ends and node == queue[-1][0]:
                end = min(ends, key=lambda each: self.counts.keys[each[0]])
                following_on = self._making_up_for(end[0], before.keys() | {(start, FREE)})
                before |= dict.fromkeys(following_on, (end, NO_HOP))
                queue += [(each, 0) for each in following_on]
                ends = []
        return []

    def _making_up_for(self, end: int, seen: Collection[Node]) -> list[Node]:
        """The SPUs that lead so much that, where one leads less, another may lead more."""
        self.looks -= len(self.led)
        least = self.counts.keys[end]
        leading = [spu for spu in self.led if any(self.led[spu].values())]
        nodes = [(spu, FREE) for spu in leading if self.counts.last(spu) >= least]
        return [node for node in nodes if node not in seen]
