"""Lines of JSON, read as they arrive and in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Final

from spu_assigner.core.base.events import Event
from spu_assigner.core.base.limits import MANUAL_FILE_SIZE_MAX
from spu_assigner.schemas.errors import LineError, LineFault
from spu_assigner.schemas.json_lines.lines import event_from_json

LINE_SIZE_MAX: Final = MANUAL_FILE_SIZE_MAX  # the longest legal line carries a manual map


def event_of_line(line: bytes) -> Event | None:
    """The event of one line; None of a blank one. Raises LineError if it is none."""
    if len(line) > LINE_SIZE_MAX:
        said = f"the line is longer than {LINE_SIZE_MAX} bytes; expected one event"
        raise LineError(LineFault.TOO_LONG, said)
    return event_from_json(line) if line.strip() else None


def lines_of(source: IO[bytes], *, size_max: int = LINE_SIZE_MAX) -> Iterator[bytes]:
    """The lines of `source` as they arrive, without their newline.

    A line longer than `size_max` is cut one byte past it, so that the reader sees that it is too
    long; the rest of it is read and dropped. Memory: one line.
    """
    while line := source.readline(size_max + 1):
        part = line
        while part and not part.endswith(b"\n"):
            part = source.readline(size_max + 1)
        yield line.removesuffix(b"\n")
