"""All topics read batch by batch: which messages of each partition belong to the next batch.

Batches are transactions of one producer, so within a partition the messages of a batch lie together
and batches follow each other. One message that lies out of this order is reported and assigned to
its batch; everything is read once, from the beginning to the end.
"""

from __future__ import annotations

import math
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Container, Iterator
from typing import Final, NamedTuple, cast

from spu_assigner.stream.audit.verify.marker_chain import (
    BEFORE,
    STRAY,
    MarkerChain,
    MessageOrigin,
    offsets_of,
    positions_of,
)
from spu_assigner.stream.audit.verify.model import (
    COMPACTED,
    INPUTS,
    AuditReport,
    FindingKind,
    History,
    Part,
    Read,
    Where,
)
from spu_assigner.stream.job.shard.bundle import KINDS, MessageKind

_TYPES: Final[dict[tuple[str, bytes | None], MessageKind]] = {
    (topic, f"io.spuassigner.v1.{name}".encode()): kind for kind, (topic, name) in KINDS.items()
}
MEMORY_SIZE_MAX: Final = 64 * 1024 * 1024  # values of one batch that are held; more go to a file


class Placed(NamedTuple):
    """A message of an output topic, and the event that it comes from."""

    read: Read  # in a batch's `OutputMessages`, its value is b"", or None for a tombstone
    origin: MessageOrigin
    ce_id: bytes
    batch: int  # its batch's index
    # What it carries; None: its headers do not say so, or not in its topic.
    kind: MessageKind | None


class OutputMessages:
    """What one batch has in the output topics; values in memory while they are small together."""

    def __init__(self) -> None:
        self.room = 0  # for messages that compaction took
        self._values = tempfile.SpooledTemporaryFile(MEMORY_SIZE_MAX, prefix="spu-assigner-verify-")  # noqa: SIM115
        self._by_id: dict[bytes, tuple[Placed, int, int]] = {}  # with place and size of the value

    def add(self, placed: Placed) -> Placed | None:
        """Add a message; gives the one that has its `ce_id` already, if any."""
        if placed.ce_id in self._by_id:
            return self._by_id[placed.ce_id][0]
        value = placed.read.value
        if value is not None:
            placed = placed._replace(read=placed.read._replace(value=b""))
        self._by_id[placed.ce_id] = (placed, self._values.seek(0, 2), len(value or b""))
        self._values.write(value or b"")
        return None

    def all(self) -> list[Placed]:
        """The messages, partition by partition."""
        return [placed for placed, _, _ in self._by_id.values()]

    def value(self, ce_id: bytes) -> bytes | None:
        """The value of a message; None: a tombstone."""
        placed, position, size = self._by_id[ce_id]
        self._values.seek(position)
        return None if placed.read.value is None else self._values.read(size)

    def close(self) -> None:
        self._values.close()


class _OutputPart:
    """One partition of an output topic."""

    def __init__(
        self, part: Part, chain: MarkerChain, history: History, report: AuditReport
    ) -> None:
        self.part = part
        self._chain = chain
        self._report = report
        self._ignored = {b"/spu-assigner/" + name for name in chain.others}
        self._placed = self._readable(part)
        self.head = next(self._placed, None)
        self._next = next(self._placed, None)
        self._before: tuple[int, int] = (part.begin - 1, BEFORE)  # offset and batch of the last
        self.expired_to = -1.0  # the last batch of which messages may have expired here
        if part.begin > 0 and part.topic not in COMPACTED:
            self.expired_to = math.inf if self.head is None else self.head.batch

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
            if head.batch < index or is_early:  # Those of its batch have been taken, or are to be.
                side = "before messages of earlier" if is_early else "behind messages of later"
                found, expected = f"{side} batches", "the order of batches"
                self._report.add(
                    FindingKind.MISPLACED, found, expected, head.read, batch=head.batch
                )
            taken.append(head)
            self._before = (head.read.offset, head.batch)
            self.head, self._next = self._next, next(self._placed, None)
            room += self._hole()
        return taken, room if self.part.topic in COMPACTED else 0

    def _hole(self) -> int:
        """How many offsets before the head nothing is known of."""
        last, index = self._before
        end, after = self.part.end, None
        if self.head is not None:
            end, after = self.head.read.offset, self.head.batch
        ends_transaction = index not in (BEFORE, after)
        return max(0, end - last - 1 - ends_transaction)

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
                found = "no ce_id" if ce_id is None else f"ce_id {ce_id[:300]!r}"
                expected = "the ce_id of an event that a marker's batch has read"
                self._report.add(FindingKind.STRAY, found, expected, read)
            elif index != BEFORE:
                kind = _TYPES.get((read.topic, headers.get("ce_type")))
                yield Placed(read, origin, cast(bytes, ce_id), index, kind)


