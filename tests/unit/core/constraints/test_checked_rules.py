"""Which topics are checked when an SPU joins or changes: those whose rules may break, up to a limit
of work."""

from __future__ import annotations

from typing import Any

import pytest
from spu_assigner.core.base.constraints import Constraints, SpreadLevel, Taint, TaintEffect
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import LeaveMode, Policy
from spu_assigner.core.base.records import Status, TopicStatus
from spu_assigner.core.constraints import violations
from spu_assigner.core.decision.machine import step
from spu_assigner.core.saving import state_from_json, state_to_json
from support.events.one_cluster import Answer, OneCluster

TOPICS = 30
ZONES = (SpreadLevel("zone", min=1),)
CLOSED = Taint("k", "v", TaintEffect.NO_NEW_REPLICAS)


def statuses(found: list[Answer]) -> list[TopicStatus]:
    return [each for each in found if isinstance(each, TopicStatus)]


class Ruled(OneCluster):
    """SPUs 0 to 3 in zones a and b, and topics each of which has rules of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.join(0, 2, **self.described("a"))
        self.join(1, 3, **self.described("b"))

    def described(self, zone: str, **labels: str) -> dict[str, Any]:
        return {"capacity": 1_000, "labels": {"zone": zone, "tier": "ssd", **labels}}

    def ask(self, topic: str, **rules: Any) -> None:
        rules = {"require": ("tier=ssd", f"not_for!={topic}"), **rules}
        self.create(topic, 1, 2, policy=Policy.BALANCED, constraints=Constraints(**rules))

    def ask_many(self, **rules: Any) -> list[str]:
        names = [f"t{number:02d}" for number in range(TOPICS)]
        for name in names:
            self.ask(name, **rules)
        return names

    def constrain(self, topic: str) -> list[Answer]:
        constraints = self.state.topics[topic].constraints
        assert constraints is not None
        return self.apply(self.build.constraints(topic, constraints))


@pytest.fixture
def cluster() -> Ruled:
    return Ruled()


@pytest.mark.parametrize("event", ["new", "taint", "leaving", "label"])
def test_a_value_to_which_replicas_may_go_now_is_demanded_whatever_makes_it_so(
    cluster: Ruled, event: str
) -> None:
    """After each of these SPU 4 is the only one of zone c that takes replicas."""
    if event != "new":
        taints = (CLOSED,) if event == "taint" else ()
        cluster.join(4, **cluster.described("a" if event == "label" else "c"), taints=taints)
    if event == "leaving":  # It stays: there is nothing to copy its replica from.
        cluster.manual("only_there", [4])
        cluster.leave(4)
        cluster.leave(4, LeaveMode.DECOMMISSION)
    cluster.ask("t", spread=ZONES)
    found = statuses(cluster.join(4, **cluster.described("c")))
    assert [(each.topic, each.status, each.message) for each in found if each.topic == "t"] == [
        (
            "t",
            Status.VIOLATED,
            "lists break spread[0] 'zone' min 1 (1 list); they stay as they are",
        )
    ]
    assert statuses(cluster.join(4, **cluster.described("c"), resources={"x": 1})) == []


def test_past_the_limit_topics_are_named_as_unchecked_and_constraints_check_one(
    cluster: Ruled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name; the answer says what to send, and that checks the topic whatever the limit is."""
    names = cluster.ask_many(spread=ZONES)
    monkeypatch.setattr(violations, "CHECK_LOOKS_MAX", 10 * 4_000)
    found = statuses(cluster.join(4, **cluster.described("c")))
    assert [each.topic for each in found] == names
    assert {each.status for each in found} == {Status.VIOLATED}
    count = [each.code for each in found].count(None)
    assert 5 < count < 20
    assert [each.code for each in found] == [None] * count + [Code.TOO_COMPLEX] * (TOPICS - count)
    assert "send a TopicConstraints with the same rules" in (found[-1].message or "")
    monkeypatch.setattr(violations, "CHECK_LOOKS_MAX", 1)
    answers = statuses(cluster.constrain(names[-1]))
    assert [(each.status, each.message) for each in answers] == [
        (Status.ASSIGNED, None),
        (Status.VIOLATED, found[0].message),
    ]


def test_what_is_checked_depends_on_the_state_alone(
    cluster: Ruled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables that are kept in memory change nothing: a replay answers the same."""
    cluster.ask_many(spread=ZONES)
    monkeypatch.setattr(violations, "CHECK_LOOKS_MAX", 10 * 4_000)
    cold = state_from_json(state_to_json(cluster.state))
    for number in range(3):
        cluster.create(
            f"more{number}", 1, 9, policy=Policy.BALANCED, constraints=Constraints(spread=ZONES)
        )
    event = cluster.build.join(4, **cluster.described("c"))
    assert step(cold, event, default_policy=Policy.FLUVIO) == step(
        cluster.state, event, default_policy=Policy.FLUVIO
    )
