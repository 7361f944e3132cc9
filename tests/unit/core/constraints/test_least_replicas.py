"""`min` of a level of `spread`: replicas of each list on each value, as the cluster changes."""

from __future__ import annotations

import pytest
from spu_assigner.core.base.constraints import Constraints, SpreadLevel, Taint, TaintEffect
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import LeaveMode, OnShortage, Policy
from spu_assigner.core.base.records import ReplicaMap, Status, TopicStatus
from support.events.one_cluster import Answer, OneCluster

ZONES = Constraints(spread=(SpreadLevel("zone", min=1),))


class Zoned(OneCluster):
    """SPUs in zones, and topics of `balanced`."""

    def add(self, zone: str, *spu_ids: int, capacity: int = 100, **given: object) -> list[Answer]:
        return self.join(*spu_ids, capacity=capacity, labels={"zone": zone, **given})

    def ask(self, topic: str, *size: int, rules: Constraints = ZONES) -> TopicStatus:
        return status(self.create(topic, *size, policy=Policy.BALANCED, constraints=rules))

    def zones(self, topic: str) -> list[str]:
        """Of each list the zones of its SPUs, in order."""
        spus = self.state.spus
        return [
            "".join(sorted(dict(spus[spu_id].labels)["zone"] for spu_id in row))
            for row in self.lists(topic)
        ]


def status(found: list[Answer]) -> TopicStatus:
    return next(each for each in found if isinstance(each, TopicStatus))


@pytest.fixture
def cluster() -> Zoned:
    """Two SPUs in each of three zones."""
    cluster = Zoned()
    for number, zone in enumerate("abc"):
        cluster.add(zone, number, number + 3)
    return cluster


@pytest.mark.parametrize(("least", "expected"), [(None, "aabc"), (1, "abcd")])
def test_zones_come_before_how_even_racks_are(least: int | None, expected: str) -> None:
    """Zone a is rack x, all others are rack y: by racks two of each four replicas are in zone a."""
    cluster = Zoned()
    for spu_id, zone in enumerate("aaabcd"):
        cluster.join(spu_id, rack="x" if zone == "a" else "y", labels={"zone": zone})
    spread = (SpreadLevel("rack"), SpreadLevel("zone", min=least))
    cluster.ask("t", 1, 4, rules=Constraints(spread=spread))
    assert cluster.zones("t") == [expected]


def test_values_that_no_candidate_has_are_no_part_of_a_count() -> None:
    """Of all SPUs three zones and three tiers; of the candidates three zones and one tier."""
    cluster = Zoned()
    cluster.join(0, labels={"tier": "hdd"}, capacity=2)
    cluster.add("a", 1, capacity=2, tier="hdd")
    cluster.add("b", 2, tier="hdd")
    cluster.join(3, labels={"tier": "ssd"})
    cluster.join(4)
    levels = SpreadLevel("zone", max=2), SpreadLevel("tier", min=1)
    rules = Constraints(require=("tier=hdd",), spread=levels)
    assert cluster.ask("t", 3, 2, rules=rules).status is Status.ASSIGNED


def test_too_few_replicas_for_the_zones_are_refused_with_the_rule(cluster: Zoned) -> None:
    answer = cluster.ask("t", 2, 2)
    assert (answer.status, answer.code) == (Status.REJECTED, Code.UNSATISFIABLE)
    assert "2 lists of 2 replicas cannot hold spread[0] 'zone' min 1 (3 values)," in (
        answer.message or ""
    )


def test_a_conflict_names_the_rule_that_takes_what_min_demands(cluster: Zoned) -> None:
    """What `min` demands is what all rules together make it: zone c demands nothing."""
    cluster.add("b", 6)
    twice = (SpreadLevel("zone", min=2),)
    rules = Constraints(require=("zone in (a, b)",), forbid=("spu_id = 0",), spread=twice)
    answer = cluster.ask("t", 1, 4, rules=rules)
    assert answer.code is Code.UNSATISFIABLE
    assert (
        "cannot hold forbid[0] 'spu_id = 0' (excludes 1 SPU) and "
        "spread[0] 'zone' min 2 (2 values), with 7 SPUs online" in (answer.message or "")
    )


def test_zones_that_other_rules_exclude_demand_nothing(cluster: Zoned) -> None:
    spread = ZONES.spread
    for number, rules in enumerate(
        (
            Constraints(forbid=("zone = c",), spread=spread),
            Constraints(require=("zone in (a, b)",), spread=spread),
        )
    ):
        assert cluster.ask(f"t{number}", 2, 2, rules=rules).status is Status.ASSIGNED
        assert cluster.zones(f"t{number}") == ["ab", "ab"]
    cluster.join(2, 5, labels={"zone": "c"}, taints=(Taint("k", "v", TaintEffect.NO_NEW_REPLICAS),))
    assert cluster.ask("t", 1, 2).status is Status.ASSIGNED
    assert cluster.zones("t") == ["ab"]


