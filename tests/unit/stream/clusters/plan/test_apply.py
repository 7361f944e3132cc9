"""What `apply` does with a plan, and what it prints of it: requests, records, lines in order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from spu_assigner.schemas.messages.wire import AppliedTopic, Origin
from spu_assigner.stream.clusters.plan import apply
from spu_assigner.stream.clusters.plan.applied import AppliedRecords
from spu_assigner.stream.clusters.plan.apply import CHANGES_MAX, apply_plan
from spu_assigner.stream.clusters.plan.decision import make_plan
from spu_assigner.stream.clusters.plan.model import (
    AppliedPlan,
    TopicChange,
    TopicFailure,
    TopicsPlan,
)
from spu_assigner.stream.clusters.plan.rendering import apply_lines, done_line, left_lines
from support.events.plans import kafka, maps, record, recorded


class Apply:
    """A Kafka cluster and its records, which write down what is asked of them.

    Args:
        refused: topics of which Kafka refuses the creation.
        overtaken: topics that another run makes first.
        unseen: topics that no broker shows.
    """

    def __init__(
        self,
        *,
        refused: Collection[str] = (),
        overtaken: Collection[str] = (),
        unseen: Collection[str] = (),
    ) -> None:
        self.steps: list[tuple[str, list[str]]] = []
        self._refused, self._overtaken, self._unseen = refused, overtaken, unseen

    def run(self, plan: TopicsPlan) -> AppliedPlan:
        given: Any = self  # as the target, and as the ledger
        return apply_plan(plan, given, given, lambda change: self._step("report", [change.topic]))

    def send(self, changes: Sequence[TopicChange]) -> list[TopicFailure]:
        self._step(changes[0].kind, [each.topic for each in changes])
        return [
            TopicFailure(
                topic=each.topic,
                kind=each.kind,
                reason="no.",
                is_overtaken=each.topic in self._overtaken,
            )
            for each in changes
            if each.topic in (*self._refused, *self._overtaken)
        ]

    def done(self, changes: Sequence[TopicChange], _: float) -> dict[str, str]:
        return {each.topic: "id" for each in changes if each.topic not in self._unseen}

    def record(self, records: Sequence[AppliedTopic]) -> None:
        origins = {each.origin for each in records}
        for origin in sorted(origins):
            self._step(origin, [each.topic for each in records if each.origin is origin])

    def read(self) -> AppliedRecords:
        return recorded(*(record(topic, Origin.CREATED) for topic in self._overtaken))

    def withdraw(self, topics: Iterable[str]) -> None:
        self._step("withdraw", topics)

    def forget(self, topics: Iterable[str]) -> None:
        self._step("forget", topics)

    def _step(self, what: str, topics: Iterable[str]) -> None:
        if named := list(topics):
            self.steps.append((what, named))


def planned(asked: dict[str, Any], found: dict[str, Any]) -> TopicsPlan:
    made = recorded(*(record(topic, Origin.CREATED) for topic in found))
    return make_plan(maps(asked), kafka(found), applied=made, delete=True)


def test_all_is_made_recorded_and_reported() -> None:
    """A creation as intended before it is requested, and as made before it is reported."""
    plan = planned({"new": [[1]], "wide": [[1], [2]], "old": None}, {"wide": [[1]], "old": [[1]]})
    run = Apply()
    assert run.run(plan) == AppliedPlan(
        plan=plan, created=("new",), grown=("wide",), deleted=("old",)
    )
    assert run.steps == [
        *(("intent", ["new"]), ("create", ["new"]), ("created", ["new"]), ("report", ["new"])),
        *(("change", ["wide"]), ("report", ["wide"])),
        *(("delete", ["old"]), ("forget", ["old"]), ("report", ["old"])),
    ]
    assert [done_line(change) for change in plan.changes] == [
        "created  new  1 partition",
        "deleted  old",
        "grown    wide  1 → 2 partitions",
    ]


def test_what_is_refused_leaves_all_else_done_and_has_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What another run has made is done, and whose it is the other one knows."""
    monkeypatch.setattr(apply, "SEEN_SECONDS_MAX", 1.0)
    names = ("bad", "good", "late", "taken")
    found = {"moved": [[1]]}
    plan = planned({**{name: [[1]] for name in names}, "moved": [[2]], "off": [[9]]}, found)
    run = Apply(refused={"bad"}, overtaken={"taken"}, unseen={"late"})
    result = run.run(plan)
    assert result.created == ("good", "taken")
    assert ("created", ["good"]) in run.steps
    assert ("withdraw", ["bad"]) in run.steps
    assert run.steps[-1] == ("withdraw", ["taken"])
    assert list(left_lines(result)) == [
        "bad: was not created: no; fix that and run again",
        "late: was not created: Kafka accepted it, and shows something else after 1 s; fix that "
        "and run again",
        "off: its map names SPUs 9, and Kafka's live brokers are 1, 2, 3; start them, or "
        "decommission these SPUs (`spu-assigner produce spu-left --mode decommission`)",
        "1 partition of moved is to move: run `apply --moves`",
    ]
    whole = replace(result, found=("f",), released=("r",))
    assert list(apply_lines(whole)) == [
        "found    f  as mapped; apply did not make it",
        "released r  it stays in Kafka",
        "2 created, 0 grown, 0 deleted; 0 as mapped before",
    ]


def test_requests_have_a_size_that_the_controller_takes() -> None:
    """Each batch is recorded and reported before the next is sent."""
    many = {f"t{number:03}": [[1]] for number in range(CHANGES_MAX)}
    run = Apply()
    run.run(planned({**many, "u": [[1]] * 1_999, "v": [[1]] * 2}, {}))
    sent = [topics for what, topics in run.steps if what == "create"]
    assert sent == [[*many], ["u"], ["v"]]
    assert run.run(planned({}, {})).created == ()
