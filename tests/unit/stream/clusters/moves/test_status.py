"""How far a move is, and whether the cluster bears more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from spu_assigner.stream.clusters.moves.health import health_fault, lags
from spu_assigner.stream.clusters.moves.reassigning import Ongoing, PartitionShape
from spu_assigner.stream.clusters.moves.status import MoveProgress, fault_text, progress_of
from support.kafka.memory_cluster import move

MOVE = move(0, (1, 2), (3, 2))


def shape(
    *replicas: int, in_sync: tuple[int, ...] | None = None, leader: int | None = 1, id_: str = "id"
) -> PartitionShape:
    found = replicas if in_sync is None else in_sync
    return PartitionShape(topic_id=id_, leader=leader, replicas=replicas, in_sync=found)


def under_way(*target: int) -> Ongoing:
    return Ongoing(replicas=(*target, 1), adding=target[:1], removing=(1,))


@pytest.mark.parametrize(
    ("found", "ongoing", "progress"),
    [
        (shape(1, 2), None, MoveProgress.TO_START),
        (shape(1, 2, in_sync=(1,), leader=None), None, MoveProgress.NO_SOURCE),
        (shape(1, 2, leader=None), under_way(3, 2), MoveProgress.UNDER_WAY),  # it may come back
        (shape(1, 2), under_way(3, 2), MoveProgress.UNDER_WAY),  # a broker that lags behind
        (shape(3, 2, 1), under_way(3, 2), MoveProgress.UNDER_WAY),
        (shape(3, 2, 1), None, MoveProgress.UNDER_WAY),  # it has ended, and this broker lags behind
        (shape(3, 2), None, MoveProgress.DONE),
        (shape(3, 2, 1), under_way(4, 2), MoveProgress.OTHERS),
        (shape(2, 1), None, MoveProgress.OTHERS),
        (shape(4, 2), None, MoveProgress.OTHERS),
        (None, None, MoveProgress.GONE),
        (shape(1, 2, id_="another"), None, MoveProgress.GONE),
    ],
)
def test_a_moves_progress_is_what_kafka_shows(
    found: PartitionShape | None, ongoing: Ongoing | None, progress: MoveProgress
) -> None:
    """A run that was killed knows no more than its record and this."""
    assert progress_of(MOVE, found, ongoing) is progress


def test_what_is_not_moved_has_a_line_that_says_why() -> None:
    """With what to do; another order needs nothing to copy from."""
    order, dead = replace(MOVE, after=(2, 1)), shape(1, 2, in_sync=(1,), leader=None)
    assert progress_of(order, dead, None) is MoveProgress.TO_START
    assert fault_text(MOVE, MoveProgress.NO_SOURCE, dead, None) == (
        "it has no leader to copy from: none of brokers 1, 2 is alive and in sync; start them and "
        "run again, or, if its data may be lost, delete the topic or elect another replica "
        "(`kafka-leader-election --election-type unclean`)"
    )
    assert fault_text(MOVE, MoveProgress.OTHERS, shape(4, 2, 1), under_way(4, 2)) == (
        "somebody else is moving it to [4, 2]; run again when that is done "
        "(`kafka-reassign-partitions --list` shows it)"
    )


def test_health_is_about_partitions_that_are_not_moved() -> None:
    """A plan may be what helps them; a partition without a leader cannot be moved at all."""
    shapes = {
        ("fine", 0): shape(1, 2),
        ("late", 0): shape(1, 2, 3, in_sync=(1, 2)),
        ("low", 0): shape(1, 2, 3, in_sync=(1,)),
        ("planned", 0): shape(1, 2, 3, in_sync=(1,)),
        ("short", 0): shape(1, in_sync=(1,)),  # of one replica, it can have no more in sync
    }
    least = dict.fromkeys(("late", "low", "planned", "short", "gone"), 2)
    planned = {("planned", 0)}
    low = "1 partition has fewer replicas in sync than min.insync.replicas (low-0)"
    assert health_fault(shapes, least_in_sync=least, planned=planned) == low
    assert health_fault(shapes, least_in_sync={}, planned=()) is None
    shapes |= {("gone", number): shape(4, in_sync=(), leader=None) for number in range(4)}
    offline = "4 partitions have no leader (gone-0, gone-1, gone-2 and 1 more)"
    assert health_fault(shapes, least_in_sync=least, planned=planned) == offline


def test_a_replica_that_is_only_being_added_does_not_lag() -> None:
    """It is a move that has begun."""
    moving = shape(3, 2, 1, in_sync=(2, 1))
    assert (lags(moving), lags(moving, under_way(3, 2)), lags(shape(1, 2))) == (True, False, False)
