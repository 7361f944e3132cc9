"""A new checkpoint out of what the job has published, where the old one is lost or not wanted.

    recover(Settings.load(flags={"checkpoint": "new", ...}))

`replica-map` and `assigner-state` hold the state, the last marker how far the input was read with
it. In this order, so that a recovery that was interrupted can be repeated:

1. The query's transactional id is taken: a job that still runs is fenced, and its open transaction
   is aborted. From here on no process writes.
2. Marker, positions and state are read and checked.
3. The new checkpoint is written (`job/checkpoint/recovered.py`): state, what it is of, Spark's
   metadata.
4. A marker of batch -1 of the new checkpoint is committed. Only now may a job run on it: without
   the marker the sink takes it for a foreign one. Its batch 0 is the batch after -1.

A checkpoint that was recovered and never run may be recovered again, to the same folder.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.schemas.messages.wire import CommitMarker, RecoveredFrom
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.job.checkpoint.files import (
    Files,
    LocalFiles,
    Positions,
    SparkFiles,
    absolute,
    is_local,
    make_private,
    positions_to_json,
)
from spu_assigner.stream.job.checkpoint.inputs import Skipped, retained_positions
from spu_assigner.stream.job.checkpoint.recovered import (
    FOLDER,
    METADATA_FILE,
    NOTE_FILE,
    RECOVERED,
    STATE_FILE,
    Recovery,
)
from spu_assigner.stream.job.faults import causes, innermost_line, unreachable
from spu_assigner.stream.job.marker import read_marker
from spu_assigner.stream.job.marker_check import FencedError, SinkError
from spu_assigner.stream.job.query import SERVERS, server_of, shard_labels
from spu_assigner.stream.job.session import command_session
from spu_assigner.stream.job.shard.clusters import Clusters
from spu_assigner.stream.job.shard.published import PublishedState, read_published
from spu_assigner.stream.job.shard.state_log import Shard
from spu_assigner.stream.job.sink import TransactionalSink
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.retry import RETRY_SECONDS_MAX
from spu_assigner.stream.kafka.topic_admin import check_topics
from spu_assigner.stream.kafka.topics import ASSIGNER_COMMITS, topic_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HELD_SECONDS_MAX: Final = 30.0  # that other producers' transactions are waited for
APPLICATION: Final = "spu-assigner-recover"
_OWN_NAMES: Final = frozenset({METADATA_FILE, FOLDER})  # all that a recovery leaves


class RecoverError(AssignerError):
    """The checkpoint cannot be made."""


class NothingToRecoverError(RecoverError):
    """The query has never committed anything."""


class FolderTakenError(RecoverError):
    """There is something at the place of the new checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverReport:
    """What was found, and made of it."""

    checkpoint: str
    checkpoint_id: str | None  # of the new one; None: a dry run
    recovered_from: RecoveredFrom
    shards: int
    positions: Positions
    topic_ids: Mapping[str, str]  # Kafka's, of the input topics
    skipped: tuple[Skipped, ...]
    clusters: int
    spus: int
    topics: int
    partitions: int
    waiting: int
    messages: int  # read

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {**asdict(self), "positions": positions_to_json(self.positions)}


def last_marker(settings: Settings) -> CommitMarker:
    """The last marker of the query; no job is fenced. Raises as `recover`."""
    _check_topics(settings)
    topic = topic_name(ASSIGNER_COMMITS, prefix=settings.topic_prefix)
    try:
        found = read_marker(settings, topic=topic, seconds_max=RETRY_SECONDS_MAX)
    except KafkaException as reason:
        raise RecoverError(
            f"{topic} cannot be read: {reason.args[0].str()}; check the topic prefix, that all of "
            "Kafka's brokers run, and that this user may read the topic"
        ) from reason
    return _required(None if found is None else found.marker, settings)


def survey(settings: Settings, *, skip_lost: bool = False) -> RecoverReport:
    """What `recover` would do; nothing is written, no job is fenced. Raises as `recover`."""
    _refuse_taken_folder(settings)
    return _read(settings, last_marker(settings), skip_lost=skip_lost)[0]


def recover(
    settings: Settings, *, skip_lost: bool = False, spark: SparkSession | None = None
) -> RecoverReport:
    """Make the checkpoint that the settings name, which must not be there yet.

    Args:
        skip_lost: continue where the input is still there, if messages that were not read are gone.
        spark: by default a session that is made for this and stopped after it.

    Raises:
        RecoverError, LostInputError, PublishedError, FencedError: as they say.
        AssignerError: Kafka, Java or the place cannot be reached.
    """
    _refuse_taken_folder(settings)
    _check_topics(settings)
    sink = TransactionalSink(settings, shards=settings.shards or 0)
    try:
        last = _required(sink.take_over(), settings)
        report, published = _read(settings, last, skip_lost=skip_lost)
        report = replace(report, checkpoint_id=str(uuid.uuid4()))
        with command_session(spark, report.checkpoint, application=APPLICATION) as session:
            _write(session, settings, report, published)
        sys.audit("spu_assigner.before-recovery-marker", 0)
        _mark(sink, report, last)
    finally:
        sink.close()
    return report


def _check_topics(settings: Settings) -> None:
    client = settings.connection().client()
    check_topics(client, prefix=settings.topic_prefix, role=Role.RECOVERER)


