"""What becomes of topics with constraints as the cluster changes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
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
from spu_assigner.core.base.events import LeaveMode, OnShortage, Policy
from spu_assigner.core.base.records import ReplicaMap, RingChange, RingEvent, Status, TopicStatus
from spu_assigner.core.constraints import violations
from support.events.one_cluster import Answer, OneCluster, ring_changes, the_status

GONE = LeaveMode.DECOMMISSION
SSD = Constraints(require=("tier=ssd",))
CLOSED = Taint("pool", "team-a", TaintEffect.NO_NEW_REPLICAS)
OLD = Taint("old", "", TaintEffect.EVICT)


class Cluster(OneCluster):
    """Topics are placed by `balanced` where they say nothing else."""

    def __init__(self) -> None:
        super().__init__(default=Policy.BALANCED)

    def ask(self, topic: str, *size: int, **given: Any) -> TopicStatus:
        return the_status(self.create(topic, *size, **given))

    def rows(self, topic: str) -> list[list[int]]:
        return [sorted(row) for row in self.lists(topic)]


def changes(found: Iterable[object]) -> list[RingChange]:
    return [change for _, change, _ in ring_changes(found)]


def said(found: Iterable[object]) -> list[tuple[Status, str | None]]:
    return [(each.status, each.message) for each in found if isinstance(each, TopicStatus)]


@pytest.fixture
def cluster() -> Cluster:
    """SPUs 0 to 3 have an SSD, 4 to 7 a disk; two in each of four racks."""
    cluster = Cluster()
    for spu_id in range(8):
        tier = "ssd" if spu_id < 4 else "hdd"
        cluster.join(spu_id, rack=f"r{spu_id % 4}", labels={"tier": tier}, capacity=100)
    return cluster


# Rules bind what comes later.


def test_a_list_waits_rather_than_break_a_rule(cluster: Cluster) -> None:
    cluster.ask("t", 1, 4, constraints=SSD)
    assert the_status(cluster.leave(0, GONE)).status is Status.WAITING
    assert cluster.rows("t") == [[1, 2, 3]]
    found = cluster.join(9, rack="r0", labels={"tier": "ssd"})
    assert the_status(found).status is Status.ASSIGNED
    assert cluster.rows("t") == [[1, 2, 3, 9]]


def test_topics_stay_apart_and_together_both_ways(cluster: Cluster) -> None:
    cluster.ask("a", 1, 2)
    cluster.ask("b", 4, 2, constraints=Constraints(apart_from=("a",)))
    cluster.ask("c", 2, 2, constraints=Constraints(together_with=("a",)))
    cluster.apply(cluster.build.grow("a", 4))
    assert not cluster.spus("a").keys() & cluster.spus("b").keys()
    assert cluster.spus("c").keys() <= cluster.spus("a").keys()


def test_other_constraints_are_answered_and_bind_from_then_on(cluster: Cluster) -> None:
    cluster.ask("t", 4, 2)
    found = cluster.apply(cluster.build.constraints("t", SSD))
    assert [status for status, _ in said(found)] == [Status.ASSIGNED, Status.VIOLATED]
    lists = cluster.lists("t")
    cluster.apply(cluster.build.grow("t", 12))
    assert cluster.lists("t")[:4] == lists
    assert {spu_id for row in cluster.lists("t")[4:] for spu_id in row} <= {0, 1, 2, 3}
    revision = cluster.state.topics["t"].revision
    cluster.apply(cluster.build.constraints("t", SSD))
    assert cluster.state.topics["t"].revision == revision


def test_a_changed_label_that_breaks_a_rule_is_reported_once(cluster: Cluster) -> None:
    cluster.ask("t", 1, 4, constraints=SSD)
    found = cluster.join(0, rack="r0", labels={"tier": "hdd"}, capacity=100)
    assert said(found) == [
        (Status.VIOLATED, "lists break require[0] 'tier=ssd' (1 list); they stay as they are")
    ]
    assert cluster.spus("t")[0] == 1
    assert said(cluster.join(0, rack="r0", labels={"tier": "hdd", "more": "x"})) == []


# Taints.


def test_an_spu_without_its_taint_is_used_again(cluster: Cluster) -> None:
    cluster.join(0, rack="r0", taints=(CLOSED,), capacity=100)
    found = cluster.join(0, rack="r0", capacity=100)
    assert changes(found) == [RingChange.UPDATED, RingChange.UNCORDONED]
    cluster.ask("t", 8, 3)
    assert cluster.spus("t")[0] > 0


def test_what_evicts_is_left_by_the_fewest_moves(cluster: Cluster) -> None:
    cluster.ask("t", 8, 2)
    cluster.ask("kept", 4, 2, constraints=Constraints(tolerations=(Toleration("old"),)))
    held, kept, before = cluster.spus("t")[0], cluster.lists("kept"), cluster.lists("t")
    assert held > 0
    assert cluster.spus("kept")[0] > 0
    found = cluster.join(0, rack="r0", capacity=100, taints=(OLD,))
    maps = [each for each in found if isinstance(each, ReplicaMap)]
    assert [(each.topic, len(each.reason.moves)) for each in maps if each.reason] == [("t", held)]
    lists = zip(before, cluster.lists("t"), strict=True)
    assert all(0 not in row and (row == was or 0 in was) for was, row in lists)
    assert cluster.lists("kept") == kept


def test_what_cannot_be_evicted_stays_until_it_can() -> None:
    cluster = Cluster()
    cluster.join(0, 1)
    cluster.ask("t", 1, 2)
    assert the_status(cluster.join(0, taints=(OLD,))).status is Status.WAITING
    assert cluster.lists("t") == [[0, 1]]
    cluster.join(2)
    assert cluster.rows("t") == [[1, 2]]


def test_what_tolerates_no_longer_is_evicted(cluster: Cluster) -> None:
    tolerant = Constraints(tolerations=(Toleration("old"),), require=("spu_id in (0, 1, 2)",))
    cluster.join(0, rack="r0", capacity=100, taints=(OLD,))
    cluster.ask("t", 2, 3, constraints=tolerant)
    assert cluster.spus("t").keys() == {0, 1, 2}
    cluster.apply(cluster.build.constraints("t", Constraints()))
    assert cluster.spus("t")[0] == 0


# What is refused, and why a repair waits.


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (Constraints(require=("tier in ssd",)), "constraints.require[0]: 'tier in ssd' is no"),
        (Constraints(apart_from=("gone",)), "constraints.apart_from names 'gone', which is no"),
        (Constraints(forbid=("a",) * 17), "constraints.forbid has 17 entries; expected at most 16"),
    ],
)
def test_constraints_that_are_none_are_refused(
    cluster: Cluster, constraints: Constraints, message: str
) -> None:
    answer = cluster.ask("t", 1, 1, constraints=constraints)
    assert answer.code is Code.INVALID_CONSTRAINTS
    assert (answer.message or "").startswith(message)
    assert "t" not in cluster.state.topics


def test_large_amounts_are_weighed_where_an_spu_has_nothing_of_the_resource() -> None:
    """Found by the fuzzer: a share was larger than floating point holds, and numpy warned."""
    cluster = Cluster()
    cluster.join(0, resources={"disk": 2**50})
    cluster.join(1, resources={"disk": 0})
    anywhere = Constraints(prefer=(Preference("tier", 1),))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cluster.ask("t", 4, 1, demand={"disk": 2**40}, constraints=anywhere)
    assert cluster.spus("t") == {0: 4}


@pytest.mark.parametrize("spu_id", [-1, 2**63])
def test_an_id_that_no_spu_can_have_is_ignored_beside_topics_with_constraints(spu_id: int) -> None:
    """Their lists are not asked for it: they cannot hold such a number."""
    cluster = Cluster()
    cluster.join(0, labels={"tier": "ssd"})
    cluster.ask("t", 1, 1, constraints=SSD)
    [answer] = cluster.join(spu_id)
    assert isinstance(answer, RingEvent)
    assert answer.code is Code.INVALID_SPU_ID


EACH_ZONE = Constraints(spread=(SpreadLevel("zone", min=1),))


@pytest.mark.parametrize(
    ("zones", "others", "given", "code", "why"),
    [
        (
            "abbba",
            {4: {"capacity": 0}},
            {"constraints": EACH_ZONE, "replication_factor": 3},
            Code.INSUFFICIENT_CAPACITY,
            "spread[0] 'zone' min 1 excludes 1, 1 without a free slot",
        ),
        (
            "aabc",
            {2: {"resources": {"disk": 5}}, 3: {"capacity": 0}},
            {"demand": {"disk": 10}},
            Code.INSUFFICIENT_CAPACITY,
            "(1 without a free slot, 1 has less than 10 of disk free)",
        ),
    ],
    ids=["min", "resources"],
)
def test_a_repair_that_waits_names_what_holds_it_back(
    zones: str, others: dict[int, Any], given: dict[str, Any], code: Code, why: str
) -> None:
    cluster = Cluster()
    for spu_id, zone in enumerate(zones):
        has = {"labels": {"zone": zone}, "capacity": 9, "resources": {"disk": 100}}
        cluster.join(spu_id, **{**has, **others.get(spu_id, {})})
    cluster.ask("t", 1, given.pop("replication_factor", 2), **given)
    before = cluster.lists("t")
    answer = the_status(cluster.leave(before[0][0], GONE))
    assert (answer.status, answer.code) == (Status.WAITING, code)
    assert why in (answer.message or "")
    assert cluster.lists("t") == [before[0][1:]]


# Replicas of each value of a level.


ZONES = Constraints(spread=(SpreadLevel("zone", min=1),))
BROKEN = "lists break spread[0] 'zone' min 1 (1 list); they stay as they are"
BARRED = Taint("k", "v", TaintEffect.NO_NEW_REPLICAS)
TOPICS = 30


class Zoned(OneCluster):
    """SPUs in zones, and topics of `balanced`: two SPUs in each of these zones."""

    def __init__(self, zones: str = "abc") -> None:
        super().__init__(default=Policy.BALANCED)
        for number, zone in enumerate(zones):
            self.add(zone, number, number + len(zones))

    def add(self, zone: str, *spu_ids: int, capacity: int = 1_000, **more: object) -> list[Answer]:
        return self.join(*spu_ids, capacity=capacity, labels={"zone": zone}, **more)

    def ask(self, topic: str, *size: int, rules: Constraints = ZONES) -> TopicStatus:
        return the_status(self.create(topic, *size, constraints=rules))

    def zones(self, topic: str) -> list[str]:
        zones = {i: dict(spu.labels)["zone"] for i, spu in self.state.spus.items()}
        return ["".join(sorted(zones[spu_id] for spu_id in row)) for row in self.lists(topic)]


@pytest.fixture
def zoned() -> Zoned:
    return Zoned()


def test_a_zone_that_is_offline_or_cordoned_still_demands_its_replica(zoned: Zoned) -> None:
    """Else lists that are made in an outage would break the rule after it."""
    zoned.leave(2)
    zoned.cordon(5)
    answer = the_status(zoned.create("t", 1, 3, constraints=ZONES, on_shortage=OnShortage.WAIT))
    assert (answer.status, answer.code) == (Status.WAITING, Code.UNSATISFIABLE)
    assert the_status(zoned.uncordon(5)).status is Status.ASSIGNED
    assert zoned.zones("t") == ["abc"]


def test_what_leaves_is_replaced_in_its_zone_or_the_list_waits(zoned: Zoned) -> None:
    zoned.ask("t", 3, 3)
    zoned.leave(0, LeaveMode.DECOMMISSION)
    assert zoned.zones("t") == ["abc"] * 3
    zoned.add("a", 3, capacity=3)
    zoned.add("a", 6, capacity=1)
    found = zoned.leave(3, LeaveMode.DECOMMISSION)
    assert the_status(found).status is Status.WAITING
    assert sorted(zoned.zones("t")) == ["abc", "bc", "bc"]


def test_a_shorter_list_keeps_a_replica_in_each_zone(zoned: Zoned) -> None:
    """Also where the fullest SPUs, and those that are offline, are the only ones of a zone."""
    zoned.ask("t", 4, 5)
    zoned.leave(1)
    zoned.leave(4)
    answer = the_status(zoned.apply(zoned.build.replication("t", 3)))
    assert answer.status is Status.ASSIGNED
    answer = the_status(zoned.apply(zoned.build.replication("t", 2)))
    assert (answer.status, answer.code) == (Status.REJECTED, Code.UNSATISFIABLE)
    assert answer.message == (
        "partition 0 cannot hold spread[0] 'zone' min 1 with 2 replicas; "
        "relax it, or ask for more replicas"
    )
    assert zoned.zones("t") == ["abc"] * 4


@pytest.mark.parametrize("event", ["new", "taint", "leaving", "label"])
def test_a_value_to_which_replicas_may_go_now_is_demanded_whatever_makes_it_so(event: str) -> None:
    """After each of these SPU 4 is the only one of zone c that takes replicas."""
    zoned = Zoned("ab")
    if event != "new":
        zone = "a" if event == "label" else "c"
        zoned.add(zone, 4, taints=(BARRED,) if event == "taint" else ())
    if event == "leaving":  # It stays: there is nothing to copy its replica from.
        zoned.manual("only_there", [4])
        zoned.leave(4)
        zoned.leave(4, LeaveMode.DECOMMISSION)
    zoned.ask("t", 1, 2)
    found = [each for each in zoned.add("c", 4) if isinstance(each, TopicStatus)]
    assert [(each.status, each.message) for each in found if each.topic == "t"] == [
        (Status.VIOLATED, BROKEN)
    ]
    assert not [each for each in zoned.add("c", 5) if isinstance(each, TopicStatus)]
    refused = the_status(zoned.apply(zoned.build.grow("t", 3)))
    assert (refused.status, refused.code) == (Status.REJECTED, Code.UNSATISFIABLE)


# What a join may break is checked up to a limit of work.


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Zoned:
    """Topics each of which has rules of its own, and a limit that is too low for all."""
    zoned = Zoned("ab")
    for number in range(TOPICS):
        rules = Constraints(require=(f"not_for!=t{number:02d}",), spread=ZONES.spread)
        zoned.ask(f"t{number:02d}", 1, 2, rules=rules)
    monkeypatch.setattr(violations, "CHECK_LOOKS_MAX", 10 * 4_000)
    return zoned


def test_past_the_limit_topics_are_named_as_unchecked_and_constraints_check_one(
    many: Zoned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name; the answer says what to send, and that checks the topic whatever the limit is."""
    found = [each for each in many.add("c", 4) if isinstance(each, TopicStatus)]
    assert [each.topic for each in found] == [f"t{number:02d}" for number in range(TOPICS)]
    assert {each.status for each in found} == {Status.VIOLATED}
    codes = [each.code for each in found]
    count = codes.count(None)
    assert 5 < count < 20
    assert codes == [None] * count + [Code.TOO_COMPLEX] * (TOPICS - count)
    assert "send a TopicConstraints with the same rules" in (found[-1].message or "")
    monkeypatch.setattr(violations, "CHECK_LOOKS_MAX", 1)
    rules = many.state.topics["t29"].constraints or ZONES
    answers = many.apply(many.build.constraints("t29", rules))
    assert [each.message for each in answers if isinstance(each, TopicStatus)] == [None, BROKEN]
