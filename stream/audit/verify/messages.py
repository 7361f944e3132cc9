"""Single messages: what is wrong with one by itself, with its partition, with the last of a key."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.records import Entry, ReplicaMap, RingEvent, TopicStatus
from spu_assigner.schemas.messages.codec import decode_record, type_name_of
from spu_assigner.schemas.messages.wire import DeadLetter
from spu_assigner.stream.audit.verify.batch_walk import Placed
from spu_assigner.stream.audit.verify.model import (
    COMPACTED,
    FINDINGS_KEPT_MAX,
    AuditReport,
    FindingKind,
    History,
    Read,
    Where,
)
from spu_assigner.stream.job.shard.bundle import KINDS, Message, MessageKind
from spu_assigner.stream.job.shard.clusters import output_key

SHOWN_MAX: Final = 60  # bytes of a value in a finding
GROWN_MIN: Final = 16  # messages that must lie as in fewer partitions, to be no fault

Key = tuple[str, bytes | None]  # a compacted topic, a key


def fault(placed: Placed, value: bytes | None) -> tuple[str, str] | None:
    """What is wrong with a message by itself, its headers apart: found and expected."""
    kind, key = placed.kind, placed.read.key
    if kind is None:
        return None
    name = KINDS[kind][1]
    if kind is MessageKind.TOPIC_RELEASED and value is not None:
        return f"a value of {len(value)} bytes", "a tombstone"
    if value is None:
        return None if placed.read.topic in COMPACTED else ("no value", f"a {name}")
    try:
        record = decode_record(value)
    except AssignerError as error:
        return f"a value that cannot be read: {error}", f"a {name}"
    if type_name_of(record) != name:
        return f"a {type_name_of(record)}", f"a {name}"
    expected = key
    if isinstance(record, DeadLetter):
        place = (record.source_partition, record.source_offset)
        if place != placed.origin[1:3]:
            return f"a dead letter of {place[0]}/{place[1]}", f"of {placed.ce_id.decode()}"
    elif isinstance(record, TopicStatus):
        expected = f"{record.cluster_id}/{record.topic}".encode()
    elif isinstance(record, RingEvent):
        expected = record.cluster_id.encode()
    elif isinstance(record, ReplicaMap | Entry):
        expected = output_key(record)
    if key != expected:
        return f"key {short(key)}", f"{expected!r}, which its value names"
    return None


class _Spread:
    """How the messages of one topic lie in its partitions."""

    def __init__(self) -> None:
        self.count = 0  # of partitions
        self.fewer: set[int] = set()  # numbers of partitions in which all would lie as well
        self.fewer_to = math.inf  # the batch after which there is no such number
        self.misfits: list[tuple[int, Read]] = []  # the first ones
        self.misfit_count = 0
        self.misfit_last = -1  # batch


class Partitions:
    """Is each message in the partition that its key belongs to?

    Partitions may have been added to a topic: then all that was written before lies as in fewer.
    """

    def __init__(self, history: History, report: AuditReport) -> None:
        self._report = report
        self._spreads = {part.topic: _Spread() for part in history.outputs}
        for topic, count in Counter(part.topic for part in history.outputs).items():
            self._spreads[topic].count = count
            self._spreads[topic].fewer = set(range(1, count))

    def check(self, index: int, placed: Sequence[Placed]) -> None:
        """Look at the messages of a batch."""
        for each in placed:
            read = each.read
            if not read.key:
                continue  # It may lie anywhere.
            hashed, spread = zlib.crc32(read.key), self._spreads[read.topic]
            if spread.fewer:
                spread.fewer -= {n for n in spread.fewer if hashed % n != read.partition}
                if not spread.fewer:
                    spread.fewer_to = index
            if hashed % spread.count != read.partition:
                spread.misfit_count += 1
                spread.misfit_last = index
                if len(spread.misfits) < FINDINGS_KEPT_MAX:
                    spread.misfits.append((index, read))

    def end(self) -> None:
        """Report what lies wrong, unless partitions were added."""
        for topic, spread in self._spreads.items():
            if spread.misfit_count >= GROWN_MIN and spread.fewer_to > spread.misfit_last:
                self._report.not_checked(
                    f"{topic} lies as in fewer partitions up to a batch, and in {spread.count} "
                    "behind it: some were added"
                )
                continue
            for index, read in spread.misfits:
                number = zlib.crc32(read.key or b"") % spread.count
                expected = f"partition {number}, of {spread.count}, by its key"
                found = f"in partition {read.partition}"
                self._report.add(FindingKind.MISPLACED, found, expected, read, batch=index)


class Latest:
    """Of each key of the compacted topics: is the last value of the replay the last in Kafka?"""

    def __init__(self, report: AuditReport) -> None:
        self._report = report
        self._held: set[Key] = set()  # keys of which some value is there
        self._missing: dict[Key, tuple[int, bytes, bool]] = {}  # batch, ce_id, is a tombstone

    def found(self, key: Key, *, is_gone: bool) -> None:
        """A message of the key is there."""
        self._missing.pop(key, None)
        (self._held.discard if is_gone else self._held.add)(key)

    def missing(self, index: int, topic: str, message: Message) -> None:
        """The replay has it, and it is not there; a tombstone goes when it has done its work."""
        key = (topic, message.key)
        self._missing.pop(key, None)
        if message.value is not None or key in self._held:
            self._missing[key] = (index, message.id, message.value is None)

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
        for (topic, key), (index, ce_id, is_tombstone) in self._missing.items():
            found = f"{'the tombstone' if is_tombstone else 'the latest value'} of the key is gone"
            expected, at = f"ce_id {ce_id.decode()}", Where(topic, key=key)
            self._report.add(FindingKind.MISSING, found, expected, at, batch=index)


def difference(found: object, expected: object) -> tuple[str, str]:
    """Both; of headers and long bytes from where they differ on."""
    if isinstance(found, tuple | bytes) and isinstance(expected, tuple | bytes):
        pairs = enumerate(zip(found, expected, strict=False))
        shorter, longer = sorted([len(found), len(expected)])
        at = next((n for n, (one, other) in pairs if one != other), shorter)
        if isinstance(found, tuple) or isinstance(expected, tuple):
            return short(found[at : at + 1]), short(expected[at : at + 1])
        if longer > SHOWN_MAX:
            return _from(at, found), _from(at, expected)
    return short(found), short(expected)


def _from(at: int, data: bytes) -> str:
    return f"of {len(data)} bytes, from {at} on {data[at : at + 16].hex()}"


def short(value: object) -> str:
    """A value in as many letters as anyone reads."""
    text = repr(value)
    return text if len(text) <= 4 * SHOWN_MAX else f"{text[: 4 * SHOWN_MAX]}…"
