"""Kafka 4's striped placer as a policy: what is drawn, who leads, offline SPUs, saturation.

`tests/broker/placers/test_kraft_policy.py` holds it against Kafka's own class.
"""

from __future__ import annotations

import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import Event, LeaveMode, Policy
from spu_assigner.core.base.records import (
    Answer,
    Mode,
    ReplicaMap,
    Status,
    TopicStatus,
)
from spu_assigner.core.explain.decisions import ExplainingAssigner
from spu_assigner.core.explain.placement_decision import PlacementDecision
from spu_assigner.core.policies.striped import stripes_seed
from spu_assigner.core.rules.kraft import SeededDraws, Stripes, shuffle
from spu_assigner.stream.client.explanation import decision_lines
from support.events.builders import Events


class Nothing(SeededDraws):
    """Draws 0 for ever."""

    def below(self, bound: int) -> int:
        assert bound > 0
        return 0


def answers(*events: Event) -> list[Answer]:
    """All answers to the events, in order."""
    assigner = Assigner(Policy.KRAFT)
    return [answer for event in events for answer in assigner.apply(event)]


def maps(*events: Event) -> list[ReplicaMap]:
    return [answer for answer in answers(*events) if isinstance(answer, ReplicaMap)]


def lists_of(found: ReplicaMap) -> list[list[int]]:
    assert found.replicas is not None
    return found.replicas.tolist()


def test_what_is_drawn_is_what_java_util_random_draws() -> None:
    """`new Random(42)`: nextInt(10) ten times, then a bound that is a power of 2."""
    draws = SeededDraws(42)
    assert [draws.below(10) for _ in range(10)] == [0, 3, 8, 4, 0, 5, 5, 8, 9, 3]
    assert all(0 <= draws.below(16) < 16 for _ in range(100))
    items = list(range(5))
    shuffle(items, SeededDraws(7))
    assert sorted(items) == list(range(5)) != items


def test_the_worked_example_of_the_rule() -> None:
    """Racks in turn; an offline SPU where its rack has no online one, but never as a leader."""
    stripes = Stripes({0: "a", 1: "a", 2: "b"}, {3: "c"}, Nothing(0))
    assert [stripes.next(3) for _ in range(3)] == [[0, 2, 3], [2, 3, 1], [0, 3, 2]]


def test_the_seed_is_cluster_topic_and_chain_index() -> None:
    """The same question has the same answer; the same topic later has another."""
    assert stripes_seed("c1", "t", 0) == 0xD7D8AF126C716812
    events = Events()
    joins = events.racks({"a": [0, 1, 2], "b": [3, 4, 5], "c": [6, 7]})
    create, again = events.create("t", 8, 3), events.create("t", 8, 3)
    first, _, second = maps(*joins, create, events.delete("t"), again)
    [alone] = maps(*joins, create)
    assert lists_of(alone) == lists_of(first) != lists_of(second)
    assert first.reason is not None
    assert second.reason is not None
    assert (first.reason.start_index, first.chain_index, second.reason.start_index) == (0, 8, 8)
    draws = SeededDraws(stripes_seed("c1", "t", 0))
    stripes = Stripes(dict(enumerate("aaabbbcc")), {}, draws)
    assert lists_of(first) == [stripes.next(3) for _ in range(8)]


def test_an_offline_spu_comes_last_and_never_leads() -> None:
    """Kafka's fenced brokers: SPU 3 makes lists of four possible, and is the last of each."""
    events = Events()
    joins = [*events.joins(0, 1, 2, 3), events.leave(3)]
    [found] = maps(*joins, events.create("t", 6, 4))
    assert [row[-1] for row in lists_of(found)] == [3] * 6
    [small] = maps(*joins, events.create("t", 6, 3))
    assert all(3 not in row for row in lists_of(small))


@pytest.mark.parametrize("last", ["leaving", "cordoned", "full"])
def test_an_offline_spu_that_may_take_nothing_is_not_asked(last: str) -> None:
    """A leaving, a cordoned and a full SPU take no replicas, offline or not."""
    events = Events()
    joins = [*events.joins(0, 1, 2), events.join(3, capacity=0 if last == "full" else None)]
    if last == "cordoned":
        joins.append(events.cordon(3))
    held = [events.manual("m", [3])] if last == "leaving" else []
    mode = LeaveMode.DECOMMISSION if last == "leaving" else LeaveMode.OFFLINE
    asked = [events.create("t", 1, 4)]
    status = answers(*joins, *held, events.leave(3, mode=mode), *asked)[-1]
    assert isinstance(status, TopicStatus)
    assert (status.status, status.code) == (Status.REJECTED, "INSUFFICIENT_SPUS")


def test_without_an_online_spu_nobody_could_lead() -> None:
    """As in Kafka, where all brokers are fenced."""
    events = Events()
    joins = [*events.joins(0, 1), events.leave(0), events.leave(1)]
    status = answers(*joins, events.create("t", 1, 2))[-1]
    assert isinstance(status, TopicStatus)
    assert status.message == (
        "replication_factor 2 needs 2 more SPUs: the ring has 0, and 2 SPUs are offline and cannot "
        "lead; add SPUs or ask for fewer replicas"
    )


def decisions(*events: Event) -> list[PlacementDecision]:
    """Why the lists of the last event are as they are."""
    assigner = ExplainingAssigner(Policy.KRAFT)
    *_, last = (assigner.apply(event) for event in events)
    return [decision for _, reasons in last for _, decision in reasons]


def test_explain_says_what_was_drawn_and_who_is_offline() -> None:
    """As for each policy: the ring, then each replica."""
    events = Events()
    joins = [*events.racks({"a": [0], "b": [1]}), events.leave(1)]
    [decision] = decisions(*joins, events.create("t", 1, 2))
    assert decision.reason is not None
    assert decision.reason.mode is Mode.STRIPED
    assert decision_lines(decision) == [
        "kraft: racks in turn, from drawn places, as Kafka 4",
        "ring of 1; what is drawn follows from cluster, topic and chain index 0",
        "leader   SPU 0: rack a",
        "follower SPU 1: rack b, offline",
        "not in the ring: SPU 1, offline",
        "repeated for this answer: the same comes out",
    ]
