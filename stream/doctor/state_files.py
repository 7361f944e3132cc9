"""`spu-assigner doctor`: the files of a checkpoint's state, as far as the next start needs them.

A state partition at a version is its last snapshot (`N.zip` with the files that this names) and the
changes after it (`N.changelog`). Beside each file Hadoop keeps a hidden sum, a CRC-32 for each 512
bytes.
"""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from spu_assigner.stream.checkpoint.files import STATE_VARIABLE

SUMS_SIZE_MAX: Final = 128 * 1024**2  # bytes that are read: a second
NAMES_MAX: Final = 3

_SUMS_MAGIC: Final = b"crc\0"


@dataclass(slots=True, kw_only=True)
class StateFileScan:
    """What is looked at, and what is found."""

    folder: Path
    shards: int | None
    done: list[int]  # batches
    needed: list[Path] = field(default_factory=list)  # files that the next start reads
    damaged: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    without_sums: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def name(self, path: Path) -> str:
        """As the checkpoint's reader knows it."""
        return str(path.relative_to(self.folder))


def look_at_state(look: StateFileScan) -> bool:
    """Find what the next start needs; whether it is a state of this product's."""
    if not look.done or look.shards is None:
        return True
    state = look.folder / "state/0"
    if not _look_at_operator(look, state):
        return False
    version = look.done[-1] + 1
    for number in range(look.shards):
        part = state / str(number)
        if not part.is_dir():
            look.damaged.append(f"{look.name(part)}: the state of shard {number} is missing")
        else:
            _look_at_part(look, part, version)
    return True


def _look_at_operator(look: StateFileScan, state: Path) -> bool:
    """Whether the notes of the state are there, and are of this product's query."""
    notes = state / "_metadata/v2"
    numbers = [int(each.name) for each in _listed(notes) if each.name.isdigit()]
    if not numbers:
        look.damaged.append(f"{look.name(notes)}: what tells of the state is missing")
        return True
    note = notes / str(max(numbers))
    try:
        told = json.loads(note.read_text(encoding="utf-8").splitlines()[1])
        operator = str(told["operatorInfo"]["operatorName"])
        properties = json.loads(told.get("operatorPropertiesJson") or "{}")
        variables = {each.get("stateName") for each in properties.get("stateVariables", ())}
        stores: list[Any] = told["stateStoreInfo"]
        schemas = [path for store in stores for path in store.get("stateSchemaFilePaths") or ()]
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as reason:
        look.damaged.append(f"{look.name(note)}: it is no note of a state ({reason})")
        return True
    if STATE_VARIABLE not in variables:
        look.foreign.append(f"its query has the state of {operator}, and none of this product's")
        return False
    look.needed.append(note)
    for schema in schemas:
        path = Path(str(schema).removeprefix("file://").removeprefix("file:"))
        if state not in path.parents:
            place = str(path).partition("/state/")[0]
            look.moved.append(f"it is at {look.folder}, and was written at {place}")
            break
        if not path.is_file():
            look.damaged.append(f"{look.name(path)}: the state's schema is missing")
    return True


def _look_at_part(look: StateFileScan, part: Path, version: int) -> None:
    """What a shard's state at a version is made of."""
    names = {each.name for each in _listed(part)}
    snapshots = {int(name[:-4]) for name in names if name.endswith(".zip") and name[:-4].isdigit()}
    last = max((number for number in snapshots if number <= version), default=0)
    changes = [f"{number}.changelog" for number in range(last + 1, version + 1)]
    if missing := [name for name in changes if name not in names]:
        named = ", ".join(missing[:NAMES_MAX])
        look.damaged.append(f"{look.name(part)}: {named} is missing, of state version {version}")
    look.needed += [part / name for name in changes if name in names]
    if last:
        look.needed += _look_at_snapshot(look, part, part / f"{last}.zip")


def _look_at_snapshot(look: StateFileScan, part: Path, snapshot: Path) -> Iterator[Path]:
    yield snapshot
    try:
        with zipfile.ZipFile(snapshot) as packed:
            text = packed.read("metadata").decode()
        files = [
            (str(each["dfsSstFileName"]), int(each["sizeBytes"]))
            for each in json.loads(text.splitlines()[1]).get("sstFiles", ())
        ]
    except (OSError, ValueError, LookupError, TypeError, zipfile.BadZipFile, zlib.error) as reason:
        look.damaged.append(f"{look.name(snapshot)}: it is no snapshot ({reason})")
        return
    for name, size in files:
        path = part / "SSTs" / name
        found = path.stat().st_size if path.is_file() else None
        if found != size:
            is_there = "missing" if found is None else f"{found} bytes"
            look.damaged.append(f"{look.name(path)}: it is {is_there}, expected {size} bytes")
        else:
            yield path


def look_at_sums(look: StateFileScan, begun: list[int]) -> None:
    """Hold the files that the next start reads against the sums beside them."""
    logs = [("offsets", begun), ("commits", look.done)]
    newest = [look.folder / log / str(number) for log, each in logs for number in each[-2:]]
    paths = [path for path in (look.folder / "metadata", *newest, *look.needed) if path.is_file()]
    left, without = SUMS_SIZE_MAX, []
    for number, path in enumerate(paths):
        left -= path.stat().st_size
        if left < 0:
            look.left_out.append(
                f"the sums of {len(paths) - number} files: more than {SUMS_SIZE_MAX >> 20} MiB"
            )
            break
        sums = path.with_name(f".{path.name}.crc")
        if not sums.is_file():
            without.append(path)
        elif (fault := _fault(path, sums)) is not None:
            look.damaged.append(f"{look.name(path)}: {fault}")
    if without:
        named = ", ".join(map(look.name, without[:NAMES_MAX]))
        more = len(without) - NAMES_MAX
        look.without_sums.append(f"none beside {named}{f' and {more} more' if more > 0 else ''}")


def _fault(path: Path, sums: Path) -> str | None:
    data, told = path.read_bytes(), sums.read_bytes()
    if len(told) < 8 or not told.startswith(_SUMS_MAGIC):
        return "the sums beside it cannot be read"
    (span,) = struct.unpack(">I", told[4:8])
    view = memoryview(data)
    found = b"".join(
        struct.pack(">I", zlib.crc32(view[at : at + span])) for at in range(0, len(data), span or 1)
    )
    return None if found == told[8:] else "it is not what was written: its sums are others"


def _listed(folder: Path) -> list[Path]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return list(folder.iterdir())
    return []
