"""The state of one shard (a fixed part of the clusters) as Spark stores it, and its copy in memory.

Stored are the job's own messages that rebuild state, latest value by key, as a log:

    head         token of the last batch, range of the segments, and the newest entries inline
    seg-<n>      older entries, in the order of n; at most about 2 MiB each

Rules:
- Every batch draws a random token. A copy is used only if its token is the head's; else it is
  loaded again. So a failed batch, a restart or another server can never leave a wrong copy in use.
- The copy is untrusted from a batch's begin until all its writes were given out.
- A small batch costs one read and one write of the head; a full head becomes a segment. A large
  batch writes segments before its end: the head names them last, so they count with its end only.
- While more than half of the log is outdated, a batch is handed the oldest segments with the head:
  what is still valid in them is written to new ones, and they are removed, some each batch. So a
  batch costs in proportion to what it writes, and the log's size to what is alive.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from spu_assigner.core.base.errors import InvariantError

HEAD: Final = "head"
INLINE_SIZE_MAX: Final = 8 * 1024  # the head is rewritten by every batch
SEGMENT_SIZE: Final = 2 * 1024 * 1024  # one call to the store moves it
CLEANED_SIZE: Final = 256 * 1024  # of each cleaning, beside twice what the batch before wrote
CLEANED_SIZE_MAX: Final = 64 * 1024 * 1024  # the server holds the segments that are cleaned
SLACK_SIZE: Final = 256 * 1024  # outdated bytes that are not worth a cleaning

_FORMAT: Final = 3  # of head and segments; 1 and 2 were those before 1.0
_TOKEN_SIZE: Final = 16
_NO_TOKEN: Final = bytes(_TOKEN_SIZE)  # of a shard that nothing was written to
_HEAD: Final = struct.Struct(">B16sQQI")  # format, token, first segment, end, size of the entries
_SEGMENT: Final = struct.Struct(">BI")  # format, size of the entries
_ENTRY: Final = struct.Struct(">Ii")  # size of the key, of the value (-1: none)
_SIZE_BITS: Final = 32

Entries = Mapping[bytes, bytes | None]  # None: the key is gone
Write = tuple[str, bytes | None]  # what the store is to hold under a key; None: nothing


class ShardDamagedError(InvariantError):
    """What is stored is not what was written."""


class ShardFormatError(InvariantError):
    """The state is of a release that stores it otherwise."""


class Copy(Protocol):
    """What is rebuilt from the entries: of one key they come in the order they were written."""

    def restore(self, key: bytes, value: bytes | None) -> None:
        """Take over an entry; None: what the key stood for is gone."""

    def clear(self) -> None:
        """Be empty."""


CopyT = TypeVar("CopyT", bound=Copy)


class Shard(Generic[CopyT]):
    """The copy of one shard, and where its valid entries are stored.

    A batch calls `begin`, `take` with the segments that `begin` names, then `write_ahead` as often
    as it needs, and `commit`. What the last two give must be written to the store, all of it.
    """

    def __init__(self, copy: CopyT) -> None:
        self.copy = copy
        self._token: bytes | None = None  # None: the copy is not to be trusted
        self._first = self._end = 0  # segments first … end - 1 exist
        self._inline: dict[bytes, bytes | None] = {}  # the entries in the head
        self._index: dict[bytes, int] = {}  # of valid entries in segments: number and size, packed
        self._sizes: dict[int, int] = {}  # of each segment
        self._valid_size = 0  # of the entries in the index
        self._written_size = 0  # of the segments that the batch has written
        self._is_loading = False  # whether the segments of this batch are all there are
        self._cleaned: list[tuple[int, bytes]] = []  # segments that this batch writes again

    def begin(self, head: bytes | None) -> range:
        """Mark the copy untrusted until `commit`; gives the segments that must be handed in. These
        are all of them if the copy is not that of the head, else those to be cleaned."""
        token, first, end, inline = _read_head(head)
        trusted, self._token = self._token, None
        self._is_loading = trusted != token
        if self._is_loading:
            self.copy.clear()
            self._first, self._end, self._inline = first, end, inline
            self._index, self._sizes, self._valid_size = {}, {}, 0
        else:
            end = self._end_of_cleaning()
        self._written_size = 0
        return range(first, end)

    def take(self, segments: Iterable[bytes]) -> None:
        """Take over the segments that `begin` has named, in their order."""
        numbered = enumerate(segments, self._first)
        self._cleaned = [] if self._is_loading else list(numbered)
        if not self._is_loading:
            return
        # In the order in which they were written, one by one: the shard is never here twice.
        for number, data in numbered:
            entries = _read_segment(number, data)
            self._sizes[number] = len(data)
            self._note(dict(entries), number)
            for key, value in entries:
                self.copy.restore(key, value)
        self._note(self._inline, None)
        for key, value in self._inline.items():
            self.copy.restore(key, value)

    def write_ahead(self, entries: Entries) -> Iterator[Write]:
        """Write a part of what a large batch changes, before its end."""
        written: dict[bytes, bytes | None] = {}
        for number, data in self._cleaned:
            for key, value in _read_segment(number, data):
                # A tombstone is no longer needed: what it outdates was dropped.
                if value is not None and self._index.get(key, -1) >> _SIZE_BITS == number:
                    written[key] = value
            del self._sizes[number]
            self._first = number + 1
            yield segment_key(number), None
        self._cleaned = []
        written |= self._inline
        written |= entries
        self._inline = {}
        for piece in _pieces(written):
            packed = _pack_entries(piece)
            data = _SEGMENT.pack(_FORMAT, len(packed)) + packed
            self._sizes[self._end] = len(data)
            self._note(piece, self._end)
            self._written_size += len(data)
            yield segment_key(self._end), data
            self._end += 1

    def commit(self, entries: Entries) -> Iterator[Write]:
        """Write what a batch changed, or the rest of it, and trust the copy, which must hold these
        changes already."""
        size = sum(_size(*entry) for each in (self._inline, entries) for entry in each.items())
        if self._cleaned or size > INLINE_SIZE_MAX:
            yield from self.write_ahead(entries)
        else:
            self._note(entries, None)
            self._inline.update(entries)
        token, inline = os.urandom(_TOKEN_SIZE), _pack_entries(self._inline)
        yield HEAD, _HEAD.pack(_FORMAT, token, self._first, self._end, len(inline)) + inline
        self._token = token

    def _end_of_cleaning(self) -> int:
        """The segment after the oldest ones that this batch is to clean."""
        allowance = min(CLEANED_SIZE + 2 * self._written_size, CLEANED_SIZE_MAX)
        outdated = sum(self._sizes.values()) - 2 * self._valid_size - SLACK_SIZE
        number = self._first
        while number < self._end and outdated > 0 and allowance > 0:
            outdated -= self._sizes[number]
            allowance -= self._sizes[number]
            number += 1
        return number

    def _note(self, entries: Entries, segment: int | None) -> None:
        """Note where the valid entry of each key is now; None: in the head."""
        shared: dict[
            int, int
        ] = {}  # most entries are as long as others, and need no int of their own
        for key, value in entries.items():
            self._valid_size -= self._index.pop(key, 0) & 0xFFFFFFFF
            if segment is not None and value is not None:
                size = _size(key, value)
                place = segment << _SIZE_BITS | size
                self._index[key] = shared.setdefault(place, place)
                self._valid_size += size


def segment_key(number: int) -> str:
    """The key of a segment in the store."""
    return f"seg-{number:012d}"


def _pieces(entries: Entries) -> Iterator[Entries]:
    """Entries in pieces of about SEGMENT_SIZE."""
    piece: dict[bytes, bytes | None] = {}
    size = 0
    for key, value in entries.items():
        if size >= SEGMENT_SIZE:
            yield piece
            piece, size = {}, 0
        piece[key] = value
        size += _size(key, value)
    if piece:
        yield piece


def _size(key: bytes, value: bytes | None) -> int:
    """Of an entry that is packed."""
    return _ENTRY.size + len(key) + len(value or b"")


def pack_entry(key: bytes, value: bytes | None) -> bytes:
    """An entry's bytes, as they lie in a segment."""
    return _ENTRY.pack(len(key), -1 if value is None else len(value)) + key + (value or b"")


