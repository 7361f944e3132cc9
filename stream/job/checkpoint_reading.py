"""What a job's checkpoint holds, read with Spark's `statestore` reader.

Nothing is written to the checkpoint, so it may be read while its job runs: what is read is a batch
of the commits log, never one that is still being made. All files are reached through Hadoop's file
systems, as the job itself reaches them: a folder, or a URL such as s3a:// with its jars at hand.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.job.checkpoint.files import (
    SHUFFLE_PARTITIONS,
    STATE_VARIABLE,
    SparkFiles,
    absolute,
    batches_in,
    is_local,
)
from spu_assigner.stream.job.faults import innermost_line, unreachable
from spu_assigner.stream.job.session import command_session
from spu_assigner.stream.job.shard.clusters import read_shards

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIES_MAX: Final = 5  # a busy job may drop the newest batch of a moment ago while it is read
KEPT_SHOWN: Final = 100  # batches
APPLICATION: Final = "spu-assigner-inspect"

# What the reader needs, whatever session it is given.
_READER_OPTIONS: Final[Mapping[str, str]] = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
    # Else each read asks for an endpoint that only a running query makes, and fails without it.
    "spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag": "false",
}


class InspectError(AssignerError):
    """A checkpoint cannot be inspected."""


class NoCheckpointError(InspectError):
    """There is no checkpoint at that place, or nothing is committed in it yet."""


class OtherProgramError(InspectError):
    """It is the checkpoint of a release, or a program, that keeps its state otherwise."""


class BatchNotKeptError(InspectError):
    """The state of the batch that was asked for is not there (any more)."""

    def __init__(self, *, checkpoint: str, batch: int, kept: Sequence[int]) -> None:
        self.batch = batch
        self.kept = tuple(kept)
        super().__init__(
            f"batch {batch} is not in checkpoint {checkpoint}; it keeps "
            f"{listed(kept, KEPT_SHOWN)}; name one of these, or none for the last"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The state after one committed batch."""

    checkpoint: str
    query_id: str | None  # Spark's, of the checkpoint
    batch: int
    batch_time_ms: int | None  # when the batch was begun
    batches_kept: tuple[int, ...]  # those that can be asked for
    shards: int | None
    input_offsets: Mapping[str, Mapping[str, int]]  # topic: partition: the next offset to read
    clusters: Mapping[str, ClusterState]


def inspect_checkpoint(
    checkpoint: str,
    *,
    batch: int | None = None,
    spark: SparkSession | None = None,
    starting: Callable[[], None] = lambda: None,
) -> Inspection:
    """Read a checkpoint's state.

    Args:
        checkpoint: a folder or a URL of Hadoop's.
        batch: a committed batch that is still kept; the last one by default.
        spark: by default the active session, or one that is made for this and stopped after it.
        starting: called before Spark is asked, which takes seconds to start.
    """
    place = absolute(checkpoint)
    if is_local(place) and not place.startswith("file:"):
        # Known in an instant; Spark takes seconds to start.
        folder = Path(place)
        _check_names(place, sorted(os.listdir(folder)) if folder.is_dir() else None)
    starting()
    with _session(spark, place) as session:
        for _ in range(TRIES_MAX):
            try:
                return _read(session, place, batch)
            except BatchNotKeptError:
                if batch is not None:
                    raise
    raise InspectError(
        f"checkpoint {place} dropped its last batch {TRIES_MAX} times while it was read; the job "
        "is too fast for this machine: try again when it has less to do"
    )


def _check_names(place: str, names: Sequence[str] | None) -> None:
    """Whether a folder looks like a checkpoint of a streaming query."""
    if names is None:
        raise NoCheckpointError(
            f"there is no folder {place}; name the job's with --checkpoint (`spu-assigner run` "
            "prints it at its start)"
        )
    if {"metadata", "offsets"} <= {*names}:
        return
    if {"metadata", "recovery"} == {each for each in names if not each.startswith(".")}:
        raise NoCheckpointError(
            f"checkpoint {place} was recovered and has no committed batch yet; start its job, and "
            "wait until it has answered something"
        )
    raise NoCheckpointError(
        f"{place} is no checkpoint; found in it: {listed(names)}; expected metadata, offsets, "
        "commits and state, as the folder of the setting `checkpoint` has them"
    )


def _read(spark: SparkSession, place: str, wanted: int | None) -> Inspection:
    """Read one batch; the last one may be dropped meanwhile, as there is a later one."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    files = SparkFiles(spark)
    try:
        _check_names(place, files.names(place))
        kept = _kept(files, place)
    except Py4JJavaError as reason:
        raise InspectError(unreachable(place, innermost_line(reason))) from reason
    if not kept:
        raise NoCheckpointError(
            f"checkpoint {place} has no committed batch yet; wait until its job has answered "
            "something"
        )
    batch = kept[-1] if wanted is None else wanted
    try:
        offsets = files.lines(f"{place}/offsets/{batch}") or ()
        rows = _rows(spark, place, batch) if batch in kept else []
    except (PySparkException, Py4JJavaError) as reason:
        kept = _kept(files, place)
        if batch in kept:
            raise InspectError(
                f"the state of batch {batch} in checkpoint {place} cannot be read: "
                f"{innermost_line(reason)}; if it is of another program, name the job's own with "
                "--checkpoint; else bring the folder back from a copy, or run `recover`"
            ) from reason
    if batch not in kept:
        raise BatchNotKeptError(checkpoint=place, batch=batch, kept=kept)
    try:
        clusters = read_shards(rows)
    except (AssignerError, ValueError, LookupError) as reason:
        raise OtherProgramError(
            f"the state in checkpoint {place} is not what this release writes: {reason}; inspect "
            "it with the release that runs the job"
        ) from reason
    # An offsets file: its version, a line of JSON about the batch, and one for each source.
    head: dict[str, Any] = json.loads(offsets[1]) if len(offsets) > 1 else {}
    inputs: dict[str, dict[str, int]] = {}
    for line in offsets[2:]:
        if line.startswith("{"):
            inputs.update(json.loads(line))
    metadata = files.lines(f"{place}/metadata")
    return Inspection(
        checkpoint=place,
        query_id=json.loads(metadata[0]).get("id") if metadata else None,
        batch=batch,
        batch_time_ms=head.get("batchTimestampMs"),
        batches_kept=tuple(kept),
        shards=int(head.get("conf", {}).get(SHUFFLE_PARTITIONS, 0)) or None,
        input_offsets=dict(sorted(inputs.items())),
        clusters=dict(sorted(clusters.items())),
    )


def _rows(spark: SparkSession, place: str, batch: int) -> list[tuple[int, str, bytes]]:
    rows = (
        spark.read.format("statestore")
        .option("stateVarName", STATE_VARIABLE)
        .option("batchId", str(batch))
        .load(place)
        .selectExpr("key.shard", "user_map_key.key", "user_map_value.value")
        .collect()
    )
    return [(row[0], row[1], row[2]) for row in rows]


def _kept(files: SparkFiles, place: str) -> list[int]:
    """The committed batches, ascending. Spark keeps the state at least as long as their notes."""
    begun = set(batches_in(files, f"{place}/offsets"))
    return [batch for batch in batches_in(files, f"{place}/commits") if batch in begun]


@contextmanager
def _session(given: SparkSession | None, place: str) -> Iterator[SparkSession]:
    """A session with the reader's options; the given one's own options stay as they are."""
    with command_session(given, place, application=APPLICATION) as base:
        session = base.newSession()
        for name, value in _READER_OPTIONS.items():
            session.conf.set(name, value)
        yield session
