"""`spu-assigner doctor`: a checkpoint on this machine, looked at without Spark and without Kafka.

What the job would refuse is refused by the job's own code. Beyond that, the files that the next
start begins with are looked for, and held against the sums beside them. The job may run meanwhile:
where something is missing and a batch has ended since, it is looked at again.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from spu_assigner.stream.checkpoint.files import (
    Checkpoint,
    CheckpointDamagedError,
    ProfileShardsError,
    ShardsChangedError,
    absolute,
    batches_in,
    choose_shards,
    is_local,
    read_checkpoint,
)
from spu_assigner.stream.checkpoint.inputs import InputPositions, read_inputs
from spu_assigner.stream.checkpoint.local_files import LocalFiles, local_path
from spu_assigner.stream.checkpoint.recovered import RecoveryError, pending_recovery
from spu_assigner.stream.common.private_files import MASK
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.doctor.check_runner import Check, Unchecked
from spu_assigner.stream.doctor.finding import DoctorRule
from spu_assigner.stream.doctor.rules import (
    DAMAGED,
    FORMAT,
    MOVED,
    NO_CHECKPOINT,
    NO_SUMS,
    NOT_ALLOWED,
    OTHER_PROGRAM,
    READABLE,
    RECOVERY,
    SHARDS,
    WRITABLE,
)
from spu_assigner.stream.doctor.state_files import StateFileScan, look_at_state, look_at_sums

LOOKS_MAX: Final = 4  # while a job goes on
BETWEEN_SECONDS: Final = 0.05  # a file and the sums beside it appear one after the other
NAMES_MAX: Final = 5
OFFSETS_VERSION_MAX: Final = 2  # of the forms that Spark 4.2 reads (`OffsetSeqLog.MAX_VERSION`)
COMMITS_VERSION_MAX: Final = 3  # (`CommitLog.MAX_VERSION`)

T = TypeVar("T")

_OWN_NAMES: Final = frozenset({"metadata", "offsets", "commits", "state", "sources", "recovery"})
_WRITABLE: Final = 0o022


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheckpoint:
    """What is there to be held against Kafka."""

    place: str
    id: str | None  # None: there is none yet
    batch: int  # the newest that was begun; -1: none
    is_done: bool  # whether Spark has noted its end
    inputs: InputPositions

    @property
    def batch_next(self) -> int:
        """The one that the next start begins with."""
        return self.batch + 1 if self.is_done else self.batch


def check_checkpoint(check: Check[Any], settings: Settings) -> FoundCheckpoint:
    """Look at the checkpoint that the settings name.

    Raises:
        Unchecked: there is nothing that could be held against Kafka.
    """
    place = absolute(settings.checkpoint)
    if not is_local(place):
        raise Unchecked(f"the checkpoint is at {place}, where Spark alone can read")
    folder = local_path(place)
    if not _is_there(check, folder):
        check.summary = f"none yet at {place}; the first start makes it"
        return FoundCheckpoint(
            place=place,
            id=None,
            batch=-1,
            is_done=True,
            inputs=InputPositions(following={}, begun={}, ids={}),
        )
    _check_rights(check, folder, alone=(settings.master or "local").startswith("local"))
    told: list[tuple[DoctorRule, str]] = []
    for look in range(LOOKS_MAX):
        before = _progress(place)
        found = _Looking(settings, place)
        try:
            checkpoint = found.look()
        except OSError as reason:
            check.tell(NOT_ALLOWED, f"{reason.filename}: {reason.strerror}")
            raise Unchecked(f"the checkpoint {place} cannot be read") from reason
        is_still = _progress(place) == before and found.findings == told
        if not found.findings or is_still or look == LOOKS_MAX - 1:
            break
        told = found.findings
        time.sleep(BETWEEN_SECONDS)
    for rule, message in found.findings:
        check.tell(rule, message)
    check.left_out += found.left_out
    if checkpoint is None:
        raise Unchecked(f"the checkpoint {place} cannot be used")
    check.summary = f"{place}, {found.summary}"
    return checkpoint


def progress_of(found: FoundCheckpoint) -> int:
    """The newest batch that is begun by now; -1: none."""
    return max(batches_in(LocalFiles(), f"{found.place}/offsets"), default=-1)


def _progress(place: str) -> tuple[list[int], list[int]]:
    files = LocalFiles()
    return batches_in(files, f"{place}/offsets"), batches_in(files, f"{place}/commits")


def _is_there(check: Check[Any], folder: Path) -> bool:
    """Whether there is a checkpoint; where there is none yet, whether one can be made.

    Raises:
        Unchecked: there is something else.
    """
    if not folder.exists():
        above = next(each for each in folder.parents if each.exists())
        if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
            check.tell(NOT_ALLOWED, f"{folder} cannot be made: this user may not write to {above}")
        return False
    if not folder.is_dir():
        check.tell(NO_CHECKPOINT, f"{folder} is no folder")
        raise Unchecked(f"{folder} is no folder")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        check.tell(NOT_ALLOWED, f"this user may not read and write in {folder}")
        raise Unchecked(f"this user may not read and write in {folder}")
    names = sorted(each for each in os.listdir(folder) if not each.startswith("."))
    if names and not _OWN_NAMES & {*names}:
        more = len(names) - NAMES_MAX
        held = ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
        check.tell(NO_CHECKPOINT, f"{folder} is no checkpoint: it holds {held}")
        raise Unchecked(f"{folder} is no checkpoint")
    return bool(names)


def _check_rights(check: Check[Any], folder: Path, *, alone: bool) -> None:
    """As the job does at its start; on a Spark cluster the executors may be another user."""
    if not alone:
        return
    found = folder.stat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid():
        said = f"{folder} belongs to user {found.st_uid}, expected this one, {os.geteuid()}"
        check.tell(WRITABLE, said)
    elif mode & _WRITABLE:
        said = f"{folder} can be written by others (mode {mode:04o}, expected 0700)"
        check.tell(
            WRITABLE, said, f"if all in it can be trusted, `chmod 700 {folder}`, else name another"
        )
    elif mode & MASK:
        said = f"{folder} can be read by others (mode {mode:04o}, expected 0700)"
        check.tell(READABLE, said, f"`chmod 700 {folder}`")


class _Looking:
    """One look at the files; what is wrong with them is gathered."""

    def __init__(self, settings: Settings, place: str) -> None:
        self.findings: list[tuple[DoctorRule, str]] = []
        self.left_out: list[str] = []
        self.summary = ""
        self._settings = settings
        self._place = place
        self._files = LocalFiles()

    def look(self) -> FoundCheckpoint | None:
        """What is there; None: it cannot be used.

        Raises:
            OSError: a file may not be read.
        """
        begun, done = _progress(self._place)
        if not self._is_form_known("offsets", begun, OFFSETS_VERSION_MAX):
            return None
        if not self._is_form_known("commits", done, COMMITS_VERSION_MAX):
            return None
        checkpoint = self._asked(lambda: read_checkpoint(self._files, self._place))
        if checkpoint is None:
            return None
        inputs = self._check_meaning(checkpoint)
        newest = begun[-1] if begun else -1
        look = StateFileScan(folder=local_path(self._place), shards=checkpoint.shards, done=done)
        is_own = look_at_state(look)
        if is_own:
            look_at_sums(look, begun)
        told = {
            DAMAGED: look.damaged,
            OTHER_PROGRAM: look.foreign,
            MOVED: look.moved,
            NO_SUMS: look.without_sums,
        }
        self.findings += [(rule, message) for rule, said in told.items() for message in said]
        self.left_out += look.left_out
        shards = "?" if checkpoint.shards is None else checkpoint.shards
        self.summary = f"batch {newest} in {shards} shards" if begun else "no batch yet"
        if inputs is None or not is_own:
            return None
        return FoundCheckpoint(
            place=self._place,
            id=checkpoint.id,
            batch=newest,
            is_done=newest in done or newest < 0,
            inputs=inputs,
        )

    def _check_meaning(self, checkpoint: Checkpoint) -> InputPositions | None:
        settings, files = self._settings, self._files
        try:
            recovery = pending_recovery(
                files,
                self._place,
                checkpoint,
                query=settings.query_name,
                prefix=settings.topic_prefix,
            )
        except RecoveryError as reason:
            self.findings.append((RECOVERY, str(reason)))
            return None
        if recovery is not None:
            checkpoint = replace(checkpoint, shards=recovery.shards)
        try:
            choose_shards(
                checkpoint, wanted=settings.shards, profile=settings.profile, place=self._place
            )
        except ShardsChangedError as reason:
            said = f"--shards is {reason.wanted}, and the checkpoint has {reason.found}"
            self.findings.append((SHARDS, said))
        except ProfileShardsError as reason:
            wants = "several shards" if reason.found == 1 else "1 shard"
            said = f"profile {reason.profile} wants {wants}, and the checkpoint has {reason.found}"
            self.findings.append((SHARDS, said))
        return self._asked(lambda: read_inputs(files, self._place, recovery))

    def _asked(self, what: Callable[[], T]) -> T | None:
        try:
            return what()
        except CheckpointDamagedError as reason:
            self.findings.append((DAMAGED, f"{reason.what}: {reason.reason}"))
            return None

    def _is_form_known(self, log: str, batches: list[int], version_max: int) -> bool:
        """Whether this Spark reads a log's newest file."""
        if not batches:
            return True
        name = f"{log}/{batches[-1]}"
        lines = self._files.lines(f"{self._place}/{name}") or [""]
        version = lines[0].strip().removeprefix("v")
        if not lines[0].startswith("v") or not version.isdigit():
            self.findings.append((DAMAGED, f"{name}: it begins with no version of a log"))
            return False
        if int(version) > version_max:
            said = f"{name} is in form v{version}, this Spark reads v1 to v{version_max}"
            self.findings.append((FORMAT, said))
            return False
        return True
