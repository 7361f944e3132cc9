"""Who leads a list: of the members that may lead, the one whose key is the least.

| level | value of the key; the first that differs decides |
| --- | --- |
| 1 rank | the first selector of the topic's `leaders` that it meets |
| 2 twofold | 1 if it leads twice its fair share of the topic's lists (rounded up), else 0 |
| 3 share | lists that it leads, with half of this one, ÷ capacity, over all topics |
| 4 topic | lists of the topic that it leads |
| 5 position | of a new list from the chain index on, else in the list |

Each choice counts before the next. SPUs 0 and 1 lead 10 lists each, 2 has just joined: of a topic
of 6 × 2 the fair share is 2 lists, so 2 leads up to 4, and no more while another can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
from spu_assigner.core.base.constraints import Constraints, TaintEffect, has_effect
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.replica_lists import IdMatrix, ReplicaLists
from spu_assigner.core.state.cluster_state import ClusterState

# The key, from its lowest bit: position, lists of the topic, share, twofold, rank.
TOPIC_SHIFT: Final = 14
TOPIC_MAX: Final = 2**16 - 1
SHARE_SHIFT: Final = 30
FRACTION_BITS: Final = 31  # a share of 1 is 2**31
TWOFOLD: Final = 1 << SHARE_SHIFT + 64
RANK_SHIFT: Final = SHARE_SHIFT + 65

LeaderRank = Callable[[int], int]  # of an SPU, the smaller the better
Numbers = dict[int, int] | list[int]  # of each SPU


class LeaderKeys:
    """How many lists SPUs lead, and by what they are chosen; they are known by id or by place."""

    def __init__(self, led: Numbers, capacities: Numbers, whole: int = 0) -> None:
        """`led`: over all topics; `whole`: the capacity of those that may lead lists of a topic."""
        self.led, self.capacities, self.whole = led, capacities, whole or 1
        self.of_topic: dict[int, int] = {}  # lists of the topic that each leads,
        self.lists = 0  # and how many it has; 0: no topic is in question
        self.rank: LeaderRank | None = None
        self.positions: list[int] | None = None

    def last(self, spu: int) -> int:
        """Levels 1 to 3 before the last of its lists, which one with a smaller key should lead."""
        return self.key_now(spu, 0) >> SHARE_SHIFT << SHARE_SHIFT

    def key_now(self, spu: int, more: int = 1) -> int:
        """The levels of an SPU with so many lists more, as one integer."""
        led = 2 * (self.led[spu] + more) - 1
        key = (led << FRACTION_BITS) // (2 * self.capacities[spu] or 1) << SHARE_SHIFT
        held = self.of_topic.get(spu, 0) + more - 1
        if held > 0:
            key += min(held, TOPIC_MAX) << TOPIC_SHIFT
            if held * self.whole >= 2 * self.lists * self.capacities[spu]:
                key += TWOFOLD
        if self.rank is not None:
            key += self.rank(spu) << RANK_SHIFT
        return key if self.positions is None else key + self.positions[spu]

    def add(self, spu: int, more: int = 1) -> None:
        """Count a list that an SPU leads, or take it out."""
        self.led[spu] += more
        if self.lists:
            self.of_topic[spu] = self.of_topic.get(spu, 0) + more


class LeaderChoice(LeaderKeys):
    """Leaders of lists that there are: SPUs that are online and not demoted, by id."""

    led: dict[int, int]

    def __init__(self, state: ClusterState, constraints: Constraints | None = None) -> None:
        """`constraints` are those of the one topic that it is about, which may tolerate taints."""
        spus, demoted = state.spus, state.demoted
        if constraints is not None and constraints.tolerations and state.barred:
            rule = TaintEffect.NO_LEADERS, constraints.tolerations
            demoted = {i for i in demoted if spus[i].demoted or has_effect(spus[i].taints, *rule)}
        self.demoted, self._last, self._spus = sorted(demoted), frozenset(demoted), spus
        ids = [i for i in sorted(spus) if spus[i].online and i not in demoted]
        led = state.ledger.leaders(np.array(ids, dtype=np.int32)).tolist() if ids else []
        capacities: dict[int, int] = {i: max(spus[i].capacity, 1) for i in ids}
        super().__init__(dict(zip(ids, led, strict=True)), capacities, sum(capacities.values()))

    def begin(self, leaders: Iterable[int], rank: LeaderRank | None = None) -> None:
        """Go on with a topic whose lists these SPUs lead."""
        of_topic = Counter(leaders)
        self.of_topic, self.lists, self.rank = of_topic, of_topic.total(), rank

    def can_lead(self, spu_id: int) -> bool:
        """Whether an SPU is online and not demoted."""
        return spu_id in self.led

    def best(self, spu_ids: Iterable[int]) -> int | None:
        """Which of these leads best; None: none can."""
        return min(filter(self.can_lead, spu_ids), key=self.key_now, default=None)

    def count(self, spu_id: int, before: int | None = None) -> None:
        """Count a list that an SPU leads now; `before`: the one that led it."""
        for each, more in ((spu_id, 1), (before, -1)):
            if each is not None and each in self.led:
                self.add(each, more)

    def settle(self, row: Sequence[int], had: Sequence[int]) -> list[int]:
        """A list as it is to be, its leader first and demoted SPUs last: `[0, 1, 2]`, where 0 is
        leaving and 2 leads less than 1 → `[2, 1]`.

        A demoted SPU leads on where no other is online, and hands over even to a replica that has
        no data yet. Where no SPU with a copy is online, the order stays, unless one comes first.
        Of the list that it `had`, what stays comes first in `row`, in order.
        """
        leader, is_demoted = row[0], row[0] in self._last
        if leader != had[0] or is_demoted:
            copies = [spu_id for spu_id in row if spu_id in had]
            online = [spu_id for spu_id in copies if self._spus[SpuId(spu_id)].online]
            best = self.best(copies)
            if best is None and (online or is_demoted):
                best = self.best(row)
            if best is not None:
                leader = best
            elif online and leader != had[0]:
                leader = online[0]
        if leader != had[0]:
            self.count(leader, had[0])
        return sorted(row, key=lambda spu_id: (spu_id != leader, spu_id in self._last))

    def swaps(self, matrix: IdMatrix) -> list[tuple[int, int]]:
        """The lists that get another leader, each with that leader's present place."""
        found = []
        for row in np.flatnonzero(np.isin(matrix[:, 0], self.demoted)).tolist():
            members = matrix[row].tolist()
            best = self.best(members)
            if best is not None:
                self.count(best)
                found.append((row, members.index(best)))
        return found


def swap_leaders(matrix: IdMatrix, swaps: Iterable[tuple[int, int]]) -> None:
    """In place: of each of these lists the leader and the member at that place change places."""
    for row, place in swaps:
        matrix[row, [0, place]] = matrix[row, [place, 0]]


def led_by_others(state: ClusterState, lists: ReplicaLists) -> ReplicaLists:
    """New lists, all of one length, with other leaders where a demoted SPU would lead."""
    if not state.demoted:
        return lists
    choice, matrix = LeaderChoice(state), lists.matrix.copy()
    leaders: list[int] = matrix[:, 0].tolist()
    for spu_id in leaders:
        choice.count(spu_id)
    choice.begin(leaders)
    swaps = choice.swaps(matrix)
    swap_leaders(matrix, swaps)
    return ReplicaLists(matrix) if swaps else lists
