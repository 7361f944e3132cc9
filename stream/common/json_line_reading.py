"""Lines of JSON, read as they arrive and in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any, Final

from spu_assigner.core.base.events import Event
from spu_assigner.core.base.limits import MANUAL_FILE_SIZE_MAX
from spu_assigner.schemas.errors import LineError, LineFault
from spu_assigner.schemas.json_lines.lines import event_from_json

LINE_SIZE_MAX: Final = MANUAL_FILE_SIZE_MAX  # the longest legal line carries a manual map
CHUNK_SIZE: Final = 64 * 1024  # read at once


def event_of_line(line: bytes) -> Event | None:
    """The event of one line; None of a blank one.

    Raises:
        LineError: the line is no event.
    """
    if len(line) > LINE_SIZE_MAX:
        said = f"the line is longer than {LINE_SIZE_MAX} bytes; expected one event"
        raise LineError(LineFault.TOO_LONG, said)
    return event_from_json(line) if line.strip() else None


def chunks_of_lines(source: IO[bytes], *, size_max: int = LINE_SIZE_MAX) -> Iterator[list[bytes]]:
    """The lines of `source` as they arrive, in lists, without their newline.

    A line longer than `size_max` is cut one byte past it, so that the reader sees that it is too
    long; the rest of it is read and dropped. Memory: one line and one chunk.
    """
    read: Any = getattr(source, "read1", source.read)  # does not wait for more than there is
    begun = bytearray()
    chunk = read(CHUNK_SIZE)
    while chunk:
        *ends, rest = chunk.split(b"\n")
        lines: list[bytes] = []
        for end in ends:
            begun += end[: size_max + 1 - len(begun)]
            lines.append(bytes(begun))
            begun.clear()
        begun += rest[: size_max + 1 - len(begun)]
        yield lines
        chunk = read(CHUNK_SIZE)
    if begun:
        yield [bytes(begun)]
