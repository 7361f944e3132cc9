"""The plan of a rebalance beside an exact solver, and the rules that every prefix of it keeps."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.rebalance import fair_share
from spu_assigner.core.rebalance.fair_share import Kinds, Shares, fair_shares
from spu_assigner.core.rebalance.planning import Rebalance
from support.model.plain_rebalance import Cluster, Row, clusters, penalty
from support.project.case_share import share_of

HEAVY = 10_000  # what a replica outside the bands weighs beside a move


def exact_moves(cluster: Cluster) -> tuple[int, int]:
    """The least squared distances to the bands, and the fewest moves to it, by network simplex."""
    graph = nx.MultiDiGraph()
    fixed = {spu: cluster.other.get(spu, 0) for spu in cluster.capacities}
    total = outside = 0
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
        outside += penalty(fixed[spu], band)
        for count in range(fixed[spu], limit):  # What each further unit costs.
            more = penalty(count + 1, band) - penalty(count, band)
            graph.add_edge(spu, "end", capacity=1, weight=HEAVY * more)
    graph.add_node("end", demand=total)
    cost = nx.min_cost_flow_cost(graph)
    return outside + cost // HEAVY, cost % HEAVY


@settings(max_examples=share_of(1_000), deadline=None)
@given(clusters())
def test_no_exact_solver_needs_fewer_moves_or_comes_nearer(cluster: Cluster) -> None:
    """The bands are reached whenever they can be, and never with a move too many."""
    plan = cluster.plan()
    outside = cluster.after(plan).outside(cluster.bands())
    assert (outside, len(plan.moves)) == exact_moves(cluster)


@settings(max_examples=share_of(500), deadline=None)
@given(clusters())
def test_every_prefix_of_the_moves_keeps_the_rules(cluster: Cluster) -> None:
    moves = list(cluster.plan().moves)
    bands = cluster.bands()
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
        assert after.outside(bands) <= before.outside(bands)
        before = after


@settings(max_examples=share_of(300), deadline=None)
@given(clusters(), st.integers(0, 5))
def test_a_limit_cuts_the_moves_off(cluster: Cluster, max_moves: int) -> None:
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


@settings(max_examples=share_of(300), deadline=None)
@given(clusters())
def test_a_second_rebalance_changes_nothing(cluster: Cluster) -> None:
    """Unless lists came to more racks, where they must stay: that may leave other shares."""
    after = cluster.after(cluster.plan())
    while after.rack_counts() != cluster.rack_counts():
        cluster, after = after, after.after(after.plan())
    assert after.plan() == Rebalance(changed={}, moves=(), reorders=0)


def shares(cluster: Cluster) -> Shares:
    numbers = sorted({cluster.racks[spu] for spu in cluster.capacities})
    rows = [Row.of(row, cluster) for topic in cluster.topics for row in topic]
    ids = sorted(cluster.capacities)
    kinds = Kinds(
        lists=np.ones(len(rows), dtype=np.int64),
        units=np.array([row.units for row in rows]),
        room=np.array([[row.room[number] for number in numbers] for row in rows]),
    )
    return fair_shares(
        [cluster.capacities[spu] for spu in ids],
        [cluster.other.get(spu, 0) for spu in ids],
        np.array([numbers.index(cluster.racks[spu]) for spu in ids]),
        kinds,
    )


def expected(cluster: Cluster) -> Shares:
    found = cluster.fair_replicas()
    return [found[spu] for spu in sorted(found)]


@settings(max_examples=share_of(500), deadline=None)
@given(clusters())
def test_the_level_rises_until_a_set_of_racks_is_full(cluster: Cluster) -> None:
    assert shares(cluster) == expected(cluster)


@settings(max_examples=share_of(300), deadline=None)
@given(clusters())
def test_of_many_racks_those_asked_for_most_are_enough(cluster: Cluster) -> None:
    """While each has room for one replica of a list; there are too many sets to look at all."""
    topics = [
        [list({cluster.racks[spu]: spu for spu in row}.values()) for row in topic]
        for topic in cluster.topics
    ]
    online = dict.fromkeys(cluster.racks, 7) | cluster.capacities
    spread = Cluster(racks=cluster.racks, capacities=online, topics=topics, other=cluster.other)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fair_share, "ALL_SETS_OF", 0)
        assert shares(spread) == expected(spread)
