"""`spu-assigner doctor`: the files of a checkpoint's state, as far as the next start reads them.

A state partition at a version is its last snapshot (`N.zip` with the files that this names) and the
changes after it (`N.changelog`). Beside each file Hadoop keeps hidden checksums, a CRC-32 for each
512 bytes; not on S3, which has its own.
"""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from spu_assigner.stream.audit.doctor.checks import Check
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.job.checkpoint.files import STATE_VARIABLE

SUMS_SIZE_MAX: Final = 128 * 1024**2  # bytes that are read: a second
NAMES_MAX: Final = 3

_SUMS_MAGIC: Final = b"crc\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFolder:
    """A checkpoint on this machine, or the listing of one elsewhere with its names and sizes."""

    folder: Path
    place: str  # where the checkpoint is
    fetch: Callable[[Path], None] | None = None  # brings a file's content; None: all is there


def check_state(
    check: Check,
    checkpoint: StateFolder,
    *,
    shards: int | None,
    begun: Sequence[int],
    done: Sequence[int],
) -> bool:
    """Check the files that the next start reads; whether it is a state of this product's.

    Args:
        begun: the batches in the log `offsets`.
        done: the batches in the log `commits`.
    """
    folder = checkpoint.folder
    scan = _StateScan(check=check, checkpoint=checkpoint, folder=folder)
    if done and shards is not None:
        if not scan.check_operator(folder / "state/0"):
            return False
        for number in range(shards):
            scan.check_shard(folder / f"state/0/{number}", version=done[-1] + 1)
    logs = [f"offsets/{batch}" for batch in begun[-2:]] + [
        f"commits/{batch}" for batch in done[-2:]
    ]
    if checkpoint.fetch is None:
        scan.check_sums([folder / name for name in ("metadata", *logs)])
    return True


@dataclass(slots=True, kw_only=True)
class _StateScan:
    check: Check
    checkpoint: StateFolder
    folder: Path
    needed: list[Path] = field(default_factory=list)  # files that the next start reads

    def fetch(self, path: Path) -> None:
        """Before its content is read."""
        if self.checkpoint.fetch is not None:
            self.checkpoint.fetch(path)

    def damaged(self, path: Path, what: str) -> None:
        self.check.report("D404", f"{path.relative_to(self.folder)}: {what}")

    def check_operator(self, state: Path) -> bool:
        """Whether the description of the state is there, and is of this product's query."""
        notes = state / "_metadata/v2"
        numbers = [int(each.name) for each in _listed(notes) if each.name.isdigit()]
        if not numbers:
            self.damaged(notes, "the description of the state is missing")
            return True
        note = notes / str(max(numbers))
        self.fetch(note)
        try:
            described = json.loads(note.read_text(encoding="utf-8").splitlines()[1])
            operator = str(described["operatorInfo"]["operatorName"])
            properties = json.loads(described.get("operatorPropertiesJson") or "{}")
            variables = {each.get("stateName") for each in properties.get("stateVariables", ())}
            stores = described["stateStoreInfo"]
            schemas = [path for store in stores for path in store.get("stateSchemaFilePaths") or ()]
        except (OSError, ValueError, LookupError, AttributeError, TypeError) as reason:
            self.damaged(note, f"it does not describe a state ({reason})")
            return True
        if STATE_VARIABLE not in variables:
            said = f"its query has the state of {operator}, not this product's"
            self.check.report("D407", said)
            return False
        self.needed.append(note)
        for schema in schemas:
            written = str(schema).removeprefix("file://").removeprefix("file:")
            path = self.folder / written.removeprefix(f"{self.checkpoint.place}/")
            if state not in path.parents:
                place = written.partition("/state/")[0]
                said = f"it is at {self.checkpoint.place}, and was written at {place}"
                self.check.report("D408", said)
                break
            if not path.is_file():
                self.damaged(path, "the state's schema is missing")
        return True

    def check_shard(self, shard: Path, *, version: int) -> None:
        """The files of a shard's state at a version."""
        if not shard.is_dir():
            self.damaged(shard, f"the state of shard {shard.name} is missing")
            return
        names = {each.name for each in _listed(shard)}
        numbers = {name[:-4] for name in names if name.endswith(".zip")}
        snapshots = {int(each) for each in numbers if each.isdigit()}
        last = max((number for number in snapshots if number <= version), default=0)
        changes = [f"{number}.changelog" for number in range(last + 1, version + 1)]
        if missing := [name for name in changes if name not in names]:
            names_missing = listed(missing, NAMES_MAX)
            self.damaged(shard, f"{names_missing} is missing, of state version {version}")
        self.needed += [shard / name for name in changes if name in names]
        if last:
            self.check_snapshot(shard, shard / f"{last}.zip")

    def check_snapshot(self, shard: Path, snapshot: Path) -> None:
        """The files that a snapshot names."""
        self.needed.append(snapshot)
        self.fetch(snapshot)
        try:
            with zipfile.ZipFile(snapshot) as packed:
                text = packed.read("metadata").decode()
            sizes = {
                shard / "SSTs" / str(each["dfsSstFileName"]): int(each["sizeBytes"])
                for each in json.loads(text.splitlines()[1]).get("sstFiles", ())
            }
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            zipfile.BadZipFile,
            zlib.error,
        ) as reason:
            self.damaged(snapshot, f"it cannot be read as a snapshot ({reason})")
            return
        for path, size in sizes.items():
            found = path.stat().st_size if path.is_file() else None
            if found == size:
                self.needed.append(path)
            else:
                has = "missing" if found is None else f"{found} bytes"
                self.damaged(path, f"it is {has}, expected {size} bytes")

    def check_sums(self, others: Sequence[Path]) -> None:
        """Compare the needed files, and others, with their checksums."""
        paths = [path for path in (*others, *self.needed) if path.is_file()]
        left, without = SUMS_SIZE_MAX, []
        for number, path in enumerate(paths):
            left -= path.stat().st_size
            if left < 0:
                many = f"{len(paths) - number} files: more than {SUMS_SIZE_MAX >> 20} MiB"
                self.check.left_out.append(f"the checksums of {many}")
                break
            sums = path.with_name(f".{path.name}.crc")
            if not sums.is_file():
                without.append(str(path.relative_to(self.folder)))
            elif (fault := _sums_fault(path, sums)) is not None:
                self.damaged(path, fault)
        if without:
            self.check.report("D411", f"none beside {listed(without, NAMES_MAX)}")


def _sums_fault(path: Path, sums: Path) -> str | None:
    data, expected = path.read_bytes(), sums.read_bytes()
    if len(expected) < 8 or not expected.startswith(_SUMS_MAGIC):
        return "its checksums cannot be read"
    (span,) = struct.unpack(">I", expected[4:8])
    view = memoryview(data)
    found = b"".join(
        struct.pack(">I", zlib.crc32(view[at : at + span])) for at in range(0, len(data), span or 1)
    )
    return None if found == expected[8:] else "it was changed: its checksums differ"


def _listed(folder: Path) -> list[Path]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return list(folder.iterdir())
    return []
