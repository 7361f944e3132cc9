"""What a request under rules may cost is counted, and has a limit."""

from __future__ import annotations

from functools import partial

import pytest
from spu_assigner.core.base.constraints import (
    Constraints,
    SpreadLevel,
    Taint,
    TaintEffect,
)
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Event, OnShortage, Policy
from spu_assigner.core.base.records import Status, TopicStatus
from spu_assigner.core.constraints.rule_table import TAINT_RULES_MAX, topic_rules
from spu_assigner.core.constraints.work import SEARCH_STEPS_MAX, TooMuchWorkError, Work
from spu_assigner.core.decision import requests, shortage
from spu_assigner.core.decision.machine import step
from spu_assigner.core.placement.eligibility import ruled_field
from spu_assigner.core.placement.list_search import RuledRequest, conflict_of
from spu_assigner.core.placement.request import ListsRequest, place_lists
from spu_assigner.core.state.cluster_state import ClusterState
from support.events.builders import Events

# Of each group of SPUs one rule excludes all: only together do they exclude every SPU.
GROUPS = 16
EACH_GROUP = tuple(f"group!={group}" for group in range(GROUPS))
CROSSING = (SpreadLevel("feed", 1), SpreadLevel("host", 1), SpreadLevel("row", 1))


def cluster(spus: int, *, capacity: int = 1_000) -> tuple[ClusterState, Events]:
    state, events = ClusterState("c1"), Events()
    for spu_id in range(spus):
        labels = {
            "group": str(spu_id % GROUPS),
            "feed": str(spu_id % 6),
            "host": str(spu_id // 2),
            "row": str(spu_id * spu_id % 50),
        }
        joined = events.join(spu_id, labels=labels, capacity=capacity)
        step(state, joined, default_policy=Policy.BALANCED)
    return state, events


def answer(state: ClusterState, event: Event) -> TopicStatus:
    records = step(state, event, default_policy=Policy.BALANCED)
    return next(record for record in records if isinstance(record, TopicStatus))


def looked_through(state: ClusterState, constraints: Constraints, *, replicas: int) -> RuledRequest:
    """The request of one list after the rules that conflict were looked for."""
    rules = topic_rules(state, "t", constraints, ignore_rack=False)
    request = RuledRequest(rules, dict.fromkeys(range(len(state.spus)), 1_000), 1, replicas)
    assert request.fits(rules.hard) is False
    found = conflict_of(request)
    assert request.fits(found) is not True
    return request


def test_three_crossing_levels_on_a_thousand_spus_take_bounded_steps() -> None:
    state, _ = cluster(1_000)
    rules = Constraints(require=EACH_GROUP[1:], spread=CROSSING)
    request = looked_through(state, rules, replicas=7)
    assert request.steps > -SEARCH_STEPS_MAX  # a search ends with the last step, not before it


def test_where_the_steps_end_the_rules_that_are_left_still_conflict() -> None:
    """Which of them could be spared is not known then, so they are all named."""
    state, _ = cluster(64)
    rules = topic_rules(state, "t", Constraints(require=EACH_GROUP), ignore_rack=False)
    request = RuledRequest(rules, dict.fromkeys(range(64), 9), 1, 3, steps=0)
    assert conflict_of(request) == rules.hard


def test_a_create_that_waits_is_tried_again_without_a_search_for_the_conflict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state, events = cluster(64)
    answer(state, events.create("x", 1, 1))
    for number in range(20):
        create = events.create(
            f"w{number}",
            3,
            3,
            constraints=Constraints(require=EACH_GROUP),
            on_shortage=OnShortage.WAIT,
        )
        assert answer(state, create).status is Status.WAITING

    def never(*_: object) -> None:
        raise AssertionError("a conflict is searched for")

    monkeypatch.setattr(shortage, "conflict_of", never)
    assert answer(state, events.delete("x")).status is Status.DELETED
    step(state, events.join(64, labels={"group": "1"}), default_policy=Policy.BALANCED)
    assert len(state.waiting) == 20


def test_a_request_that_takes_too_much_work_says_how_many_partitions_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests, "Work", partial(Work, looks=20_000))
    state, events = cluster(100, capacity=1_000_000)
    rules = Constraints(spread=(SpreadLevel("host"),))
    refused = answer(state, events.create("t", 100_000, 3, constraints=rules))
    assert (refused.status, refused.code) == (Status.REJECTED, Code.TOO_COMPLEX)
    _, text = (refused.message or "").split("ask for at most ")
    given = int(text.split()[0])
    assert answer(state, events.create("t", given, 3, constraints=rules)).status is Status.ASSIGNED
    more = events.create("t2", given + 1, 3, constraints=rules)
    assert answer(state, more).code is Code.TOO_COMPLEX


def test_what_is_counted_does_not_depend_on_what_is_kept_in_memory() -> None:
    """A replay, and a job that was started again, have to refuse the same requests."""

    def given(state: ClusterState, looks: int) -> int:
        field = ruled_field(state, "t", Constraints(spread=CROSSING[1:2]), ignore_rack=True)
        asked = ListsRequest(1_000, 3, need=None, start=0, ignore_rack=True)
        with pytest.raises(TooMuchWorkError) as error:
            place_lists(state, field, asked, Work(looks=looks))
        return error.value.given

    cold, (warm, events) = cluster(100)[0], cluster(100)
    rules = Constraints(spread=CROSSING[1:2])
    for number in range(3):
        answer(warm, events.create("t", 40, 3, constraints=rules, ignore_rack=True))
        answer(warm, events.delete("t"))
        assert given(warm, 20_000 + number) == given(cold, 20_000 + number)


def test_very_many_taints_are_one_rule_from_some_number_on() -> None:
    """Each would cost time in each decision."""
    state, events = ClusterState("c1"), Events()
    for spu_id in range(TAINT_RULES_MAX + 10):
        taint = Taint("host", f"h{spu_id:03d}", TaintEffect.NO_NEW_REPLICAS)
        join = events.join(spu_id, taints=(taint,), labels={"a": "b"})
        step(state, join, default_policy=Policy.BALANCED)
    refused = answer(state, events.create("t", 1, 1, constraints=Constraints(require=("a=b",))))
    assert refused.code is Code.UNSATISFIABLE
    assert "taint … and 10 others (excludes 10 SPUs)" in (refused.message or "")
