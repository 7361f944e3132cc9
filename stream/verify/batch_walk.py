"""The topics gone along batch by batch: what of each partition belongs to the batch at hand.

Batches are transactions of one producer, so within a partition the messages of a batch lie together
and batches follow each other. One message that lies out of this order is told and put where it
belongs; everything is read once, from the beginning to the end.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Final, NamedTuple, cast

from spu_assigner.stream.shard.bundle import KINDS, MessageKind
from spu_assigner.stream.verify.marker_chain import (
    BEFORE,
    STRAY,
    MarkerChain,
    MessageOrigin,
    offsets_of,
)
from spu_assigner.stream.verify.model import (
    COMPACTED,
    INPUTS,
    AuditFinding,
    AuditReport,
    FindingKind,
    History,
    Part,
    Read,
    finding_of,
)

_TYPES: Final[dict[tuple[str, bytes | None], MessageKind]] = {
    (topic, f"io.spuassigner.v1.{name}".encode()): kind for kind, (topic, name) in KINDS.items()
}
MEMORY_SIZE_MAX: Final = 64 * 1024 * 1024  # values of one batch that are held; more go to a file


class Placed(NamedTuple):
    """A message of an output topic, and the event that it comes from."""

    read: Read  # its value may be in the shelf
    origin: MessageOrigin
    ce_id: bytes
    batch: int  # its batch's index
    # What it carries; None: its headers do not say so, or not in its topic.
    kind: MessageKind | None


class Shelf:
    """The values of one batch: in memory while they are small together, else in a file."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._size = 0
        self._places: dict[bytes, tuple[int, int]] = {}  # by ce_id

    def put(self, placed: Placed) -> Placed:
        """The same, without its value if that was put away."""
        value = placed.read.value
        self._size += len(value or b"")
        if value is None or self._size <= MEMORY_SIZE_MAX or placed.ce_id in self._places:
            return placed
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="spu-assigner-verify-")  # noqa: SIM115
        self._places[placed.ce_id] = (self._file.seek(0, 2), len(value))
        self._file.write(value)
        return placed._replace(read=placed.read._replace(value=b""))

    def value(self, placed: Placed) -> bytes | None:
        """The value of a message that was put."""
        place = self._places.get(placed.ce_id)
        if place is None or self._file is None or placed.read.value:
            return placed.read.value
        self._file.seek(place[0])
        return self._file.read(place[1])

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class _OutputPart:
    """One partition of an output topic."""

    def __init__(
        self, part: Part, chain: MarkerChain, history: History, report: AuditReport
    ) -> None:
        self.part = part
        self.is_expired = part.begin > 0
        self.first_index: int | None = None  # the batch of the first message that is there
        self._chain = chain
        self._report = report
        self._ignored = {b"/spu-assigner/" + name for name in chain.others}
        self._placed = self._readable(part)
        self.head = next(self._placed, None)
        self._next = next(self._placed, None)
        self._before: tuple[int, int] = (part.begin - 1, BEFORE)  # offset and batch of the last
        if self.head is not None:
            self.first_index = self.head.batch

    def take(self, index: int) -> tuple[list[Placed], int]:
        """What lies before the next batch's; and how many more may have been compacted away.

        Kafka's offsets have no holes but for the mark that ends a transaction, and what was
        aborted or compacted.
        """
        taken: list[Placed] = []
        room = self._hole()
        while self.head is not None:
            head, behind = self.head, self._next
            is_early = behind is not None and behind.batch <= index < head.batch
            if head.batch > index and not is_early:
                break
            if head.batch < index:  # Those of its batch have been taken.
                self._misplaced(head, "behind messages of later batches")
            elif is_early:
                self._misplaced(head, "before messages of earlier batches")
            taken.append(head)
            self._before = (head.read.offset, head.batch)
            self._advance()
            room += self._hole()
        return taken, room if self.part.topic in COMPACTED else 0

    def _hole(self) -> int:
        """How many offsets before the head nothing is known of."""
        last, index = self._before
        end, after = (
            (self.part.end, None) if self.head is None else (self.head.read.offset, self.head.batch)
        )
        ends_transaction = index not in (BEFORE, after)
        return max(0, end - last - 1 - ends_transaction)

    def may_have_lost(self, index: int) -> bool:
        """Whether messages of a batch may have expired here."""
        if not self.is_expired or self.part.topic in COMPACTED:
            return False
        return self.first_index is None or index <= self.first_index

    def _misplaced(self, placed: Placed, found: str) -> None:
        self._report.add(
            finding_of(placed.read, FindingKind.MISPLACED, found, "the order of batches"),
            placed.batch,
        )

    def _advance(self) -> None:
        self.head, self._next = self._next, next(self._placed, None)

    def _readable(self, part: Part) -> Iterator[Placed]:
        """The messages that belong to some batch."""
        for read in part.messages:
            headers = dict(read.headers)
            if self._ignored and headers.get("ce_source") in self._ignored:
                continue
            self._report.messages += 1
            ce_id = headers.get("ce_id")
            origin = self._chain.origin(ce_id)
            index = STRAY if origin is None else self._chain.index_of(origin)
            if origin is None or index == STRAY:
                told = "no ce_id" if ce_id is None else f"ce_id {ce_id[:300]!r}"
                expected = "the ce_id of an event that a marker's batch has read"
                self._report.add(finding_of(read, FindingKind.STRAY, told, expected))
            elif index != BEFORE:
                kind = _TYPES.get((read.topic, headers.get("ce_type")))
                yield Placed(read, origin, cast(bytes, ce_id), index, kind)


