"""What has become of moves, and whether the cluster bears more of them: pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sized
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.clusters.moves.reassigning import Ongoing, Partition, PartitionShape
from spu_assigner.stream.common.printable import counted, listed

BEYOND_LIMIT: Final = "they would copy more than the limit of this run"
HEALTH_FIX: Final = "start the brokers that are missing, or give --force"


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
        return not (self.failed or self.left or self.throttles)


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


def progresses_of(
    moves: Iterable[MovedPartition],
    shapes: Mapping[Partition, PartitionShape],
    ongoing: Mapping[Partition, Ongoing],
) -> dict[Partition, MoveProgress]:
    """How far each move is."""
    return {
        place_of(each): progress_of(each, shapes.get(place_of(each)), ongoing.get(place_of(each)))
        for each in moves
    }


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHealth:
    """What is wrong with partitions that are not moved."""

    offline: tuple[str, ...] = ()
    under_min: tuple[str, ...] = ()  # fewer in sync than writers with acks=all need
    under_replicated: int = 0

    def fault(self) -> str | None:
        """Why nothing should be moved now; None: nothing is in the way."""
        if self.offline:
            return f"{_having(self.offline)} no leader ({listed(self.offline, 3)})"
        if self.under_min:
            return (
                f"{_having(self.under_min)} fewer replicas in sync than min.insync.replicas "
                f"({listed(self.under_min, 3)})"
            )
        return None


def lagging_topics(shapes: Mapping[Partition, PartitionShape]) -> list[str]:
    """Topics of which some replica is not in sync: the least in sync is to be known of these."""
    return sorted({topic for (topic, _), each in shapes.items() if _lags(each, None)})


def health_of(
    shapes: Mapping[Partition, PartitionShape],
    ongoing: Mapping[Partition, Ongoing],
    *,
    least_in_sync: Mapping[str, int],
    planned: Collection[Partition],
) -> ClusterHealth:
    """How the cluster is.

    Args:
        least_in_sync: `min.insync.replicas` of the topics that lag; 1 where it is not known.
        planned: partitions that are to be moved: a move may be what helps them.
    """
    others = {place: each for place, each in shapes.items() if place not in planned}
    return ClusterHealth(
        offline=_named(place for place, each in shapes.items() if each.leader is None),
        under_min=_named(
            place
            for place, each in others.items()
            if each.leader is not None
            and len(each.in_sync) < min(least_in_sync.get(place[0], 1), len(each.replicas))
        ),
        under_replicated=sum(_lags(each, ongoing.get(place)) for place, each in shapes.items()),
    )


def _lags(shape: PartitionShape, ongoing: Ongoing | None) -> bool:
    """Whether some replica is not in sync; one that is only being added does not count."""
    added = () if ongoing is None else ongoing.adding
    return not {*shape.replicas} - {*added} <= {*shape.in_sync}


def _having(places: Sized) -> str:
    return f"{counted(len(places), 'partition')} {'has' if len(places) == 1 else 'have'}"


def _named(places: Iterable[Partition]) -> tuple[str, ...]:
    return tuple(f"{topic}-{number}" for topic, number in sorted(places))
