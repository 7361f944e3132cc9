"""Where a job that lost its checkpoint goes on in its input, and whether Kafka still has it all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.schemas.messages.wire import CommitMarker, PartitionPosition
from spu_assigner.stream.checkpoint.files import Positions
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.errors import REQUEST_SECONDS_MAX
from spu_assigner.stream.kafka.retry import ask_leaders
from spu_assigner.stream.kafka.topic_admin import partition_counts
from spu_assigner.stream.kafka.topics import ASSIGNER_AUDIT, INPUTS, topic_name

GAPS_REPORTED_MAX: Final = 5  # gaps in one message


class NoPositionsError(AssignerError):
    """It is not known how far the input was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Where the input cannot be gone on with as if nothing had happened."""

    topic: str  # with the prefix
    partition: int
    position: int  # the first offset that was not read
    to: int | None  # where it can be gone on; None: the partition is gone
    earliest: int  # that Kafka has
    end: int

    def __str__(self) -> str:
        if self.to is None:
            return f"{self.topic} has no partition {self.partition} any more"
        place = f"{self.topic}, partition {self.partition}: read up to offset {self.position}"
        if self.position > self.end:
            return (
                f"{place}, and it ends at {self.end}: it was made anew, or has lost messages; what "
                "was sent since must be sent again"
            )
        return f"{place}, kept from {self.earliest}: {self.to - self.position} offsets are gone"


class LostInputError(AssignerError):
    """Messages that were not read yet are no longer in Kafka."""

    def __init__(self, lost: tuple[Skipped, ...]) -> None:
        self.lost = lost
        told = "; ".join(map(str, lost[:GAPS_REPORTED_MAX]))
        more = (
            f"; and {len(lost) - GAPS_REPORTED_MAX} more" if len(lost) > GAPS_REPORTED_MAX else ""
        )
        super().__init__(
            f"input that was not read is gone: {told}{more}. Bring it back, or go on without it: "
            "--skip-lost"
        )


def positions_of(settings: Settings, marker: CommitMarker) -> Positions:
    """How far the input was read with a marker's batch.

    Markers of releases before 0.3 do not tell; then all markers of its checkpoint together do.

    Raises:
        NoPositionsError: not all of them are there any more.
        ClientError: Kafka cannot be reached.
    """
    if marker.release:
        return marker.positions
    following: dict[str, dict[int, int]] = {}
    batch_next = 0
    with Reader(settings.connection(), [ASSIGNER_AUDIT], from_beginning=True) as reader:
        for _, message in reader.drain_messages():
            value = message.value()
            each = None if value is None else decode_record(value)
            if not isinstance(each, CommitMarker) or each.batch != batch_next:
                continue
            if (each.query, each.checkpoint_id) == (marker.query, marker.checkpoint_id):
                batch_next += 1
                for topic, parts in each.offsets.items():
                    at = following.setdefault(topic, {})
                    at.update({part.partition: part.last + 1 for part in parts})
    if batch_next != marker.batch + 1:
        topic = topic_name(ASSIGNER_AUDIT, prefix=settings.topic_prefix)
        raise NoPositionsError(
            f"the last marker (batch {marker.batch}) is of a release before 0.3, which did not "
            f"note how far the input was read, and {topic} does not hold all markers of its "
            f"checkpoint from batch 0 on (batch {batch_next} is missing); bring the checkpoint "
            "back and run one batch with this release, or start with another query name and topic "
            "prefix"
        )
    return {
        topic: tuple(PartitionPosition(partition=p, next=at[p]) for p in sorted(at))
        for topic, at in following.items()
    }


def retained_positions(
    settings: Settings, positions: Positions, *, skip_lost: bool
) -> tuple[Positions, tuple[Skipped, ...]]:
    """The positions, and where they had to be moved since messages are gone.

    Raises:
        LostInputError: some had to be moved, and were not to be.
        TopicsError, ClientError: Kafka cannot be reached, or the topics are missing.
    """
    ends = _ends(settings)
    kept: dict[str, tuple[PartitionPosition, ...]] = {}
    skipped: list[Skipped] = []
    for topic, parts in positions.items():
        moved = []
        for part in parts:
            earliest, end = ends.get((topic, part.partition), (0, -1))
            to = None if end < 0 else min(max(part.next, earliest), end)
            if to != part.next:
                skipped.append(
                    Skipped(
                        topic=topic,
                        partition=part.partition,
                        position=part.next,
                        to=to,
                        earliest=earliest,
                        end=end,
                    )
                )
            if to is not None:
                moved.append(PartitionPosition(partition=part.partition, next=to))
        kept[topic] = tuple(moved)
    if skipped and not skip_lost:
        raise LostInputError(tuple(skipped))
    return kept, tuple(skipped)


def _ends(settings: Settings) -> dict[tuple[str, int], tuple[int, int]]:
    """The first offset and the end of each input partition."""
    connection = settings.connection()
    counts = partition_counts(connection.client(), INPUTS, prefix=connection.prefix)
    consumer = Consumer(
        {
            **connection.client(),
            "group.id": f"{settings.topic_prefix}{settings.query_name}-marker",  # never committed
            "log_level": 0,
        }
    )

    def ends(topic: str, number: int) -> tuple[int, int]:
        place = TopicPartition(topic, number)
        found: tuple[int, int] = ask_leaders(
            consumer,
            lambda left: consumer.get_watermark_offsets(place, timeout=left),
            seconds=REQUEST_SECONDS_MAX,
        )
        return found

    try:
        return {
            (topic, number): ends(topic, number)
            for topic, count in counts.items()
            for number in range(count)
        }
    except KafkaException as reason:
        raise NoPositionsError(
            f"the ends of the input are not known: {reason.args[0].str()}; check that all of "
            "Kafka's brokers run"
        ) from reason
    finally:
        consumer.close()