class OutputTopics:
    """All partitions of the output topics."""

    def __init__(self, history: History, chain: MarkerChain, report: AuditReport) -> None:
        self._report = report
        for part in (*history.outputs, history.commits):
            if part.begin > 0 and (part.topic in COMPACTED or part is history.commits):
                report.add(
                    AuditFinding(
                        kind=FindingKind.DELETED,
                        found=f"{part.topic}/{part.partition} begins at offset {part.begin}",
                        expected="0: it is compacted, nothing is ever deleted from its beginning",
                        topic=part.topic,
                        partition=part.partition,
                    )
                )
        self._parts = [_OutputPart(part, chain, history, report) for part in history.outputs]
        for each in self._parts:
            if each.is_expired and each.part.topic not in COMPACTED:
                report.not_checked(
                    f"{each.part.topic}/{each.part.partition} begins at offset {each.part.begin}: "
                    "what lay before has expired"
                )
        self._early: dict[int, list[Placed]] = {}

    def take(self, index: int) -> tuple[list[Placed], Shelf, int]:
        """The messages of a batch, each once, partition by partition; and how many may be gone."""
        shelf = Shelf()
        by_id: dict[bytes, Placed] = {}
        room = 0
        for part in self._parts:
            taken, holes = part.take(index)
            room += holes
            for placed in taken:
                if placed.batch > index:
                    self._early.setdefault(placed.batch, []).append(placed)
                elif placed.batch == index:
                    self._add(by_id, placed, shelf)
        for placed in self._early.pop(index, ()):
            self._add(by_id, placed, shelf)
        return list(by_id.values()), shelf, room

    def may_have_lost(self, index: int) -> bool:
        """Whether messages of a batch may have expired."""
        return any(part.may_have_lost(index) for part in self._parts)

    def has_expired(
        self,
        index: int,
        topic: str,
        key: bytes | None,
        reached: Container[tuple[str, int]],
    ) -> bool:
        """Whether that is why a message is not there: then nothing before it in its partition is.

        Args:
            index: its batch.
            topic: where it was sent to.
            key: its key.
            reached: the partitions in which an earlier message of the batch was found.
        """
        own = [part for part in self._parts if part.part.topic == topic]
        if key:
            own = [part for part in own if part.part.partition == zlib.crc32(key) % len(own)]
        return any(
            part.may_have_lost(index) and (topic, part.part.partition) not in reached
            for part in own
        )

    def rest(self, index: int) -> Iterator[Placed]:
        """All that lies behind the last batch that is judged."""
        for part in self._parts:
            while part.head is not None:
                yield from part.take(max(index, part.head.batch))[0]

    def _add(self, by_id: dict[bytes, Placed], placed: Placed, shelf: Shelf) -> None:
        first = by_id.setdefault(placed.ce_id, placed)
        if first is not placed:
            told = f"ce_id {placed.ce_id.decode()} again"
            expected = (
                f"once; it lies at {first.read.topic}/{first.read.partition}, "
                f"offset {first.read.offset}"
            )
            self._report.add(
                finding_of(placed.read, FindingKind.TWICE, told, expected), placed.batch
            )
            return
        by_id[placed.ce_id] = shelf.put(placed)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInputs:
    """What a batch read of the inputs."""

    messages: Sequence[tuple[int, Read]]  # of INPUTS; in no particular order
    lacking: str | None  # why it is not all


class InputTopics:
    """All partitions of the input topics."""

    def __init__(self, history: History, chain: MarkerChain, report: AuditReport) -> None:
        self._prefix = history.prefix
        self._chain = chain
        self._report = report
        self._parts = {(part.topic, part.partition): part for part in history.inputs}
        self._heads = {place: iter(part.messages) for place, part in self._parts.items()}
        self._held: dict[tuple[str, int], Read] = {}  # read, and not yet of a batch
        self._following: dict[tuple[str, int], int] = {}

    def take(self, index: int) -> BatchInputs:
        """The messages that a batch has read, as far as they are still there."""
        entry = self._chain.entries[index]
        messages: list[tuple[int, Read]] = []
        lacking: str | None = None
        for place, (first, last, count) in offsets_of(entry.marker, self._prefix):
            topic, partition = place
            part = self._parts.get(place)
            begin = part.begin if part is not None else None
            known = self._following.get(place, 0 if self._chain.is_whole else first)
            self._following[place] = last + 1
            found = 0
            for read in self._upto(place, last):
                if read.offset >= first:
                    messages.append((INPUTS.index(topic), read))
                    found += 1
                elif read.offset >= known:
                    told = "a message that no batch has read"
                    expected = f"an answer; batch {entry.label.batch} goes on at {first}"
                    self._report.add(finding_of(read, FindingKind.INPUT, told, expected), index)
            if begin is None or begin > first:
                what = "is not there" if begin is None else f"begins at {begin}"
                lacking = (
                    f"inputs expired: {topic}/{partition} {what}, read from {first}"
                    if lacking is None
                    else lacking
                )
            elif found != count:
                lacking = f"the inputs are not as they were read: {topic}/{partition}"
                self._report.add(
                    AuditFinding(
                        kind=FindingKind.INPUT,
                        found=f"{found} messages from offset {first} to {last}",
                        expected=f"{count}, which the batch has read",
                        batch=entry.label.batch,
                        checkpoint_id=entry.label.checkpoint_id,
                        topic=topic,
                        partition=partition,
                        offset=first,
                    )
                )
        return BatchInputs(messages=messages, lacking=lacking)

    def _upto(self, place: tuple[str, int], last: int) -> Iterator[Read]:
        held = self._held.pop(place, None)
        while True:
            read = held if held is not None else next(self._heads.get(place, iter(())), None)
            held = None
            if read is None:
                return
            if read.offset > last:
                self._held[place] = read
                return
            yield read