class OutputTopics:
    """All partitions of the output topics."""

    def __init__(self, history: History, chain: MarkerChain, report: AuditReport) -> None:
        self._report = report
        self._parts = [_OutputPart(part, chain, history, report) for part in history.outputs]
        self._early: defaultdict[int, list[Placed]] = defaultdict(list)
        for part in (*history.outputs, history.commits):
            found = f"{part.topic}/{part.partition} begins at offset {part.begin}"
            if part.begin > 0 and (part.topic in COMPACTED or part is history.commits):
                expected = "0: it is compacted, nothing is ever deleted from its beginning"
                at = Where(part.topic, part.partition)
                report.add(FindingKind.DELETED, found, expected, at)
            elif part.begin > 0:
                report.not_checked(f"{found}: what lay before has expired")

    def take(self, index: int) -> OutputMessages:
        """The messages of a batch, each once, partition by partition."""
        messages = OutputMessages()
        for part in self._parts:
            taken, room = part.take(index)
            messages.room += room
            for placed in taken:
                if placed.batch == index:
                    self._add(messages, placed)
                elif placed.batch > index:
                    self._early[placed.batch].append(placed)
        for placed in self._early.pop(index, ()):
            self._add(messages, placed)
        return messages

    def may_have_lost(self, index: int) -> bool:
        """Whether messages of a batch may have expired."""
        return any(index <= part.expired_to for part in self._parts)

    def has_expired(
        self, index: int, topic: str, key: bytes | None, reached: Container[tuple[str, int]]
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
            index <= part.expired_to and (topic, part.part.partition) not in reached for part in own
        )

    def rest(self, index: int) -> Iterator[Placed]:
        """All that lies behind the last batch that is checked."""
        for part in self._parts:
            while part.head is not None:
                yield from part.take(max(index, part.head.batch))[0]

    def _add(self, messages: OutputMessages, placed: Placed) -> None:
        if (first := messages.add(placed)) is not None:
            read = first.read
            found = f"ce_id {placed.ce_id.decode()} again"
            expected = f"once; it lies at {read.topic}/{read.partition}, offset {read.offset}"
            self._report.add(FindingKind.TWICE, found, expected, placed.read, batch=placed.batch)


class BatchInputs(NamedTuple):
    """What a batch read of the inputs."""

    messages: list[tuple[int, Read]]  # of INPUTS; in no particular order
    lacking: str | None  # why it is not all


class InputTopics:
    """All partitions of the input topics."""

    def __init__(self, history: History, chain: MarkerChain, report: AuditReport) -> None:
        self._prefix = history.prefix
        self._chain = chain
        self._report = report
        self._begins = {(part.topic, part.partition): part.begin for part in history.inputs}
        self._rests = {(part.topic, part.partition): iter(part.messages) for part in history.inputs}
        self._heads = {place: next(rest, None) for place, rest in self._rests.items()}
        self._following: dict[tuple[str, int], int] = {}

    def take(self, index: int) -> BatchInputs:
        """The messages that a batch has read, as far as they are still there."""
        entry = self._chain.entries[index]
        messages: list[tuple[int, Read]] = []
        lacking: list[str] = []
        marker = entry.marker
        reads = dict(offsets_of(marker, self._prefix))
        positions = positions_of(marker, self._prefix)
        for place in sorted(reads.keys() | positions):
            topic, partition = place
            first, last, count = reads.get(place, (0, -1, 0))
            position = max(last + 1, positions.get(place, 0))
            begun = 0 if self._chain.is_whole else first if place in reads else position
            known = self._following.get(place, begun)
            self._following[place] = position
            count_before = len(messages)
            while (read := self._heads.get(place)) is not None and read.offset < position:
                self._heads[place] = next(self._rests[place], None)
                if first <= read.offset <= last:
                    messages.append((INPUTS.index(topic), read))
                elif read.offset >= known and marker.recovered_from is None:
                    found = "a message that no batch has read"
                    expected = f"an answer; batch {entry.label.batch} read up to {position}"
                    self._report.add(FindingKind.INPUT, found, expected, read, batch=index)
            found_count, begin = len(messages) - count_before, self._begins.get(place)
            if place not in reads:
                continue
            if begin is None or begin > first:
                what = "is not there" if begin is None else f"begins at {begin}"
                lacking.append(f"inputs expired: {topic}/{partition} {what}, read from {first}")
            elif found_count != count:
                lacking.append(f"the inputs are not as they were read: {topic}/{partition}")
                found = f"{found_count} messages from offset {first} to {last}"
                expected = f"{count}, which the batch has read"
                at = Where(topic, partition, first)
                self._report.add(FindingKind.INPUT, found, expected, at, batch=index)
        return BatchInputs(messages, lacking[0] if lacking else None)
