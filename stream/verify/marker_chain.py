"""The chain of markers: which batches there are, what each read, and to which a message belongs.

Rules: within a checkpoint batches follow each other without a gap; from one checkpoint to the next
leads a recovery marker (batch -1) only; of each input partition a batch goes on behind the one
before; positions are those offsets summed up. `assigner-commits` says what the audit says.

After a finding the chain goes on with what there is, in the order of batches, so that one damaged
marker does not make findings of all that follows.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from spu_assigner.schemas.errors import DeadLetterCode, DecodeError
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.schemas.messages.wire import CommitMarker
from spu_assigner.stream.kafka.cloud_events import marker_headers
from spu_assigner.stream.kafka.topics import ASSIGNER_AUDIT, ASSIGNER_COMMITS
from spu_assigner.stream.verify.model import (
    CHECKPOINT_SHOWN,
    INPUTS,
    AuditFinding,
    AuditReport,
    FindingKind,
    Headers,
    History,
    Label,
    Read,
)

STRAY: Final = -2  # of no batch
BEFORE: Final = -1  # of a batch whose marker has expired

Place = tuple[str, int]  # an input topic without the prefix, a partition
_CE_ID: Final = re.compile(rb"([^/]+)/(0|[1-9]\d{0,18})/(0|[1-9]\d{0,18})/(0|[1-9]\d{0,18})")


class MessageOrigin(NamedTuple):
    """Where a message comes from, out of its `ce_id`."""

    source: int  # of INPUTS
    partition: int
    offset: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A marker of the chain; decoded anew when it is its turn, since there may be very many."""

    offset: int  # on the audit
    label: Label
    value: bytes

    @property
    def marker(self) -> CommitMarker:
        return _decoded(self.value)


@dataclass(slots=True)
class _Spans:
    """What batches read of one input partition, by offset."""

    spans: list[tuple[int, int, int]] = field(default_factory=list)  # first, last, index
    firsts: list[int] = field(default_factory=list)

    def close(self) -> None:
        self.spans.sort()
        self.firsts = [first for first, _, _ in self.spans]


class MarkerChain:
    """The markers in the order of their batches."""

    def __init__(self, *, prefix: str) -> None:
        self.entries: list[Entry] = []
        self.count = 0  # of entries that are judged; those behind are later than the fixed end
        self.is_whole = False  # it begins with the query's very first batch
        self.broken: set[int] = set()  # indices before which a marker is missing
        self.others: set[bytes] = set()  # further queries on the same topics
        self._inputs = {(prefix + name).encode(): number for number, name in enumerate(INPUTS)}
        self._spans: dict[tuple[int, int], _Spans] = {}
        self._starts: Mapping[Place, int] = {}  # what was read before the first entry
        self._starts_known = True  # for partitions that are not in _starts, too

    def origin(self, ce_id: bytes | None) -> MessageOrigin | None:
        """What a `ce_id` says; None: it is none of this job's."""
        match = None if ce_id is None else _CE_ID.fullmatch(ce_id)
        if match is None or match[1] not in self._inputs:
            return None
        return MessageOrigin(self._inputs[match[1]], int(match[2]), int(match[3]), int(match[4]))

    def index_of(self, origin: MessageOrigin) -> int:
        """The batch in which a message was answered; from `count` on: later than the end."""
        place = (origin.source, origin.partition)
        found = self._spans.get(place)
        if found is not None:
            at = bisect_right(found.firsts, origin.offset) - 1
            if at >= 0 and origin.offset <= found.spans[at][1]:
                return found.spans[at][2]
        if not self.is_whole:
            start = self._starts.get((INPUTS[origin.source], origin.partition))
            if start is None and found is not None and not self._starts_known:
                start = found.firsts[0]
            if origin.offset < start if start is not None else not self._starts_known:
                return BEFORE
        return STRAY

    def close(self, prefix: str, judged_to: int | None, *, has_expired: bool) -> None:
        """All entries are there: put them in order, and index what they read."""
        order: dict[str, int] = {}
        for entry in self.entries:
            order.setdefault(entry.label.checkpoint_id, len(order))
        self.entries.sort(key=lambda entry: (order[entry.label.checkpoint_id], entry.label.batch))
        self.count = len(self.entries)
        if judged_to is not None:
            self.count = sum(entry.offset < judged_to for entry in self.entries)
        for index, entry in enumerate(self.entries):
            for (topic, partition), (first, last, _) in offsets_of(entry.marker, prefix):
                place = (INPUTS.index(topic), partition)
                self._spans.setdefault(place, _Spans()).spans.append((first, last, index))
        for spans in self._spans.values():
            spans.close()
        if self.entries:
            first_entry = self.entries[0]
            marker = first_entry.marker
            # After a recovery there is a batch 0 as well: if anything has expired, only one that
            # reads from the very beginning is the first.
            reads = dict(offsets_of(marker, prefix))
            from_start = all(first == 0 for first, _, _ in reads.values())
            told = {place: last + 1 for place, (_, last, _) in reads.items()}
            is_first = from_start and bool(marker.release) and positions_of(marker, prefix) == told
            self.is_whole = first_entry.label.batch == 0 and (not has_expired or is_first)
            starts = positions_of(marker, prefix)
            starts |= {place: first for place, (first, _, _) in offsets_of(marker, prefix)}
            self._starts, self._starts_known = starts, bool(marker.release)