def _required(marker: CommitMarker | None, settings: Settings) -> CommitMarker:
    if marker is None:
        topic = topic_name(ASSIGNER_COMMITS, prefix=settings.topic_prefix)
        raise NothingToRecoverError(
            f"{topic} has no marker of query {settings.query_name!r}: it has never answered "
            "anything there; check broker, topic prefix and query name, or start a new job"
        )
    return marker


def _read(
    settings: Settings, marker: CommitMarker, *, skip_lost: bool
) -> tuple[RecoverReport, PublishedState]:
    """Read and check all that a new checkpoint is made of."""
    positions, topic_ids, skipped = retained_positions(
        settings, marker.positions, marker.topic_ids, skip_lost=skip_lost
    )
    published = read_published(settings.connection(), held_seconds=HELD_SECONDS_MAX)
    counts = Counter(clusters=0, spus=0, topics=0, partitions=0, waiting=0)
    for cluster_id in published.cluster_ids:  # One at a time: a decoded state is large.
        state = published.restored(cluster_id)
        lists = sum(len(each.replicas.lists()) for each in state.topics.values())
        counts.update(clusters=1, spus=len(state.spus), topics=len(state.topics))
        counts.update(partitions=lists, waiting=len(state.waiting))
    report = RecoverReport(
        checkpoint=absolute(settings.checkpoint),
        checkpoint_id=None,
        recovered_from=RecoveredFrom(checkpoint_id=marker.checkpoint_id, batch=marker.batch),
        shards=settings.shards or marker.shards,
        positions=positions,
        topic_ids=topic_ids,
        skipped=skipped,
        messages=published.messages,
        **counts,
    )
    return report, published


def _refuse_taken_folder(settings: Settings, files: Files | None = None) -> None:
    """A place on this machine is checked at once; others only with Spark, which takes seconds."""
    place = absolute(settings.checkpoint)
    if files is None and not is_local(place):
        return
    try:
        names = (files or LocalFiles()).names(place) or ()
    except OSError as reason:
        raise FolderTakenError(
            f"{place} is no folder: {reason.strerror}; name a new folder with --checkpoint"
        ) from reason
    if others := sorted({each for each in names if not each.startswith(".")} - _OWN_NAMES):
        raise FolderTakenError(
            f"{place} is there already and holds {listed(others)}; name a new folder with "
            "--checkpoint, so that nothing is lost that may still be of use"
        )


def _write(
    spark: SparkSession, settings: Settings, report: RecoverReport, published: PublishedState
) -> None:
    """The files of the new checkpoint, in the order in which they may be missing."""
    from py4j.protocol import Py4JJavaError

    place = report.checkpoint
    try:
        files = SparkFiles(spark)
        _refuse_taken_folder(settings, files)
        make_private(place, alone=(settings.master or "local").startswith("local"))
        # Left by a recovery that was interrupted, or that nothing was run on.
        for name in (METADATA_FILE, FOLDER):
            files.remove(f"{place}/{name}")
        with tempfile.TemporaryDirectory(prefix="spu-assigner-recover-") as folder:
            state = Path(folder, "state")
            write_state(state, published, shards=report.shards)
            files.put(state, f"{place}/{STATE_FILE}")
            digest = LocalFiles().sha256(str(state)) or ""
        recovery = Recovery(
            release=RELEASE,
            query=settings.query_name,
            prefix=settings.topic_prefix,
            checkpoint_id=report.checkpoint_id or "",
            recovered_from=report.recovered_from,
            positions=report.positions,
            shards=report.shards,
            state_sha256=digest,
            topic_ids=report.topic_ids,
        )
        files.write(f"{place}/{NOTE_FILE}", recovery.to_json())
        metadata = f'{{"id":"{report.checkpoint_id}",{RECOVERED}}}'
        files.write(f"{place}/{METADATA_FILE}", metadata)
    except Py4JJavaError as reason:
        raise RecoverError(unreachable(place, innermost_line([*causes(reason)]))) from reason


def _mark(sink: TransactionalSink, report: RecoverReport, last: CommitMarker) -> None:
    marker = replace(
        last,
        checkpoint_id=report.checkpoint_id or "",
        batch=-1,
        count=0,
        digest=hashlib.sha256().hexdigest(),
        offsets={},
        release=RELEASE,
        shards=report.shards,
        positions=report.positions,
        recovered_from=report.recovered_from,
        topic_ids=report.topic_ids,
    )
    try:
        sink.mark(marker)
    except FencedError:
        raise
    except SinkError as reason:
        raise RecoverError(
            f"the marker of checkpoint {report.checkpoint} may not have been written ({reason}); "
            "run the same command again"
        ) from reason


def write_state(file: Path, published: PublishedState, *, shards: int) -> None:
    """The shards' logs as a file of Parquet: a row (shard, key, value) for each piece of a log."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("shard", pa.int32()), ("key", pa.string()), ("value", pa.binary())])
    with pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=False) as writer:
        labels = shard_labels(shards)
        servers = {name: server_of(name.encode(), labels) for name in published.cluster_ids}
        for number in sorted({*servers.values()}):
            entries = {
                key: value
                for name in published.cluster_ids
                if servers[name] == number
                for key, value in published.entries(name)
            }
            label, half = divmod(number, SERVERS)
            shard = Shard(Clusters())
            shard.begin(None)
            for name, value in shard.commit(entries):
                row = [[label], [f"{half}/{name}"], [value or b""]]
                writer.write_table(pa.table(row, schema=schema))
