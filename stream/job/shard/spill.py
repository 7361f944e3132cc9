"""What a shard answers in one batch beyond a measure: in a file, with a note of it in Spark's row.

Spark holds the rows of a task in the JVM's heap, whole and several times over, and Py4J hands them
on as text. A batch of few events may be answered by gigabytes. So where all tasks run on the
driver's machine a shard's server gives Spark the first bundles only, writes the others to a file,
and gives notes of a few bytes for them; the buffer reads the file.

On a cluster the file would be on another machine. There all bundles go through Spark, a shard's
part of a batch must fit into an executor several times, and the driver writes the file
(`AnswersProvider.java`).

Rules: a note is given once its bundle is in the file, whole; if there is no room for it, the batch
fails and the file is removed. A note has the SHA-256 of the bundle as the shard has made it, and
the reader compares: what is sent is what was decided. The buffer unlinks a file when it opens it;
what a crash leaves the shard's server removes when it ends.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, NamedTuple

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.job.shard.state_log import Write

MEMORY_SIZE_MAX: Final = 64 * 1024  # bytes of bundles; Py4J passes bytes as text, with base64

_FORM: Final = 0xFF  # no format of a bundle's
_NOTE: Final = struct.Struct(">BQQ32s")  # form, position, size, SHA-256; then the path


class SpillError(AssignerError):
    """A shard's bundles cannot be written to a file."""


class Note(NamedTuple):
    """Where a bundle is, and what it must be."""

    path: Path
    position: int
    size: int
    digest: bytes


def read_note(data: bytes) -> Note | None:
    """The note that a row holds in a bundle's place; None: it is the bundle."""
    if data[0] != _FORM:
        return None
    _, position, size, digest = _NOTE.unpack_from(data)
    return Note(Path(data[_NOTE.size :].decode()), position, size, digest)


def spill(
    parts: Iterable[bytes | Write], folder: Path, label: int, size_max: int = MEMORY_SIZE_MAX
) -> Iterator[bytes | Write]:
    """The bundles, and notes of those beyond the measure, in their order; writes as they are.
    Raises SpillError if a bundle cannot be written; the file is gone then."""
    size = position = 0
    path = folder / f"{label}-{secrets.token_hex(8)}.spill"
    file: IO[bytes] | None = None
    try:
        for part in parts:
            size += len(part) if isinstance(part, bytes) else 0
            if not isinstance(part, bytes) or size <= size_max:
                yield part
                continue
            try:
                file = file or path.open("xb")
                file.write(part)  # All of it, or an error: a raw file writes what fits.
                file.flush()
            except OSError as reason:
                raise SpillError(
                    f"the file {path} with a part of the batch cannot be written "
                    f"({reason.strerror}); make room in {folder.parent}, or name another folder "
                    "with TMPDIR, and start the job again to repeat the batch"
                ) from reason
            digest = hashlib.sha256(part).digest()
            yield _NOTE.pack(_FORM, position, len(part), digest) + str(path).encode()
            position += len(part)
    except BaseException:  # The task failed, or was ended: the file is not read.
        path.unlink(missing_ok=True)
        raise
    finally:
        if file is not None:
            with suppress(OSError):  # It would try once more to write what did not fit.
                file.close()


def remove_left(folder: Path, label: int) -> None:
    """Remove a shard's files that were not opened."""
    for path in folder.glob(f"{label}-*.spill"):
        with suppress(OSError):
            path.unlink()
