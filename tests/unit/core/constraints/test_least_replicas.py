"""`min` of a level of `spread`: replicas of each list on each value, as the cluster changes."""

from __future__ import annotations

import pytest
from spu_assigner.core.base.constraints import Constraints, SpreadLevel, Taint, TaintEffect
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import LeaveMode, OnShortage, Policy
from spu_assigner.core.base.records import Status, TopicStatus
from spu_assigner.core.constraints import violations
from support.events.one_cluster import Answer, OneCluster, the_status

ZONES = Constraints(spread=(SpreadLevel("zone", min=1),))
BROKEN = "lists break spread[0] 'zone' min 1 (1 list); they stay as they are"
CLOSED = Taint("k", "v", TaintEffect.NO_NEW_REPLICAS)
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
def cluster() -> Zoned:
    return Zoned()


def test_a_zone_that_is_offline_or_cordoned_still_demands_its_replica(cluster: Zoned) -> None:
    """Else lists that are made in an outage would break the rule after it."""
    cluster.leave(2)
    cluster.cordon(5)
    answer = the_status(cluster.create("t", 1, 3, constraints=ZONES, on_shortage=OnShortage.WAIT))
    assert (answer.status, answer.code) == (Status.WAITING, Code.UNSATISFIABLE)
    assert the_status(cluster.uncordon(5)).status is Status.ASSIGNED
    assert cluster.zones("t") == ["abc"]


def test_what_leaves_is_replaced_in_its_zone_or_the_list_waits(cluster: Zoned) -> None:
    cluster.ask("t", 3, 3)
    cluster.leave(0, LeaveMode.DECOMMISSION)
    assert cluster.zones("t") == ["abc"] * 3
    cluster.add("a", 3, capacity=3)
    cluster.add("a", 6, capacity=1)
    found = cluster.leave(3, LeaveMode.DECOMMISSION)
    assert the_status(found).status is Status.WAITING
    assert sorted(cluster.zones("t")) == ["abc", "bc", "bc"]


def test_a_shorter_list_keeps_a_replica_in_each_zone(cluster: Zoned) -> None:
    """Also where the fullest SPUs, and those that are offline, are the only ones of a zone."""
    cluster.ask("t", 4, 5)
    cluster.leave(1)
    cluster.leave(4)
    answer = the_status(cluster.apply(cluster.build.replication("t", 3)))
    assert answer.status is Status.ASSIGNED
    answer = the_status(cluster.apply(cluster.build.replication("t", 2)))
    assert (answer.status, answer.code) == (Status.REJECTED, Code.UNSATISFIABLE)
    assert answer.message == (
        "partition 0 cannot hold spread[0] 'zone' min 1 with 2 replicas; "
        "relax it, or ask for more replicas"
    )
    assert cluster.zones("t") == ["abc"] * 4


@pytest.mark.parametrize("event", ["new", "taint", "leaving", "label"])
def test_a_value_to_which_replicas_may_go_now_is_demanded_whatever_makes_it_so(event: str) -> None:
    """After each of these SPU 4 is the only one of zone c that takes replicas."""
    cluster = Zoned("ab")
    if event != "new":
        zone = "a" if event == "label" else "c"
        cluster.add(zone, 4, taints=(CLOSED,) if event == "taint" else ())
    if event == "leaving":  # It stays: there is nothing to copy its replica from.
        cluster.manual("only_there", [4])
        cluster.leave(4)
        cluster.leave(4, LeaveMode.DECOMMISSION)
    cluster.ask("t", 1, 2)
    found = [each for each in cluster.add("c", 4) if isinstance(each, TopicStatus)]
    assert [(each.status, each.message) for each in found if each.topic == "t"] == [
        (Status.VIOLATED, BROKEN)
    ]
    assert not [each for each in cluster.add("c", 5) if isinstance(each, TopicStatus)]
    refused = the_status(cluster.apply(cluster.build.grow("t", 3)))
    assert (refused.status, refused.code) == (Status.REJECTED, Code.UNSATISFIABLE)


# What a join may break is checked up to a limit of work.


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Zoned:
    """Topics each of which has rules of its own, and a limit that is too low for all."""
    cluster = Zoned("ab")
    for number in range(TOPICS):
        rules = Constraints(require=(f"not_for!=t{number:02d}",), spread=ZONES.spread)
        cluster.ask(f"t{number:02d}", 1, 2, rules=rules)
    monkeypatch.setattr(violations, "CHECK_LOOKS_MAX", 10 * 4_000)
    return cluster


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
