"""What becomes of topics with constraints as the cluster changes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pytest
from spu_assigner.core.base.constraints import (
    Constraints,
    Preference,
    SpreadLevel,
    Taint,
    TaintEffect,
    Toleration,
)
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import LeaveMode, Policy
from spu_assigner.core.base.records import ReplicaMap, RingChange, RingEvent, Status, TopicStatus
from support.events.one_cluster import Answer, OneCluster

SSD = Constraints(require=("tier=ssd",))
CLOSED = Taint("pool", "team-a", TaintEffect.NO_NEW_REPLICAS)
ANYWHERE = Constraints(prefer=(Preference("tier", 1),))
POOL = Constraints(tolerations=(Toleration("pool", "team-a"),), require=("pool",))


class Cluster(OneCluster):
    """Topics are placed by `balanced` where they say nothing else."""

    def ask(self, topic: str, *size: int, **given: Any) -> TopicStatus:
        """Create a topic."""
        return statuses(self.create(topic, *size, **{"policy": Policy.BALANCED, **given}))[0]

    def spus(self, topic: str) -> set[int]:
        return {spu_id for row in self.lists(topic) for spu_id in row}


def statuses(records: Sequence[Answer]) -> list[TopicStatus]:
    return [record for record in records if isinstance(record, TopicStatus)]


def changes(records: Sequence[Answer]) -> list[RingChange]:
    return [record.change for record in records if isinstance(record, RingEvent)]


@pytest.fixture
def cluster() -> Cluster:
    """SPUs 0 to 3 have an SSD, 4 to 7 a disk; two in each of four racks."""
    cluster = Cluster()
    for spu_id in range(8):
        tier = "ssd" if spu_id < 4 else "hdd"
        cluster.join(spu_id, rack=f"r{spu_id % 4}", labels={"tier": tier}, capacity=100)
    return cluster


def test_a_topic_grows_by_its_rules(cluster: Cluster) -> None:
    cluster.ask("t", 2, 3, constraints=SSD)
    cluster.apply(cluster.build.grow("t", 8))
    assert len(cluster.lists("t")) == 8
    assert cluster.spus("t") == {0, 1, 2, 3}


def test_rules_bind_repairs_of_a_topic_that_was_adopted_with_another_policy(
    cluster: Cluster,
) -> None:
    """It keeps its constraints (`rebalanced_life(7665)`)."""
    cluster.ask("t", 1, 3, constraints=SSD)
    cluster.apply(cluster.build.adopt("t", [0, 1], [1, 2], policy=Policy.REDPANDA))
    for spu_id in (0, 1):
        cluster.leave(spu_id, LeaveMode.DECOMMISSION)
    assert cluster.spus("t") == {2, 3}


def test_a_list_waits_rather_than_break_a_rule(cluster: Cluster) -> None:
    cluster.ask("t", 1, 4, constraints=SSD)
    records = cluster.leave(0, LeaveMode.DECOMMISSION)
    assert statuses(records)[0].status is Status.WAITING
    assert sorted(cluster.lists("t")[0]) == [1, 2, 3]
    records = cluster.join(9, rack="r0", labels={"tier": "ssd"})
    assert statuses(records)[0].status is Status.ASSIGNED
    assert sorted(cluster.lists("t")[0]) == [1, 2, 3, 9]


def test_a_higher_factor_is_met_by_the_rules_or_refused(cluster: Cluster) -> None:
    cluster.ask("t", 2, 2, constraints=SSD)
    cluster.apply(cluster.build.replication("t", 4))
    assert [sorted(row) for row in cluster.lists("t")] == [[0, 1, 2, 3]] * 2
    answer = statuses(cluster.apply(cluster.build.replication("t", 5)))[0]
    assert (answer.status, answer.code) == (Status.REJECTED, Code.INSUFFICIENT_CAPACITY)
    assert [sorted(row) for row in cluster.lists("t")] == [[0, 1, 2, 3]] * 2


def test_a_pool_holds_those_alone_that_tolerate_it(cluster: Cluster) -> None:
    """A pool is a label with a taint: nobody else comes in, and its topics stay within."""
    records = cluster.join(20, 21, 22, labels={"pool": "a"}, taints=(CLOSED,), capacity=100)
    assert changes(records) == [RingChange.JOINED, RingChange.CORDONED] * 3
    for number in range(10):
        cluster.ask(f"other{number}", 8, 3)
        assert not cluster.spus(f"other{number}") & {20, 21, 22}
    cluster.ask("t", 6, 3, constraints=POOL)
    assert cluster.spus("t") == {20, 21, 22}
    assert cluster.state.ring.ids.tolist() == list(range(8))


@pytest.mark.parametrize("policy", [each for each in Policy if each is not Policy.MANUAL])
def test_no_policy_uses_an_spu_with_a_taint(cluster: Cluster, policy: Policy) -> None:
    cluster.apply(
        cluster.build.join(0, rack="r0", labels={"tier": "ssd"}, capacity=100, taints=(CLOSED,))
    )
    cluster.ask("t", 16, 3, policy=policy)
    assert cluster.spus("t") == set(range(1, 8))


def test_an_spu_without_its_taint_is_used_again(cluster: Cluster) -> None:
    cluster.join(0, rack="r0", taints=(CLOSED,), capacity=100)
    records = cluster.join(0, rack="r0", capacity=100)
    assert changes(records) == [RingChange.UPDATED, RingChange.UNCORDONED]
    cluster.ask("t", 8, 3)
    assert 0 in cluster.spus("t")


def test_what_evicts_is_left_by_the_fewest_moves(cluster: Cluster) -> None:
    cluster.ask("t", 8, 2)
    cluster.ask("kept", 4, 2, constraints=Constraints(tolerations=(Toleration("old"),)))
    held = sum(row.count(0) for row in cluster.lists("t"))
    kept, before = cluster.lists("kept"), cluster.lists("t")
    assert held > 0
    assert any(0 in row for row in kept)
    evicting = Taint("old", "", TaintEffect.EVICT)
    records = cluster.join(0, rack="r0", capacity=100, taints=(evicting,))
    maps = [record for record in records if isinstance(record, ReplicaMap)]
    assert [(each.topic, len(each.reason.moves)) for each in maps if each.reason] == [("t", held)]
    assert 0 not in cluster.spus("t")
    lists = zip(before, cluster.lists("t"), strict=True)
    assert all(row == was for was, row in lists if 0 not in was)
    assert cluster.lists("kept") == kept


def test_what_cannot_be_evicted_stays_until_it_can() -> None:
    cluster = Cluster()
    cluster.join(0, 1)
    cluster.ask("t", 1, 2)
    records = cluster.join(0, taints=(Taint("old", "", TaintEffect.EVICT),))
    assert statuses(records)[0].status is Status.WAITING
    assert cluster.lists("t") == [[0, 1]]
    cluster.join(2)
    assert sorted(cluster.lists("t")[0]) == [1, 2]


def test_what_cannot_be_evicted_stays_though_it_is_offline() -> None:
    """Found by seed 25279: another repair of the list dropped it, with nobody in its place."""
    cluster = Cluster()
    cluster.join(0, 1, 2)
    cluster.ask("t", 1, 3)
    cluster.join(0, taints=(Taint("old", "", TaintEffect.EVICT),))
    cluster.leave(0)
    cluster.leave(1, LeaveMode.DECOMMISSION)
    assert sorted(cluster.lists("t")[0]) == [0, 2]


def test_a_refused_join_of_an_spu_that_evicts_changes_nothing() -> None:
    """Found by the fuzzer: what waited was tried again, and the refused join named as its cause."""
    cluster = Cluster()
    cluster.join(0, 1)
    cluster.ask("t", 1, 2)
    cluster.join(0, taints=(Taint("old", "", TaintEffect.EVICT),))
    records = cluster.join(0, rack="")
    assert [type(record) for record in records] == [RingEvent]
    assert changes(records) == [RingChange.IGNORED]


def test_large_amounts_are_weighed_where_an_spu_has_nothing_of_the_resource() -> None:
    """Found by the fuzzer: a share was larger than floating point holds, and numpy warned."""
    cluster = Cluster()
    cluster.join(0, resources={"disk": 2**50})
    cluster.join(1, resources={"disk": 0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = cluster.ask("t", 4, 1, demand={"disk": 2**40}, constraints=ANYWHERE)
    assert answer.status is Status.ASSIGNED
    assert cluster.spus("t") == {0}


def test_what_tolerates_no_longer_is_evicted(cluster: Cluster) -> None:
    tolerant = Constraints(tolerations=(Toleration("old"),), require=("spu_id in (0, 1, 2)",))
    cluster.join(0, rack="r0", capacity=100, taints=(Taint("old", "", TaintEffect.EVICT),))
    cluster.ask("t", 2, 3, constraints=tolerant)
    assert cluster.spus("t") == {0, 1, 2}
    cluster.apply(cluster.build.constraints("t", Constraints()))
    assert 0 not in cluster.spus("t")


def test_an_spu_tainted_against_leading_leads_nothing(cluster: Cluster) -> None:
    cluster.ask("before", 8, 3)
    barred = Taint("weak", "", TaintEffect.NO_LEADERS)
    cluster.join(0, rack="r0", capacity=100, taints=(barred,))
    cluster.ask("after", 16, 3)
    tolerant = Constraints(tolerations=(Toleration("weak"),), leaders=("spu_id=0",))
    cluster.ask("tolerant", 2, 3, constraints=tolerant)
    assert all(row[0] != 0 for name in ("before", "after") for row in cluster.lists(name))
    assert any(0 in row for row in cluster.lists("after"))
    assert [row[0] for row in cluster.lists("tolerant")] == [0, 0]


def test_where_nobody_may_lead_nothing_is_given() -> None:
    cluster = Cluster()
    cluster.join(0, 1, taints=(Taint("weak", "", TaintEffect.NO_LEADERS),))
    answer = cluster.ask("t", 1, 2)
    assert (answer.code, answer.message) == (
        Code.UNSATISFIABLE,
        "1 list of 2 replicas cannot hold taints against leading (2 SPUs may not lead), with 2 "
        "SPUs online; relax one of these, or add SPUs that hold them",
    )


def test_a_changed_label_that_breaks_a_rule_is_reported_once(cluster: Cluster) -> None:
    cluster.ask("t", 1, 4, constraints=SSD)
    records = cluster.join(0, rack="r0", labels={"tier": "hdd"}, capacity=100)
    assert [(each.status, each.topic, each.message) for each in statuses(records)] == [
        (
            Status.VIOLATED,
            "t",
            "lists break require[0] 'tier=ssd' (1 list); they stay as they are",
        )
    ]
    assert 0 in cluster.spus("t")
    again = cluster.join(0, rack="r0", labels={"tier": "hdd", "more": "x"}, capacity=100)
    assert statuses(again) == []


def test_other_constraints_are_answered_and_bind_from_then_on(cluster: Cluster) -> None:
    cluster.ask("t", 4, 2)
    records = cluster.apply(cluster.build.constraints("t", SSD))
    assert [each.status for each in statuses(records)] == [Status.ASSIGNED, Status.VIOLATED]
    lists = cluster.lists("t")
    cluster.apply(cluster.build.grow("t", 12))
    assert cluster.lists("t")[:4] == lists
    assert {spu_id for row in cluster.lists("t")[4:] for spu_id in row} <= {0, 1, 2, 3}
    revision = cluster.state.topics["t"].revision
    cluster.apply(cluster.build.constraints("t", SSD))
    assert cluster.state.topics["t"].revision == revision


def test_topics_stay_apart_and_together_both_ways(cluster: Cluster) -> None:
    cluster.ask("a", 1, 2)
    cluster.ask("b", 4, 2, constraints=Constraints(apart_from=("a",)))
    cluster.ask("c", 2, 2, constraints=Constraints(together_with=("a",)))
    cluster.apply(cluster.build.grow("a", 4))
    assert not cluster.spus("a") & cluster.spus("b")
    assert cluster.spus("c") <= cluster.spus("a")


@pytest.mark.parametrize(
    ("constraints", "said"),
    [
        (Constraints(require=("tier in ssd",)), "constraints.require[0]: 'tier in ssd' is no"),
        (Constraints(apart_from=("gone",)), "constraints.apart_from names 'gone', which is no"),
        (Constraints(forbid=("a",) * 17), "constraints.forbid has 17 entries; expected at most 16"),
    ],
)
def test_constraints_that_are_none_are_refused(
    cluster: Cluster, constraints: Constraints, said: str
) -> None:
    answer = cluster.ask("t", 1, 1, constraints=constraints)
    assert answer.code is Code.INVALID_CONSTRAINTS
    assert (answer.message or "").startswith(said)
    assert "t" not in cluster.state.topics


@pytest.mark.parametrize("spu_id", [-1, -(2**31), 2**31, 2**63])
def test_an_id_that_no_spu_can_have_is_ignored_beside_topics_with_constraints(spu_id: int) -> None:
    """Their lists are not asked for it: they cannot hold such a number."""
    cluster = Cluster()
    cluster.join(0, labels={"tier": "ssd"})
    cluster.ask("t", 1, 1, constraints=SSD)
    answers = [each for each in cluster.join(spu_id) if isinstance(each, RingEvent)]
    assert [each.code for each in answers] == [Code.INVALID_SPU_ID]


def test_a_topic_that_comes_to_tolerate_what_evicts_it_waits_no_more() -> None:
    """Nothing is to be repaired then."""
    cluster = Cluster()
    cluster.join(0, 1)
    cluster.ask("t", 1, 2, constraints=Constraints(require=("spu_id",)))
    cluster.join(1, taints=(Taint("k", "v", TaintEffect.EVICT),))
    assert "t" in cluster.state.waiting
    tolerates = Constraints(tolerations=(Toleration("k"),))
    answers = statuses(cluster.apply(cluster.build.constraints("t", tolerates)))
    assert [each.status for each in answers] == [Status.ASSIGNED, Status.ASSIGNED]
    assert cluster.state.waiting == {}
    assert sorted(cluster.lists("t")[0]) == [0, 1]


ONE_ZONE = Constraints(spread=(SpreadLevel("zone", 1),))
EACH_ZONE = Constraints(spread=(SpreadLevel("zone", None, 1),))
FULL, SCARCE = {"capacity": 0}, {"resources": {"disk": 5}}


@pytest.mark.parametrize(
    ("zones", "others", "given", "code", "why"),
    [
        (
            "abb",
            {},
            {"constraints": ONE_ZONE},
            Code.UNSATISFIABLE,
            "spread[0] 'zone' max 1 excludes 1",
        ),
        (
            "abbba",
            {4: FULL},
            {"constraints": EACH_ZONE, "replication_factor": 3},
            Code.INSUFFICIENT_CAPACITY,
            "spread[0] 'zone' min 1 excludes 1, 1 without a free slot",
        ),
        (
            "aabb",
            {},
            {"constraints": Constraints(require=("zone=a",))},
            Code.UNSATISFIABLE,
            "require[0] 'zone=a' excludes 2",
        ),
        (
            "aabc",
            {2: SCARCE, 3: FULL},
            {"demand": {"disk": 10}},
            Code.INSUFFICIENT_CAPACITY,
            "(1 without a free slot, 1 has less than 10 of disk free)",
        ),
    ],
    ids=["max", "min", "selector", "resources"],
)
def test_a_repair_that_waits_names_what_holds_it_back(
    zones: str, others: dict[int, Any], given: dict[str, Any], code: Code, why: str
) -> None:
    """Of SPUs outside the list alone: those in it get no second replica."""
    cluster = Cluster()
    for spu_id, zone in enumerate(zones):
        has = {"labels": {"zone": zone}, "capacity": 9, "resources": {"disk": 100}}
        cluster.join(spu_id, **{**has, **others.get(spu_id, {})})
    cluster.ask("t", 1, given.pop("replication_factor", 2), **given)
    before = cluster.lists("t")
    [answer] = statuses(cluster.leave(before[0][0], LeaveMode.DECOMMISSION))
    assert (answer.status, answer.code) == (Status.WAITING, code)
    assert why in (answer.message or "")
    assert cluster.lists("t") == [before[0][1:]]