def _pack_entries(entries: Entries) -> bytes:
    return b"".join(pack_entry(key, value) for key, value in entries.items())


def unpack_entries(data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Entries that were packed one after the other."""
    position, end = 0, len(data)
    while position < end:
        key_size, value_size = _ENTRY.unpack_from(data, position)
        middle = position + _ENTRY.size + key_size
        key = data[middle - key_size : middle]
        position = middle + max(value_size, 0)
        yield key, None if value_size < 0 else data[middle:position]


def _read_segment(number: int, data: bytes) -> list[tuple[bytes, bytes | None]]:
    if not data:
        raise ShardDamagedError(f"a shard's segments have a gap: {segment_key(number)} is missing")
    _checked_numbers(_SEGMENT, data)
    return list(unpack_entries(data[_SEGMENT.size :]))


def _read_head(data: bytes | None) -> tuple[bytes, int, int, dict[bytes, bytes | None]]:
    """Token, first segment and end, and what is inline."""
    if data is None:
        return _NO_TOKEN, 0, 0, {}
    _, token, first, end, _ = _checked_numbers(_HEAD, data)
    return token, first, end, dict(unpack_entries(data[_HEAD.size :]))


def _checked_numbers(form: struct.Struct, data: bytes) -> tuple[Any, ...]:
    """What a piece begins with: its format first, the size of its entries last."""
    if data[0] != _FORMAT:
        raise ShardFormatError(
            f"a shard's state has format {data[0]}, this release reads {_FORMAT}; "
            "run the release that wrote the checkpoint"
        )
    numbers = form.unpack(data[: form.size].ljust(form.size, b"\0"))
    if len(data) != form.size + numbers[-1]:
        raise ShardDamagedError(
            f"a piece of a shard's state has {len(data)} bytes; expected {form.size + numbers[-1]}"
        )
    return numbers
