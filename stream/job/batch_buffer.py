"""A batch's bundles between Spark and Kafka.

What a shard's task has put into a file (`job/shard/spill.py`, `AnswersProvider.java`) is read from
there, so this process never holds a whole large batch. It is compared with the digest of what was
written each time it is read: for the marker, and to be sent.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.job.shard.bundle import Bundle, SourceRange, merged_ranges
from spu_assigner.stream.job.shard.spill import Note, read_note
from spu_assigner.stream.job.shard.tally import Tally

SHARD: Final = struct.Struct(">i")  # in a digest, before the shard's messages
_PLACE: Final = struct.Struct(">iii")
_REPEATED: Final = "start the job again to repeat the batch"


class BatchBufferError(AssignerError):
    """A file of bundles cannot be read, or does not hold what was written to it."""


class BatchBuffer(ExitStack):
    """The bundles of one batch, in the order of (shard, sequence)."""

    def __init__(self) -> None:
        super().__init__()
        self._bundles: dict[tuple[int, int], bytes | Note] = {}  # by shard and sequence
        self._files: dict[Path, IO[bytes]] = {}

    def take(self, bundles: bytes) -> None:
        """Keep bundles, each after shard, sequence and size, i32, big-endian."""
        position = 0
        while position < len(bundles):
            shard, sequence, size = _PLACE.unpack_from(bundles, position)
            position += _PLACE.size
            self.add(shard, sequence, bundles[position : position + size])
            position += size

    def add(self, shard: int, sequence: int, bundle: bytes) -> None:
        """Keep one bundle, or the note of one in a file."""
        note = read_note(bundle)
        if note is not None and note.path not in self._files:
            try:
                self._files[note.path] = self.enter_context(note.path.open("rb"))
                note.path.unlink()  # A crash leaves nothing behind.
            except OSError as reason:
                raise BatchBufferError(
                    f"the file {note.path} with a part of the batch cannot be read "
                    f"({reason.strerror}); {_REPEATED}"
                ) from reason
        self._bundles[shard, sequence] = note or bundle

    def placed(self) -> Iterator[tuple[int, Bundle]]:
        """All bundles in order, each with its shard; may be iterated more than once."""
        for place in sorted(self._bundles):
            found = self._bundles[place]
            yield place[0], Bundle(found if isinstance(found, bytes) else self._read(found))

    def _read(self, note: Note) -> bytes:
        file = self._files[note.path]
        file.seek(note.position)
        data = file.read(note.size)
        if len(data) != note.size:
            raise BatchBufferError(
                f"a file with a part of the batch ends {note.size - len(data)} bytes early; "
                f"expected {note.size} from {note.position} on; {_REPEATED}"
            )
        if hashlib.sha256(data).digest() != note.digest:
            raise BatchBufferError(
                f"the {note.size} bytes from {note.position} on of a file with a part of the batch "
                "are not what was written there: something else has written to it, or the disk "
                f"fails; {_REPEATED}"
            )
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What the bundles of a batch say of it."""

    digest: str
    count: int
    ranges: list[SourceRange]
    tallies: dict[int, Tally]  # by shard


def summary_of(buffer: BatchBuffer) -> Summary:
    """Read all bundles once; the digest is over each shard's messages, behind its number."""
    digest = hashlib.sha256()
    count = 0
    last_shard = None
    ranges: list[SourceRange] = []
    tallies: dict[int, Tally] = {}
    for shard, bundle in buffer.placed():
        if bundle.count and shard != last_shard:
            digest.update(SHARD.pack(shard))
            last_shard = shard
        digest.update(bundle.digestible)
        ranges += bundle.ranges
        count += bundle.count
        if bundle.tally is not None:
            tallies[shard] = bundle.tally
    return Summary(
        digest=digest.hexdigest(), count=count, ranges=merged_ranges(ranges), tallies=tallies
    )
