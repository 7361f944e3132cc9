"""What one event may ask to be done: past a limit it is rejected, and says how to ask for less."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from spu_assigner.core.base.constraints import Constraints, Taint, TaintEffect
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import (
    LeaveMode,
    Policy,
    SpuDemote,
    SpuJoined,
    SpuLeft,
    TopicCreate,
    TopicDelete,
    TopicGrow,
    TopicReplication,
)
from spu_assigner.core.base.limits import LOOKS_EACH
from spu_assigner.core.base.records import Record, Status, TopicStatus
from spu_assigner.core.decision import machine, replication
from spu_assigner.core.placement import list_repair
from spu_assigner.core.policies import planner, striped
from spu_assigner.core.state.cluster_state import ClusterState


class Asking:
    def __init__(self, spus: int, capacity: int = 10_000) -> None:
        self.state = ClusterState("c")
        self._events = 0
        for spu_id in range(spus):
            self.do(SpuJoined, spu_id=spu_id, capacity=capacity)

    def do(self, kind: type[Any], **fields: Any) -> Sequence[Record]:
        self._events += 1
        event = kind(event_id=f"e{self._events}", cluster_id="c", **fields)
        return machine.step(self.state, event, default_policy=Policy.BALANCED)

    def answer(self, kind: type[Any], **fields: Any) -> TopicStatus:
        records = self.do(kind, **fields)
        return next(record for record in records if isinstance(record, TopicStatus))


def test_another_factor_in_one_go_is_rejected_and_in_steps_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer names the first step."""
    monkeypatch.setattr(replication, "RESIZE_MOVES_MAX", 200)
    asking = Asking(8)
    asking.do(TopicCreate, topic="t", partitions=100, replication_factor=1)
    refused = asking.answer(TopicReplication, topic="t", replication_factor=6)
    assert (refused.status, refused.code) == (Status.REJECTED, Code.TOO_MANY_MOVES)
    assert (refused.message or "").endswith("the first to replication_factor 3")
    for factor in (3, 5, 6, 4, 2, 1):
        answer = asking.answer(TopicReplication, topic="t", replication_factor=factor)
        assert answer.status is Status.ASSIGNED


@pytest.mark.parametrize("policy", [Policy.RENDEZVOUS, Policy.FLUVIO, Policy.KAFKA, Policy.KRAFT])
def test_a_create_that_takes_too_many_looks_is_rejected_and_in_parts_it_is_not(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rendezvous` scores each SPU for each partition; the others put a ring in order anew for each
    SPU that becomes saturated."""
    for module in (planner, striped):
        monkeypatch.setattr(module, "PLACING_LOOKS_MAX", 12 * LOOKS_EACH)
    asking = Asking(12, capacity=50)
    for spu_id in range(12):  # One after the other fills.
        asking.do(SpuJoined, spu_id=spu_id, capacity=40 + spu_id)
    wanted = 260
    request: dict[str, Any] = {"topic": "t", "replication_factor": 2, "policy": policy}
    refused = asking.answer(TopicCreate, partitions=wanted, **request)
    assert (refused.status, refused.code) == (Status.REJECTED, Code.TOO_COMPLEX)
    found = re.search(r"ask for (\d+)", refused.message or "")
    assert found is not None
    partitions = int(found[1])
    assert asking.answer(TopicCreate, partitions=partitions, **request).status is Status.ASSIGNED
    grown = asking.answer(TopicGrow, topic="t", partitions=partitions + 1)
    assert grown.status is Status.ASSIGNED


@pytest.mark.parametrize("constraints", [None, Constraints(require=("!spot",))])
@pytest.mark.parametrize("evicts", [False, True])
def test_what_one_event_does_not_move_the_next_ones_do(
    constraints: Constraints | None, evicts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large topic, and of many; the answer says so, and nothing else has to be asked."""
    monkeypatch.setattr(list_repair, "RETRY_LOOKS_MAX", 1_500)
    asking = Asking(4)
    for name, partitions in (("a", 80), ("b", 4), ("c", 4)):
        rules = {"partitions": partitions, "constraints": constraints}
        asking.do(TopicCreate, topic=name, replication_factor=3, **rules)
    if evicts:
        taints = (Taint("k", "v", TaintEffect.EVICT),)
        records = asking.do(SpuJoined, spu_id=0, taints=taints)
    else:
        records = asking.do(SpuLeft, spu_id=0, mode=LeaveMode.DECOMMISSION)
    answers = [each for each in records if isinstance(each, TopicStatus)]
    assert {each.topic for each in answers} == {"a", "b", "c"}
    assert {each.code for each in answers} == {Code.TOO_MANY_MOVES}
    before, events = asking.state.ledger.count(0), 0
    assert 0 < before < 66
    while asking.state.retries is not None:
        asking.do(TopicDelete, topic="unknown")
        left = 0 if 0 not in asking.state.spus else asking.state.ledger.count(0)
        assert left < before or left == 0
        before, events = left, events + 1
    assert (before, asking.state.waiting) == (0, {})
    assert events > 1


def test_leads_that_one_event_does_not_give_away_the_next_ones_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A demoted SPU keeps none that another can take."""
    monkeypatch.setattr(list_repair, "RETRY_LOOKS_MAX", 300)
    asking = Asking(3)
    for number in range(6):
        asking.do(TopicCreate, topic=f"t{number}", partitions=3, replication_factor=3)
    asking.do(SpuDemote, spu_id=0)
    ids = np.array([0], dtype=np.int32)
    left = [int(asking.state.ledger.leaders(ids)[0])]
    while asking.state.retries is not None:
        asking.do(TopicDelete, topic="unknown")
        left.append(int(asking.state.ledger.leaders(ids)[0]))
    assert 0 < left[0] < 6
    assert left[-1] == 0


def test_topics_share_the_candidates_of_a_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look at all SPUs for each topic takes longer than to repair it; what one topic is given
    the next one counts."""
    asking = Asking(7)
    for number in range(10):
        asking.do(TopicCreate, topic=f"t{number}", partitions=7, replication_factor=3)
    looks = []
    found = list_repair.topic_chooser
    monkeypatch.setattr(
        list_repair, "topic_chooser", lambda *given: looks.append(given[1]) or found(*given)
    )
    asking.do(SpuLeft, spu_id=0, mode=LeaveMode.DECOMMISSION)
    assert len(looks) == 1
    assert all(34 <= asking.state.ledger.count(spu_id) <= 36 for spu_id in range(1, 7))
