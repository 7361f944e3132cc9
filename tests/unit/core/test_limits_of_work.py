"""What one event may ask to be done: past a limit it is rejected, and says how to ask for less."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from spu_assigner.core.base.constraints import Constraints, Taint, TaintEffect
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import (
    LeaveMode,
    Policy,
    SpuId,
    SpuJoined,
    SpuLeft,
    TopicCreate,
    TopicGrow,
    TopicReplication,
)
from spu_assigner.core.base.limits import LOOKS_EACH
from spu_assigner.core.base.records import Record, RingChange, RingEvent, Status, TopicStatus
from spu_assigner.core.decision import machine, membership, repair, replication
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


def test_an_spu_with_very_many_replicas_under_constraints_is_not_emptied_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a decommission or a taint; without constraints it is."""
    monkeypatch.setattr(membership, "ruled_moves_max", lambda _: 10)
    asking = Asking(4)
    rules = Constraints(require=("!spot",))
    for name, constraints in (("plain", None), ("ruled", rules)):
        asking.do(
            TopicCreate, topic=name, partitions=20, replication_factor=2, constraints=constraints
        )
        if constraints is None:
            asking.do(SpuLeft, spu_id=3, mode=LeaveMode.DECOMMISSION)
            assert 3 not in asking.state.spus
    taint = Taint("k", "v", TaintEffect.EVICT)
    for event in (
        (SpuLeft, {"spu_id": 0, "mode": LeaveMode.DECOMMISSION}),
        (SpuJoined, {"spu_id": 0, "taints": (taint,)}),
    ):
        records = asking.do(event[0], **event[1])
        ignored = next(record for record in records if isinstance(record, RingEvent))
        assert (ignored.change, ignored.code) == (RingChange.IGNORED, Code.TOO_MANY_MOVES)
    assert asking.state.spus[SpuId(0)].online


def test_topics_share_the_candidates_of_a_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look at all SPUs for each topic takes longer than to repair it; what one topic is given
    the next one counts."""
    asking = Asking(7)
    for number in range(10):
        asking.do(TopicCreate, topic=f"t{number}", partitions=7, replication_factor=3)
    looks = []
    found = repair.candidates_for
    monkeypatch.setattr(
        repair, "candidates_for", lambda *given: looks.append(given[1]) or found(*given)
    )
    asking.do(SpuLeft, spu_id=0, mode=LeaveMode.DECOMMISSION)
    assert len(looks) == 1
    assert {asking.state.ledger.count(spu_id) for spu_id in range(1, 7)} == {35}
