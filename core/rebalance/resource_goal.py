"""What a rebalance by resources is to come to: the fair dominant share.

The *dominant share* of an SPU is the largest of used / capacity over its resources; replica slots
are the first. The *fair dominant share* of a cluster is the largest, over resources, of the level
to which the SPUs must be used of it when all are used alike; where racks must hold a replica of
each list whatever their size, of the racks that must hold the most for what they have. SPUs that
hold more for good are left out. It is no less than what any one replica takes of the SPU that has
the most of a resource. So no plan has a smaller largest share, whatever it moves.

Amounts are integers; levels are exact fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.rebalance.fair_share import Kinds, fair_shares, kinds_of
from spu_assigner.core.rebalance.lists import ClusterLists
from spu_assigner.core.rebalance.ruled_lists import RuledLists

SHARE_BITS: Final = 107  # tell any two shares apart

Amounts = Sequence[int]  # by resource, slots first
Table = NDArray[np.object_]  # integers; shape (SPUs, resources)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNeed:
    """What a replica of a topic takes of each resource, and the bytes copied to move it."""

    follower: Amounts
    leader: Amounts
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceGoal:
    """What there is, by SPU in the order of `Loads`, and what is wanted."""

    needs: Sequence[TopicNeed]  # of the topics that may move
    capacities: Table
    used: Table
    band_percent: int  # above the fair dominant share
    bytes_max: float  # to be moved
    decides: bool  # some topic says what it needs; else numbers of replicas decide

    def dominant_shares(self) -> list[int]:
        """Of each SPU the largest of used / capacity, rounded down to so many bits."""
        shares = (self.used << SHARE_BITS) // np.maximum(self.capacities, 1)
        found: list[int] = shares.max(axis=1).tolist()
        return found

    def movable(self, lists: ClusterLists) -> Table:
        """What the replicas that may move take on each SPU."""
        found = np.zeros_like(self.used)
        followers = np.array([need.follower for need in self.needs], dtype=object)
        leaders = np.array([need.leader for need in self.needs], dtype=object)
        for column, spus in enumerate(lists.places.T):
            here = np.flatnonzero(spus < lists.spus)
            np.add.at(found, spus[here], (followers if column else leaders)[lists.topics[here]])
        return found

    def largest(self, used: Table) -> Fraction:
        """The largest dominant share; of what an SPU has none of nothing is counted."""
        has = self.capacities > 0
        return max(map(Fraction, used[has].tolist(), self.capacities[has].tolist()))


def fair_level(
    lists: ClusterLists, goal: ResourceGoal, fixed: Table, ruled: RuledLists
) -> Fraction:
    """The fair dominant share; `fixed` is what SPUs hold for good.

    Of each resource the largest of the fair shares by its capacities (`fair_share`), where a list
    is as many units as its replicas take at least, and the rest in lists of its own.
    """
    kinds, kind_of = kinds_of(lists, ruled)
    units, leads = kinds.units, np.zeros_like(kinds.units)
    leads[kind_of] = lists.is_movable[:, 0]
    pairs = np.stack((kind_of, lists.topics))
    pairs, counts = np.unique(pairs, axis=1, return_counts=True)
    levels = [Fraction(0)]
    for index in range(goal.capacities.shape[1]):
        capacities, held = goal.capacities[:, index].tolist(), fixed[:, index].tolist()
        needs = [(need.follower[index], need.leader[index]) for need in goal.needs]
        largest = max(map(max, needs))
        if largest:
            levels.append(Fraction(largest, max(*capacities, largest)))
        weights = np.zeros((3, len(units)), dtype=object)  # each replica, follower, leader
        for kind, topic, count in zip(*pairs.tolist(), counts.tolist(), strict=True):
            least = min(needs[topic])
            weights[0, kind] += count * least
            weights[1, kind] += count * (needs[topic][0] - least)
            weights[2, kind] += count * (needs[topic][1] - least)
        units_of = np.concatenate((units, units - leads, leads))
        weighed = Kinds(lists=weights.ravel(), units=units_of, room=np.tile(kinds.room, (3, 1)))
        shares = fair_shares(capacities, held, ruled.zone_of, weighed)
        triples = zip(shares, capacities, held, strict=True)
        levels += [share / has for share, has, low in triples if has and share > low]
    return max(levels)
