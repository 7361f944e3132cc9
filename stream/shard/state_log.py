"""The state of one shard (a fixed part of the clusters) in a store, and its copy in memory.

Stored are the job's own messages that rebuild state, latest value by key, as a log:

    head         version, the last batches' tokens, and the newest entries inline
    seg-<n>      older entries, in the order of n; at most about 2 MiB each

Rules:
- Every batch draws a random token. A worker trusts the copy it holds only if its token is the
  head's; is the head some batches ahead, the copy takes over what they wrote; else it is read anew.
  So a failed batch, another worker or a restart can never leave a wrong copy in use.
- A large batch writes segments before its end, so that no more than a piece of it is held here.
  The head names them when all is written; if the batch fails the store drops them.
- The copy is marked untrusted before a batch changes it and trusted again when all is written.
- A batch costs one put of the head, and now and then a segment. The oldest segments are cleaned
  (what is still valid moves to the newest, the rest is dropped) whenever more than half of the log
  is outdated, a bounded piece at a time: the cost per batch stays proportional to what it wrote,
  and the log's size to what is alive.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from spu_assigner.core.base.errors import InvariantError

HEAD: Final = "head"
INLINE_SIZE_MAX: Final = 8 * 1024  # the head is rewritten by every batch
STEPS_MAX: Final = 32  # batches that a worker may lag behind and still catch up
SEGMENT_SIZE: Final = 2 * 1024 * 1024  # one call to the store moves it
CLEANED_SIZE: Final = 256 * 1024  # of each cleaning, beside twice what the batch wrote
SLACK_SIZE: Final = 256 * 1024  # outdated bytes that are not worth a cleaning

_VERSION: Final = 1
_TOKEN_SIZE: Final = 16
_NO_TOKEN: Final = bytes(_TOKEN_SIZE)  # of a shard that nothing was written to
_HEAD: Final = struct.Struct(">B16sQQI")  # version, token before the first step, segments, steps
_STEP: Final = struct.Struct(">16sQQI")  # token, segments, size of the entries inline
_SEGMENT: Final = struct.Struct(">BII")  # version, size of its new entries, size of those moved
_ENTRY: Final = struct.Struct(">Ii")  # size of the key, of the value (-1: none)
_TAIL: Final = 2**40  # stands for a segment's number while an entry is inline
_SIZE_BITS: Final = 32

Entries = Mapping[bytes, bytes | None]  # None: the key is gone


class ShardDamagedError(InvariantError):
    """What is stored is not what was written."""


class ShardFormatError(InvariantError):
    """The state is of a release that stores it otherwise."""


class Store(Protocol):
    """Where a shard is kept: Spark's state store, or a dict in a test."""

    def get(self, key: str) -> bytes | None: ...
    def put(self, key: str, value: bytes) -> None: ...
    def remove(self, key: str) -> None: ...
    def items(self) -> Iterator[tuple[str, bytes]]: ...


class Copy(Protocol):
    """What is rebuilt from the entries: of one key they come in the order they were written."""

    def restore(self, key: bytes, value: bytes | None) -> None:
        """Take over an entry; None: what the key stood for is gone."""

    def clear(self) -> None:
        """Be empty."""


@dataclass(slots=True, kw_only=True)
class _Step:
    """What one batch wrote: segments first … end - 1, or entries inline."""

    token: bytes
    first: int = 0
    end: int = 0
    inline: bytes = b""

    @property
    def is_inline(self) -> bool:
        return self.end == 0


@dataclass(slots=True, kw_only=True)
class _Head:
    base: bytes = _NO_TOKEN  # the token before the first step
    first: int = 0  # segments first … end - 1 exist
    end: int = 0
    steps: list[_Step] = field(default_factory=list)

    @property
    def token(self) -> bytes:
        return self.steps[-1].token if self.steps else self.base

    def steps_after(self, token: bytes) -> list[_Step] | None:
        """What a copy with that token lacks; None: more than is known."""
        tokens = [self.base, *(step.token for step in self.steps)]
        return self.steps[tokens.index(token) :] if token in tokens else None


