"""How far a checkpoint has read its input topics, and whether Kafka still has what comes next.

Spark keeps offsets only. It notices a gap when it comes to read it, and then by one of half a dozen
messages; a topic that was recreated and has grown past the old offset it does not notice at all. So
the input topics are checked before the query starts, and again when it has failed; their ids also
while it runs.

Rules:
- A gap is never skipped (`failOnDataLoss` stays true): what is lost could be a join.
- The error names topic, partition, the offset to be read next, what is there, and what to do.
- Where Kafka does not answer, or a topic is missing, the error is a TopicsError.
- A recreated topic has another id. The ids are noted in the checkpoint (`input-topics`) when the
  job first starts with them, and in each marker; of a broker that gives no ids, only offsets are
  checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, OffsetSpec
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.schemas.messages.wire import PartitionPosition
from spu_assigner.stream.job.checkpoint.files import (
    CheckpointDamagedError,
    CheckpointError,
    Files,
    Positions,
    batches_in,
    read_positions,
)
from spu_assigner.stream.job.checkpoint.recovered import Recovery
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin
from spu_assigner.stream.kafka.errors import REQUEST_SECONDS_MAX, TopicsError
from spu_assigner.stream.kafka.retry import RETRY_SECONDS_MAX, ask_leaders, list_offsets
from spu_assigner.stream.kafka.topic_ids import ask_topic_ids, id_of, renewed_topics
from spu_assigner.stream.kafka.topics import SPU_EVENTS, TOPIC_EVENTS, topic_name

NOTE: Final = "input-topics"
GAPS_REPORTED_MAX: Final = 5  # gaps in one message
SKIP: Final = "`spu-assigner recover --checkpoint NEW --skip-lost`"

Spans = dict[tuple[str, int], tuple[int, int]]  # by topic and partition: first offset, and the end


class InputError(AssignerError):
    """What is to be read next is not in Kafka (any more)."""


class DataLossError(InputError):
    """Messages that were not read yet are gone from an input topic."""

    def __init__(self, *, topic: str, partition: int, following: int, earliest: int) -> None:
        self.topic = topic
        self.partition = partition
        self.following = following  # the offset that was to be read next
        self.earliest = earliest  # that is there
        super().__init__(
            f"partition {partition} of {topic} has a gap, {earliest - following} offsets are gone: "
            f"{following} was to be read next, the first one there is {earliest}; nothing of it "
            "was answered. "
            "Give the job a cluster that still has them at these offsets (a mirror, a backup); or "
            f"accept the loss on purpose, continue after it with {SKIP}, and have them sent again. "
            "Give the topic a longer retention (retention.ms, retention.bytes) than the job is "
            "ever stopped"
        )


class TopicReplacedError(InputError):
    """An input topic is not the one that was read before."""

    def __init__(self, *, topic: str, found: str, has_other_id: bool = False) -> None:
        self.topic = topic
        what = "deleted and recreated"
        way = f"on purpose and read the new one from its beginning with {SKIP}"
        if not has_other_id:
            what += ", or set back"
            way = (
                f"on purpose, continue in the new one with {SKIP}, and have what it held already "
                "sent again"
            )
        super().__init__(
            f"{topic} was {what}: {found}. Messages of the old one that were not read are lost; "
            f"give the job the Kafka cluster it had before, or accept the loss {way}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPositions:
    """How far the input topics were read, and which topics they were."""

    following: Positions  # what the next batch begins with
    begun: Positions  # where it ends, if it was begun already; else the same
    ids: Mapping[str, str]  # of the topics; those that were not noted are left out


def read_inputs(files: Files, checkpoint: str, recovery: Recovery | None = None) -> InputPositions:
    """What the next batch of a checkpoint begins with; empty before the first one is done, unless
    that begins where a recovery says.
    """
    ids = _read_ids(files, checkpoint)
    following: Positions = {}
    if recovery is not None:
        following, ids = recovery.positions, {**recovery.topic_ids, **ids}
    begun = batches_in(files, f"{checkpoint}/offsets")
    if not begun:
        return InputPositions(following=following, begun=following, ids=ids)
    newest = begun[-1]
    until = read_positions(files, checkpoint, newest)
    if newest in batches_in(files, f"{checkpoint}/commits"):
        following = until
    elif newest > 0:  # Batch 0 begins where the topics began, or where a recovery says.
        following = read_positions(files, checkpoint, newest - 1)
    return InputPositions(following=following, begun=until, ids=ids)


def check_inputs(settings: Settings, inputs: InputPositions) -> None:
    """Check that Kafka still has what is to be read next; raises InputError if it has not."""
    own, ids = input_topics(settings), inputs.ids
    if others := sorted({*inputs.following, *inputs.begun, *ids} - {*own}):
        raise CheckpointError(
            f"checkpoint {settings.checkpoint} has read {', '.join(others)}, and the settings say "
            f"{', '.join(own)}; give it the topic prefix it had, or name another checkpoint"
        )
    topics = sorted({*inputs.following, *ids})
    if not topics:
        return
    ids_now, spans = inputs_now(settings, topics)
    require_same_ids(ids, ids_now)
    for topic, parts in inputs.following.items():
        there = {partition for name, partition in spans if name == topic}
        if gone := [str(each.partition) for each in parts if each.partition not in there]:
            raise InputError(
                f"{topic} has {len(there)} partitions, and {', '.join(gone)} that the job has read "
                "are not among them, so it was recreated with fewer; give the job the Kafka "
                f"cluster it had before, or accept the loss on purpose and continue with {SKIP}"
            )
    ends = _by_place(inputs.begun)
    for (topic, partition), offset in sorted(_by_place(inputs.following).items()):
        last = max(offset, ends.get((topic, partition), offset))
        first, end = spans[topic, partition]
        if end < last:
            found = f"partition {partition} ends at offset {end}, and was read to {last}"
            raise TopicReplacedError(topic=topic, found=found)
        if first > offset:
            raise DataLossError(topic=topic, partition=partition, following=offset, earliest=first)


def require_same_ids(before: Mapping[str, str], now: Mapping[str, str | None]) -> None:
    """Check that the topics that are there have the ids that they had, where these are known."""
    for topic in renewed_topics(before, now):
        found = f"its id is {now[topic]}, and was {before[topic]}"
        raise TopicReplacedError(topic=topic, found=found, has_other_id=True)


class InputIdentity:
    """Whether the input topics of a running query are still those that it began with.

    A topic that is recreated while the job stands still, and has grown past the old offsets when it
    wakes, is read from there as if it were the old one. So the ids are compared after all that a
    batch has read, before it is sent; and by the watch every few seconds, since a new topic that is
    short makes no batch.
    """

    def __init__(self, settings: Settings, ids: Mapping[str, str]) -> None:
        self.ids = dict(sorted(ids.items()))
        self._admin = DiagnosedAdmin(settings.connection().client()) if ids else None

    def check(self) -> None:
        """Raise TopicReplacedError or TopicsError unless Kafka has the same topics."""
        if (admin := self._admin) is not None:
            found = ask_leaders(
                admin,
                lambda left: ask_topic_ids(admin, self.ids, seconds=left),
                seconds=RETRY_SECONDS_MAX,
            )
            require_same_ids(self.ids, found)
            if missing := sorted(self.ids.keys() - found):
                raise undescribed(missing, "the broker does not know them")

    def close(self) -> None:
        """Close the client."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()


