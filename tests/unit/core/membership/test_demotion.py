"""`SpuDemote` and `SpuUndemote`: an SPU that leads nothing where another can."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import pytest
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy, SpuId
from spu_assigner.core.base.records import Mode, ReplicaMap, RingChange, RingEvent
from spu_assigner.core.explain.decisions import ExplainingAssigner
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.stream.client.explanation import decision_lines
from support.events.builders import Events
from support.events.one_cluster import Answer, OneCluster

AUTOMATIC = [policy for policy in Policy if policy is not Policy.MANUAL]


def wrongly_led(state: ClusterState) -> list[list[int]]:
    """Lists that a demoted SPU leads and another could."""
    able = {i for i, spu in state.spus.items() if spu.online and not spu.demoted}
    return [
        row
        for topic in state.topics.values()
        for row in topic.replicas.lists().tolist()
        if state.spus[SpuId(row[0])].demoted and not able.isdisjoint(row)
    ]


def maps(answers: list[Answer]) -> list[tuple[str, int, Any, Mode | None]]:
    """Topic, revision, lists and mode of each map."""
    return [
        (
            each.topic,
            each.revision,
            each.replicas and each.replicas.tolist(),
            each.reason and each.reason.mode,
        )
        for each in answers
        if isinstance(each, ReplicaMap)
    ]


def changes(answers: list[Answer]) -> list[tuple[int, RingChange, int, Code | None]]:
    return [
        (each.spu_id, each.change, each.ring_size, each.code)
        for each in answers
        if isinstance(each, RingEvent)
    ]


# The demotion itself.


def test_what_it_leads_others_lead_and_nothing_moves() -> None:
    """The SPU comes last in its lists; the ring stays as it is."""
    life = OneCluster(*Events().joins(0, 1, 2))
    life.create("t", 3, 2)  # 01 12 20
    answers = life.demote(1)
    assert maps(answers) == [("t", 2, [[0, 1], [2, 1], [2, 0]], Mode.DEMOTION)]
    assert changes(answers) == [(1, RingChange.DEMOTED, 3, None)]
    [map_] = [each for each in answers if isinstance(each, ReplicaMap)]
    assert (map_.cause, map_.reason and map_.reason.moves) == ("e1001", ())


@pytest.mark.parametrize(("spus", "topics", "partitions"), [(2, 1, 6), (4, 3, 8), (5, 4, 10)])
def test_undemoted_it_leads_its_share_again(spus: int, topics: int, partitions: int) -> None:
    """Leaders are even over the cluster, then within each topic, as before; nothing moves."""
    life = OneCluster(*Events().joins(*range(spus)))
    for number in range(topics):
        life.create(f"t{number}", partitions, 2, policy=Policy.BALANCED)
    life.demote(1)
    assert all(row[0] != 1 for number in range(topics) for row in life.lists(f"t{number}"))
    found = maps(life.undemote(1))
    assert {(revision, mode) for _, revision, _, mode in found} == {(3, Mode.DEMOTION)}
    leads = [Counter(row[0] for row in life.lists(f"t{number}")) for number in range(topics)]
    assert is_even([sum(each[i] for each in leads) for i in range(spus)])
    assert all(max(each.values()) <= -(-2 * partitions // spus) for each in leads)
    assert maps(life.demote(1)) != []


def is_even(counts: list[int]) -> bool:
    return max(counts) - min(counts) <= 1


def test_undemoted_it_takes_no_list_that_was_given_by_hand_or_is_pinned() -> None:
    """As a rebalance; what it led before the demotion it does not lead again either."""
    life = OneCluster(*Events().joins(0, 1))
    life.manual("hand", *[[0, 1]] * 4)
    life.apply(life.build.adopt("pinned", *[[0, 1]] * 4, pinned=True))
    life.demote(0)
    assert maps(life.undemote(0)) == []
    life.apply(life.build.adopt("free", *[[1, 0]] * 2))
    life.demote(0)
    assert [name for name, *_ in maps(life.undemote(0))] == ["free"]
    assert life.lists("free") == [[0, 1], [0, 1]]


# What is placed while an SPU is demoted.


@pytest.mark.parametrize(("policy", "replicas", "racks"), [*product(AUTOMATIC, (1, 2, 3), (1, 3))])
def test_no_create_or_grow_lets_it_lead_and_the_others_lead_alike(
    policy: Policy, replicas: int, racks: int
) -> None:
    """With one replica it leads, since nobody else can. Which lists there are, a rule decides."""
    build = Events()
    life = OneCluster(*[build.join(i, rack="abc"[i % racks]) for i in range(6)])
    plain = OneCluster(*[build.join(i, rack="abc"[i % racks]) for i in range(6)])
    life.demote(4)
    for number in range(5):
        life.create(f"t{number}", 12, replicas, policy=policy)
        life.apply(life.build.grow(f"t{number}", 18))
        plain.create(f"t{number}", 12, replicas, policy=policy)
        plain.apply(plain.build.grow(f"t{number}", 18))
    assert wrongly_led(life.state) == []
    rows = [row for number in range(5) for row in life.lists(f"t{number}")]
    leads = Counter(row[0] for row in rows)
    if replicas > 1:
        assert leads[4] == 0
    if replicas > 1 and policy is Policy.BALANCED:
        assert max(leads.values()) - min(leads[i] for i in range(6) if i != 4) <= 1
    if policy is not Policy.BALANCED:
        before = [row for number in range(5) for row in plain.lists(f"t{number}")]
        assert [set(row) for row in rows] == [set(row) for row in before]
        assert [row for row in rows if 4 not in row] == [row for row in before if 4 not in row]


# What is said of it.


def test_explain_names_the_leader_that_was_passed_over() -> None:
    """And, of the map that a demotion changed, who led before."""
    assigner, build = ExplainingAssigner(Policy.FLUVIO), Events()
    for event in [*build.joins(0, 1, 2), build.create("t", 2, 2)]:
        assigner.apply(event)
    [(_, [(partition, decision)]), _] = assigner.apply(build.demote(1))
    assert (partition, decision.before, decision.replicas) == (1, (1, 2), (2, 1))
    said = "SPU 2 leads now instead of SPU 1: no data moves"
    assert said in decision_lines(decision)
    [(_, reasons), _] = assigner.apply(build.create("u", 3, 2))
    passed = {
        partition: [(each.spu_id, each.why) for each in decision.replica_steps[0].passed]
        for partition, decision in reasons
    }
    assert passed == {0: [], 1: [], 2: [(1, "demoted")]}
    [_, _, (_, decision)] = reasons
    assert decision.recomputed
    lines = decision_lines(decision)
    assert "leader   SPU 0: position 0 = (1 + 1 + gap 1) % 3, passed over SPU 1 (demoted)" in lines
    assert "follower SPU 1: position 1" in lines