def offsets_of(marker: CommitMarker, prefix: str) -> Iterator[tuple[Place, tuple[int, int, int]]]:
    """First, last and count of each input partition; of inputs alone, whatever else is named."""
    for topic in INPUTS:
        for each in marker.offsets.get(prefix + topic, ()):
            yield (topic, each.partition), (each.first, each.last, each.count)


def positions_of(marker: CommitMarker, prefix: str) -> dict[Place, int]:
    """The next offset of each input partition."""
    return {
        (topic, each.partition): each.next
        for topic in INPUTS
        for each in marker.positions.get(prefix + topic, ())
    }


def read_chain(history: History, report: AuditReport) -> MarkerChain:
    """Read all markers and judge how they follow each other."""
    chain = MarkerChain(prefix=history.prefix)
    seen: set[tuple[str, int]] = set()
    checkpoints: list[str] = []
    highest = -2  # batch, of the checkpoint that came last
    for read in history.audit.messages:
        if read.key != history.query.encode():
            chain.others.add(read.key or b"")
            continue
        try:
            marker = _decoded(read.value or b"")
        except DecodeError as error:
            report.add(_of_marker(read, None, f"no marker: {error}", "a marker"))
            continue
        label = Label(marker.checkpoint_id, marker.batch)
        if marker.query != history.query:
            told = f"query {marker.query!r}"
            report.add(_of_marker(read, label, told, f"query {history.query!r}"))
        if not _has_its_headers(read, marker):
            told, expected = _headers_text(read.headers), _headers_text(marker_headers(marker, 0))
            report.add(_of_marker(read, label, f"headers {told}", expected))
        name = (label.checkpoint_id, label.batch)
        if name in seen:
            report.add(
                _of_marker(read, label, "a second marker of the batch", "one", FindingKind.TWICE)
            )
            continue
        seen.add(name)
        if label.checkpoint_id not in checkpoints:
            checkpoints.append(label.checkpoint_id)
            highest = -2
        if label.checkpoint_id != checkpoints[-1] or label.batch < highest:
            told = "a marker behind those of later batches"
            report.add(_of_marker(read, label, told, "the order of batches", FindingKind.MISPLACED))
        else:
            highest = label.batch
        chain.entries.append(Entry(read.offset, label, read.value or b""))
    chain.close(history.prefix, history.judged_to, has_expired=history.audit.begin > 0)
    _Links(history, report, chain).judge()
    report.labels = [entry.label for entry in chain.entries[: chain.count]]
    report.last = report.labels[-1] if report.labels else None
    _judge_commits(history, report, chain)
    return chain


