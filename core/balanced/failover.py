"""Failovers of `balanced`: the heir of a list comes second, and leads it when its leader fails.

It is whoever has taken over the least so far from the leader's rack and, in a small cluster,
from the leader, counted over all topics. It is sought among the followers of the list. Where each
of them has taken over more than is fair, it is sought nearby in the request, too: the other list
gets a follower of this one for it, where that breaks no rule. How often an SPU is in the request,
and how often it leads, stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from spu_assigner.core.base.replica_lists import IdMatrix
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.takeovers import (
    COUNTS_MAX,
    NEVER,
    PAIR_WEIGHT,
    Counts,
    Fairness,
    Takeovers,
)

# Without racks only SPUs fail. With more of them a create would take several times as long; in
# rounds two thirds of the others follow each about equally often.
SPUS_MAX_WITHOUT_RACKS: Final = 16
ONE_BY_ONE: Final = 256  # lists of a request, its last, whose heirs are sought;
LARGE: Final = 512  # of more lists none, where they are even by themselves as they are dealt
NEARBY: Final = 8  # lists before and after a list


def is_ordered(state: ClusterState, replicas: int, *, ignore_rack: bool) -> bool:
    """Whether heirs are sought for such lists while the ring lasts."""
    layout = state.ring.layout()
    if replicas < 2 or ignore_rack:
        return False
    if layout.is_one and len(state.spus) > SPUS_MAX_WITHOUT_RACKS:
        return False
    alone = state.online_count - state.racked_count
    return (len(layout.starts) - 1 + alone) * len(state.spus) <= COUNTS_MAX


def order_followers(
    state: ClusterState, matrix: IdMatrix, *, ignore_rack: bool, may_exchange: bool
) -> None:
    """Put the heir of each list behind its leader, in the array.

    `may_exchange`: whether lists may exchange followers, since they fill nobody.
    Cost: O(cells), of the last lists, `ONE_BY_ONE` at most, in plain Python.
    """
    replicas = matrix.shape[1]
    if not is_ordered(state, replicas, ignore_rack=ignore_rack):
        return
    layout = state.ring.layout()
    are_apart = layout.is_one or max(layout.rule(replicas).upper) == 1
    if len(matrix) > LARGE and may_exchange and are_apart and not layout.is_one:
        return
    counted = state.takeovers()
    numbers, ids, each = counted.numbers, counted.ids, replicas - 1
    first = max(len(matrix) - ONE_BY_ONE, 0)
    counted.begin(matrix[:first])
    followers = [numbers[spu_id] for spu_id in matrix[first:].ravel().tolist()]
    leaders = followers[::replicas]
    del followers[::replicas]
    fairness = counted.fairness(by_capacity=layout.capacity is None)
    lists = Lists(
        leaders=leaders,
        followers=followers,
        each=each,
        racks=range(len(ids)) if layout.is_one else counted.placed_on,
        are_apart=are_apart,
        weights=fairness.weights,
        reach=NEARBY * each if may_exchange else 0,
    )
    _find_heirs(counted, fairness, lists)
    matrix[first:, 1:] = np.array([ids[spu] for spu in followers]).reshape(-1, each)
    counted.keep(matrix)


@dataclass(slots=True, kw_only=True)
class Lists:
    """Those of a request, in numbers of SPUs."""

    leaders: list[int]
    followers: list[int]  # list after list
    each: int  # followers of a list
    racks: Sequence[int]  # of each SPU,
    are_apart: bool  # of which a list has one replica at most; else SPUs alone are distinct
    weights: list[int] | None  # of what an SPU takes over; None: 1
    reach: int  # followers before and after those of a list that are nearby; 0: it exchanges none

    def nearby(
        self, first: int, of_rack: Counts, of_spu: Counts, bounds: tuple[float, float]
    ) -> int:
        """Where nearby somebody takes over less than the first of these bounds, the least or as
        little as the second; -1: nowhere. `first`: where the followers of a list begin."""
        followers, weights, each = self.followers, self.weights, self.each
        (least, enough), better, found = bounds, -1, -1
        behind = first + each
        for spu in followers[behind : behind + self.reach]:
            taken = of_rack[spu] + of_spu[spu]
            if weights is not None:
                taken *= weights[spu]
            if taken < least:
                least, better = taken, spu
                if taken <= enough:
                    return followers.index(spu, behind)
        if better >= 0:
            found = followers.index(better, behind)
        if each > 1:  # Heirs that are found stay; of the others of a list its last.
            for at in range(max(first - self.reach, 0) + each - 1, first, each):
                spu = followers[at]
                taken = of_rack[spu] + of_spu[spu]
                if weights is not None:
                    taken *= weights[spu]
                if taken < least:
                    least, found = taken, at
        return found

    def given(self, first: int, at: int) -> int:
        """Where a list has the follower that it gives for the one at another place; -1: nowhere."""
        followers, racks, each = self.followers, self.racks, self.each
        spu, own = followers[at], range(first, first + each)
        rack = racks[spu]
        if self.are_apart:
            for place in own:
                if racks[followers[place]] == rack:
                    return place
        number, other = first // each, at // each
        members = [self.leaders[number], *followers[first : first + each]]
        others = [self.leaders[other], *followers[other * each : (other + 1) * each]]
        if self.are_apart:
            used = {racks[member] for member in others}
            can = (place for place in own if racks[followers[place]] not in used)
            return -1 if rack == racks[members[0]] else next(can, -1)
        can = (place for place in own if racks[followers[place]] == rack)
        return -1 if spu in members else next((at for at in can if followers[at] not in others), -1)


def _find_heirs(counted: Takeovers, fairness: Fairness, lists: Lists) -> None:
    """Make the heir of each list the first of its followers, and count it."""
    rack_of, from_racks, from_spus = counted.rack_of, counted.from_racks, counted.from_spus
    followers, each, weights = lists.followers, lists.each, lists.weights
    rack_totals, size = counted.rack_totals, len(rack_of)
    of_spu, pair_weight = (counted.nothing, 0) if from_spus is None else ([], PAIR_WEIGHT)
    is_diverse = lists.are_apart and lists.racks is counted.placed_on
    enough: Sequence[float] = ()
    limit: float
    behind = 0
    for number, leader in enumerate(lists.leaders):
        if number % size == 0:
            enough = counted.enough(fairness)
        home = rack_of[leader]
        of_rack = from_racks[home]
        if from_spus is not None:
            of_spu = from_spus[leader]
        first, behind = behind, behind + each
        heir, own = followers[first], first
        least = of_rack[heir] + of_spu[heir]
        if weights is not None:
            least *= weights[heir]
        for at in range(first + 1, behind):
            spu = followers[at]
            taken = of_rack[spu] + of_spu[spu]
            if weights is not None:
                taken *= weights[spu]
            if taken < least:
                least, own, heir = taken, at, spu
        limit = enough[home] if weights is None else enough[home] * fairness.factors[leader]
        if least > limit and lists.reach:
            found = lists.nearby(first, of_rack, of_spu, (least, limit))
            given = -1 if found < 0 else lists.given(first, found)
            if given >= 0:
                own, heir = given, followers[found]
                followers[found] = followers[own]
        if is_diverse or of_rack[heir] != NEVER:
            of_rack[heir] += 1
            of_spu[heir] += pair_weight
            rack_totals[home] += 1
            followers[own] = followers[first]
            followers[first] = heir