def test_a_zone_that_is_offline_or_cordoned_still_demands_its_replica(cluster: Zoned) -> None:
    """Else lists that are made in an outage would break the rule after it."""
    cluster.leave(2)
    cluster.cordon(5)
    answer = status(
        cluster.create(
            "t",
            1,
            3,
            policy=Policy.BALANCED,
            constraints=ZONES,
            on_shortage=OnShortage.WAIT,
        )
    )
    assert (answer.status, answer.code) == (Status.WAITING, Code.UNSATISFIABLE)
    answer = status(cluster.uncordon(5))
    assert answer.status is Status.ASSIGNED
    assert cluster.zones("t") == ["abc"]


def test_a_zone_that_comes_is_reported_once_and_binds_what_comes_after(cluster: Zoned) -> None:
    cluster.ask("t", 2, 3)
    answer = status(cluster.add("d", 6))
    assert answer.status is Status.VIOLATED
    assert answer.message == "lists break spread[0] 'zone' min 1 (2 lists); they stay as they are"
    assert not [each for each in cluster.add("d", 7) if isinstance(each, TopicStatus)]
    refused = status(cluster.apply(cluster.build.grow("t", 3)))
    assert (refused.status, refused.code) == (Status.REJECTED, Code.UNSATISFIABLE)


def test_what_leaves_is_replaced_in_its_zone_or_the_list_waits(cluster: Zoned) -> None:
    cluster.ask("t", 3, 3)
    cluster.leave(0, LeaveMode.DECOMMISSION)
    assert cluster.zones("t") == ["abc"] * 3
    cluster.add("a", 3, capacity=3)
    cluster.add("a", 6, capacity=1)
    found = cluster.leave(3, LeaveMode.DECOMMISSION)
    assert status(found).status is Status.WAITING
    assert sorted(cluster.zones("t")) == ["abc", "bc", "bc"]


def test_a_zone_that_is_decommissioned_whole_demands_nothing_more(cluster: Zoned) -> None:
    cluster.ask("t", 3, 3)
    for spu_id in (0, 3):
        cluster.leave(spu_id, LeaveMode.DECOMMISSION)
    assert {*cluster.zones("t")} <= {"bbc", "bcc"}


def test_a_shorter_list_keeps_a_replica_in_each_zone(cluster: Zoned) -> None:
    """Also where the fullest SPUs, and those that are offline, are the only ones of a zone."""
    cluster.ask("t", 4, 5)
    cluster.leave(1)
    cluster.leave(4)
    answer = status(cluster.apply(cluster.build.replication("t", 3)))
    assert answer.status is Status.ASSIGNED
    assert cluster.zones("t") == ["abc"] * 4
    answer = status(cluster.apply(cluster.build.replication("t", 2)))
    assert (answer.status, answer.code) == (Status.REJECTED, Code.UNSATISFIABLE)
    assert answer.message == (
        "partition 0 cannot hold spread[0] 'zone' min 1 with 2 replicas; "
        "relax it, or ask for more replicas"
    )
    assert cluster.zones("t") == ["abc"] * 4


def test_a_longer_list_takes_the_zone_that_it_lacks(cluster: Zoned) -> None:
    cluster.apply(cluster.build.adopt("t", [0, 3], [1, 4], policy=Policy.BALANCED))
    found = status(cluster.apply(cluster.build.constraints("t", ZONES)))
    assert found.status is Status.ASSIGNED
    cluster.apply(cluster.build.replication("t", 4))
    assert cluster.zones("t") == ["aabc", "abbc"]


@pytest.mark.parametrize("least", [None, 1])
def test_a_rebalance_takes_no_zone_its_last_replica(least: int | None) -> None:
    """By pairs alone a list may become less even over an inner level."""
    cluster = Zoned()
    cluster.add("a", 0)
    cluster.add("b", 1)
    cluster.apply(cluster.build.adopt("t", *[[0, 1]] * 12, policy=Policy.BALANCED))
    rules = Constraints(spread=(SpreadLevel("zone", min=least),))
    cluster.apply(cluster.build.constraints("t", rules))
    cluster.add("c", 2, 3)
    cluster.apply(cluster.build.rebalance())
    moved = [zones for zones in cluster.zones("t") if "c" in zones]
    assert bool(moved) is (least is None)


def test_other_rules_are_reported_where_lists_break_them(cluster: Zoned) -> None:
    cluster.apply(cluster.build.adopt("t", [0, 1, 2], [0, 1, 3], policy=Policy.BALANCED))
    found = cluster.apply(cluster.build.constraints("t", ZONES))
    assert [each.status for each in found if isinstance(each, TopicStatus)] == [
        Status.ASSIGNED,
        Status.VIOLATED,
    ]
    assert (
        "min 1 (1 list)"
        in [each.message or "" for each in found if isinstance(each, TopicStatus)][1]
    )
    assert any(isinstance(each, ReplicaMap) for each in found)
