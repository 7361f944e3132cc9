"""Small clusters to be rebalanced, in plain lists, and what they are to come to by definition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, pairwise
from math import ceil, floor, inf
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st
from spu_assigner.core.rebalance.lists import ListMove
from spu_assigner.core.rebalance.planning import Rebalance, plan_rebalance
from spu_assigner.core.rebalance.resource_goal import ResourceGoal, TopicNeed
from spu_assigner.core.rebalance.ruled_lists import RuledTopics
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.leading import LeaderChoice
from spu_assigner.core.state.ledger import Loads

PLENTY: Final = 10**9

Topic = list[list[int]]
Bands = dict[int, tuple[int, int]]  # lowest and highest good count of each online SPU


@dataclass(frozen=True, kw_only=True)
class Cluster:
    racks: dict[int, int]  # of every SPU
    capacities: dict[int, int]  # of the online ones
    topics: list[Topic]
    other: dict[int, int]  # replicas that manual topics have on online SPUs; half of them lead

    def loads(self) -> Loads:
        ids = sorted(self.capacities)
        held = Counter(spu for topic in self.topics for row in topic for spu in row)
        led = Counter(row[0] for topic in self.topics for row in topic)
        other = [self.other.get(i, 0) for i in ids]
        return Loads(
            ids=np.array(ids, dtype=np.int32),
            capacities=np.array([self.capacities[i] for i in ids], dtype=np.int64),
            replicas=np.array([held[i] for i in ids], dtype=np.int64) + other,
            leaders=np.array([led[i] for i in ids], dtype=np.int64) + np.array(other) // 2,
        )

    def plan(self, max_moves: int = PLENTY) -> Rebalance:
        matrices = []
        for topic in self.topics:
            width = max(map(len, topic))
            padded = [row + [-1] * (width - len(row)) for row in topic]
            matrices.append(np.array(padded, dtype=np.int32))
        copies = [matrix.copy() for matrix in matrices]
        loads, choice = self.loads(), LeaderChoice(ClusterState("c"))
        ruled = RuledTopics(
            rules=[None] * len(matrices),
            closed=np.zeros(len(loads.ids), dtype=np.bool_),
            choices=[choice] * len(matrices),
        )
        goal = ResourceGoal(
            needs=[TopicNeed(follower=[1], leader=[1], size=0)] * len(matrices),
            capacities=loads.capacities[:, None].astype(object),
            used=loads.replicas[:, None].astype(object),
            band_percent=0,
            bytes_max=inf,
            decides=False,
        )
        given: dict[str, Any] = {"racks": self.racks, "goal": goal, "ruled": ruled}
        plan = plan_rebalance(matrices, loads, max_moves=max_moves, **given)
        assert all(map(np.array_equal, matrices, copies)), "the input was written to"
        return plan

    def after(self, plan: Rebalance) -> Cluster:
        changed = {
            index: [[spu for spu in row if spu >= 0] for row in matrix.tolist()]
            for index, matrix in plan.changed.items()
        }
        topics = [changed.get(index, topic) for index, topic in enumerate(self.topics)]
        return replace(self, topics=topics)

    def moved(self, moves: list[ListMove]) -> Cluster:
        topics = [[list(row) for row in topic] for topic in self.topics]
        for move in moves:
            row = topics[move.topic][move.partition]
            assert move.taken not in row
            row[row.index(move.gone)] = move.taken
        return replace(self, topics=topics)

    def bands(self) -> Bands:
        """Lowest and highest good count of each online SPU, straight from the definition."""
        bands = {}
        for spu, fair in self.fair_replicas().items():
            highest = min(self.capacities[spu], floor(fair + 1))
            bands[spu] = (min(highest, max(0, ceil(fair - 1))), highest)
        return bands

    def fair_replicas(self) -> dict[int, Fraction]:
        """The level rises until a set of racks holds all it can, then goes on for the others."""
        rows = [Row.of(row, self) for topic in self.topics for row in topic]
        racks = sorted({self.racks[spu] for spu in self.capacities})
        most = {}
        for count in range(1, len(racks) + 1):
            for some in combinations(racks, count):
                spus = frozenset(spu for spu in self.capacities if self.racks[spu] in some)
                fixed = sum(self.other.get(spu, 0) for spu in spus)
                most[spus] = fixed + sum(row.at_most(some) for row in rows)
        least, highest = {}, {}
        for spu, capacity in self.capacities.items():
            least[spu] = self.other.get(spu, 0)
            lists = sum(row.at_most([self.racks[spu]]) > 0 for row in rows)
            highest[spu] = max(least[spu], min(capacity, least[spu] + lists))
        return filled_up(self.capacities, least, highest, most)

    def outside(self, bands: Bands) -> int:
        """The squared distances to these bands, of all SPUs."""
        counts = dict(zip(sorted(self.capacities), self.loads().replicas.tolist(), strict=True))
        return sum(penalty(count, bands[spu]) for spu, count in counts.items())

    def rack_counts(self) -> list[int]:
        rows = (row for topic in self.topics for row in topic)
        return [len({self.racks[spu] for spu in row}) for row in rows]


@dataclass(frozen=True, kw_only=True)
class Row:
    units: int
    room: dict[int, int]  # for how many of them, by rack

    @classmethod
    def of(cls, row: list[int], cluster: Cluster) -> Row:
        room = {}
        for rack in cluster.racks.values():
            now = [spu for spu in row if cluster.racks[spu] == rack]
            stay = [spu for spu in now if spu not in cluster.capacities]
            size = sum(cluster.racks[spu] == rack for spu in cluster.capacities)
            room[rack] = min(size, max(1, len(now)) - len(stay))
        return cls(units=sum(spu in cluster.capacities for spu in row), room=room)

    def at_most(self, racks: Iterable[int]) -> int:
        return min(self.units, sum(self.room[rack] for rack in racks))


def filled_up(
    capacities: dict[int, int],
    least: dict[int, int],
    highest: dict[int, int],
    most: dict[frozenset[int], int],
) -> dict[int, Fraction]:
    """One level by capacity for all, that stops for an SPU or for a set which can hold no more."""
    final: dict[int, Fraction] = {}

    def held(spu: int, level: Fraction) -> Fraction:
        return final.get(spu, max(Fraction(least[spu]), level * capacities[spu]))

    while rising := [spu for spu in capacities if spu not in final]:
        stops = [(Fraction(highest[spu], capacities[spu]), frozenset([spu])) for spu in rising]
        for spus, limit in most.items():
            turns = sorted(Fraction(least[spu], capacities[spu]) for spu in spus & set(rising))
            for turn, following in pairwise([*turns, Fraction(10**6)]):
                at_turn = sum(held(spu, turn) for spu in spus)
                slots = sum(
                    capacities[spu]
                    for spu in spus & set(rising)
                    if least[spu] <= turn * capacities[spu]
                )
                level = turn + (limit - at_turn) / slots
                if level < following:
                    stops.append((level, spus))
                    break
        level = min(level for level, _ in stops)
        for spus in [spus for at, spus in stops if at == level]:
            for spu in spus & set(rising):
                final.setdefault(spu, held(spu, level))
    return final


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Up to 7 SPUs and 12 partitions: racks, uneven capacities, offline members, manual load."""
    ids = sorted(draw(st.sets(st.integers(0, 20), min_size=1, max_size=7)))
    rack_count = draw(st.integers(1, 4))
    racks = {i: draw(st.integers(0, rack_count - 1)) for i in ids}
    online = [i for i in ids if draw(st.integers(0, 5))] or ids[:1]
    top = draw(st.sampled_from([4, 12, 40]))
    capacities = {i: draw(st.integers(1, top)) for i in online}
    crowded = draw(st.lists(st.sampled_from(ids), min_size=1, unique=True))
    topics: list[Topic] = []
    for _ in range(draw(st.integers(1, 3))):
        holders = crowded if draw(st.booleans()) else ids
        rows = st.lists(st.sampled_from(holders), min_size=1, max_size=4, unique=True)
        topics.append(draw(st.lists(rows, min_size=1, max_size=4)))
    other = {i: draw(st.integers(0, 3)) for i in online} if draw(st.booleans()) else {}
    return Cluster(racks=racks, capacities=capacities, topics=topics, other=other)


def penalty(count: int, band: tuple[int, int]) -> int:
    return max(0, band[0] - count, count - band[1]) ** 2
