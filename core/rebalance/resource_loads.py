"""What a rebalance by resources weighs: SPUs, topics, and the fair dominant share.

The *dominant share* of an SPU is the largest of used / capacity over its resources; replica slots
are the first. The *fair dominant share* of a cluster is one number: the largest, over resources, of
the level to which the SPUs must be used of it when all are used alike. Where racks must hold a
replica of each list whatever their size, it is the level of the racks that must hold the most for
what they have. What an SPU holds for good (of topics that do not move) beyond that level is not
shared by others, and is no fault of it: its own ceiling is then what it holds for good.

It is no less than what any one replica takes of the SPU that has the most of a resource: replicas
are not divided.

No plan has a smaller largest share, whatever it moves, apart from SPUs that hold more for good. It
is the optimum of the linear programme of the cluster where one resource decides, and a lower bound
of it where hardware and topics differ in the ratio of their resources.

Amounts are integers; levels are exact fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from spu_assigner.core.base.replica_lists import IdMatrix
from spu_assigner.core.rebalance.fair_share import free_of
from spu_assigner.core.rebalance.ruled_lists import RuledLists, Zones
from spu_assigner.core.state.ledger import CountArray

ALL_SETS_OF: Final = 8  # racks of which all sets are looked at

SHARE_BITS: Final = 107  # distinguish any two shares, as in `balanced.by_need`

Amounts = list[int]  # by resource, slots first


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNeed:
    """What a replica of a topic takes of each resource, and the bytes copied to move it."""

    follower: Amounts
    leader: Amounts
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpuResources:
    """SPUs by position; shape (SPUs, resources)."""

    capacities: list[Amounts]
    used: list[Amounts]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceGoal:
    """What a rebalance by resources is to come to."""

    needs: Sequence[TopicNeed]  # of the topics that may move
    loads: SpuResources  # of the SPUs in `loads`, in their order
    band_percent: int  # above the fair dominant share
    bytes_max: int | None = None  # to be moved


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareChange:
    """Dominant shares: the largest before and after, and the fair one."""

    before: Fraction
    after: Fraction
    fair: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class MovableLists:
    """The lists of all topics that may move, one below the other."""

    topics: list[int]  # of each list
    places: IdMatrix  # positions of members; the number of SPUs for those that take no part
    racks: IdMatrix  # of members, -1 where a list is short
    rack_of: CountArray  # of each SPU, 0 … without gaps
    ruled: RuledLists | None = None  # those of topics with rules


def movable_use(
    topics: Sequence[int], places: IdMatrix, needs: Sequence[TopicNeed], loads: SpuResources
) -> list[Amounts]:
    """What of each resource the replicas that may move take on each SPU."""
    spus = len(loads.used)
    found = [[0] * len(amounts) for amounts in loads.used]
    for topic, row in zip(topics, places.tolist(), strict=True):
        need = needs[topic]
        for at, spu in enumerate(row):
            if spu < spus:
                held = found[spu]
                for index, amount in enumerate(need.follower if at else need.leader):
                    held[index] += amount
    return found


def largest_share(capacities: Sequence[Amounts], used: Sequence[Amounts]) -> Fraction:
    """The largest dominant share; of what an SPU has none of nothing is counted."""
    return max(
        Fraction(amount, capacity)
        for pair in zip(used, capacities, strict=True)
        for amount, capacity in zip(*pair, strict=True)
        if capacity
    )


def dominant_share(used: Amounts, capacities: Amounts) -> int:
    """The largest of used / capacity, rounded down to so many bits."""
    pairs = zip(used, capacities, strict=True)
    return max((amount << SHARE_BITS) // (capacity or 1) for amount, capacity in pairs)


def fair_level(
    loads: SpuResources,
    fixed: Sequence[Amounts],
    lists: MovableLists,
    needs: Sequence[TopicNeed],
) -> Fraction:
    """The fair dominant share; `fixed` is what SPUs hold for good."""
    spus = len(loads.used)
    zones = None if lists.ruled is None else lists.ruled.zones()
    zone_of = lists.rack_of if zones is None else zones.of
    members = [np.flatnonzero(zone_of == zone).tolist() for zone in range(int(zone_of.max()) + 1)]
    best = Fraction(0)
    kinds = _kinds(lists, zones, spus)
    alike = () if zones is None else np.unique(zones.is_open, axis=0)
    some = [tuple(map(int, np.flatnonzero(is_open))) for is_open in alike]
    for index in range(len(loads.capacities[0])):
        capacities = [amounts[index] for amounts in loads.capacities]
        held = [amounts[index] for amounts in fixed]
        largest = max(max(need.follower[index], need.leader[index]) for need in needs)
        if largest:
            best = max(best, Fraction(largest, max(*capacities, largest)))
        weights = _weights(kinds, needs, index)
        for racks in [*_rack_sets(members, capacities), *filter(None, some)]:
            asked = _must_hold(kinds, weights, racks)
            if asked:
                inside = [spu for rack in racks for spu in members[rack]]
                level = _level(
                    asked, [capacities[spu] for spu in inside], [held[spu] for spu in inside]
                )
                best = max(best, level)
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kinds:
    """Lists that are alike in racks, and how many of them are of each topic."""

    units: CountArray  # replicas that may move, of each kind
    leads: CountArray  # 1: the leader is among them
    room: CountArray  # shape (kinds, racks): for how many of them each rack has room
    topics: list[dict[int, int]]  # lists of each topic


def _kinds(lists: MovableLists, zones: Zones | None, spus: int) -> _Kinds:
    takes_part = lists.places < spus
    rooms = free_of(lists.places, lists.racks, lists.rack_of)
    if zones is not None:
        rooms = zones.rooms(rooms)
    table = np.column_stack((takes_part.sum(axis=1), takes_part[:, 0], rooms)).astype(np.int64)
    kinds, kind_of = np.unique(table, axis=0, return_inverse=True)
    topics: list[dict[int, int]] = [{} for _ in kinds]
    for kind, topic in zip(kind_of.ravel().tolist(), lists.topics, strict=True):
        topics[kind][topic] = topics[kind].get(topic, 0) + 1
    return _Kinds(units=kinds[:, 0], leads=kinds[:, 1], room=kinds[:, 2:], topics=topics)


def _weights(kinds: _Kinds, needs: Sequence[TopicNeed], index: int) -> list[tuple[int, int, int]]:
    """Of all lists of each kind: what a follower takes, a leader, and the smaller of the two."""
    found = []
    for topics in kinds.topics:
        follower = leader = least = 0
        for topic, count in topics.items():
            need = needs[topic]
            follower += count * need.follower[index]
            leader += count * need.leader[index]
            least += count * min(need.follower[index], need.leader[index])
        found.append((follower, leader, least))
    return found


def _must_hold(kinds: _Kinds, weights: Sequence[tuple[int, int, int]], racks: Sequence[int]) -> int:
    """What these racks must hold, since the others have no room for it."""
    everywhere = len(racks) == kinds.room.shape[1]
    outside = kinds.room.sum(axis=1) - kinds.room[:, list(racks)].sum(axis=1)
    total = 0
    for units, leads, elsewhere, (follower, leader, least) in zip(
        kinds.units.tolist(), kinds.leads.tolist(), outside.tolist(), weights, strict=True
    ):
        if everywhere:
            total += (units - leads) * follower + leads * leader
        elif units > elsewhere:
            total += (units - elsewhere - 1) * follower + least
    return total


def _rack_sets(
    members: Sequence[Sequence[int]], capacities: Sequence[int]
) -> list[tuple[int, ...]]:
    count = len(members)
    if count <= ALL_SETS_OF:
        return [
            tuple(rack for rack in range(count) if number >> rack & 1)
            for number in range(1, 2**count)
        ]
    sums = [sum(capacities[spu] for spu in spus) for spus in members]
    order = sorted(range(count), key=lambda rack: (sums[rack], rack))
    return [tuple(order[:size]) for size in range(1, count + 1)]


def _level(asked: int, capacities: Sequence[int], held: Sequence[int]) -> Fraction:
    """The level at which SPUs hold so much, those that hold more for good apart."""
    free = [spu for spu, capacity in enumerate(capacities) if capacity]
    while free:
        level = Fraction(
            asked + sum(held[spu] for spu in free), sum(capacities[spu] for spu in free)
        )
        below = [spu for spu in free if held[spu] <= level * capacities[spu]]
        if len(below) == len(free):
            return level
        free = below
    return Fraction(0)