class Shard:
    """One shard in a worker's memory, beside the store it was read from."""

    def __init__(self, copy: Copy) -> None:
        self.copy = copy
        self.loads = 0  # how often all was read: for tests and figures
        self._token: bytes | None = None  # None: the copy is not to be trusted
        self._ahead: int | None = None  # the first segment that the batch wrote before its end
        self._head = _Head()
        self._index: dict[bytes, int] = {}  # key: segment and size of its valid entry
        self._tail: dict[bytes, bytes | None] = {}  # the entries inline
        self._sizes: dict[int, int] = {}  # of each segment
        self._stored_size = 0  # of all segments
        self._valid_size = 0  # of the valid entries in them

    def begin(self, store: Store) -> None:
        """Bring the copy up to date, and mark it untrusted until `commit`."""
        raw = store.get(HEAD)
        head = _Head() if raw is None else _read_head(raw)
        token, self._token = self._token, None
        self._ahead = None
        lacking = None if token is None else head.steps_after(token)
        if lacking is None or not self._catch_up(store, head, lacking):
            self._load(store, head)
        self._head = head

    def write_ahead(self, store: Store, entries: Entries) -> None:
        """Write a part of what a large batch changes, before its end."""
        first = self._flush(store, self._head, entries)
        if self._ahead is None:
            self._ahead = first

    def commit(self, store: Store, entries: Entries) -> None:
        """Write what a batch changed, or the rest of it, and trust the copy, which must hold these
        changes already."""
        head = replace(self._head, steps=list(self._head.steps))
        token = os.urandom(_TOKEN_SIZE)
        inline_steps = [step for step in head.steps if step.is_inline]
        inline_size = sum(len(step.inline) for step in inline_steps)
        if (
            self._ahead is None
            and len(inline_steps) < STEPS_MAX
            and len(entries) * _ENTRY.size <= INLINE_SIZE_MAX  # Else they need not be looked at.
            and inline_size + _size_of(entries) <= INLINE_SIZE_MAX
        ):
            self._take(entries, _TAIL)
            self._tail.update(entries)
            head.steps.append(_Step(token=token, inline=_pack_entries(entries.items())))
        else:
            first = self._flush(store, head, entries)
            first = first if self._ahead is None else self._ahead
            head.steps.append(_Step(token=token, first=first, end=head.end))
        if len(head.steps) > STEPS_MAX:  # Those inline are the last ones, and not more.
            head.base = head.steps[-STEPS_MAX - 1].token
            head.steps = head.steps[-STEPS_MAX:]
        store.put(HEAD, _head_bytes(head))
        self._head = head
        self._token = token

    def _flush(self, store: Store, head: _Head, entries: Entries) -> int:
        """Write what is inline and some entries to new segments, after some cleaning: the first."""
        written = {**self._tail, **entries}
        self._tail = {}
        moved = self._clean(store, head, written)
        first = head.end
        for new, old in _segments(written, moved):
            self._take(new, head.end)
            self._take(old, head.end)
            data = _segment_bytes(new, old)
            store.put(_segment_key(head.end), data)
            self._add_segment(head.end, len(data))
            head.end += 1
        for step in head.steps:
            if step.is_inline:
                step.first, step.end, step.inline = first, head.end, b""
        return first

    def _clean(self, store: Store, head: _Head, written: Entries) -> dict[bytes, bytes]:
        """Remove the oldest segments; gives what is valid of them and not written anew."""
        moved: dict[bytes, bytes] = {}
        if self._stored_size <= 2 * self._valid_size + SLACK_SIZE:
            return moved
        allowance = CLEANED_SIZE + 2 * _size_of(written)
        while (
            head.first < head.end
            and allowance > 0
            and self._stored_size > 2 * self._valid_size + SLACK_SIZE
        ):
            number = head.first
            data = store.get(_segment_key(number))
            if data is None:
                raise ShardDamagedError(f"segment {number} of a shard is gone; its head has it")
            new, old = _read_segment(data)
            for key, value in (*new, *old):
                place = self._index.get(key)
                if value is None or place is None or place >> _SIZE_BITS != number:
                    continue  # A tombstone is no longer needed: what it outdates was dropped.
                if key not in written:
                    moved[key] = value
            store.remove(_segment_key(number))
            self._drop_segment(number)
            allowance -= len(data)
            head.first += 1
        return moved

    def _take(self, entries: Entries, segment: int) -> None:
        """Note where the valid entry of each key is now."""
        index = self._index
        valid = self._valid_size
        place = segment << _SIZE_BITS
        counted = segment != _TAIL
        for key, value in entries.items():
            before = index.get(key)
            if before is not None and before >> _SIZE_BITS != _TAIL:
                valid -= before & 0xFFFFFFFF
            if value is None:
                if before is not None:
                    del index[key]
                continue
            size = _ENTRY.size + len(key) + len(value)
            index[key] = place | size
            if counted:
                valid += size
        self._valid_size = valid

    def _add_segment(self, number: int, size: int) -> None:
        self._sizes[number] = size
        self._stored_size += size

    def _drop_segment(self, number: int) -> None:
        self._stored_size -= self._sizes.pop(number)

    def _catch_up(self, store: Store, head: _Head, lacking: list[_Step]) -> bool:
        """Take over what later batches wrote; False: not all of it is there any more."""
        numbers = sorted({number for step in lacking for number in range(step.first, step.end)})
        segments: dict[int, bytes] = {}
        for number in numbers:
            data = store.get(_segment_key(number))
            if data is None:
                return False
            segments[number] = data
        if numbers:
            self._tail = {}  # What was inline is in the first of these segments.
        for number, data in segments.items():
            new, old = _read_segment(data)
            for key, value in new:
                self.copy.restore(key, value)
            self._take(dict(old), number)
            self._take(dict(new), number)
            self._add_segment(number, len(data))
        for step in lacking:
            if step.is_inline:
                entries = dict(unpack_entries(step.inline))
                for key, value in entries.items():
                    self.copy.restore(key, value)
                self._take(entries, _TAIL)
                self._tail.update(entries)
        for number in [number for number in self._sizes if number < head.first]:
            self._drop_segment(number)
        return True

    def _load(self, store: Store, head: _Head) -> None:
        """Read all; only valid entries are given to the copy, whatever order the store has."""
        self.loads += 1
        self.copy.clear()
        self._index, self._tail, self._sizes = {}, {}, {}
        self._stored_size = self._valid_size = 0
        restore = self.copy.restore
        # In the order in which they were written, one by one: the shard is never here twice.
        for number, data in _in_order(store, head):
            new, old = _read_segment(data)
            self._add_segment(number, len(data))
            for entries in (old, new):
                self._take(dict(entries), number)
                for key, value in entries:
                    restore(key, value)
        for step in head.steps:
            if step.is_inline:
                self._tail.update(unpack_entries(step.inline))
        self._take(self._tail, _TAIL)
        for key, value in self._tail.items():
            restore(key, value)


