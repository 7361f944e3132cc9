"""Single messages: what is wrong with one by itself, with its partition, with the last of a key."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Final, assert_never

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.records import (
    ChainEntry,
    EntryKind,
    ReplicaMap,
    RingEvent,
    SeenEntry,
    SpuChanged,
    TopicStatus,
    Waiting,
)
from spu_assigner.schemas.messages.codec import decode_record, type_name_of
from spu_assigner.schemas.messages.meanings import Message as Record
from spu_assigner.schemas.messages.wire import AppliedTopic, CommitMarker, DeadLetter
from spu_assigner.stream.shard.bundle import KINDS, Message, MessageKind
from spu_assigner.stream.verify.batch_walk import Placed
from spu_assigner.stream.verify.model import (
    COMPACTED,
    FINDINGS_KEPT_MAX,
    AuditFinding,
    AuditReport,
    FindingKind,
    History,
    finding_of,
)

SHOWN_MAX: Final = 60  # bytes of a value in a finding
GROWN_MIN: Final = 16  # messages that must lie as in fewer partitions, to be no fault

Key = tuple[str, bytes | None]  # a compacted topic, a key


def cluster_of(placed: Placed) -> bytes:
    """The cluster a message is about; of a dead letter its key."""
    key = placed.read.key or b""
    return key if placed.kind is MessageKind.DEAD_LETTER else key.partition(b"/")[0]


def fault(placed: Placed, value: bytes | None) -> tuple[str, str] | None:
    """What is wrong with a message by itself, its headers apart: found and expected."""
    kind = placed.kind
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
    if isinstance(record, DeadLetter):
        told = (record.source_partition, record.source_offset)
        if told != placed.origin[1:3]:
            return f"a dead letter of {told[0]}/{told[1]}", f"of {placed.ce_id.decode()}"
        return None
    expected = _key_of(record).encode()
    if placed.read.key != expected:
        return f"key {short(placed.read.key)}", f"{expected!r}, which its value names"
    return None


def _key_of(record: Record) -> str:
    match record:
        case ReplicaMap() | TopicStatus():
            return f"{record.cluster_id}/{record.topic}"
        case RingEvent():
            return record.cluster_id
        case SpuChanged():
            return f"{record.cluster_id}/{EntryKind.SPU}/{record.spu_id}"
        case Waiting():
            return f"{record.cluster_id}/{EntryKind.WAITING}/{record.topic}"
        case ChainEntry():
            return f"{record.cluster_id}/chains/all"
        case SeenEntry():
            return f"{record.cluster_id}/seen/{record.block}"
        case DeadLetter() | CommitMarker() | AppliedTopic():  # None of these has come this far.
            return ""
    assert_never(record)


class Partitions:
    """Is each message in the partition that its key belongs to?

    Partitions may have been added to a topic: then all that was written before lies as in fewer.
    """

    def __init__(self, history: History, report: AuditReport) -> None:
        self._report = report
        self._counts: dict[str, int] = {}
        for part in history.outputs:
            self._counts[part.topic] = max(self._counts.get(part.topic, 0), part.partition + 1)
        self._fits = {topic: set(range(1, count)) for topic, count in self._counts.items()}
        self._fitted_to = dict.fromkeys(self._counts, -1.0)  # the best of fewer: to which batch
        self._misfits: dict[str, list[tuple[int, AuditFinding]]] = {
            topic: [] for topic in self._counts
        }
        self._misfit_count = dict.fromkeys(self._counts, 0)
        self._misfit_last = dict.fromkeys(self._counts, -1)

    def judge(self, index: int, placed: Sequence[Placed]) -> None:
        """Look at the messages of a batch."""
        for each in placed:
            read = each.read
            if not read.key:
                continue  # It may lie anywhere.
            hashed, topic = zlib.crc32(read.key), read.topic
            if fits := self._fits[topic]:
                fits -= {count for count in fits if hashed % count != read.partition}
                if not fits:
                    self._fitted_to[topic] = index
            expected = hashed % self._counts[topic]
            if expected == read.partition:
                continue
            self._misfit_count[topic] += 1
            self._misfit_last[topic] = index
            if len(self._misfits[topic]) < FINDINGS_KEPT_MAX:
                told = f"in partition {read.partition}"
                wanted = f"partition {expected}, of {self._counts[topic]}, by its key"
                found = finding_of(read, FindingKind.MISPLACED, told, wanted)
                self._misfits[topic].append((index, found))

    def end(self) -> None:
        """Tell what lies wrong, unless partitions were added."""
        for topic, misfits in self._misfits.items():
            if not misfits:
                continue
            fitted_to = math.inf if self._fits[topic] else self._fitted_to[topic]
            last = self._misfit_last[topic]
            if self._misfit_count[topic] >= GROWN_MIN and fitted_to > last:
                self._report.not_checked(
                    f"{topic} lies as in fewer partitions up to a batch, and in "
                    f"{self._counts[topic]} behind it: some were added"
                )
                continue
            for index, finding in misfits:
                self._report.add(finding, index)


class Latest:
    """Of each key of the compacted topics: is what the replay gave last the last that is there?"""

    def __init__(self, report: AuditReport) -> None:
        self._report = report
        self._held: set[Key] = set()  # keys of which some value is there
        self._missing: dict[Key, tuple[int, bytes, bool]] = {}  # batch, ce_id, is a tombstone

    def found(self, key: Key, *, is_gone: bool) -> None:
        """A message of the key is there."""
        self._missing.pop(key, None)
        (self._held.discard if is_gone else self._held.add)(key)

    def missing(self, index: int, topic: str, message: Message) -> None:
        """The replay gave it, and it is not there; a tombstone goes when it has done its work."""
        key = (topic, message.key)
        self._missing.pop(key, None)
        if message.value is not None or key in self._held:
            self._missing[key] = (index, message.id, message.value is None)

    def judge(self, *, has_gaps: bool) -> None:
        """Tell what is missing, now that nothing can supersede it any more.

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
            what = "the tombstone" if is_tombstone else "the latest value"
            finding = AuditFinding(
                kind=FindingKind.MISSING,
                found=f"{what} of the key is not there",
                expected=f"ce_id {ce_id.decode()}",
                topic=topic,
                key=key,
            )
            self._report.add(finding, index)


def difference(found: object, expected: object) -> tuple[str, str]:
    """Both, or only where they differ if they are long."""
    if isinstance(found, bytes) and isinstance(expected, bytes):
        pairs = zip(found, expected, strict=False)
        at = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(found), len(expected)))
        if max(len(found), len(expected)) > SHOWN_MAX:
            return (
                f"of {len(found)} bytes, from {at} on {found[at : at + 16].hex()}",
                f"of {len(expected)} bytes, from {at} on {expected[at : at + 16].hex()}",
            )
    if isinstance(found, tuple) and isinstance(expected, tuple):
        return (
            short(tuple(each for each in found if each not in expected)),
            short(tuple(each for each in expected if each not in found)),
        )
    return short(found), short(expected)


def short(value: object) -> str:
    """A value in as many letters as anyone reads."""
    text = repr(value)
    return text if len(text) <= 4 * SHOWN_MAX else f"{text[: 4 * SHOWN_MAX]}…"
