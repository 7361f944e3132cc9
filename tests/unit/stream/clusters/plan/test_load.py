"""What a plan costs: bytes, load before and after, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.schemas.messages.wire import Origin
from spu_assigner.stream.clusters.plan.decision import make_plan, plan_load
from spu_assigner.stream.clusters.plan.model import BrokerLoad, KafkaCluster, PlanLoad, TopicsPlan
from spu_assigner.stream.clusters.plan.rendering import plan_lines
from spu_assigner.stream.kafka.log_dirs import ReplicaSizes, UnseenReplicas
from support.events.plans import Topics, kafka, maps, record, recorded, there

Sizes = Mapping[tuple[str, int], Mapping[int, int]]
Held = tuple[int, int, int | None]


def costed(
    asked: Mapping[str, Any],
    cluster: KafkaCluster,
    sizes: Sizes,
    *,
    reporting: frozenset[int] = frozenset({1, 2, 3}),
    unseen: UnseenReplicas | None = None,
) -> TopicsPlan:
    """A plan of topics that apply made, with what it costs."""
    made = recorded(*(record(topic, Origin.CREATED) for topic in cluster.ids))
    plan = make_plan(maps(asked), cluster, applied=made, delete=True)
    unseen = unseen or UnseenReplicas()
    held = ReplicaSizes(brokers=reporting, sizes=sizes)
    load = plan_load(plan, cluster, held, unseen)
    return replace(plan, load=load, unseen=unseen.summary)


def broker(number: int, before: Held, after: Held, *moved: int) -> BrokerLoad:
    """Replicas, leaders and bytes before and after; bytes in and out."""
    came, went = (*moved, 0, 0)[:2]
    return BrokerLoad(
        broker=number,
        replicas_before=before[0],
        leaders_before=before[1],
        bytes_before=before[2],
        replicas_after=after[0],
        leaders_after=after[1],
        bytes_after=after[2],
        bytes_in=came,
        bytes_out=went,
    )


BEGUN = there([[2, 3, 1]], [[1, 2]])  # the replicas of a move first, then those given up


@pytest.mark.parametrize(
    ("asked", "found", "sizes", "brokers"),
    [
        pytest.param(
            {"t": [[2, 3]]},
            {"t": [[1, 2]], "other": [[1]]},
            {("t", 0): {1: 90, 2: 100}, ("other", 0): {1: 7}},
            [
                broker(1, (2, 2, 97), (1, 1, 7), 0, 90),
                broker(2, (1, 0, 100), (1, 1, 100)),
                broker(3, (0, 0, 0), (1, 0, 100), 100),
            ],
            id="the largest replica is copied whole, one that goes frees its own bytes",
        ),
        pytest.param(
            {"t": [[2, 3]]},
            {"t": BEGUN},
            {("t", 0): {1: 100, 2: 100, 3: 40}},
            [
                broker(1, (1, 0, 100), (0, 0, 0), 0, 100),
                broker(2, (1, 1, 100), (1, 1, 100)),
                broker(3, (1, 0, 40), (1, 0, 100), 60),
            ],
            id="of a copy that Kafka has begun only the rest counts",
        ),
        pytest.param(
            {"old": None, "grown": [[1], [3]], "new": [[3, 2]]},
            {"old": [[1, 2]], "grown": [[1]]},
            {("old", 0): {1: 8, 2: 8}, ("grown", 0): {1: 2}},
            [
                broker(1, (2, 2, 10), (1, 1, 2)),
                broker(2, (1, 0, 8), (1, 0, 0)),
                broker(3, (0, 0, 0), (2, 2, 0)),
            ],
            id="new topics come empty, and deleted ones free their bytes",
        ),
    ],
)
def test_a_plan_says_what_each_broker_holds_before_and_after(
    asked: Mapping[str, Any], found: Topics, sizes: Sizes, brokers: list[BrokerLoad]
) -> None:
    """It is what a person decides by."""
    load = costed(asked, kafka(found), sizes).load
    assert list(load.brokers) == brokers
    assert load.bytes_to_copy == sum(each.bytes_in for each in brokers)


def test_replicas_that_the_user_may_not_see_are_load_and_said_to_have_no_map() -> None:
    """Brokers report them, and who leads them is not known."""
    unseen = UnseenReplicas(sizes={("hidden", 0): {1: 6, 2: 5}})
    plan = costed({"t": [[3]]}, kafka({"t": [[1]]}), {("t", 0): {1: 9}}, unseen=unseen)
    assert list(plan.load.brokers) == [
        broker(1, (2, 1, 15), (1, 0, 6), 0, 9),
        broker(2, (1, 0, 5), (1, 0, 5)),
        broker(3, (0, 0, 0), (1, 1, 9), 9),
    ]
    assert list(plan_lines(plan))[-1] == (
        "2 replicas of 1 topic that you may not see (hidden): not compared with any map, and "
        "counted above without leaders"
    )


def test_what_no_broker_reports_is_not_known_and_not_nothing() -> None:
    """A user who may not Describe the cluster must not read that moving is free."""
    asked, cluster = {"t": [[2]], "u": [[3]]}, kafka({"t": [[1]], "u": [[1]]})
    none = costed(asked, cluster, {}, reporting=frozenset())
    assert "2 replicas to copy; how many bytes is not known: " in "\n".join(plan_lines(none))
    assert replace(none.load, brokers=()) == PlanLoad(
        replicas_to_copy=2, replicas_unsized=2, bytes_to_copy=None
    )
    assert none.load.brokers[0].bytes_before is None
    partly = costed(asked, cluster, {("t", 0): {1: 6}})
    line = "2 replicas to copy, 6 B, without 1 whose bytes no broker reports"
    assert line in list(plan_lines(partly))


ROW = st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True)
LISTS = st.lists(ROW, min_size=1, max_size=4)
TOPICS = st.dictionaries(st.sampled_from("abcdef"), LISTS)


@given(asked=TOPICS, found=TOPICS, data=st.data())
def test_no_replica_leader_or_byte_is_lost_or_invented(
    asked: dict[str, Any], found: dict[str, Any], data: st.DataObject
) -> None:
    """Whatever the plan."""
    cluster = replace(kafka(found), brokers=(1, 2, 3, 4, 5))
    sizes = {
        (name, number): dict.fromkeys(row, data.draw(st.integers(0, 9)))
        for name, rows in found.items()
        for number, row in enumerate(rows)
    }
    plan = costed(asked, cluster, sizes, reporting=frozenset(cluster.brokers))
    after = {**found, **{change.topic: change.after for change in plan.changes}}
    rows = [row for lists in after.values() for row in lists]
    brokers = plan.load.brokers
    assert sum(each.replicas_after for each in brokers) == sum(map(len, rows))
    assert sum(each.leaders_after for each in brokers) == len(rows)
    assert sum(each.bytes_in for each in brokers) == plan.load.bytes_to_copy
    for each in brokers:
        assert each.bytes_before is not None
        assert each.bytes_after == each.bytes_before + each.bytes_in - each.bytes_out
        assert each.bytes_after >= 0
