"""The plan of a rebalance beside an exact solver, and the rules that every prefix of it keeps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.loads import Loads
from spu_assigner.core.rebalance import ListMove, Rebalance, plan_rebalance

PLENTY = 10**9
HEAVY = 10_000  # what a replica outside the bands weighs beside a move

Topic = list[list[int]]


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """All that a plan depends on, in plain lists."""

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
            racks=np.array([self.racks[i] for i in ids], dtype=np.int32),
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
        plan = plan_rebalance(matrices, self.loads(), racks=self.racks, max_moves=max_moves)
        assert all(map(np.array_equal, matrices, copies)), "the input was written to"
        return plan

    def after(self, plan: Rebalance) -> Cluster:
        changed = {
            index: [[spu for spu in row if spu >= 0] for row in matrix.tolist()]
            for index, matrix in plan.changed.items()
        }
        topics = [changed.get(index, topic) for index, topic in enumerate(self.topics)]
        return Cluster(
            racks=self.racks, capacities=self.capacities, topics=topics, other=self.other
        )

    def moved(self, moves: list[ListMove]) -> Cluster:
        """After these moves, made one by one."""
        topics = [[list(row) for row in topic] for topic in self.topics]
        for move in moves:
            row = topics[move.topic][move.partition]
            assert move.taken not in row
            row[row.index(move.gone)] = move.taken
        return Cluster(
            racks=self.racks, capacities=self.capacities, topics=topics, other=self.other
        )

    def bands(self, *, of_leaders: bool = False) -> dict[int, tuple[int, int]]:
        """Lowest and highest good count of each online SPU, straight from the definition."""
        loads = self.loads()
        total = int((loads.leaders if of_leaders else loads.replicas).sum())
        slots = sum(self.capacities.values())
        bands = {}
        for spu, capacity in self.capacities.items():
            fair = Fraction(total * capacity, slots)
            highest = floor(fair + 1) if of_leaders else min(capacity, floor(fair + 1))
            bands[spu] = (min(highest, max(0, ceil(fair - 1))), highest)
        return bands

    def outside(self, *, of_leaders: bool = False) -> int:
        """The squared distances to the bands, of all SPUs."""
        loads = self.loads()
        counts = (loads.leaders if of_leaders else loads.replicas).tolist()
        bands = self.bands(of_leaders=of_leaders)
        return sum(
            penalty(count, bands[spu])
            for spu, count in zip(loads.ids.tolist(), counts, strict=True)
        )


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


def band_edges(
    graph: nx.MultiDiGraph, spu: int, fixed: int, band: tuple[int, int], limit: int
) -> None:
    """What each further unit costs an SPU: the difference of the penalties."""
    for count in range(fixed, max(fixed, limit)):
        more = penalty(count + 1, band) - penalty(count, band)
        graph.add_edge(spu, "end", capacity=1, weight=HEAVY * more)


def exact_moves(cluster: Cluster) -> tuple[int, int]:
    """The least squared distances to the bands, and the fewest moves to it, by network simplex."""
    graph = nx.MultiDiGraph()
    fixed = {spu: cluster.other.get(spu, 0) for spu in cluster.capacities}
    total = 0
    for at, row in enumerate(row for topic in cluster.topics for row in topic):
        members = [spu for spu in row if spu in cluster.capacities]
        total += len(members)
        graph.add_node(("row", at), demand=-len(members))
        now = Counter(cluster.racks[spu] for spu in row)
        stays = Counter(cluster.racks[spu] for spu in row if spu not in cluster.capacities)
        for rack in sorted(set(cluster.racks.values())):
            free = max(1, now[rack]) - stays[rack]
            graph.add_edge(("row", at), ("rack", at, rack), capacity=free, weight=0)
        for spu in cluster.capacities:
            cost = 0 if spu in members else 1
            graph.add_edge(("rack", at, cluster.racks[spu]), spu, capacity=1, weight=cost)
    held = dict(zip(sorted(cluster.capacities), cluster.loads().replicas.tolist(), strict=True))
    for spu, band in cluster.bands().items():
        limit = max(held[spu], min(cluster.capacities[spu], fixed[spu] + total))
        band_edges(graph, spu, fixed[spu], band, limit)
    graph.add_node("end", demand=total)
    cost, flow = nx.network_simplex(graph)
    return told(cluster.bands(), fixed, cost, flow)


def exact_reorders(cluster: Cluster) -> tuple[int, int]:
    """The same for leaders."""
    graph = nx.MultiDiGraph()
    fixed = {spu: cluster.other.get(spu, 0) // 2 for spu in cluster.capacities}
    total = 0
    for at, row in enumerate(row for topic in cluster.topics for row in topic):
        if row[0] not in cluster.capacities:
            continue
        total += 1
        graph.add_node(("row", at), demand=-1)
        for place, spu in enumerate(row):
            if spu in cluster.capacities:
                graph.add_edge(("row", at), spu, capacity=1, weight=min(place, 1))
    bands = cluster.bands(of_leaders=True)
    for spu, band in bands.items():
        band_edges(graph, spu, fixed[spu], band, fixed[spu] + total)
    graph.add_node("end", demand=total)
    cost, flow = nx.network_simplex(graph)
    return told(bands, fixed, cost, flow)


def told(
    bands: dict[int, tuple[int, int]], fixed: dict[int, int], cost: int, flow: dict
) -> tuple[int, int]:
    """Squared distances to the bands, and moves, of a solution."""
    outside = 0
    for spu, (low, high) in bands.items():
        count = fixed[spu] + sum(flow.get(spu, {}).get("end", {}).values())
        outside += penalty(count, (low, high))
    return outside, cost % HEAVY


@settings(max_examples=1_000, deadline=None)
@given(clusters())
def test_no_exact_solver_needs_fewer_moves_or_comes_nearer(cluster: Cluster) -> None:
    """The bands are reached whenever they can be, and never with a move too many."""
    plan = cluster.plan()
    assert (cluster.after(plan).outside(), len(plan.moves)) == exact_moves(cluster)


@settings(max_examples=1_000, deadline=None)
@given(clusters())
def test_no_exact_solver_evens_leaders_with_fewer_reorders(cluster: Cluster) -> None:
    """As far as the lists permit after the moves."""
    plan = cluster.plan()
    moved = cluster.moved(list(plan.moves))
    outside = cluster.after(plan).outside(of_leaders=True)
    assert (outside, plan.reorders) == exact_reorders(moved)


@settings(max_examples=500, deadline=None)
@given(clusters())
def test_every_prefix_of_the_moves_keeps_the_rules(cluster: Cluster) -> None:
    """A rebalance may be cut off or interrupted anywhere."""
    moves = list(cluster.plan().moves)
    at_first = dict(zip(sorted(cluster.capacities), cluster.loads().replicas.tolist(), strict=True))
    before = cluster
    for count in range(1, len(moves) + 1):
        after = cluster.moved(moves[:count])
        move = moves[count - 1]
        assert move.gone in cluster.capacities
        old = cluster.topics[move.topic][move.partition]
        new = after.topics[move.topic][move.partition]
        assert len(set(new)) == len(old)
        racks_before = Counter(cluster.racks[spu] for spu in old)
        racks_after = Counter(cluster.racks[spu] for spu in new)
        assert len(racks_after) >= len(racks_before)
        assert all(n <= max(1, racks_before[rack]) for rack, n in racks_after.items())
        held = dict(zip(after.loads().ids.tolist(), after.loads().replicas.tolist(), strict=True))
        assert held[move.taken] <= max(cluster.capacities[move.taken], at_first[move.taken])
        assert after.outside() <= before.outside()
        before = after


@settings(max_examples=300, deadline=None)
@given(clusters(), st.integers(0, 5))
def test_a_limit_cuts_the_moves_off(cluster: Cluster, max_moves: int) -> None:
    """The same moves are made first, however many are allowed."""
    plan = cluster.plan(max_moves)
    assert plan.moves == cluster.plan().moves[:max_moves]
    moved, after = cluster.moved(list(plan.moves)), cluster.after(plan)
    reordered = 0
    for topic_moved, topic_after in zip(moved.topics, after.topics, strict=True):
        for row_moved, row_after in zip(topic_moved, topic_after, strict=True):
            assert sorted(row_moved) == sorted(row_after)
            assert sum(map(int.__ne__, row_moved, row_after)) in (0, 2)
            reordered += row_moved != row_after
            assert (row_moved[0] in cluster.capacities) or row_moved == row_after
            assert row_after[0] in cluster.capacities or row_moved == row_after
    assert plan.reorders == reordered
    different = [
        index for index, topic in enumerate(cluster.topics) if topic != after.topics[index]
    ]
    assert list(plan.changed) == different


@settings(max_examples=300, deadline=None)
@given(clusters())
def test_a_second_rebalance_changes_nothing(cluster: Cluster) -> None:
    """What is as even as can be is left alone."""
    after = cluster.after(cluster.plan())
    assert after.plan() == Rebalance(changed={}, moves=(), reorders=0)


def test_what_the_rack_rule_leaves_uneven_is_shared_within_the_rack() -> None:
    """By the plain sum of distances the SPU that joined would stop at 2 beside 5 and 5."""
    racks = {0: 0, 1: 0, 2: 1, 3: 0}
    topic = [[spu, 2] for spu in (0, 1) for _ in range(6)]
    cluster = Cluster(racks=racks, capacities=dict.fromkeys(racks, 100), topics=[topic], other={})
    plan = cluster.plan()
    held = cluster.after(plan).loads().replicas.tolist()
    assert (held, len(plan.moves)) == ([4, 4, 12, 4], 4)
