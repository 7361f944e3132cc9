"""Where a job that lost its checkpoint resumes its input, and whether Kafka still has it all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.schemas.messages.wire import PartitionPosition
from spu_assigner.stream.job.checkpoint.files import Positions
from spu_assigner.stream.job.checkpoint.inputs import input_topics, inputs_now
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_ids import renewed_topics

GAPS_REPORTED_MAX: Final = 5  # gaps in one message


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Where messages of the input are skipped."""

    topic: str  # with the prefix
    partition: int
    position: int  # the first offset that was not read
    to: int | None  # where it can be resumed; None: the partition is gone
    earliest: int  # that Kafka has
    end: int
    is_renewed: bool = False  # the topic was recreated: `to` is the beginning of the new one

    def __str__(self) -> str:
        if self.to is None:
            return f"{self.topic} has no partition {self.partition} any more"
        place = f"{self.topic}, partition {self.partition}: read up to offset {self.position}"
        if self.is_renewed:
            return (
                f"{place} of a topic that was deleted and recreated since; what was not read of it "
                f"is lost, the new one can be read from offset {self.to} on"
            )
        if self.position > self.end:
            return (
                f"{place}, and it ends at {self.end}: it was recreated, or has lost messages; send "
                "again what was sent since"
            )
        return f"{place}, kept from {self.earliest}: {self.to - self.position} offsets are gone"


class LostInputError(AssignerError):
    """Messages that were not read yet are no longer in Kafka."""

    def __init__(self, lost: tuple[Skipped, ...]) -> None:
        self.lost = lost
        gaps = [str(each) for each in lost[:GAPS_REPORTED_MAX]]
        if len(lost) > GAPS_REPORTED_MAX:
            gaps.append(f"and {len(lost) - GAPS_REPORTED_MAX} more")
        super().__init__(
            f"input that was not read is gone: {'; '.join(gaps)}. Restore it, or continue without "
            "it: --skip-lost"
        )


def retained_positions(
    settings: Settings, positions: Positions, ids: Mapping[str, str], *, skip_lost: bool
) -> tuple[Positions, dict[str, str], tuple[Skipped, ...]]:
    """The positions, the topics' ids, and where positions had to be moved since messages are gone.

    Args:
        ids: of the topics that the positions are in, as far as they are known.

    Raises:
        LostInputError: some had to be moved, and were not to be.
        TopicsError: Kafka cannot be reached, or the topics are missing.
    """
    known, spans = inputs_now(settings, input_topics(settings))
    ids_now = {topic: found for topic, found in known.items() if found is not None}
    renewed = renewed_topics(ids, ids_now)
    kept: dict[str, tuple[PartitionPosition, ...]] = {}
    skipped: list[Skipped] = []
    for topic, parts in positions.items():
        moved = []
        for part in parts:
            earliest, end = spans.get((topic, part.partition), (0, -1))
            is_renewed = topic in renewed
            read = 0 if is_renewed else part.next
            to = None if end < 0 else min(max(read, earliest), end)
            if to != part.next or is_renewed:
                skipped.append(
                    Skipped(
                        topic=topic,
                        partition=part.partition,
                        position=part.next,
                        to=to,
                        earliest=earliest,
                        end=end,
                        is_renewed=is_renewed,
                    )
                )
            if to is not None:
                moved.append(PartitionPosition(partition=part.partition, next=to))
        kept[topic] = tuple(moved)
    if skipped and not skip_lost:
        raise LostInputError(tuple(skipped))
    return kept, ids_now, tuple(skipped)
