"""What has become of a move, and whether the cluster bears more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.clusters.moves.progress import bar_text
from spu_assigner.stream.clusters.moves.reassigning import Ongoing, PartitionShape
from spu_assigner.stream.clusters.moves.status import (
    ClusterHealth,
    MoveProgress,
    fault_text,
    health_of,
    lagging_topics,
    progress_of,
)

MOVE = MovedPartition(
    topic="t", topic_id="id", partition=0, before=(1, 2), after=(3, 2), size_bytes=1
)


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


@pytest.mark.parametrize(
    ("found", "ongoing", "text"),
    [
        (None, None, "the topic was deleted, or made again, meanwhile; plan again"),
        (
            shape(1, 2, in_sync=(1,), leader=None),
            None,
            "it has no leader to copy from: none of brokers 1, 2 is alive and in sync; start them "
            "and run again, or, if its data may be lost, delete the topic or elect another replica "
            "(`kafka-leader-election --election-type unclean`)",
        ),
        (
            shape(4, 2, 1),
            under_way(4, 2),
            "somebody else is moving it to [4, 2]; run again when that is done "
            "(`kafka-reassign-partitions --list` shows it)",
        ),
        (
            shape(4, 2),
            None,
            "was on [1, 2] and is on [4, 2] now, by somebody else; run again to make a new plan",
        ),
    ],
)
def test_what_is_not_moved_has_a_line_that_says_why(
    found: PartitionShape | None, ongoing: Ongoing | None, text: str
) -> None:
    """With what to do."""
    assert fault_text(MOVE, progress_of(MOVE, found, ongoing), found, ongoing) == text


def test_another_order_needs_nothing_to_copy_from() -> None:
    """Kafka makes it at once."""
    order = replace(MOVE, after=(2, 1))
    assert progress_of(order, shape(1, 2, leader=None), None) is MoveProgress.TO_START


def test_health_is_about_partitions_that_are_not_moved() -> None:
    """A plan may be what helps them; a partition without a leader cannot be moved at all."""
    shapes = {
        ("fine", 0): shape(1, 2),
        ("late", 0): shape(1, 2, 3, in_sync=(1, 2)),
        ("low", 0): shape(1, 2, 3, in_sync=(1,)),
        ("planned", 0): shape(1, 2, 3, in_sync=(1,)),
        ("short", 0): shape(1, in_sync=(1,)),  # of one replica, it can have no more in sync
        ("gone", 0): shape(4, in_sync=(), leader=None),
        ("moving", 0): shape(3, 2, 1, in_sync=(2, 1)),
    }
    assert lagging_topics(shapes) == ["gone", "late", "low", "moving", "planned"]
    found = health_of(
        shapes,
        {("moving", 0): under_way(3, 2)},
        least_in_sync=dict.fromkeys(("late", "low", "planned", "short", "gone"), 2),
        planned={("planned", 0)},
    )
    assert found == ClusterHealth(offline=("gone-0",), under_min=("low-0",), under_replicated=4)


def test_health_names_what_is_wrong() -> None:
    """The worst first."""
    offline = ClusterHealth(offline=("t-0",), under_min=("u-0",))
    assert offline.fault() == "1 partition has no leader (t-0)"
    low = ClusterHealth(under_min=("a-0", "b-0", "c-0", "d-0"))
    assert low.fault() == (
        "4 partitions have fewer replicas in sync than min.insync.replicas (a-0, b-0, c-0 and 1 "
        "more)"
    )
    assert ClusterHealth(under_replicated=3).fault() is None


def test_the_bar_says_how_far_and_how_long() -> None:
    """An estimate from the speed so far, once there is one."""
    assert bar_text(0, 4 * 1024**2, 9.0) == "[------------------------]   0%  0 B of 4.0 MiB"
    assert bar_text(1024**2, 4 * 1024**2, 4.0) == (
        "[######------------------]  25%  1.0 MiB of 4.0 MiB, 256.0 KiB/s, 12 s left"
    )
    assert bar_text(9, 4, 1.0).startswith("[########################] 100%")
