"""Whether the last marker in Kafka is of the checkpoint that a job is to start on.

The sink asks that when it has taken the transactional id, and is the authority. It is asked before
as well, so that a job that is refused has shut nobody out, and has not waited for Spark's start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from confluent_kafka import KafkaException
from spu_assigner.stream.checkpoint.files import (
    CheckpointDamagedError,
    Files,
    absolute,
    is_local,
    read_checkpoint,
)
from spu_assigner.stream.checkpoint.local_files import LocalFiles
from spu_assigner.stream.checkpoint.recovered import (
    AGAIN,
    Recovery,
    RecoveryError,
    pending_recovery,
)
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.job.marker import read_marker
from spu_assigner.stream.job.marker_check import ForeignCheckpointError, check_checkpoint
from spu_assigner.stream.kafka.topics import ASSIGNER_COMMITS, topic_name

LOOK_SECONDS_MAX: Final = 10.0  # it takes a tenth of a second; the sink has more patience
# Where a site's file systems may be named: a path without a scheme may then be one of theirs.
_SITES: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT")
_OPTIONS: Final = "PYSPARK_SUBMIT_ARGS"
_NAMING: Final = ("defaultFS", "--properties-file", "ClassPath", "class-path")  # options that do


def is_early(place: str) -> bool:
    """Whether a checkpoint can be read before Spark is started: it is on this machine for sure."""
    if place.startswith("file:"):
        return True
    is_named = any(os.environ.get(name) for name in _SITES) or any(
        word in os.environ.get(_OPTIONS, "") for word in _NAMING
    )
    return is_local(place) and not is_named


def refuse_foreign_early(settings: Settings) -> None:
    """Refuse a checkpoint that the last marker is not of, before Spark is started.

    Raises:
        ForeignCheckpointError, RecoveryError: the marker is of another checkpoint.
    """
    place = absolute(settings.checkpoint)
    if is_early(place):
        with suppress(OSError, CheckpointDamagedError):  # The start has a name for what it is.
            require_own_marker(LocalFiles(), settings, place)


def require_own_marker(files: Files, settings: Settings, place: str) -> None:
    """Look at the last marker; nobody is shut out. Where Kafka is silent nothing is refused.

    Raises:
        ForeignCheckpointError, RecoveryError: it is of another checkpoint.
        CheckpointDamagedError: the checkpoint cannot be read.
    """
    checkpoint = read_checkpoint(files, place)
    topic = topic_name(ASSIGNER_COMMITS, prefix=settings.topic_prefix)
    with suppress(KafkaException):
        marker = read_marker(settings, topic=topic, seconds_max=LOOK_SECONDS_MAX)
        if marker is None or marker.checkpoint_id == checkpoint.id:
            return
        recovery = pending_recovery(
            files, place, checkpoint, query=settings.query_name, prefix=settings.topic_prefix
        )
        with as_recovery(recovery, place):
            check_checkpoint(checkpoint.id, marker)


@contextmanager
def as_recovery(recovery: Recovery | None, place: str) -> Iterator[None]:
    """Report a recovery that does not go with the last marker as such."""
    try:
        yield
    except ForeignCheckpointError as reason:
        if recovery is None:
            raise
        raise RecoveryError(
            f"the recovery of checkpoint {place} was not finished, or another checkpoint has been "
            f"run since ({reason}); {AGAIN}, to the same folder"
        ) from reason
