"""What the job checks at its start: one list, which the job goes through and `doctor` reports.

Rules:
- A check looks and changes nothing. It returns what it found, or raises the error that the job
  ends with, whose line says what to do.
- The job stops at the first error. `doctor` makes each check of which the needs are met.
- What a check has read is kept for those after it.
- Java, metrics and Kafka are checked before Spark is started, the checkpoint and the marker before
  the transactional id is taken: a job that is refused has shut no other out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException
from py4j.protocol import Py4JJavaError
from spu_assigner.stream.common.private_files import require_trusted
from spu_assigner.stream.job.checkpoint.files import (
    Checkpoint,
    Files,
    LocalFiles,
    absolute,
    choose_shards,
    is_local,
    local_path,
    read_checkpoint,
)
from spu_assigner.stream.job.checkpoint.inputs import InputPositions, check_inputs, read_inputs
from spu_assigner.stream.job.checkpoint.recovered import Recovery, pending_recovery
from spu_assigner.stream.job.faults import named
from spu_assigner.stream.job.marker import read_marker
from spu_assigner.stream.job.marker_check import as_recovery, check_checkpoint
from spu_assigner.stream.kafka.config.connection import address
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.connection_diagnosis import WAIT_LIMITS, WaitLimits
from spu_assigner.stream.kafka.errors import ClientError, error_text
from spu_assigner.stream.kafka.topic_admin import check_topics
from spu_assigner.stream.kafka.topics import ASSIGNER_COMMITS, topic_name
from spu_assigner.stream.local.jvm import java as java_module

if TYPE_CHECKING:
    from spu_assigner.schemas.messages.wire import CommitMarker

LOOK_SECONDS_MAX: Final = 10.0  # a look at the marker takes a tenth of one; the sink waits longer
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # set by spark-submit, which has started the JVM

_NO_CHECKPOINT: Final = Checkpoint(id=None, shards=None)
_NOTHING_READ: Final = InputPositions(following={}, begun={}, ids={})


@dataclass(slots=True, kw_only=True)
class StartLook:
    """What is looked at, and what was found so far."""

    settings: Settings
    files: Files = field(default_factory=LocalFiles)  # what the checkpoint is read with
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    limits: WaitLimits = WAIT_LIMITS  # for a broker's first answer
    held_seconds: float = 0.0  # for which open transactions on the markers are waited for
    checkpoint: Checkpoint = _NO_CHECKPOINT
    recovery: Recovery | None = None
    shards: int = 0
    marker: CommitMarker | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)  # as the sink has read them
    inputs: InputPositions = _NOTHING_READ

    @property
    def place(self) -> str:
        """Where the checkpoint is."""
        return absolute(self.settings.checkpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCheck:
    """One thing that a start relies on."""

    name: str
    look: Callable[[StartLook], str]
    needs: tuple[str, ...] = ()  # the checks without which it cannot be made


def _look_at_java(look: StartLook) -> str:
    if SUBMITTED in look.environ:
        return "that of spark-submit"
    java = java_module.require_java(look.environ, search=java_module.SEARCH_PATTERNS)
    return f"{java.version}, found by {java.source}: {java.home}"


def _look_at_metrics(look: StartLook) -> str:
    from spu_assigner.stream.job.metrics.server import listen

    listening = listen(look.settings)
    if listening is None:
        return "off"
    with listening:
        host, port = listening.getsockname()[:2]
        return f"port {port} of {host} is free"


def _look_at_kafka(look: StartLook) -> str:
    connection = look.settings.connection()
    client = connection.client()
    check_topics(client, prefix=connection.prefix, limits=look.limits)
    protocol = connection.security.security_protocol.value
    return f"{address(client)}, {protocol}: topics and rights are as the job needs them"


def _look_at_checkpoint(look: StartLook) -> str:
    settings, files, place = look.settings, look.files, look.place
    is_alone = SUBMITTED not in look.environ and (settings.master or "local").startswith("local")
    if is_alone and is_local(place):
        require_trusted(local_path(place))
    checkpoint = read_checkpoint(files, place)
    look.recovery = pending_recovery(
        files, place, checkpoint, query=settings.query_name, prefix=settings.topic_prefix
    )
    if look.recovery is not None:
        checkpoint = replace(checkpoint, shards=look.recovery.shards)
    look.checkpoint = checkpoint
    look.shards = choose_shards(checkpoint, wanted=settings.shards, place=place)
    if checkpoint.id is None:
        return f"none yet at {place}; the first start creates it"
    return f"{place}, {look.shards} shards"


def _look_at_marker(look: StartLook) -> str:
    settings = look.settings
    topic = topic_name(ASSIGNER_COMMITS, prefix=settings.topic_prefix)
    try:
        found = read_marker(
            settings, topic=topic, seconds_max=LOOK_SECONDS_MAX, held_seconds=look.held_seconds
        )
    except KafkaException as reason:
        raise ClientError(
            f"{topic} cannot be read: {error_text(reason)}; check that all of Kafka's brokers run"
        ) from reason
    look.marker = marker = None if found is None else found.marker
    if marker is None:
        return f"no marker of query {settings.query_name!r}"
    with as_recovery(look.recovery, look.place):
        check_checkpoint(look.checkpoint.id, marker)
    return f"batch {marker.batch}, by release {marker.release}"


def _look_at_input(look: StartLook) -> str:
    inputs = read_inputs(look.files, look.place, look.recovery)
    look.inputs = replace(inputs, ids={**look.topic_ids, **inputs.ids})
    check_inputs(look.settings, look.inputs)
    read = sum(each.next for parts in inputs.following.values() for each in parts)
    return f"read up to {read:,} offsets in all; what follows is there"


JAVA: Final = StartCheck(name="java", look=_look_at_java)
METRICS: Final = StartCheck(name="metrics", look=_look_at_metrics)
KAFKA: Final = StartCheck(name="kafka", look=_look_at_kafka)
CHECKPOINT: Final = StartCheck(name="checkpoint", look=_look_at_checkpoint)
# The sink reads the marker again when it has taken the transactional id, and is the authority.
MARKER: Final = StartCheck(name="marker", look=_look_at_marker, needs=("kafka", "checkpoint"))
# Once the transactional id is taken: until then another process may read on.
INPUT: Final = StartCheck(name="input", look=_look_at_input, needs=("kafka", "checkpoint"))
START_CHECKS: Final = (JAVA, METRICS, KAFKA, CHECKPOINT, MARKER, INPUT)


def make(check: StartCheck, look: StartLook) -> str:
    """What a check finds; raises AssignerError if the job does not start with this."""
    try:
        return check.look(look)
    except (OSError, Py4JJavaError) as reason:  # Of the files of the checkpoint.
        raise named(reason, checkpoint=look.place) from reason


def check_early(settings: Settings) -> None:
    """Check what can be known before Spark is started; raises as `make`."""
    look = StartLook(settings=settings)
    for check in (JAVA, METRICS, KAFKA):
        make(check, look)


def check_marker(look: StartLook) -> None:
    """Check the last marker as the job does: one that cannot be read yet does not end the start. A
    job that was killed in a batch has left a transaction, which the sink aborts and waits for."""
    with suppress(ClientError):
        make(MARKER, look)
