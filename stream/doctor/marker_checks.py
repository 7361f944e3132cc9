"""`spu-assigner doctor`: whether a checkpoint and Kafka go together.

The job's own rules (`job/marker_check.py`, `checkpoint/data_loss.py`), before it starts. It may run
meanwhile: the checkpoint is read before the marker and once more after it, and what lies between is
in order.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.schemas.messages.wire import CommitMarker
from spu_assigner.stream.checkpoint.data_loss import DataLossError, InputError
from spu_assigner.stream.checkpoint.files import CheckpointError
from spu_assigner.stream.checkpoint.inputs import check_inputs
from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.doctor.broker_checks import Broker
from spu_assigner.stream.doctor.check_runner import Check, Unchecked
from spu_assigner.stream.doctor.checkpoint_checks import FoundCheckpoint, progress_of
from spu_assigner.stream.doctor.kafka_rules import (
    BROKER_REFUSES,
    FOREIGN,
    INPUT_LOST,
    INPUT_REPLACED,
    MARKER_AHEAD,
    MARKER_BEHIND,
    MARKER_UNREADABLE,
    NEWER_RELEASE,
    OTHER_TOPICS,
    REPEATED_OTHERWISE,
)
from spu_assigner.stream.job.marker import read_marker
from spu_assigner.stream.kafka.errors import ClientError, is_denied
from spu_assigner.stream.kafka.retry import ask_leaders
from spu_assigner.stream.kafka.topics import ASSIGNER_COMMITS, INPUTS, topic_name

_NUMBERS: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def check_marker(
    check: Check[Any], settings: Settings, broker: Broker, found: FoundCheckpoint
) -> None:
    """Hold the last marker against the checkpoint."""
    topic = broker.name(ASSIGNER_COMMITS)
    try:
        marker = None
        if not _is_empty(broker, topic, check.seconds_left):
            marker = read_marker(settings, topic=topic, seconds_max=check.seconds_left)
    except KafkaException as reason:
        error = reason.args[0]
        if is_denied(error):
            raise Unchecked(f"this user may not read {topic}") from reason
        check.tell(MARKER_UNREADABLE, f"{topic} cannot be read: {error.str()}")
        return
    except AssignerError as reason:
        check.tell(MARKER_UNREADABLE, f"{topic} holds what is no marker: {reason}")
        return
    if marker is None:
        check.summary = f"none of query {settings.query_name!r}"
        if found.batch_next > 0:
            check.tell(
                MARKER_BEHIND,
                f"the checkpoint is at batch {found.batch_next}, and {topic} has no marker of "
                f"query {settings.query_name!r}",
            )
        return
    written = marker.release or "before 0.3"
    check.summary = f"batch {marker.batch}, by release {written}"
    _check_release(check, marker)
    if marker.checkpoint_id != found.id:
        mine = "there is none here" if found.id is None else f"this is {found.id}"
        check.tell(
            FOREIGN,
            f"the last marker of query {marker.query!r} (batch {marker.batch}) is of checkpoint "
            f"{marker.checkpoint_id}, and {mine}",
        )
        return
    _check_batches(check, settings, marker, found)


def _is_empty(broker: Broker, topic: str, seconds: float) -> bool:
    """Whether a topic of one partition holds nothing.

    Then no consumer is made: on a new cluster Kafka makes its topic of groups for the first one.
    """
    place = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> int:
        def asked(left: float) -> int:
            (future,) = broker.admin.list_offsets({place: spec}, request_timeout=left).values()
            return int(future.result().offset)

        return ask_leaders(broker.admin, asked, seconds=seconds)

    return offset(OffsetSpec.earliest()) == offset(OffsetSpec.latest())


def _check_batches(
    check: Check[Any], settings: Settings, marker: CommitMarker, found: FoundCheckpoint
) -> None:
    said = f"the checkpoint is at batch {found.batch_next}, the last marker at {marker.batch}"
    if marker.batch < found.batch_next - 1:
        check.tell(MARKER_BEHIND, f"{said}: markers are missing")
    elif marker.batch > progress_of(found):
        check.tell(MARKER_AHEAD, f"{said}: an older copy of the checkpoint is in use")
    elif marker.batch == found.batch_next == progress_of(found):
        then, now = marker.release or "before 0.3", RELEASE
        policy = settings.default_policy.value
        if marker.release != RELEASE:
            check.tell(
                REPEATED_OTHERWISE,
                f"batch {marker.batch} is repeated, and was sent by release {then}, this is {now}",
            )
        elif marker.default_policy != policy:
            check.tell(
                REPEATED_OTHERWISE,
                f"batch {marker.batch} is repeated, and was sent with default policy "
                f"{marker.default_policy}, now it is {policy}",
            )


def _check_release(check: Check[Any], marker: CommitMarker) -> None:
    then, now = _NUMBERS.match(marker.release), _NUMBERS.match(RELEASE)
    if then is None or now is None:
        return  # before 0.3 none was told
    if tuple(map(int, then.groups())) > tuple(map(int, now.groups())):
        check.tell(
            NEWER_RELEASE,
            f"batch {marker.batch} was written by release {marker.release}, and this is {RELEASE}",
            f"install release {marker.release}, or `spu-assigner recover --checkpoint NEW` with "
            "this one",
        )


def check_input(
    check: Check[Any], settings: Settings, there: Container[str], found: FoundCheckpoint
) -> None:
    """Whether what is to be read next is still in Kafka."""
    names = [topic_name(name, prefix=settings.topic_prefix) for name in INPUTS]
    if not found.inputs.following and not found.inputs.ids:
        check.summary = "nothing was read yet"
        return
    try:
        check_inputs(settings, found.inputs)
    except CheckpointError as reason:
        check.tell(OTHER_TOPICS, str(reason).partition("; ")[0])
    except DataLossError as reason:
        check.tell(
            INPUT_LOST,
            f"partition {reason.partition} of {reason.topic}: {reason.following} was to be read "
            f"next, the first one there is {reason.earliest}",
        )
    except InputError as reason:
        check.tell(INPUT_REPLACED, str(reason).partition("; ")[0].partition(". ")[0])
    except ClientError as reason:
        if missing := [name for name in names if name not in there]:
            raise Unchecked(f"{', '.join(missing)} missing") from reason
        check.tell(BROKER_REFUSES, str(reason))
    else:
        offsets = sum(each.next for parts in found.inputs.following.values() for each in parts)
        check.summary = f"read up to {offsets:,} offsets in all, what follows is there"
