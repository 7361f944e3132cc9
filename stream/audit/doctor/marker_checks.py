"""`spu-assigner doctor`: whether a checkpoint and Kafka fit together.

By the job's own rules (`job/marker_check.py`, `job/checkpoint/data_loss.py`). A job may run
meanwhile: the checkpoint is read before the marker and once more after it, and a marker between is
in order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import OffsetSpec
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.schemas.messages.wire import CommitMarker
from spu_assigner.stream.audit.doctor.broker_checks import Broker, Rights
from spu_assigner.stream.audit.doctor.checkpoint_checks import FoundCheckpoint, progress_of
from spu_assigner.stream.audit.doctor.checks import Check, Unchecked
from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.job.checkpoint.data_loss import DataLossError, InputError, check_inputs
from spu_assigner.stream.job.checkpoint.files import CheckpointError
from spu_assigner.stream.job.marker import PrefixTakenError, read_marker
from spu_assigner.stream.job.marker_check import ForeignCheckpointError, check_checkpoint
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.errors import ClientError, is_denied
from spu_assigner.stream.kafka.open_transactions import OpenTransactionError, await_stable
from spu_assigner.stream.kafka.retry import list_offsets
from spu_assigner.stream.kafka.topics import ASSIGNER_COMMITS, INPUTS

HELD_SECONDS_MAX: Final = 1.0  # a batch of a job that runs is sent by then

_INPUT_CODES: Final = {CheckpointError: "D506", DataLossError: "D504", InputError: "D505"}
_NUMBERS: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def check_marker(
    check: Check,
    *,
    broker: Broker,
    rights: Rights,
    topics: frozenset[str],
    checkpoint: FoundCheckpoint,
    settings: Settings,
) -> None:
    """Compare the last marker with the checkpoint."""
    topic = broker.name(ASSIGNER_COMMITS)
    if topic in rights.lacking:
        raise Unchecked(f"this user may not read {topic}")
    if topic not in topics:
        raise Unchecked(f"{topic} is missing")
    try:
        marker = None
        if not _is_empty(broker, topic, check.seconds_left):
            left = check.seconds_left
            found = read_marker(
                settings,
                topic=topic,
                seconds_max=left,
                held_seconds=min(HELD_SECONDS_MAX, left / 3),
            )
            marker = None if found is None else found.marker
    except OpenTransactionError as reason:
        _report_held(check, reason)
        return
    except PrefixTakenError as reason:
        check.report_error(reason, {PrefixTakenError: "D510"})
        return
    except KafkaException as reason:
        error = reason.args[0]
        if is_denied(error):
            raise Unchecked(f"this user may not read {topic}") from reason
        check.report("D509", f"{topic} cannot be read: {error.str()}")
        return
    except AssignerError as reason:
        check.report("D509", f"{topic} holds something else than markers: {reason}")
        return
    if marker is None:
        missing = f"no marker of query {settings.query_name!r}"
        check.summary = missing
        if checkpoint.batch_next > 0:
            said = f"the checkpoint is at batch {checkpoint.batch_next}, and {topic} has {missing}"
            check.report("D503", said)
        return
    check.summary = f"batch {marker.batch}, by release {marker.release}"
    _check_release(check, marker)
    try:
        check_checkpoint(checkpoint.id, marker)
    except ForeignCheckpointError as reason:
        check.report_error(reason, {ForeignCheckpointError: "D501"})
    else:
        _check_batches(check, settings, marker, checkpoint)


def _is_empty(broker: Broker, topic: str, seconds: float) -> bool:
    """Whether a topic of one partition is empty.

    Then no consumer is created: on a new cluster Kafka creates its topic of groups for the first.
    """
    first, end = (
        list_offsets(broker.admin, [(topic, 0)], spec, seconds=seconds)
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    )
    return first == end


def _check_batches(
    check: Check, settings: Settings, marker: CommitMarker, found: FoundCheckpoint
) -> None:
    said = f"the checkpoint is at batch {found.batch_next}, the last marker at {marker.batch}"
    if marker.batch < found.batch_next - 1:
        check.report("D503", f"{said}: markers are missing")
    elif marker.batch > progress_of(found):
        check.report("D502", f"{said}: an older copy of the checkpoint is in use")
    elif marker.batch == found.batch_next == progress_of(found):
        sent = (marker.release, f"default policy {marker.default_policy}")
        now = (RELEASE, f"default policy {settings.default_policy.value}")
        differing = [(a, b) for a, b in zip(sent, now, strict=True) if a != b]
        if differing:
            was, new = differing[0]
            said = f"batch {marker.batch} is repeated; it was sent with {was}, and this is {new}"
            check.report("D508", said)


def _check_release(check: Check, marker: CommitMarker) -> None:
    then, now = _NUMBERS.match(marker.release), _NUMBERS.match(RELEASE)
    if then is None or now is None:
        return  # Another build's, which has no number.
    if tuple(map(int, then.groups())) > tuple(map(int, now.groups())):
        check.report(
            "D507",
            f"batch {marker.batch} was written by release {marker.release}, and this is {RELEASE}",
            f"install release {marker.release}, or `spu-assigner recover --checkpoint NEW` with "
            "this one",
        )


def _report_held(check: Check, reason: OpenTransactionError) -> None:
    for held in reason.held:
        check.report("D511", str(held))


def _check_open_transactions(check: Check, broker: Broker, topics: Sequence[str]) -> None:
    places = [(topic, number) for topic in topics for number in broker.topics[topic].partitions]
    left = check.seconds_left / 3
    try:
        await_stable(
            broker.admin,
            places,
            seconds=left,
            held_seconds=min(HELD_SECONDS_MAX, left),
            unread="it is still open",
        )
    except OpenTransactionError as reason:
        _report_held(check, reason)
    except KafkaException as reason:
        check.left_out.append(f"open transactions: {reason.args[0].str()}")


def check_input(
    check: Check,
    *,
    broker: Broker,
    topics: frozenset[str],
    checkpoint: FoundCheckpoint,
    settings: Settings,
) -> None:
    """Whether what is to be read next is still in Kafka, and can be read."""
    _check_open_transactions(
        check, broker, [name for name in map(broker.name, INPUTS) if name in topics]
    )
    if not checkpoint.inputs.following and not checkpoint.inputs.ids:
        check.summary = "nothing was read yet"
        return
    try:
        check_inputs(settings, checkpoint.inputs)
    except ClientError as reason:
        if missing := [name for name in map(broker.name, INPUTS) if name not in topics]:
            raise Unchecked(f"{', '.join(missing)} missing") from reason
        check.report("D214", str(reason))
    except (CheckpointError, InputError) as reason:
        check.report_error(reason, _INPUT_CODES)
    else:
        offsets = sum(each.next for parts in checkpoint.inputs.following.values() for each in parts)
        check.summary = f"read up to {offsets:,} offsets in all, what follows is there"