def _in_order(store: Store, head: _Head) -> Iterator[tuple[int, bytes]]:
    """The segments by number; those that the store gives too early are kept back.

    Raises:
        ShardDamagedError: they are not those of the head.
    """
    expected, early = head.first, dict[int, bytes]()
    for name, stored in store.items() if head.end > head.first else ():
        if name != HEAD:
            early[_segment_number(name)] = stored
        while expected in early:
            yield expected, early.pop(expected)
            expected += 1
    if early or expected != head.end:
        raise ShardDamagedError(
            f"a shard has segments up to {expected - 1}, and {len(early)} others, of which "
            f"{sorted(early)[:3]} are the first; its head says {head.first} to {head.end - 1}"
        )


def read_entries(items: Iterable[tuple[str, bytes]]) -> dict[bytes, bytes]:
    """The valid entries of a stored shard, for those who read the state by other ways."""

    class Collected(dict[bytes, bytes]):  # It has `clear` already.
        def restore(self, key: bytes, value: bytes | None) -> None:
            if value is None:
                self.pop(key, None)
            else:
                self[key] = value

    class Listed:
        def __init__(self) -> None:
            self.stored = dict(items)

        def get(self, key: str) -> bytes | None:
            return self.stored.get(key)

        def items(self) -> Iterator[tuple[str, bytes]]:
            return iter(self.stored.items())

        def put(self, key: str, value: bytes) -> None:
            raise InvariantError(f"{key} is only read")

        def remove(self, key: str) -> None:
            raise InvariantError(f"{key} is only read")

    collected = Collected()
    Shard(collected).begin(Listed())
    return collected


