"""`min` of a level of `spread`: replicas of each list on each value, as the cluster changes."""

from __future__ import annotations

import pytest
from spu_assigner.core.base.constraints import Constraints, SpreadLevel
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import LeaveMode, OnShortage, Policy
from spu_assigner.core.base.records import Status, TopicStatus
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
