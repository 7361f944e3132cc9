"""What a commit marker holds of the input, and reading the last one back from Kafka."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.schemas.messages.wire import CommitMarker, PartitionOffsets, PartitionPosition
from spu_assigner.stream.checkpoint.files import Positions
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.kafka.retry import ask_leaders
from spu_assigner.stream.shard.bundle import SOURCE_TOPICS, SourceRange

FIRST_LOOK: Final = 64  # offsets from the end; a batch takes two, its marker and the commit's mark


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedMarker:
    """A marker, and when it was written."""

    marker: CommitMarker
    written_at: float  # seconds since the epoch, the broker's


def read_marker(settings: Settings, *, topic: str, seconds_max: float) -> CommitMarker | None:
    """The same without the time.

    Raises:
        KafkaException: the broker does not answer within `seconds_max` seconds.
    """
    found = read_placed_marker(settings, topic=topic, seconds_max=seconds_max)
    return None if found is None else found.marker


def read_placed_marker(
    settings: Settings, *, topic: str, seconds_max: float
) -> PlacedMarker | None:
    """The last committed marker of the query; None if there is none.

    Looks from the end backwards in growing steps, since every batch leaves a marker and compaction
    lags behind.

    Raises:
        KafkaException: the broker does not answer within `seconds_max` seconds.
    """
    consumer = Consumer(
        {
            **settings.connection().client(),
            "group.id": f"{settings.topic_prefix}{settings.query_name}-marker",  # never committed
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # The end is known by a fetch without messages, which the broker else holds for 0.5 s.
            "fetch.wait.max.ms": 10,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        deadline = time.monotonic() + seconds_max
        place = TopicPartition(topic, 0)
        first, end = ask_leaders(
            consumer,
            lambda left: consumer.get_watermark_offsets(place, timeout=left),
            seconds=seconds_max,
        )
        span = FIRST_LOOK
        while True:
            start = max(first, end - span)
            found = _last_in(consumer, topic, start, settings.query_name, deadline)
            if found is not None or start == first:
                return found
            span *= 8
    finally:
        consumer.close()


def _last_in(
    consumer: Consumer, topic: str, start: int, query: str, deadline: float
) -> PlacedMarker | None:
    """The query's last marker from an offset to the end."""
    consumer.assign([TopicPartition(topic, 0, start)])
    last: Message | None = None
    while True:
        messages: list[Message] = consumer.consume(1_000, 0.1)
        for message in messages:
            error = message.error()
            if error is None:
                if message.key() == query.encode():
                    last = message
            elif error.code() == KafkaError._PARTITION_EOF:
                return None if last is None else _placed(last)
            elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # It joins no group.
                raise KafkaException(error)
        if not messages and time.monotonic() > deadline:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the marker was not read"))


def _placed(message: Message) -> PlacedMarker | None:
    value = message.value()
    if value is None:
        return None
    marker = decode_record(value)
    if not isinstance(marker, CommitMarker):
        raise InvariantError(f"the marker's topic holds a {type(marker).__name__}")
    _, milliseconds = message.timestamp()
    return PlacedMarker(marker=marker, written_at=milliseconds / 1000)


def offsets_read(ranges: list[SourceRange], prefix: str) -> dict[str, tuple[PartitionOffsets, ...]]:
    """What a batch has read, as its marker has it."""
    offsets: dict[str, tuple[PartitionOffsets, ...]] = {}
    for each in ranges:
        topic = prefix + SOURCE_TOPICS[each.source]
        read = PartitionOffsets(
            partition=each.partition, first=each.first, last=each.last, count=each.count
        )
        offsets[topic] = (*offsets.get(topic, ()), read)
    return offsets


def positions_moved(
    before: Positions, offsets: Mapping[str, tuple[PartitionOffsets, ...]]
) -> dict[str, tuple[PartitionPosition, ...]]:
    """How far the input has been read after a batch, as far as its messages show it."""
    moved = dict(before)
    for topic, read in offsets.items():
        after = {each.partition: each.next for each in moved.get(topic, ())}
        after |= {each.partition: each.last + 1 for each in read}
        moved[topic] = tuple(
            PartitionPosition(partition=partition, next=after[partition])
            for partition in sorted(after)
        )
    return moved
