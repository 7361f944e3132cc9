"""A batch's bundles between Spark and Kafka: in memory while they are few, else in a file.

The plan runs once. Spark hands the rows over one state partition after another, as each is done,
so neither the driver's JVM nor this process ever holds a whole large batch. What a shard has put
into a file already (`job/shard/spill.py`) is read from there. Whatever comes out of a file is held
against the digest of what went in, each time it is read: for the marker, and to be sent.
"""

from __future__ import annotations

import hashlib
import struct
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.job.shard.bundle import Bundle, SourceRange, merged_ranges
from spu_assigner.stream.job.shard.spill import Note, digest_of, read_note
from spu_assigner.stream.job.shard.tally import Tally

SHARD: Final = struct.Struct(">i")  # in a digest, before the shard's messages
_PLACE: Final = struct.Struct(">iii")
MEMORY_SIZE_MAX: Final = 64 * 1024 * 1024  # bytes of bundles; a batch of small maps has a tenth
_REPEATED: Final = "start the job again to repeat the batch"


class BatchBufferError(AssignerError):
    """A file of bundles cannot be written or read, or holds what was not written to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a bundle is in a file, and what it must be."""

    file: IO[bytes]
    position: int
    size: int
    digest: bytes

    def read(self) -> bytes:
        self.file.seek(self.position)
        data = self.file.read(self.size)
        if len(data) != self.size:
            raise BatchBufferError(
                f"a file with a part of the batch ends {self.size - len(data)} bytes early; "
                f"expected {self.size} from {self.position} on; {_REPEATED}"
            )
        if digest_of(data) != self.digest:
            raise BatchBufferError(
                f"the {self.size} bytes from {self.position} on of a file with a part of the batch "
                "are not what was written there: something else has written to it, or the disk "
                f"fails; {_REPEATED}"
            )
        return data


class BatchBuffer:
    """The bundles of one batch, given back in the order of (shard, sequence)."""

    def __init__(self, memory_size_max: int = MEMORY_SIZE_MAX) -> None:
        self._memory_size_max = memory_size_max
        self._size = 0
        self._file: IO[bytes] | None = None
        self._spills: dict[Path, IO[bytes]] = {}
        self._places: dict[tuple[int, int], bytes | _Place] = {}  # by shard and sequence

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in (self._file, *self._spills.values()):
            if file is not None:
                with suppress(OSError):  # Nobody needs any more what did not fit.
                    file.close()

    @property
    def is_spilled(self) -> bool:
        return self._file is not None

    def take(self, bundles: bytes) -> None:
        """Keep bundles, each after shard, sequence and size, i32, big-endian."""
        position = 0
        while position < len(bundles):
            shard, sequence, size = _PLACE.unpack_from(bundles, position)
            position += _PLACE.size
            self.add(shard, sequence, bundles[position : position + size])
            position += size

    def add(self, shard: int, sequence: int, bundle: bytes) -> None:
        """Keep one bundle, which may lie in a file of its shard's."""
        note = read_note(bundle)
        if note is not None:
            self._places[shard, sequence] = _Place(
                file=self._opened(note),
                position=note.position,
                size=note.size,
                digest=note.digest,
            )
            return
        self._size += len(bundle)
        self._places[shard, sequence] = bundle
        if self._size > self._memory_size_max:
            self._spill()

    def bundles(self) -> Iterator[Bundle]:
        """All bundles, in order; may be gone through more than once."""
        return (bundle for _, bundle in self.placed())

    def placed(self) -> Iterator[tuple[int, Bundle]]:
        """The same, each with its shard."""
        for place in sorted(self._places):
            where = self._places[place]
            yield place[0], Bundle(where if isinstance(where, bytes) else where.read())

    def _spill(self) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="spu-assigner-batch-")  # noqa: SIM115
            position = self._file.seek(0, 2)
            for place, bundle in self._places.items():
                if isinstance(bundle, bytes):
                    self._file.write(bundle)
                    self._places[place] = _Place(
                        file=self._file,
                        position=position,
                        size=len(bundle),
                        digest=digest_of(bundle),
                    )
                    position += len(bundle)
            self._file.flush()
        except OSError as reason:
            raise BatchBufferError(
                f"a file with a part of the batch cannot be written ({reason.strerror}); make room "
                f"in {tempfile.gettempdir()}, or name another folder with TMPDIR, and {_REPEATED}"
            ) from reason
        self._size = 0

    def _opened(self, note: Note) -> IO[bytes]:
        """The file, unlinked as soon as it is open: a crash leaves nothing behind."""
        file = self._spills.get(note.path)
        if file is None:
            try:
                file = self._spills[note.path] = note.path.open("rb")
                note.path.unlink()
            except OSError as reason:
                raise BatchBufferError(
                    f"the file {note.path} with a part of the batch cannot be read "
                    f"({reason.strerror}); {_REPEATED}"
                ) from reason
        return file


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What the bundles of a batch say of it."""

    digest: str
    count: int
    ranges: list[SourceRange]
    tallies: dict[int, Tally]  # by shard


def summary_of(buffer: BatchBuffer) -> Summary:
    """Digest, count and the rest, in one go through all bundles.

    The digest is taken over the messages of each shard, behind its number.
    """
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
        if bundle.tally:
            tallies[shard] = Tally.of_bytes(bundle.tally)
    return Summary(
        digest=digest.hexdigest(), count=count, ranges=merged_ranges(ranges), tallies=tallies
    )
