"""What a checkpoint contains before its query starts: its id, and the shards of its state.

It is read through Hadoop's file systems, as Spark itself reads it, so any place will do; on this
machine's own disk also without Spark.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.schemas.messages.wire import PartitionPosition
from spu_assigner.stream.common.private_files import private_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Positions = Mapping[str, tuple[PartitionPosition, ...]]  # by input topic

RECOVER: Final = "rebuild one from Kafka with `spu-assigner recover --checkpoint NEW`"
STATE_IDS: Final = '"stateUniqueIds":{'  # in a note of Spark's about a batch, in format 2 alone
SHARDS_AT_FIRST: Final = 1  # of a new checkpoint where the settings do not say
UTF8: Final = "UTF-8"
SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"


class CheckpointError(AssignerError):
    """The checkpoint cannot be resumed."""


class CheckpointDamagedError(CheckpointError):
    """A file of the checkpoint is missing, or is not what was written."""

    def __init__(self, *, checkpoint: str, what: str, reason: str) -> None:
        self.checkpoint = checkpoint
        self.what = what  # the file or log, as far as it is known
        self.reason = reason  # why it cannot be used
        super().__init__(
            f"checkpoint {checkpoint} is damaged: {what} cannot be used ({reason}); nothing that "
            "depends on it was sent. Bring back the latest copy of the checkpoint, to the path it "
            f"had, or {RECOVER}"
        )


class CheckpointFormatError(CheckpointError):
    """The checkpoint keeps its state otherwise than this release."""


class ShardsChangedError(CheckpointError):
    """The state is divided otherwise than the settings say."""

    exit_status = 2

    def __init__(self, *, checkpoint: str, found: int, wanted: int) -> None:
        self.found = found
        self.wanted = wanted
        super().__init__(
            f"shards is {wanted}, but checkpoint {checkpoint} has its state in {found}, which "
            f"cannot be changed in it; leave the setting out (or set it to {found}), or make a new "
            f"checkpoint of {wanted} shards out of the outputs: stop the job, then `spu-assigner "
            f"recover --checkpoint NEW --shards {wanted}`"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What is there; both None: nothing yet."""

    id: str | None
    shards: int | None


def absolute(checkpoint: str) -> str:
    """A folder's whole path; a URL as it is."""
    has_scheme = re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", checkpoint)
    return checkpoint if has_scheme else str(Path(checkpoint).expanduser().absolute())


def local_path(place: str) -> Path:
    """The path of a place on this machine's disk."""
    return Path(place.removeprefix("file://").removeprefix("file:"))


def is_local(checkpoint: str) -> bool:
    """Whether it is on this machine's own disk."""
    return checkpoint.startswith(("/", "file:"))


def is_on_s3(checkpoint: str) -> bool:
    """Whether it is in an S3 bucket."""
    return checkpoint.startswith("s3a:")


def make_private(checkpoint: str, *, alone: bool) -> None:
    """Make a checkpoint on this machine a folder of this user's alone; others are as they are. Not
    `alone` if the executors of a Spark cluster write there, which may be another user's."""
    if alone and is_local(checkpoint):
        private_folder(local_path(checkpoint))


