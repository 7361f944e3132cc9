"""The leaders of a request's lists, and the first followers: the failover targets.

Lists are led one by one as they are made, by the levels of `core.state.leading`; then leadership
passes along the lists of the request, so that one does not depend on which others came before it.

The failover target leads when the leader's rack fails: the follower on another rack that has taken
over least, by capacity and over all topics (`core.state.takeovers`). It comes second; then the
others, demoted ones last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, TypeVar

from spu_assigner.core.placement.eligibility import PlacementField
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.leading import SHARE_SHIFT, LeaderKeys, Numbers
from spu_assigner.core.state.ring import Ring
from spu_assigner.core.state.takeovers import COUNTS_MAX, NEVER, Counts, Takeovers

# Without racks only SPUs fail: with more of them than this nearly all follow each in turn.
SPUS_MAX_WITHOUT_RACKS: Final = 16
LOOKS: Final = 20_000  # at members of lists, to even out leaders of a request,
LOOKS_A_LIST: Final = 16  # and as many for each list of it
PART: Final = 0.25  # of a list, with which one more is compared
GONE_MAX: Final = 512  # lists that a dict has lost, which each look passes, until it is made anew
NEARBY: Final = 4  # lists after one that may exchange followers with it

Hop = tuple[int, int]  # a list, and its leader from now on
Node = TypeVar("Node")


class KeptKeys(LeaderKeys):
    """Keys that are kept, as each is looked at more often than it changes."""

    keys: Numbers  # the levels of each SPU with one list more

    def __init__(self, led: Numbers, capacities: Numbers, whole: int = 0) -> None:
        super().__init__(led, capacities, whole)
        self.lasts: dict[int, int] = {}  # of SPUs that have got a list

    def last(self, spu: int) -> int:
        """Levels 1 to 3 before the last of its lists."""
        return super().last(spu) if (known := self.lasts.get(spu)) is None else known

    def add(self, spu: int, more: int = 1) -> None:
        """Count a list that an SPU leads, or take it out."""
        self.led[spu] += more
        if self.lists:
            self.of_topic[spu] = self.of_topic.get(spu, 0) + more
        if more > 0:
            self.lasts[spu] = self.keys[spu] >> SHARE_SHIFT << SHARE_SHIFT
        else:
            self.lasts.pop(spu, None)
        self.keys[spu] = self.key_now(spu)


class LedLists:
    """Lists, leader first, among whose members leadership passes; they change in place.

    Along a path the first SPU comes to lead one list less, the last one more, those between as many
    as before. Paths to smaller keys, until none is left, are optimal for all convex costs (Harvey,
    Ladner, Lovász, Tamir, "Semi-matchings for bipartite graphs and load balancing", 2006).
    """

    def __init__(
        self,
        counts: KeptKeys,
        rows: Sequence[list[int]],
        looks: int,
        topics: Sequence[int] | None = None,
    ) -> None:
        """`looks`: at members, until it ends; `topics`: of each list; None: they are all of one."""
        self.counts, self.rows, self.looks = counts, rows, looks
        self._topics = [0] * len(rows) if topics is None else topics
        self.led: dict[int, dict[int, dict[int, None]]] = {}  # lists by leader and topic
        for number, row in enumerate(rows):
            self.led.setdefault(row[0], {}).setdefault(self._topics[number], {})[number] = None

    def even_out(self) -> None:
        """Let the sum over SPUs of lists led squared ÷ capacity be the least that there is."""
        counts = self.counts
        least = min([counts.keys[spu] for row in self.rows for spu in row], default=0)
        heap = [(-counts.last(spu), spu) for spu in self.led]
        heapify(heap)
        done: set[int] = set()
        while heap and self.looks > 0:
            last, spu = heappop(heap)
            if -last <= least:
                break
            if spu in done or -last != counts.last(spu):
                continue
            path = self._way_down(spu, -last, done)
            self.pass_on(path)
            for each in (spu, path[-1][1]) if path else ():
                heappush(heap, (-counts.last(each), each))

    def _way_down(self, start: int, most: int, done: set[int]) -> list[Hop]:
        """A shortest path to an SPU of a smaller key; none: all that it reaches are done."""
        keys, rows, queue = self.counts.keys, self.rows, [start]
        before: dict[int, tuple[int, Hop]] = {}
        for spu in queue:
            for numbers in self.led.get(spu, {}).values():
                for number in numbers:
                    self.looks -= len(rows[number])
                    for other in rows[number]:
                        if other in before or other == start or other in done:
                            continue
                        before[other] = spu, (number, other)
                        if keys[other] < most:
                            return path_to(other, before)
                        queue.append(other)
        done.update(queue)
        return []

    def led_of(self, spu: int, topic: int) -> int:
        """How many lists of the topic an SPU leads."""
        return len(self.led.get(spu, {}).get(topic, ()))

    def pass_on(self, path: Iterable[Hop]) -> None:
        """Let these SPUs lead these lists."""
        for number, taker in path:
            row, topic = self.rows[number], self._topics[number]
            giver, at = row[0], row.index(taker)
            row[0], row[at] = taker, giver
            left = self.led[giver][topic]
            del left[number]
            if not len(left) % GONE_MAX:
                self.led[giver][topic] = dict.fromkeys(left)
            self.led.setdefault(taker, {}).setdefault(topic, {})[number] = None
            self.counts.add(giver, -1)
            self.counts.add(taker)


def path_to(node: Node, before: Mapping[Node, tuple[Node, Hop]]) -> list[Hop]:
    """The hops that lead there, the first one first."""
    hops = []
    while node in before:
        node, hop = before[node]
        hops.append(hop)
    return hops[::-1]


def order_failovers(rows: Sequence[list[int]], field: PlacementField, counted: Takeovers) -> None:
    """Put the failover target of each list second, in place, beside what is counted: the follower
    that has taken over least, or one of a list nearby, for an SPU of the same kind."""
    ids, kind_of, weight = field.id_list, field.kind_of, counted.pair_weight
    parts = [1 / (capacity or 1) for capacity in field.capacity_list]
    found: list[tuple[Counts, Counts, int]] = []
    for number, row in enumerate(rows):
        of_rack, of_spu = counted.from_leader(ids[row[0]])
        own: dict[int, int] = {}
        least, place, way = NEVER, 0, None
        for at in row[1:]:
            spu, own[kind_of[at]] = ids[at], at
            share = (of_rack[spu] + of_spu[spu] + PART) * parts[at]
            if share < least:
                least, place = share, row.index(at)
        if not place:
            continue
        for other in rows[number + 1 : number + 1 + NEARBY]:
            for at in other[1:]:
                kind = kind_of[at]
                if kind in own:
                    spu = ids[at]
                    share = (of_rack[spu] + of_spu[spu] + PART) * parts[at]
                    if share < least and at not in row and own[kind] not in other:
                        least, way = share, (other, at, own[kind])
        if way is not None:
            other, at, given = way
            place = row.index(given)
            row[place], other[other.index(at)] = at, given
        row[1], row[place] = row[place], row[1]
        spu = ids[row[1]]
        of_rack[spu] += 1
        of_spu[spu] += weight
        found.append((of_rack, of_spu, spu))
    for of_rack, of_spu, spu in found:
        of_rack[spu] -= 1
        of_spu[spu] -= weight


def counts_failovers(ring: Ring, spus: int) -> bool:
    """Whether the first follower matters on a ring, in a cluster of so many SPUs."""
    racks = len({spu.rack or spu.spu_id for spu in ring.described()})
    is_plain = racks in (1, ring.size) and spus > SPUS_MAX_WITHOUT_RACKS
    return racks * spus <= COUNTS_MAX and not is_plain


def counted_failovers(state: ClusterState, *, ignore_rack: bool, replicas: int) -> Takeovers | None:
    """Beside which those of lists on the ring are to be even; None: they do not matter."""
    if replicas == 1 or ignore_rack:
        return None
    kept = state.ring.kept
    if "failovers" not in kept:
        kept["failovers"] = counts_failovers(state.ring, len(state.spus))
    return state.takeovers() if kept["failovers"] else None
