"""Who leads a list whose leader goes, or is not to lead.

Of the online SPUs of the list that are not demoted, and had a copy before the list changed:

    level   the best
    1       the first selector of the topic's `leaders` that one meets
    2       leads less than twice its fair share of the topic's lists (rounded up)
    3       leads the lowest share of its capacity, over the cluster, with half of this list
    4       leads the fewest lists of the topic
    5       comes first in the list

Each choice counts before the next. The chosen SPU comes to the front and demoted SPUs go to the
end; the others keep their order. With equal capacities, 0 leaving and 2 leading less than 1:

    [0, 1, 2] → [2, 1]; where 2 is demoted, [1, 2]

A demoted SPU leads on where no other is online, and hands over even to a replica that has no data
yet. Where no SPU with a copy is online, the order stays, unless a demoted one comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
from spu_assigner.core.base.constraints import Constraints, TaintEffect, has_effect
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.records import SpuChanged
from spu_assigner.core.base.replica_lists import IdMatrix, ReplicaLists
from spu_assigner.core.state.cluster_state import ClusterState

SHARE_BITS: Final = 32  # of the fraction by which shares of capacity are compared

LeaderRank = Callable[[int], int]  # of an SPU, the smaller the better


class LeaderChoice:
    """Chooses list after list, on the counts of the state and of what was chosen before."""

    def __init__(self, state: ClusterState, constraints: Constraints | None = None) -> None:
        """`constraints` are those of the one topic that it is about, which may tolerate taints."""
        demoted = state.demoted
        if constraints is not None and constraints.tolerations and state.barred:
            demoted = {i for i in demoted if _is_demoted(state.spus[i], constraints)}
        self.demoted = sorted(demoted)
        self._spus, self._last = state.spus, frozenset(demoted)
        ids = [i for i in sorted(state.spus) if state.spus[i].online and i not in demoted]
        leaders = state.ledger.leaders(np.array(ids, dtype=np.int32)).tolist() if ids else []
        self._leaders: dict[int, int] = dict(zip(ids, leaders, strict=True))
        self._capacities = {int(spu_id): max(state.spus[spu_id].capacity, 1) for spu_id in ids}
        self._capacity = sum(self._capacities.values())
        self._of_topic: Counter[int] = Counter()
        self._lists = 0
        self._rank: LeaderRank | None = None

    def begin(self, leaders: Iterable[int], rank: LeaderRank | None = None) -> None:
        """Go on with a topic whose lists these SPUs lead."""
        self._of_topic = Counter(leaders)
        self._lists = self._of_topic.total()
        self._rank = rank

    def recount(self, leaders: Iterable[tuple[int, int]]) -> None:
        """Take other numbers of lists led, of some SPUs."""
        self._leaders |= {spu_id: count for spu_id, count in leaders if spu_id in self._leaders}

    def can_lead(self, spu_id: int) -> bool:
        """Whether an SPU is online and not demoted."""
        return spu_id in self._leaders

    def best(self, spu_ids: Iterable[int]) -> int | None:
        """Which of these leads best; None: none can."""
        return min(filter(self.can_lead, spu_ids), key=self._score, default=None)

    def _score(self, spu_id: int) -> tuple[int, bool, int, int]:
        led = self._of_topic[spu_id]
        return (
            0 if self._rank is None else self._rank(spu_id),
            led >= self.twice_fair_share(spu_id, self._lists),
            self.share(spu_id),
            led,
        )

    def share(self, spu_id: int) -> int:
        """What an SPU that can lead leads of its capacity with half a list more."""
        return (2 * self._leaders[spu_id] + 1 << SHARE_BITS) // (2 * self._capacities[spu_id])

    def twice_fair_share(self, spu_id: int, lists: int) -> int:
        """Twice the share of so many lists that an SPU leads in all fairness, rounded up."""
        return -(-2 * lists * self._capacities[spu_id] // self._capacity)

    def evens(self, spu_id: int, leader: int) -> bool:
        """Whether SPUs lead more evenly by capacity with one instead of the other in a list."""
        more = (2 * self._leaders[spu_id] + 1) * self._capacities[leader]
        return more < (2 * self._leaders[leader] - 1) * self._capacities[spu_id]

    def count(self, spu_id: int, before: int | None = None) -> None:
        """Count a list that an SPU leads now; `before`: the one that led it."""
        self._of_topic[spu_id] += 1
        if spu_id in self._leaders:
            self._leaders[spu_id] += 1
        if before is not None:
            self._of_topic[before] -= 1
            if before in self._leaders:
                self._leaders[before] -= 1

    def settle(self, row: Sequence[int], had: Sequence[int]) -> list[int]:
        """A list in the order that it is to have, its leader first.

        `had`: the list before it changed; what stays of it comes first in `row`, in order.
        """
        leader = row[0]
        if leader != had[0] or leader in self._last:
            copies = [spu_id for spu_id in row if spu_id in had]
            online = [spu_id for spu_id in copies if self._spus[SpuId(spu_id)].online]
            best = self.best(copies)
            if best is None and (online or leader in self._last):
                best = self.best(row)
            if best is None and online and leader != had[0]:
                best = online[0]
            leader = leader if best is None else best
        if leader != had[0]:
            self.count(leader, had[0])
        return [
            leader,
            *[spu_id for spu_id in row if spu_id != leader and spu_id not in self._last],
            *[spu_id for spu_id in row if spu_id != leader and spu_id in self._last],
        ]

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


def _is_demoted(spu: SpuChanged, constraints: Constraints) -> bool:
    """Whether an SPU is to lead nothing of a topic with these constraints."""
    return spu.demoted or has_effect(spu.taints, TaintEffect.NO_LEADERS, constraints.tolerations)


def swap_leaders(matrix: IdMatrix, swaps: Iterable[tuple[int, int]]) -> None:
    """In place: of each of these lists the leader and the member at that place change places."""
    for row, place in swaps:
        matrix[row, [0, place]] = matrix[row, [place, 0]]


def led_by_others(state: ClusterState, lists: ReplicaLists) -> ReplicaLists:
    """New lists, all of one length, with other leaders where a demoted SPU would lead."""
    if not state.demoted:
        return lists
    choice = LeaderChoice(state)
    leaders: list[int] = lists.matrix[:, 0].tolist()
    for spu_id in leaders:
        choice.count(spu_id)
    choice.begin(leaders)
    swaps = choice.swaps(lists.matrix)
    if not swaps:
        return lists
    matrix = lists.matrix.copy()
    swap_leaders(matrix, swaps)
    return ReplicaLists(matrix)