class LocalFiles:
    """The files of this machine's own disk, without Spark; places may begin with `file:`."""

    def lines(self, path: str) -> list[str] | None:
        """The lines of a text file; None: there is none."""
        with suppress(FileNotFoundError):
            return local_path(path).read_bytes().decode(errors="replace").splitlines()
        return None

    def names(self, folder: str) -> list[str] | None:
        """The names in a folder, in order, without the hidden sums; None: there is none."""
        with suppress(FileNotFoundError):
            names = [each.name for each in local_path(folder).iterdir()]
            return sorted(name for name in names if not name.endswith(".crc"))
        return None

    def sha256(self, path: str) -> str | None:
        """The SHA-256 of a file, hexadecimal; None: there is none."""
        with suppress(FileNotFoundError), local_path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
        return None

    def write(self, path: str, text: str) -> None:
        """Write a text file of this user's alone, whole or not at all; an older one is replaced."""
        place = local_path(path)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        half = place.with_name(f".{place.name}.half")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(half, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        half.replace(place)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing if there is none."""
        place = local_path(path)
        with suppress(FileNotFoundError):
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            else:
                place.unlink()


class SparkFiles:
    """The same of any place that Hadoop's file systems reach; each look there is a request."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext

    def lines(self, path: str) -> list[str] | None:
        """As `LocalFiles.lines`."""
        text = self._taken(path, "org.apache.commons.io.IOUtils.toString", UTF8)
        return None if text is None else text.splitlines()

    def names(self, folder: str) -> list[str] | None:
        """As `LocalFiles.names`."""
        system, place = self._placed(folder)
        found = _if_there(lambda: system.listStatus(place))
        return None if found is None else sorted(str(each.getPath().getName()) for each in found)

    def sha256(self, path: str) -> str | None:
        """As `LocalFiles.sha256`."""
        return self._taken(path, "org.apache.commons.codec.digest.DigestUtils.sha256Hex")

    def write(self, path: str, text: str) -> None:
        """As `LocalFiles.write`."""
        system, place = self._placed(path)
        # An object of S3 is there when its stream is closed, and a rename of it is a copy.
        written = place if is_on_s3(path) else place.suffix(".half")
        with closing(system.create(written, True)) as stream:
            stream.write(bytearray(text, UTF8))
        if written is not place:
            system.delete(place, False)
            system.rename(written, place)

    def put(self, file: Path, path: str) -> None:
        """Copy a file of this machine to any place; what is there is replaced."""
        system, place = self._placed(path)
        _, source = self._placed(file.absolute().as_uri())
        system.copyFromLocalFile(False, True, source, place)

    def remove(self, path: str) -> None:
        """Delete a file or folder with all in it, if it is there."""
        system, place = self._placed(path)
        system.delete(place, True)

    def _taken(self, path: str, function: str, *more: str) -> str | None:
        """What a function of Java's takes from the contents of a file."""
        system, place = self._placed(path)
        stream = _if_there(lambda: system.open(place))
        if stream is None:
            return None
        with closing(stream):
            return str(attrgetter(function)(self._context._jvm)(stream, *more))

    def _placed(self, path: str) -> tuple[Any, Any]:
        """Hadoop's file system of a place, and the place as it names it."""
        place = self._context._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(self._context._jsc.hadoopConfiguration()), place


def _if_there(look: Callable[[], Any]) -> Any | None:
    """What a look at a file system gives; None: there is nothing."""
    from py4j.protocol import Py4JJavaError

    try:
        return look()
    except Py4JJavaError as reason:
        kind = reason.java_exception.getClass().getName()
        if kind in ("java.io.FileNotFoundException", "java.nio.file.NoSuchFileException"):
            return None
        raise


Files = LocalFiles | SparkFiles  # what the files of a checkpoint are read and written with


def read_checkpoint(files: Files, checkpoint: str) -> Checkpoint:
    """Look at a checkpoint; raises CheckpointDamagedError or CheckpointFormatError."""
    damaged = partial(CheckpointDamagedError, checkpoint=checkpoint)
    metadata = files.lines(f"{checkpoint}/metadata")
    begun = batches_in(files, f"{checkpoint}/offsets")
    offsets = files.lines(f"{checkpoint}/offsets/{begun[-1]}") if begun else None
    if metadata is None and begun:
        reason = f"it is missing, but there are offsets of batch {begun[-1]}"
        raise damaged(what="metadata", reason=reason)
    if done := batches_in(files, f"{checkpoint}/commits"):
        if not begun:
            reason = "they are missing, but there are batches in commits"
            raise damaged(what="offsets", reason=reason)
        commit = f"commits/{done[-1]}"
        # In format 1 the names of the state's files are versions alone, without ids.
        if any(STATE_IDS in line for line in files.lines(f"{checkpoint}/{commit}") or ()):
            raise CheckpointFormatError(
                f"checkpoint {checkpoint} has its state in Spark's format 2 ({commit}), expected "
                "format 1, which this release sets; start the release that wrote it, with the "
                f"Spark options it had, or {RECOVER}"
            )
    path = "metadata"
    try:
        found_id = None if metadata is None else str(json.loads(metadata[0])["id"])
        # The offsets file: version, then a line of JSON with the settings that belong to the state.
        path = f"offsets/{begun[-1]}" if begun else "offsets"
        found = None if offsets is None else int(json.loads(offsets[1])["conf"][SHUFFLE_PARTITIONS])
    except (ValueError, KeyError, IndexError, TypeError) as reason:
        raise damaged(what=path, reason=f"it is no file of a streaming query: {reason}") from reason
    return Checkpoint(id=found_id, shards=found)


def read_positions(files: Files, checkpoint: str, batch: int) -> Positions:
    """How far the input had been read when a batch ended, as Spark noted it before the batch."""
    path = f"offsets/{batch}"
    damaged = partial(CheckpointDamagedError, checkpoint=checkpoint, what=path)
    lines = files.lines(f"{checkpoint}/{path}")
    if lines is None:
        raise damaged(reason="it is missing, and the next batch begins there")
    positions: dict[str, tuple[PartitionPosition, ...]] = {}
    try:
        for line in lines[2:]:  # A line a source, after the version and the settings.
            positions |= positions_from_json(json.loads(line))
    except (ValueError, AttributeError, TypeError) as reason:
        raise damaged(reason=f"it is no file of offsets: {reason}") from reason
    if not positions:
        raise damaged(reason="it names no offset of any topic")
    return positions


def positions_from_json(
    offsets: Mapping[str, Mapping[str, int]],
) -> dict[str, tuple[PartitionPosition, ...]]:
    """From next offsets by topic and partition, as Spark writes them."""
    return {
        topic: tuple(
            PartitionPosition(partition=partition, next=int(offset))
            for partition, offset in sorted((int(n), at) for n, at in parts.items())
        )
        for topic, parts in offsets.items()
    }


def positions_to_json(positions: Positions) -> dict[str, dict[str, int]]:
    """Next offsets by topic and partition."""
    return {
        topic: {str(each.partition): each.next for each in parts}
        for topic, parts in positions.items()
    }


def choose_shards(checkpoint: Checkpoint, *, wanted: int | None, place: str) -> int:
    """The number of shards to run with, where the settings say `wanted`."""
    found = checkpoint.shards
    if found is None:
        return wanted or SHARDS_AT_FIRST
    if wanted is not None and wanted != found:
        raise ShardsChangedError(checkpoint=place, found=found, wanted=wanted)
    return found


def batches_in(files: Files, log: str) -> list[int]:
    """The numbers of the batches that a log of Spark's has a file of, ascending."""
    return sorted(int(name) for name in files.names(log) or () if name.isdigit())
