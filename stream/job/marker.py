"""What a commit marker holds of the input, and reading the last one back from Kafka.

Rules:
- A marker is the last one only if nothing is hidden behind it: an open transaction of another
  producer hides what was committed after its beginning. So the last stable offset has to reach the
  end that the topic has when it is asked; until then no marker is read.
- A topic prefix has one query: its topics hold the answers of one. A marker of another query after
  the last own one, or without an own one, is a named error; so is a last one that is not of a form
  which this release reads.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.schemas.messages.wire import CommitMarker, PartitionOffsets
from spu_assigner.stream.job.shard.bundle import SOURCE_TOPICS, SourceRange
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.open_transactions import await_stable
from spu_assigner.stream.kafka.retry import list_offsets

_PAUSE_SECONDS: Final = 0.02  # of a call that waits for more than there is
FIRST_LOOK: Final = 64  # offsets from the end; a batch takes two, its marker and the commit's mark


class PrefixTakenError(AssignerError):
    """Another query writes its answers to the topics of this prefix."""

    def __init__(self, *, topic: str, query: str, other: str) -> None:
        self.other = other
        super().__init__(
            f"the last marker on {topic} is of query {other!r}, and this is query {query!r}: the "
            "topics of a prefix hold the answers of one query, and a second one would answer every "
            f"event again; give the job the query name {other!r}, or another topic prefix"
        )


class MarkerFormatError(AssignerError):
    """The last marker is not of a form that this release reads."""

    def __init__(self, *, topic: str, offset: int, query: str, found: str) -> None:
        self.found = found
        super().__init__(
            f"the last marker of query {query!r} on {topic} (offset {offset}) cannot be read: "
            f"{found}; expected a CommitMarker as releases from 1.0 on write it. Resume with the "
            "release that wrote it, or start from the beginning: give the job another topic prefix "
            "and a new checkpoint"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedMarker:
    """A marker, and when it was written."""

    marker: CommitMarker
    written_at: float  # seconds since the epoch, the broker's


def read_marker(
    settings: Settings, *, topic: str, seconds_max: float, held_seconds: float | None = None
) -> PlacedMarker | None:
    """The last committed marker of the query; None if there is none.

    Waits `seconds_max` for the broker's answers, `held_seconds` for open transactions on the topic;
    by default as long. Looks from the end backwards in growing steps, since every batch leaves a
    marker and compaction lags behind.
    """
    place, query = (topic, 0), settings.query_name
    client = {**settings.connection().client(), "log_level": 0}
    with AdminClient(client) as admin:
        (end,) = await_stable(
            admin,
            [place],
            seconds=seconds_max,
            held_seconds=seconds_max if held_seconds is None else held_seconds,
            unread="the last marker may be behind it",
        ).values()
        (first,) = list_offsets(admin, [place], OffsetSpec.earliest(), seconds=seconds_max).values()
    if first == end:  # No consumer then: Kafka makes its topic of groups for the first one.
        return None
    options = {
        **client,
        "group.id": f"{settings.topic_prefix}{query}-marker",  # never committed
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        # The end is known by a fetch without messages, which the broker else holds for 0.5 s.
        "fetch.wait.max.ms": 10,
        "auto.offset.reset": "earliest",
    }
    with closing(Consumer(options)) as consumer:
        deadline, span = time.monotonic() + seconds_max, FIRST_LOOK
        while True:
            start = max(first, end - span)
            last = _last_by_query(consumer, topic, start, deadline)
            if query in last or start == first:
                break
            span *= 8
    own = last.pop(query, None)
    for other, message in last.items():  # What is no marker is passed over.
        is_later = own is None or _offset(message) > _offset(own)
        if is_later and isinstance(_marker_of(message), CommitMarker):
            raise PrefixTakenError(topic=topic, query=query, other=other)
    if own is None:
        return None
    marker = _marker_of(own)
    if isinstance(marker, str):
        raise MarkerFormatError(topic=topic, offset=_offset(own), query=query, found=marker)
    return PlacedMarker(marker=marker, written_at=own.timestamp()[1] / 1000)


def _last_by_query(
    consumer: Consumer, topic: str, start: int, deadline: float
) -> dict[str, Message]:
    """The last marker of each query from an offset to the end, without those that are deleted."""
    consumer.assign([TopicPartition(topic, 0, start)])
    last: dict[str, Message] = {}
    while True:
        messages: list[Message] = consumer.consume(1_000, _PAUSE_SECONDS)
        for message in messages:
            error = message.error()
            if error is None:
                last[(message.key() or b"").decode("utf-8", "replace")] = message
            elif error.code() == KafkaError._PARTITION_EOF:
                return {query: each for query, each in last.items() if each.value() is not None}
            elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # It joins no group.
                raise KafkaException(error)
        if not messages and time.monotonic() > deadline:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the marker was not read"))


def _offset(message: Message) -> int:
    return int(message.offset() or 0)


def _marker_of(message: Message) -> CommitMarker | str:
    """The marker that a message is; a text: what it is instead."""
    try:
        record = decode_record(message.value() or b"")
    except DecodeError as reason:
        return reason.message
    return record if isinstance(record, CommitMarker) else f"it is a {type(record).__name__}"


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
