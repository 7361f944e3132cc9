"""How far moves are, as Kafka shows it, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import click
from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.clusters.moves.reassigning import Ongoing, PartitionShape, Replicas
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.kafka.log_dirs import Partition

BEYOND_LIMIT: Final = "they would copy more than the limit of this run"


class MoveProgress(StrEnum):
    """How far a move is."""

    TO_START = "to start"
    UNDER_WAY = "under way"
    DONE = "done"
    GONE = "gone"  # the topic was deleted, or made again
    NO_SOURCE = "no source"  # to start, and no broker that is alive has the partition's data
    OTHERS = "others"  # the partition has another list, or is being moved elsewhere


@dataclass(slots=True, kw_only=True)
class MovesReport:
    """What became of moves."""

    moved: list[Partition] = field(default_factory=list)
    failed: dict[Partition, str] = field(default_factory=dict)
    left: int = 0  # that were not begun
    stopped: str | None = None  # why no more were begun
    throttles: list[str] = field(default_factory=list)  # settings that could not be removed

    @property
    def is_whole(self) -> bool:
        """Whether nothing has failed, was left or keeps a throttle."""
        return not (self.failed or self.left or self.throttles)


def say(text: str) -> None:
    """Print a line for a person, whoever reads standard output."""
    click.echo(f"apply: {text}", err=True)


def new_move(at: Partition, topic_id: str, before: Replicas, after: Replicas) -> MovedPartition:
    """A move whose size is not known yet."""
    return MovedPartition(
        topic=at[0], topic_id=topic_id, partition=at[1], before=before, after=after, size_bytes=0
    )


def place_of(move: MovedPartition) -> Partition:
    """The partition that is moved."""
    return move.topic, move.partition


def progress_of(
    move: MovedPartition, shape: PartitionShape | None, ongoing: Ongoing | None
) -> MoveProgress:
    """How far a move is, as a broker shows the partition and the controller what is under way.

    The controller's answer reaches the brokers a moment later: a broker may still show the list
    of a move that has just ended, which is the new one with what is given up at its end.
    """
    if shape is None or shape.topic_id != move.topic_id:
        return MoveProgress.GONE
    if ongoing is not None:
        return MoveProgress.UNDER_WAY if ongoing.target == move.after else MoveProgress.OTHERS
    if shape.replicas == move.after:
        return MoveProgress.DONE
    if shape.replicas == move.before:
        is_order_alone = {*move.before} == {*move.after}
        has_source = is_order_alone or shape.leader is not None
        return MoveProgress.TO_START if has_source else MoveProgress.NO_SOURCE
    is_merged = set(shape.replicas) == {*move.before, *move.after}
    if is_merged and shape.replicas[: len(move.after)] == move.after:
        return MoveProgress.UNDER_WAY
    return MoveProgress.OTHERS


def fault_text(
    move: MovedPartition,
    progress: MoveProgress,
    shape: PartitionShape | None,
    ongoing: Ongoing | None,
) -> str:
    """Why a move is not made, of one that is GONE, with OTHERS, without a source, or not begun."""
    if progress is MoveProgress.NO_SOURCE and shape is not None:
        return (
            f"it has no leader to copy from: none of brokers {listed(move.before)} is alive and in "
            "sync; start them and run again, or, if its data may be lost, delete the topic or "
            "elect another replica (`kafka-leader-election --election-type unclean`)"
        )
    if progress is MoveProgress.TO_START:
        return "was cancelled by somebody else; run again to move it"
    if progress is MoveProgress.GONE or shape is None:
        return "the topic was deleted, or made again, meanwhile; plan again"
    if ongoing is not None:
        return (
            f"somebody else is moving it to {list(ongoing.target)}; run again when that is done "
            "(`kafka-reassign-partitions --list` shows it)"
        )
    return (
        f"was on {list(move.before)} and is on {list(shape.replicas)} now, by somebody else; run "
        "again to make a new plan"
    )
