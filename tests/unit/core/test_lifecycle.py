"""The later life of a cluster: what a change makes follow, event by event.

What the oracle of `test_simulation` follows is held there; here is what a reader looks for first.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import LeaveMode, SpuId
from spu_assigner.core.base.limits import WAITING_MAX
from spu_assigner.core.base.records import Mode, Move, ReplicaMap, RingChange, Status, TopicStatus
from support.events.builders import Events
from support.events.one_cluster import OneCluster, ring_changes, statuses, the_map, the_status

GONE = LeaveMode.DECOMMISSION


def mapped(found: Iterable[object]) -> list[str]:
    return [each.topic for each in found if isinstance(each, ReplicaMap)]


def test_a_decommission_moves_the_replicas_of_the_leaving_spu_and_no_other() -> None:
    life = OneCluster(*Events().joins(0, 1, 2, 3))
    life.create("a", 4, 3)  # 012 123 230 301
    answers = life.leave(1, GONE)
    changed = the_map(answers)
    assert life.lists("a") == [[0, 2, 3], [2, 3, 0], [2, 3, 0], [3, 0, 2]]
    assert (changed.revision, changed.cause) == (2, "e1001")
    assert changed.reason is not None
    assert (changed.reason.mode, changed.reason.moves) == (
        Mode.REPAIR,
        (
            Move(partition=0, gone=1, taken=3),
            Move(partition=1, gone=1, taken=0),
            Move(partition=3, gone=1, taken=2),
        ),
    )
    assert statuses(answers) == []
    assert ring_changes(answers) == [(1, RingChange.LEFT, 3)]
    assert SpuId(1) not in life.state.spus


def test_the_only_copy_stays_on_an_spu_that_is_offline() -> None:
    """There is nothing to copy it from; once the SPU is back, its decommission moves it."""
    life = OneCluster(*Events().joins(1, 3))
    life.manual("a", [3])
    life.leave(3)
    waiting = the_status(life.leave(3, GONE))
    assert (waiting.status, waiting.code) == (Status.WAITING, Code.SOURCE_OFFLINE)
    assert "1 list has its only copy on SPU 3" in (waiting.message or "")
    assert life.lists("a") == [[3]]
    life.join(3)
    assert "a" not in life.state.waiting
    life.leave(3, GONE)
    assert life.lists("a") == [[1]]


def test_a_list_without_a_replacement_stays_short_and_waits() -> None:
    """The status says so; when an SPU comes the list is filled, for the cause that asked."""
    life = OneCluster(*Events().joins(0, 1, 2))
    life.create("a", 2, 3)
    answers = life.leave(2, GONE)
    cause = the_map(answers).cause
    assert life.lists("a") == [[0, 1], [1, 0]]
    assert statuses(answers) == [("a", Status.WAITING, Code.INSUFFICIENT_SPUS, cause)]
    assert SpuId(2) not in life.state.spus
    filled = life.join(7)
    assert life.lists("a") == [[0, 1, 7], [1, 0, 7]]
    assert (the_map(filled).revision, the_map(filled).cause) == (3, cause)
    assert statuses(filled) == [("a", Status.ASSIGNED, None, cause)]


def test_a_capacity_below_the_count_saturates_and_breaks_nothing() -> None:
    life = OneCluster(*Events().joins(0, 1))
    life.create("a", 4, 2)
    assert ring_changes(life.join(1, capacity=2)) == [
        (1, RingChange.UPDATED, 1),
        (1, RingChange.SATURATED, 1),
    ]
    assert the_status(life.create("b", 1, 2)).code is Code.INSUFFICIENT_CAPACITY
    assert ring_changes(life.join(1, capacity=5)) == [
        (1, RingChange.UPDATED, 2),
        (1, RingChange.RESTORED, 2),
    ]
    assert the_status(life.create("b", 1, 2)).status is Status.ASSIGNED


def test_one_that_does_not_fit_blocks_none_behind_it() -> None:
    life = OneCluster(*Events().joins(0))
    life.wait("large", 1, 3)
    life.wait("small", 1, 2)
    assert mapped(life.join(1)) == ["small"]
    assert mapped(life.join(2)) == ["large"]


def test_no_more_creates_wait_than_the_limit() -> None:
    life = OneCluster()
    for number in range(WAITING_MAX):
        life.wait(f"t{number}", 1, 1)
    assert the_status(life.wait("one-more", 1, 1)).code is Code.TOO_MANY_WAITING
    assert len(life.join(0)) == 2 * 6998 + 2  # maps, statuses; joined, saturated
    assert len(life.state.waiting) == WAITING_MAX - 6998


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, ""), (1, "; 1 manual topic left alone"), (200, "; 200 manual topics left alone")],
)
def test_a_rebalance_says_how_many_manual_topics_it_leaves_alone(count: int, said: str) -> None:
    """Else a cluster that stays uneven would look evened out."""
    life = OneCluster(*Events().joins(0, 1))
    life.create("even", 2, 1)
    for number in range(count):
        life.manual(f"m{number}", [0])
    status = life.rebalance()
    assert (status.status, status.code, status.moves) == (Status.ASSIGNED, None, 0)
    assert status.message == (
        f"0 replicas move, 0 lists get another leader from among their replicas{said}"
    )


def test_a_rebalance_frees_a_saturated_spu_and_serves_who_waits() -> None:
    life = OneCluster()
    life.join(0, 1, capacity=6)
    life.create("a", 6, 2)
    life.wait("b", 1, 2)
    life.leave(1)
    life.join(2, capacity=12)
    answers = life.apply(life.build.rebalance(100))
    assert (0, RingChange.RESTORED) in [event[:2] for event in ring_changes(answers)]
    assert [each.topic for each in answers if isinstance(each, TopicStatus)] == ["", "b"]
