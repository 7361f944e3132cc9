"""What holds over all batches: order and partition of each message, the last value of each key."""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from typing import Final

from spu_assigner.stream.audit.verify.history import History, Output
from spu_assigner.stream.audit.verify.model import (
    COMPACTED,
    OUTPUTS,
    AuditReport,
    FindingKind,
    Label,
    Place,
    Where,
)
from spu_assigner.stream.job.shard.bundle import Message

GROWN_MIN: Final = 16  # messages in other partitions: then partitions were added, no fault

Key = tuple[str, bytes | None]  # a compacted topic, a key


class PartitionOrder:
    """Kafka's order in each partition is that of batches, shards and sequences.

    What was deleted or compacted is known by where the order has come to.
    """

    def __init__(self, history: History, report: AuditReport) -> None:
        self._history = history
        self._report = report
        self.reached: dict[Place, int] = {}  # the offset of the last message of each partition
        self._begins = {
            place: begin for place, (begin, _) in history.spans.items() if place[0] in OUTPUTS
        }
        self._counts = Counter(topic for topic, _ in self._begins)  # of partitions
        self._misfits: defaultdict[str, list[tuple[Label | None, Output]]] = defaultdict(list)

    def follow(self, output: Output) -> None:
        """The next message."""
        last = self.reached.get(output.place, -1)
        if output.offset < last:
            found = f"before offset {last}"
            self._report.add(FindingKind.MISPLACED, found, "behind it", output.at)
        self.reached[output.place] = output.offset
        misfits = self._misfits[output.topic]
        belongs = self._partition(output.topic, output.key) if output.key else output.partition
        if belongs != output.partition and len(misfits) < GROWN_MIN:
            misfits.append((self._report.batch, output))

    def _partition(self, topic: str, key: bytes | None) -> int:
        """Where a key belongs; a message without one may lie anywhere."""
        return zlib.crc32(key or b"") % self._counts[topic]

    def may_have_expired(self, topic: str | None = None, key: bytes | None = None) -> bool:
        """Whether the next message, of a topic and key if they are known, may be one that retention
        has deleted: then nothing of its partition was seen yet."""
        own = [place for place in self._begins if topic in (None, place[0])]
        if topic and key:
            own = [(topic, self._partition(topic, key))]
        return any(
            self._begins[place] > 0 and place[0] not in COMPACTED and place not in self.reached
            for place in own
        )

    def room(self, before: dict[Place, int], outputs: list[Output]) -> int:
        """How many more messages of a batch may have been compacted away.

        Kafka's offsets have no holes but for the mark that ends a transaction, and what was aborted
        or compacted.
        """
        counts = Counter(output.place for output in outputs)
        room = 0
        for place, begin in self._begins.items():
            if place[0] in COMPACTED:
                end = self._history.next_offset(place, self.reached.get(place, begin - 1))
                marks = (place in before) + (counts[place] > 0)
                hole = end - before.get(place, begin - 1) - 1 - counts[place] - marks
                room += max(0, hole)
        return room

    def end(self) -> None:
        """Report what lies in another partition than its key's, unless many do."""
        for topic, misfits in self._misfits.items():
            count = self._counts[topic]
            if len(misfits) == GROWN_MIN:
                found = f"{topic} does not lie as in {count} partitions: some were added"
                self._report.not_checked(found)
                continue
            for batch, output in misfits:
                expected = f"partition {self._partition(topic, output.key)}, of {count}, by its key"
                found = f"in partition {output.partition}"
                self._report.add(FindingKind.MISPLACED, found, expected, output.at, batch)


class Latest:
    """Of each key of the compacted topics: is the last value of the replay the last in Kafka?"""

    def __init__(self, report: AuditReport) -> None:
        self._report = report
        self._held: set[Key] = set()  # keys of which some value is there
        self._missing: dict[Key, tuple[Label | None, str, str]] = {}  # batch, found, expected

    def found(self, output: Output) -> None:
        """A message is there."""
        if output.topic in COMPACTED:
            key = (output.topic, output.key)
            self._missing.pop(key, None)
            (self._held.discard if output.is_gone else self._held.add)(key)

    def missing(self, topic: str, message: Message) -> None:
        """The replay has it, and it is not there; a tombstone goes when it has done its work."""
        key = (topic, message.key)
        self._missing.pop(key, None)
        if message.value is not None or key in self._held:
            what = "the tombstone" if message.value is None else "the latest value"
            said = (f"{what} of the key is gone", f"ce_id {message.id.decode()}")
            self._missing[key] = (self._report.batch, *said)

    def end(self, *, has_gaps: bool) -> None:
        """Report what is missing, now that nothing can supersede it any more.

        Args:
            has_gaps: batches behind the replay are not all there: a tombstone may have been in
                them, and gone when it had done its work.
        """
        if has_gaps and self._missing:
            self._report.not_checked(
                f"{len(self._missing):,} keys of compacted topics, whose last value by the replay "
                "is gone: what came behind the replay and was compacted may have deleted them"
            )
            return
        for (topic, key), (batch, found, expected) in self._missing.items():
            at = Where(topic, key=key)
            self._report.add(FindingKind.MISSING, found, expected, at, batch)
