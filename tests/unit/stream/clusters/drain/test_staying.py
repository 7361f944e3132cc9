"""Why partitions stay on a broker that is drained, and what holds them there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.events import Event, LeaveMode
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.messages.wire import AppliedTopic, Origin
from spu_assigner.stream.clusters.drain.staying import (
    BY_HAND,
    CHANGED,
    DELETED,
    MOVING,
    NO_MAP,
    held_topics,
    staying_lines,
)
from spu_assigner.stream.clusters.plan.decision import NOT_OURS, make_plan
from spu_assigner.stream.clusters.plan.model import Maps
from support.events.builders import Events
from support.events.plans import Topics, kafka, maps, record, recorded, there, wanted

MADE = record("t", Origin.CREATED)
ON_3 = [[1, 3]]


def stays(
    wanted_maps: Maps,
    topics: Topics,
    *records: AppliedTopic,
    rules: Mapping[str, str] | None = None,
) -> list[str]:
    """What is said of the partitions on broker 3 that are not moved."""
    cluster = kafka(topics)
    plan = make_plan(wanted_maps, cluster, applied=recorded(*records))
    taken = {(each.topic, each.partition) for each in plan.moved_partitions()}
    held = [
        (topic, number)
        for topic, partitions in cluster.topics.items()
        for number, each in enumerate(partitions)
        if 3 in each.replicas and (topic, number) not in taken
    ]
    many = len(held) > 1
    begin = f"t: {len(held)} replica{'s stay' if many else ' stays'} on the broker: "
    lines = list(staying_lines(plan, held, rules or {}))
    assert all(line.startswith("t: ") for line in lines)
    return [line.removeprefix(begin) for line in lines]


@pytest.mark.parametrize(
    ("wanted_maps", "topics", "records", "reasons"),
    [
        (maps({}), {"t": ON_3}, (), [NO_MAP]),
        (maps({"t": [[1, 2]]}), {"t": there([[1, 2, 3]], [[1, 3]])}, (MADE,), [MOVING]),
        (maps({"t": [[1, 2]]}), {"t": ON_3}, (MADE,), []),
        (maps({"t": None}), {"t": ON_3}, (MADE,), [DELETED]),
        (maps({"t": None}), {"t": ON_3}, (), [f"the topic {NOT_OURS}; it has no map: {BY_HAND}"]),
        (maps({"t": ON_3}), {"t": ON_3}, (MADE,), [CHANGED]),
    ],
    ids=["no map", "moving", "moved", "deleted", "kept", "changed"],
)
def test_what_stays_is_reported_with_its_own_reason(
    wanted_maps: Maps, topics: Topics, records: Sequence[AppliedTopic], reasons: list[str]
) -> None:
    """To adopt a topic that has a map changes nothing."""
    assert stays(wanted_maps, topics, *records) == reasons


def test_partitions_of_one_topic_stay_for_different_reasons() -> None:
    """One is moved now, one is being moved, and two wait; each is counted."""
    lists = wanted([[1, 2], [1, 2], [1], [2]], factor=2)
    found = there([[1, 3], [1, 2, 3], [1, 3], [2, 3]], [[1, 3], [1, 3], [1, 3], [2, 3]])
    moving, waiting = stays(maps({"t": lists}), {"t": found}, MADE)
    assert moving == f"t: 1 replica stays on the broker: {MOVING}"
    assert waiting.startswith("t: 2 replicas stay on the broker: the lists of partitions 2, 3 wait")
    rules = {"t": "no list holds a rule", "u": "another"}
    for asked in (maps({"t": ON_3}), maps({"t": wanted([[1]], factor=2)})):
        [held] = stays(asked, {"t": ON_3}, MADE, rules=rules)
        assert held == "no list holds a rule; run this again when that is done"


SSD = Constraints(require=("tier in (ssd)",))
LEAVE = {"mode": LeaveMode.DECOMMISSION}
RULE = "cannot hold require[0] 'tier in (ssd)' (excludes 2 SPUs), with 2 SPUs online; "


def state_after(*given: Event) -> ClusterState:
    assigner = Assigner()
    for event in given:
        assigner.apply(event)
    return assigner.clusters["c1"]


def three(events: Events, **of_third: Any) -> list[Event]:
    """SPU 3 alone has a disk that some topics require."""
    return [
        *(events.join(spu_id) for spu_id in (1, 2)),
        events.join(3, labels={"tier": "ssd"}, **of_third),
    ]


@pytest.mark.parametrize("factor", [1, 2])
def test_a_topic_that_cannot_leave_is_named_with_the_rule_that_holds_it(factor: int) -> None:
    """Of one replica the list keeps the SPU; of two it is short. The job says the same of both."""
    events = Events()
    created = [
        *three(events),
        events.join(4, labels={"tier": "ssd"}),
        events.create("held", 1, factor, constraints=SSD),
        events.create("free", 6, 2),
    ]
    left = [*created, events.leave(4, **LEAVE), events.leave(3, **LEAVE)]
    assert held_topics(state_after(*created), 3) == {}  # The job has not followed it yet.
    (name, why), *others = held_topics(state_after(*left), 3).items()
    assert (name, others) == ("held", [])
    count = "1 replica" if factor == 1 else "2 replicas"
    assert why.startswith(f"1 list of {count} {RULE}"), why
    assert why.endswith("(UNSATISFIABLE)")


def test_without_a_rule_it_is_what_the_job_says_of_a_topic_that_waits() -> None:
    """Here there is no other SPU."""
    events = Events()
    state = state_after(events.join(1), events.create("t", 1, 1), events.leave(1, **LEAVE))
    (why,) = held_topics(state, 1).values()
    assert "no other SPU can take the replicas" in why
    assert why.endswith("(INSUFFICIENT_SPUS)")
