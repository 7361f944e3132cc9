"""What the job cannot take off a decommissioned SPU, and the rule that holds it."""

from __future__ import annotations

from typing import Any

import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.events import Event, LeaveMode
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.stream.clusters.drain.held_topics import held_topics
from support.events.builders import Events

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
    state = state_after(
        *three(events),
        events.join(4, labels={"tier": "ssd"}),
        events.create("held", 1, factor, constraints=SSD),
        events.create("free", 6, 2),
        events.leave(4, **LEAVE),
        events.leave(3, **LEAVE),
    )
    (name, why), *others = held_topics(state, 3).items()
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


def test_nothing_is_held_before_the_job_has_followed_the_decommission() -> None:
    """Then its maps have the SPU because they are old."""
    events = Events()
    created = [*three(events), events.create("held", 1, 1, constraints=SSD)]
    assert held_topics(state_after(*created), 3) == {}
    moved = [*created, events.join(4, labels={"tier": "ssd"}), events.leave(3, **LEAVE)]
    assert held_topics(state_after(*moved), 3) == {}


def test_the_state_is_asked_and_not_changed() -> None:
    """It is asked again and again."""
    events = Events()
    created = [*three(events), events.create("held", 1, 1, constraints=SSD)]
    state = state_after(*created, events.leave(3, **LEAVE))
    assert held_topics(state, 3) == held_topics(state, 3)
    assert [*state.topics] == ["held"]
