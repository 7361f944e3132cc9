"""Who leads after a rebalance, beside an exact flow: even over the SPUs, then within each topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import ceil, lcm

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model.plain_rebalance import Cluster, Topic, clusters
from support.project.case_share import share_of

HEAVY = 10_000  # what the evenness of the cluster weighs beside a lead beyond its bound of a topic

Led = tuple[int, int]  # the cost of how uneven the SPUs are, leads beyond their bounds of topics


def movable(cluster: Cluster) -> Iterator[tuple[int, list[int]]]:
    for number, topic in enumerate(cluster.topics):
        for row in topic:
            able = [spu for spu in row if spu in cluster.capacities]
            if row[0] in cluster.capacities and len(able) > 1:
                yield number, able


def bounds(cluster: Cluster) -> dict[tuple[int, int], int]:
    lists, able = Counter[int](), dict[int, set[int]]()
    for number, members in movable(cluster):
        lists[number] += 1
        able.setdefault(number, set()).update(members)
    slots = {number: sum(cluster.capacities[i] for i in spus) for number, spus in able.items()}
    return {
        (number, spu): ceil(2 * lists[number] * cluster.capacities[spu] / slots[number])
        for number, spus in able.items()
        for spu in spus
    }


def marginal(cluster: Cluster, spu: int, count: int) -> int:
    """What one lead more adds to the sum of squares by capacity, in whole numbers."""
    return (2 * count + 1) * lcm(*cluster.capacities.values()) // cluster.capacities[spu]


def led(cluster: Cluster) -> Led:
    leaders = dict(zip(sorted(cluster.capacities), cluster.loads().leaders.tolist(), strict=True))
    uneven = sum(
        marginal(cluster, spu, count) for spu, total in leaders.items() for count in range(total)
    )
    of_topic = Counter((number, able[0]) for number, able in movable(cluster))
    limits = bounds(cluster)
    return uneven, sum(max(0, count - limits[key]) for key, count in of_topic.items())


def exactly_led(cluster: Cluster) -> Led:
    graph = nx.MultiDiGraph()
    rows = list(movable(cluster))
    limits = bounds(cluster)
    for at, (number, able) in enumerate(rows):
        graph.add_node(("row", at), demand=-1)
        for spu in able:
            graph.add_edge(("row", at), (number, spu), capacity=1, weight=0)
    for key, limit in limits.items():
        graph.add_edge(key, key[1], capacity=limit, weight=0)
        graph.add_edge(key, key[1], weight=1)
    leaders = dict(zip(sorted(cluster.capacities), cluster.loads().leaders.tolist(), strict=True))
    fixed = dict(leaders)
    for _, able in rows:
        fixed[able[0]] -= 1
    for spu in {spu for _, spu in limits}:
        for count in range(fixed[spu], fixed[spu] + len(rows)):
            weight = HEAVY * marginal(cluster, spu, count)
            graph.add_edge(spu, "end", capacity=1, weight=weight)
    graph.add_node("end", demand=len(rows))
    cost = nx.min_cost_flow_cost(graph) if rows else 0
    stays = sum(marginal(cluster, spu, n) for spu, count in fixed.items() for n in range(count))
    return stays + cost // HEAVY, cost % HEAVY


@st.composite
def led_clusters(draw: st.DrawFn) -> Cluster:
    """More lists and fewer topics than a rebalance of replicas is given."""
    ids = list(range(draw(st.integers(2, 6))))
    sizes = draw(st.sampled_from([[10], [10], [10, 20, 30]]))
    rows = st.lists(st.sampled_from(ids), min_size=1, max_size=3, unique=True)
    topics = st.lists(st.lists(rows, min_size=1, max_size=12), min_size=1, max_size=4)
    capacities = {spu: draw(st.sampled_from(sizes)) for spu in ids}
    drawn: list[Topic] = draw(topics)
    return Cluster(racks=dict.fromkeys(ids, 0), capacities=capacities, topics=drawn, other={})


@settings(max_examples=share_of(1_000), deadline=None)
@given(st.one_of(clusters(), led_clusters()))
def test_no_exact_flow_evens_leaders_better(cluster: Cluster) -> None:
    """Over the SPUs, by capacity, then none beyond twice its share of a topic; nothing moves."""
    after = cluster.after(cluster.plan(0))
    assert [[set(row) for row in topic] for topic in after.topics] == [
        [set(row) for row in topic] for topic in cluster.topics
    ]
    assert led(after) == exactly_led(cluster)