def _segment_key(number: int) -> str:
    return f"seg-{number:012d}"


def _segment_number(key: str) -> int:
    if not key.startswith("seg-"):
        raise ShardDamagedError(f"a shard has the key {key!r}; expected {HEAD!r} or a segment")
    return int(key[4:])


def _segments(
    new: Entries, moved: Mapping[bytes, bytes]
) -> Iterator[tuple[dict[bytes, bytes | None], dict[bytes, bytes | None]]]:
    """Entries in pieces of about SEGMENT_SIZE: (new, moved); at least one."""
    pieces: tuple[dict[bytes, bytes | None], dict[bytes, bytes | None]] = ({}, {})
    size = 0
    for part, entries in enumerate((new, moved)):
        for key, value in entries.items():
            if size >= SEGMENT_SIZE:
                yield pieces
                pieces, size = ({}, {}), 0
            pieces[part][key] = value
            size += _ENTRY.size + len(key) + len(value or b"")
    yield pieces


def _size_of(entries: Entries) -> int:
    return sum(_ENTRY.size + len(key) + len(value or b"") for key, value in entries.items())


def pack_entry(key: bytes, value: bytes | None) -> bytes:
    """An entry's bytes, as they lie in a segment."""
    if value is None:
        return _ENTRY.pack(len(key), -1) + key
    return b"%b%b%b" % (_ENTRY.pack(len(key), len(value)), key, value)


def _pack_entries(entries: Iterable[tuple[bytes, bytes | None]]) -> bytes:
    pack = _ENTRY.pack
    parts: list[bytes] = []
    for key, value in entries:
        if value is None:
            parts += (pack(len(key), -1), key)
        else:
            parts += (pack(len(key), len(value)), key, value)
    return b"".join(parts)


def unpack_entries(data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Entries that were packed one after the other."""
    position, end = 0, len(data)
    while position < end:
        key_size, value_size = _ENTRY.unpack_from(data, position)
        position += _ENTRY.size
        key = data[position : position + key_size]
        position += key_size
        if value_size < 0:
            yield key, None
            continue
        yield key, data[position : position + value_size]
        position += value_size


def _segment_bytes(new: Entries, moved: Entries) -> bytes:
    first, second = _pack_entries(new.items()), _pack_entries(moved.items())
    return b"".join((_SEGMENT.pack(_VERSION, len(first), len(second)), first, second))


def _read_segment(
    data: bytes,
) -> tuple[list[tuple[bytes, bytes | None]], list[tuple[bytes, bytes | None]]]:
    version, new_size, moved_size = _SEGMENT.unpack_from(data)
    middle = _SEGMENT.size + new_size
    _check(version, size=len(data), expected=middle + moved_size)
    return list(unpack_entries(data[_SEGMENT.size : middle])), list(unpack_entries(data[middle:]))


def _head_bytes(head: _Head) -> bytes:
    parts = [_HEAD.pack(_VERSION, head.base, head.first, head.end, len(head.steps))]
    for step in head.steps:
        parts += (_STEP.pack(step.token, step.first, step.end, len(step.inline)), step.inline)
    return b"".join(parts)


def _read_head(data: bytes) -> _Head:
    version, base, first, end, count = _HEAD.unpack_from(data)
    _check(version, size=0, expected=0)
    position = _HEAD.size
    steps = []
    for _ in range(count):
        token, step_first, step_end, size = _STEP.unpack_from(data, position)
        position += _STEP.size
        inline = data[position : position + size]
        steps.append(_Step(token=token, first=step_first, end=step_end, inline=inline))
        position += size
    _check(version, size=len(data), expected=position)
    return _Head(base=base, first=first, end=end, steps=steps)


def _check(version: int, *, size: int, expected: int) -> None:
    if version != _VERSION:
        raise ShardFormatError(
            f"a shard's state has format {version}, this release reads {_VERSION}; "
            "run the release that wrote the checkpoint"
        )
    if size != expected:
        raise ShardDamagedError(f"a piece of a shard's state has {size} bytes; expected {expected}")