class _Links:
    """Goes along the chain and judges each marker by the one before."""

    def __init__(self, history: History, report: AuditReport, chain: MarkerChain) -> None:
        self._history = history
        self._report = report
        self._chain = chain
        self._following: dict[Place, int] = {}  # by offsets
        self._positions: dict[Place, int] | None = None  # as they must be; None: not known

    def judge(self) -> None:
        before: CommitMarker | None = None
        for index, entry in enumerate(self._chain.entries):
            marker = entry.marker
            if before is None:
                self._first(entry, marker)
            elif problem := _gap(before, marker):
                self._chain.broken.add(index)
                self._positions = None
                self._add(entry, *problem)
            if before is not None and before.checkpoint_id == marker.checkpoint_id:
                self._same_shards(entry, before.shards, marker.shards)
            if marker.recovered_from is not None and (marker.count or marker.offsets):
                self._add(entry, "a recovery marker with messages or offsets", "none of both")
            is_batch = marker.release and marker.recovered_from is None
            if marker.count < 0 or (is_batch and not marker.shards > 0):
                told = f"count {marker.count}, {marker.shards} shards"
                self._add(entry, told, "no number below 0, and at least 1 shard")
            self._offsets(entry, marker)
            self._positions_told(entry, marker)
            before = marker

    def _same_shards(self, entry: Entry, before: int, shards: int) -> None:
        if before and shards and before != shards:
            self._add(entry, f"{shards} shards", f"{before}, as the batch before")

    def _first(self, entry: Entry, marker: CommitMarker) -> None:
        if self._chain.is_whole:
            self._positions = {}
        elif self._history.audit.begin > 0:
            self._report.not_checked(
                f"batches before {marker.batch} of checkpoint "
                f"{marker.checkpoint_id[:CHECKPOINT_SHOWN]}: their markers have expired "
                f"({ASSIGNER_AUDIT} begins at offset {self._history.audit.begin})"
            )
        else:
            told = f"batch {marker.batch} as the first marker, and nothing has expired"
            self._add(entry, told, "batch 0 as the first")

    def _offsets(self, entry: Entry, marker: CommitMarker) -> None:
        known = {self._history.prefix + topic for topic in INPUTS}
        if strange := sorted(set(marker.offsets) - known):
            self._add(entry, f"offsets of {', '.join(strange)}", f"of {', '.join(sorted(known))}")
        named: set[Place] = set()
        for place, (first, last, count) in offsets_of(marker, self._history.prefix):
            told = f"{place[0]}/{place[1]}: first {first}, last {last}, count {count}"
            following = self._following.get(place, 0)
            if place in named:
                self._add(entry, f"{told}, a second time", "each partition once")
            if first < following:
                self._add(entry, told, f"first at least {following}: the batches before end there")
            if last < first or not 1 <= count <= last - first + 1:
                self._add(entry, told, "last at or behind first, and a count that lies between")
            named.add(place)
            self._following[place] = max(following, last + 1)

    def _positions_told(self, entry: Entry, marker: CommitMarker) -> None:
        if not marker.release:
            self._positions = None  # It told none, and offsets may lie beyond the last message.
            return
        told = positions_of(marker, self._history.prefix)
        moved = {
            place: last + 1 for place, (_, last, _) in offsets_of(marker, self._history.prefix)
        }
        if self._positions is None or marker.recovered_from is not None:
            if self._positions is not None:
                self._skipped(told)
            least = self._following | moved
            wrong = {at: to for at, to in least.items() if told.get(at, -1) < to}
            wrong |= {at: to for at, to in moved.items() if told.get(at) != to}
            if self._positions is not None:
                least = self._positions
                wrong |= {at: to for at, to in least.items() if told.get(at, -1) < to}
            self._positions = told
        else:
            self._positions |= moved
            wrong = {
                at: self._positions.get(at, 0)
                for at in told.keys() | self._positions.keys()
                if told.get(at) != self._positions.get(at)
            }
        for (topic, partition), expected in sorted(wrong.items()):
            found = told.get((topic, partition))
            self._add(
                entry,
                f"position {'none' if found is None else found} of {topic}/{partition}",
                f"{expected}, where the batches up to this one end",
            )

    def _skipped(self, told: Mapping[Place, int]) -> None:
        """A recovery may go on behind input that is lost; that must not go without a word."""
        for (topic, partition), known in (self._positions or {}).items():
            after = told.get((topic, partition), known)
            if after > known:
                self._report.not_checked(
                    f"{topic}/{partition}, offsets {known} to {after - 1}: a recovery went on "
                    "behind them, they were never answered"
                )

    def _add(self, entry: Entry, found: str, expected: str) -> None:
        self._report.add(
            AuditFinding(
                kind=FindingKind.MARKER,
                found=found,
                expected=expected,
                batch=entry.label.batch,
                checkpoint_id=entry.label.checkpoint_id,
                topic=ASSIGNER_AUDIT,
                partition=0,
                offset=entry.offset,
                key=self._history.query.encode(),
            )
        )