def input_topics(settings: Settings) -> list[str]:
    """The names of the topics that are read."""
    return [topic_name(name, prefix=settings.topic_prefix) for name in (TOPIC_EVENTS, SPU_EVENTS)]


def note_topics(
    files: Files, settings: Settings, checkpoint: str, known: Mapping[str, str]
) -> dict[str, str]:
    """Note the topics that are read, unless that was done; gives their ids."""
    topics = input_topics(settings)
    ids = dict(known)
    if not ids.keys() >= {*topics}:
        ids = {**topic_ids(settings.connection().client(), topics), **known}
    if ids != _read_ids(files, checkpoint):
        files.write(f"{checkpoint}/{NOTE}", json.dumps(ids, sort_keys=True) + "\n")
    return ids


def topic_ids(client: Mapping[str, Any], topics: list[str]) -> dict[str, str]:
    """Kafka's ids of topics; without those of a broker that gives none."""
    with DiagnosedAdmin(client) as admin, _as_topics_error(topics):
        found = ids_of(describe(admin, topics))
    return {topic: each for topic, each in found.items() if each is not None}


def inputs_now(settings: Settings, topics: list[str]) -> tuple[dict[str, str | None], Spans]:
    """Kafka's ids of topics; the first offset and the end of each of their partitions."""
    with DiagnosedAdmin(settings.connection().client()) as admin, _as_topics_error(topics):
        described = describe(admin, topics)
        return ids_of(described), spans_of(admin, described)


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
    """The positions, the topics' ids, and where positions had to be moved as messages are gone."""
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


def describe(
    admin: AdminClient, topics: list[str], seconds: float = REQUEST_SECONDS_MAX
) -> dict[str, Any]:
    """What Kafka says of topics; raises KafkaException."""
    futures = admin.describe_topics(TopicCollection(topics), request_timeout=seconds)
    return {topic: future.result() for topic, future in futures.items()}


def ids_of(described: Mapping[str, Any]) -> dict[str, str | None]:
    """The ids of topics that are described; None: the broker gives none."""
    return {topic: id_of(each) for topic, each in described.items()}


def spans_of(
    admin: AdminClient, described: Mapping[str, Any], seconds: float = REQUEST_SECONDS_MAX
) -> Spans:
    """Where the partitions of these topics begin and end; raises KafkaException."""
    places = [(topic, part.id) for topic, found in described.items() for part in found.partitions]
    first, end = (
        list_offsets(admin, places, spec, seconds=seconds)
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    )
    return {place: (first[place], end[place]) for place in places}


@contextmanager
def _as_topics_error(topics: Iterable[str]) -> Iterator[None]:
    try:
        yield
    except KafkaException as reason:
        raise undescribed(topics, reason.args[0].str()) from reason


def undescribed(topics: Iterable[str], why: str) -> TopicsError:
    """The error of a job whose input topics are missing, or not known."""
    return TopicsError(
        f"the input topics {', '.join(topics)} cannot be described: {why}; the job cannot continue "
        "without them"
    )


def _read_ids(files: Files, checkpoint: str) -> dict[str, str]:
    lines = files.lines(f"{checkpoint}/{NOTE}")
    if lines is None:
        return {}
    try:
        return {str(topic): str(each) for topic, each in json.loads("\n".join(lines)).items()}
    except (ValueError, AttributeError) as reason:
        raise CheckpointDamagedError(
            checkpoint=checkpoint, what=NOTE, reason=f"it is no note of topics: {reason}"
        ) from reason


def _by_place(positions: Positions) -> dict[tuple[str, int], int]:
    return {
        (topic, each.partition): each.next for topic, parts in positions.items() for each in parts
    }
