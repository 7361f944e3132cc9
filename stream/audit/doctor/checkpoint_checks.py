"""`spu-assigner doctor`: a checkpoint, without Kafka; one on this machine also without Spark.

What the job would refuse is found by the job's own code. Beyond that, the files that the next start
reads are compared with their checksums (`state_files.py`). The job may run meanwhile: where
something is wrong and a batch has ended since, the checkpoint is read again.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.audit.doctor.checks import Check, DoctorFinding, Unchecked
from spu_assigner.stream.audit.doctor.state_files import StateFolder, check_state
from spu_assigner.stream.common.private_files import MASK
from spu_assigner.stream.job.checkpoint.data_loss import InputPositions
from spu_assigner.stream.job.checkpoint.files import (
    CheckpointDamagedError,
    CheckpointError,
    CheckpointFormatError,
    Files,
    ShardsChangedError,
    absolute,
    batches_in,
    choose_shards,
    copy_listing,
    is_local,
    is_on_s3,
    list_names,
    read_checkpoint,
    read_lines,
)
from spu_assigner.stream.job.checkpoint.inputs import read_inputs
from spu_assigner.stream.job.checkpoint.local_files import LocalFiles, local_path
from spu_assigner.stream.job.checkpoint.recovered import RecoveryError, pending_recovery
from spu_assigner.stream.job.faults import innermost_line
from spu_assigner.stream.job.session import start_command_session
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.local.jvm.jars import absent

ATTEMPTS_MAX: Final = 4  # while a job runs
BETWEEN_SECONDS: Final = 0.05  # a file and its checksums appear one after the other
NAMES_MAX: Final = 5
APPLICATION: Final = "spu-assigner-doctor"
OFFSETS_VERSION_MAX: Final = 2  # of the forms that Spark 4.2 reads (`OffsetSeqLog.MAX_VERSION`)
COMMITS_VERSION_MAX: Final = 3  # (`CommitLog.MAX_VERSION`)

_OWN_NAMES: Final = frozenset({"metadata", "offsets", "commits", "state", "sources", "recovery"})
_WRITABLE: Final = 0o022


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheckpoint:
    """What is compared with Kafka."""

    place: str
    files: Files  # what it is read with
    id: str | None  # None: there is none yet
    batch: int  # the newest that was begun; -1: none
    is_done: bool  # whether Spark has noted its end
    inputs: InputPositions

    @property
    def batch_next(self) -> int:
        """The one that the next start begins with."""
        return self.batch + 1 if self.is_done else self.batch


def check_checkpoint(check: Check, *, settings: Settings) -> FoundCheckpoint:
    """Check the checkpoint that the settings name."""
    place = absolute(settings.checkpoint)
    if is_on_s3(place):
        return _check_on_s3(check, settings, place)
    if not is_local(place):
        raise Unchecked(f"the checkpoint is at {place}, where only Spark can read")
    folder = local_path(place)
    if not _exists(check, folder):
        return _none_yet(check, LocalFiles(), place)
    if (settings.master or "local").startswith("local"):  # On a cluster others write there, too.
        _check_permissions(check, folder)
    return _check_whole(check, settings, place, LocalFiles())


def _check_on_s3(check: Check, settings: Settings, place: str) -> FoundCheckpoint:
    """The same through Spark, which takes seconds to start; what it reads with stays open."""
    from py4j.protocol import Py4JJavaError

    missing, damaged = absent(["spark-local", "spark-s3"], check.target.environ)
    if missing or damaged:
        raise Unchecked("the jars for a checkpoint on S3 are not there")
    try:
        spark = start_command_session(place, application=APPLICATION)
    except AssignerError as reason:
        raise Unchecked(f"only Spark can read {place}, and it does not start: {reason}") from reason
    try:
        if not list_names(spark, place):
            return _none_yet(check, spark, place)
        return _check_whole(check, settings, place, spark)
    except Py4JJavaError as reason:
        check.report("D412", f"{place}: {innermost_line(reason)}")
        raise Unchecked(f"the checkpoint {place} cannot be read") from reason


def _none_yet(check: Check, files: Files, place: str) -> FoundCheckpoint:
    check.summary = f"none yet at {place}; the first start creates it"
    return FoundCheckpoint(
        place=place,
        files=files,
        id=None,
        batch=-1,
        is_done=True,
        inputs=InputPositions(following={}, begun={}, ids={}),
    )


def _check_whole(check: Check, settings: Settings, place: str, files: Files) -> FoundCheckpoint:
    """All that the next start reads; again, where a job that runs may have been the cause."""
    kept = [*check.findings]
    before: list[DoctorFinding] = []
    found: FoundCheckpoint | None = None
    for attempt in range(ATTEMPTS_MAX):
        check.findings, check.left_out = [*kept], []
        progress = _progress(files, place)
        try:
            found = _check_files(check, settings, place, files)
        except OSError as reason:
            check.report("D410", f"{reason.filename}: {reason.strerror}")
            raise Unchecked(f"the checkpoint {place} cannot be read") from reason
        new = check.findings[len(kept) :]
        if not new or (_progress(files, place) == progress and new == before):
            break
        before = new
        if attempt < ATTEMPTS_MAX - 1:
            time.sleep(BETWEEN_SECONDS)
    if found is None:
        raise Unchecked(f"the checkpoint {place} cannot be used")
    return found


def progress_of(found: FoundCheckpoint) -> int:
    """The newest batch that is begun by now; -1: none."""
    return max(batches_in(found.files, f"{found.place}/offsets"), default=-1)


def _progress(files: Files, place: str) -> tuple[list[int], list[int]]:
    return batches_in(files, f"{place}/offsets"), batches_in(files, f"{place}/commits")


def _exists(check: Check, folder: Path) -> bool:
    """Whether there is a checkpoint; where there is none yet, whether one can be created.

    Raises:
        Unchecked: there is something else.
    """
    if not folder.exists():
        above = next(each for each in folder.parents if each.exists())
        if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
            said = f"{folder} cannot be created: this user may not write to {above}"
            check.report("D410", said)
        return False
    if not folder.is_dir():
        code, said = "D401", f"{folder} is not a folder"
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        code, said = "D410", f"this user may not read and write in {folder}"
    else:
        names = sorted(each for each in os.listdir(folder) if not each.startswith("."))
        if not names or _OWN_NAMES & {*names}:
            return bool(names)
        code = "D401"
        said = f"{folder} holds {', '.join(names[:NAMES_MAX])}, and nothing of a checkpoint"
    check.report(code, said)
    raise Unchecked(said)


def _check_permissions(check: Check, folder: Path) -> None:
    """As the job does at its start (`private_folder`), without changing anything."""
    found = folder.stat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid():
        said = f"{folder} belongs to user {found.st_uid}, expected this one, {os.geteuid()}"
        check.report("D402", said)
    elif mode & _WRITABLE:
        said = f"{folder} can be written by others (mode {mode:04o}, expected 0700)"
        fix = f"if all in it can be trusted, `chmod 700 {folder}`, else name another"
        check.report("D402", said, fix)
    elif mode & MASK:
        said = f"{folder} can be read by others (mode {mode:04o}, expected 0700)"
        check.report("D403", said, f"`chmod 700 {folder}`")


def _check_files(
    check: Check, settings: Settings, place: str, files: Files
) -> FoundCheckpoint | None:
    """What the files say, with a finding for each that is wrong; None: they cannot be used.

    Raises:
        OSError: a file may not be read.
    """
    begun, done = _progress(files, place)
    newest = begun[-1] if begun else -1
    logs = {"offsets": (begun, OFFSETS_VERSION_MAX), "commits": (done, COMMITS_VERSION_MAX)}
    try:
        for log, (batches, version_max) in logs.items():
            if batches and not _is_format_known(
                check, files, f"{place}/{log}/{batches[-1]}", version_max
            ):
                return None
        checkpoint = read_checkpoint(files, place)
        recovery = pending_recovery(
            files, place, checkpoint, query=settings.query_name, prefix=settings.topic_prefix
        )
        if recovery is not None:
            checkpoint = replace(checkpoint, shards=recovery.shards)
        try:
            choose_shards(checkpoint, wanted=settings.shards, place=place)
        except ShardsChangedError as reason:
            check.report_error(reason, {CheckpointError: "D406"})
        inputs = read_inputs(files, place, recovery)
    except CheckpointError as reason:
        codes: dict[type[AssignerError], str] = {
            CheckpointDamagedError: "D404",
            CheckpointFormatError: "D405",
            RecoveryError: "D409",
        }
        check.report_error(reason, codes)
        return None
    with _state_folder(files, place) as folder:
        if not check_state(check, folder, shards=checkpoint.shards, begun=begun, done=done):
            return None
    shards = "?" if checkpoint.shards is None else checkpoint.shards
    batch = f"batch {newest} in {shards} shards" if begun else "no batch yet"
    check.summary = f"{place}, {batch}"
    return FoundCheckpoint(
        place=place,
        files=files,
        id=checkpoint.id,
        batch=newest,
        is_done=newest in done or newest < 0,
        inputs=inputs,
    )


@contextmanager
def _state_folder(files: Files, place: str) -> Iterator[StateFolder]:
    """The checkpoint as a folder of this machine."""
    if isinstance(files, LocalFiles):
        folder = local_path(place)
        yield StateFolder(folder=folder, place=str(folder))
        return
    with tempfile.TemporaryDirectory(prefix="spu-assigner-doctor-") as copy:
        fetch = copy_listing(files, place, Path(copy))
        yield StateFolder(folder=Path(copy), place=place, fetch=fetch)


def _is_format_known(check: Check, files: Files, path: str, version_max: int) -> bool:
    """Whether this Spark reads a log's newest file."""
    name = "/".join(path.rsplit("/", 2)[1:])
    line = (read_lines(files, path) or [""])[0].strip()
    version = line.removeprefix("v")
    if line == version or not version.isdigit():
        check.report("D404", f"{name}: it does not begin with the version of a log")
        return False
    if int(version) > version_max:
        check.report("D405", f"{name} has format v{version}, this Spark reads v1 to v{version_max}")
        return False
    return True