def _gap(before: CommitMarker, marker: CommitMarker) -> tuple[str, str] | None:
    """What is wrong between two neighbours: found and expected."""
    last = f"batch {before.batch} of checkpoint {before.checkpoint_id[:CHECKPOINT_SHOWN]}"
    if marker.recovered_from is not None:
        origin = (marker.recovered_from.checkpoint_id, marker.recovered_from.batch)
        if origin == (before.checkpoint_id, before.batch) and marker.batch == -1:
            return None
        told = f"batch {origin[1]} of checkpoint {origin[0][:CHECKPOINT_SHOWN]}"
        return f"batch {marker.batch}, recovered from {told}", f"batch -1, recovered from {last}"
    if before.checkpoint_id != marker.checkpoint_id:
        return f"another checkpoint behind {last}", "a recovery marker that joins both"
    if marker.batch == before.batch + 1:
        return None
    missing = f"{before.batch + 1}" + (
        "" if marker.batch == before.batch + 2 else f"–{marker.batch - 1}"
    )
    return f"no marker of batch {missing}", "a marker of every batch"


def _has_its_headers(read: Read, marker: CommitMarker) -> bool:
    """They say what the marker says; when it was sent only they say. Older releases wrote none."""
    return not read.headers or _timeless(read.headers) == _timeless(marker_headers(marker, 0))


def _timeless(headers: Headers) -> list[tuple[str, bytes | None]]:
    return [(name, b"" if name == "ce_time" and told else told) for name, told in headers]


def _headers_text(headers: Headers) -> str:
    told = (f"{name}={(value or b'').decode(errors='replace')}" for name, value in headers)
    return ", ".join(told) or "none"


def _judge_commits(history: History, report: AuditReport, chain: MarkerChain) -> None:
    """Each retained marker there is one of the audit, in its order; the last one is the last."""
    if not chain.entries and history.audit.begin > 0:
        return
    indices = {entry.label: index for index, entry in enumerate(chain.entries)}
    reached = -1
    last: Read | None = None
    for read in history.commits.messages:
        if read.key != history.query.encode():
            continue
        last = read
        try:
            marker = _decoded(read.value or b"")
        except DecodeError as error:
            _commits(report, read, f"no marker: {error}", "a marker")
            continue
        index = indices.get(Label(marker.checkpoint_id, marker.batch))
        if index is None:
            if reached >= 0 or chain.is_whole or not chain.entries:
                told = f"a marker of batch {marker.batch} that the audit does not have"
                _commits(report, read, told, "the audit's markers")
            continue
        if not _has_its_headers(read, marker):
            _commits(report, read, f"headers {_headers_text(read.headers)}", "those of its marker")
        if read.value != chain.entries[index].value:
            told = f"another marker of batch {marker.batch} than the audit's"
            _commits(report, read, told, "the same bytes")
        if index <= reached:
            told = f"batch {marker.batch} behind batch {chain.entries[reached].label.batch}"
            _commits(report, read, told, "the order of batches, each once")
        reached = index
    if reached < chain.count - 1:
        expected = f"batch {chain.entries[chain.count - 1].label.batch}, as on the audit"
        told = "no marker" if reached < 0 else f"batch {chain.entries[reached].label.batch}"
        _commits(report, last, f"{told} as the last one", expected)


def _commits(report: AuditReport, read: Read | None, found: str, expected: str) -> None:
    report.add(
        AuditFinding(
            kind=FindingKind.COMMITS,
            found=found,
            expected=expected,
            topic=ASSIGNER_COMMITS,
            partition=0,
            offset=None if read is None else read.offset,
            key=None if read is None else read.key,
        )
    )


def _of_marker(
    read: Read,
    label: Label | None,
    found: str,
    expected: str,
    kind: FindingKind = FindingKind.MARKER,
) -> AuditFinding:
    return AuditFinding(
        kind=kind,
        found=found,
        expected=expected,
        batch=None if label is None else label.batch,
        checkpoint_id=None if label is None else label.checkpoint_id,
        topic=ASSIGNER_AUDIT,
        partition=0,
        offset=read.offset,
        key=read.key,
    )


def _decoded(value: bytes) -> CommitMarker:
    """Raises DecodeError if it is no marker."""
    marker = decode_record(value)
    if not isinstance(marker, CommitMarker):
        raise DecodeError(
            DeadLetterCode.WRONG_TYPE,
            f"the value is a {type(marker).__name__}; expected CommitMarker",
        )
    return marker
