"""The chain of markers: which batches there are, what each read, and to which a message belongs.

Rules: within a checkpoint batches follow each other without a gap; only a recovery marker (batch
-1) leads from one checkpoint to the next; of each input partition a batch begins where the one
before ended, at its position; positions lie behind what was read, within the partition, and never
move back. The input topics keep their ids, but over a recovery. `assigner-commits` says what the
audit says.

After a finding the chain continues with what there is, in the order of batches, so that one damaged
marker does not cause findings in all batches behind it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from spu_assigner.schemas.errors import DeadLetterCode, DecodeError
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.schemas.messages.wire import CommitMarker
from spu_assigner.stream.audit.verify.model import (
    CHECKPOINT_SHOWN,
    INPUTS,
    AuditReport,
    FindingKind,
    Headers,
    History,
    Label,
    Read,
    Where,
)
from spu_assigner.stream.kafka.cloud_events import marker_headers
from spu_assigner.stream.kafka.topic_ids import renewed_topics
from spu_assigner.stream.kafka.topics import ASSIGNER_AUDIT, ASSIGNER_COMMITS

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


class Entry(NamedTuple):
    """A marker of the chain; decoded at each use, since there may be very many."""

    at: Where  # on the audit
    label: Label
    value: bytes

    @property
    def marker(self) -> CommitMarker:
        return _decoded(self.value)


class MarkerChain:
    """The markers in the order of their batches."""

    def __init__(self, history: History, entries: list[Entry], others: set[bytes]) -> None:
        """Sort the entries, and index what their batches read."""
        prefix, end = history.prefix, history.end_offset
        order = {entry.label.checkpoint_id: -at for at, entry in enumerate(reversed(entries))}
        entries.sort(key=lambda entry: (order[entry.label.checkpoint_id], entry.label.batch))
        self.entries = entries
        self.others = others  # further queries on the same topics
        # Of entries that are checked; those behind are later than the fixed end.
        self.count = sum(end is None or (entry.at.offset or 0) < end for entry in entries)
        self.is_whole = False  # it begins with the query's very first batch
        self.broken: set[int] = set()  # indices before which a marker is missing
        self.renewed: set[str] = set()  # input topics that were recreated, and read again
        self._inputs = {(prefix + name).encode(): number for number, name in enumerate(INPUTS)}
        # What batches read of each input partition: first, last, index.
        self._spans: defaultdict[Place, list[tuple[int, int, int]]] = defaultdict(list)
        for index, entry in enumerate(entries):
            for place, (first, last, _) in offsets_of(entry.marker, prefix):
                self._spans[place].append((first, last, index))
        for spans in self._spans.values():
            spans.sort()
        self._starts: dict[Place, int] = {}  # what was read before the first entry
        if entries:
            marker = entries[0].marker
            positions, reads = positions_of(marker, prefix), dict(offsets_of(marker, prefix))
            # After a recovery there is a batch 0 as well: if anything has expired, only one that
            # reads from the very beginning is the first.
            is_first = all(
                position == 0 or (place in reads and reads[place][0] == 0)
                for place, position in positions.items()
            )
            self.is_whole = marker.batch == 0 and (history.audit.begin == 0 or is_first)
            self._starts = positions | {place: first for place, (first, _, _) in reads.items()}

    def origin(self, ce_id: bytes | None) -> MessageOrigin | None:
        """What a `ce_id` says; None: it is none of this job's."""
        match = None if ce_id is None else _CE_ID.fullmatch(ce_id)
        if match is None or match[1] not in self._inputs:
            return None
        return MessageOrigin(self._inputs[match[1]], int(match[2]), int(match[3]), int(match[4]))

    def index_of(self, origin: MessageOrigin) -> int:
        """The batch in which a message was answered; from `count` on: later than the end."""
        place = (INPUTS[origin.source], origin.partition)
        spans = self._spans.get(place, [])
        at = bisect_right(spans, origin.offset, key=lambda span: span[0]) - 1
        if at >= 0 and origin.offset <= spans[at][1]:
            return spans[at][2]
        if self.is_whole:
            return STRAY
        return BEFORE if origin.offset < self._starts.get(place, 0) else STRAY


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
    """Read all markers and check how they follow each other."""
    chain = MarkerChain(history, *_read_entries(history, report))
    _Links(history, report, chain).check()
    report.labels = [entry.label for entry in chain.entries[: chain.count]]
    _check_commits(history, report, chain)
    return chain


def _read_entries(history: History, report: AuditReport) -> tuple[list[Entry], set[bytes]]:
    """The query's markers as they lie, each batch once; the keys of other queries' markers."""
    entries: list[Entry] = []
    others: set[bytes] = set()
    seen: set[Label] = set()
    checkpoints: list[str] = []
    highest = -2  # batch, of the checkpoint that came last
    for read in history.audit.messages:
        if read.key != history.query.encode():
            others.add(read.key or b"")
            continue
        try:
            marker = _decoded(read.value or b"")
        except DecodeError as error:
            report.add(FindingKind.MARKER, f"no marker: {error}", "a marker", read)
            continue
        label = Label(marker.checkpoint_id, marker.batch)
        if marker.query != history.query:
            found, expected = f"query {marker.query!r}", f"query {history.query!r}"
            report.add(FindingKind.MARKER, found, expected, read, batch=label)
        if not _has_its_headers(read, marker):
            found = f"headers {_headers_text(read.headers)}"
            expected = _headers_text(marker_headers(marker, 0))
            report.add(FindingKind.MARKER, found, expected, read, batch=label)
        if label in seen:
            found = "a second marker of the batch"
            report.add(FindingKind.TWICE, found, "one", read, batch=label)
            continue
        seen.add(label)
        if label.checkpoint_id not in checkpoints:
            checkpoints.append(label.checkpoint_id)
            highest = -2
        if label.checkpoint_id != checkpoints[-1] or label.batch < highest:
            found, expected = "a marker behind those of later batches", "the order of batches"
            report.add(FindingKind.MISPLACED, found, expected, read, batch=label)
        else:
            highest = label.batch
        at = Where(read.topic, read.partition, read.offset, read.key)
        entries.append(Entry(at, label, read.value or b""))
    return entries, others


class _Links:
    """Checks each marker of the chain against those before."""

    def __init__(self, history: History, report: AuditReport, chain: MarkerChain) -> None:
        self._history = history
        self._report = report
        self._chain = chain
        self._shards: dict[str, int] = {}  # by checkpoint
        self._following: dict[Place, int] = {}  # where the next batch begins, at the earliest
        self._ids: dict[str, str] = {}  # of the input topics, Kafka's

    def check(self) -> None:
        before: CommitMarker | None = None
        for index, entry in enumerate(self._chain.entries):
            marker = entry.marker
            if before is None:
                self._first(entry)
            elif problem := _gap(before, marker):
                self._chain.broken.add(index)
                self._add(entry, *problem)
            shards = self._shards.setdefault(marker.checkpoint_id, marker.shards)
            if shards != marker.shards:
                self._add(entry, f"{marker.shards} shards", f"{shards}, as the checkpoint has")
            if marker.recovered_from is not None and (marker.count or marker.offsets):
                self._add(entry, "a recovery marker with messages or offsets", "none of both")
            if marker.count < 0 or marker.shards < 1:
                found = f"count {marker.count}, {marker.shards} shards"
                self._add(entry, found, "no number below 0, and at least 1 shard")
            self._check_ids(entry, marker)
            if marker.recovered_from is not None and index not in self._chain.broken:
                self._report_skipped(positions_of(marker, self._history.prefix))
            self._check_offsets(entry, marker)
            self._check_positions(entry, marker)
            before = marker
        if self._chain.count:
            self._check_ends(self._chain.entries[self._chain.count - 1])

    def _first(self, entry: Entry) -> None:
        begin, (checkpoint_id, batch) = self._history.audit.begin, entry.label
        if self._chain.is_whole:
            return
        if begin > 0:
            self._report.not_checked(
                f"batches before {batch} of checkpoint {checkpoint_id[:CHECKPOINT_SHOWN]}: their "
                f"markers have expired ({ASSIGNER_AUDIT} begins at offset {begin})"
            )
        else:
            found = f"batch {batch} as the first marker, and nothing has expired"
            self._add(entry, found, "batch 0 as the first")

    def _check_ids(self, entry: Entry, marker: CommitMarker) -> None:
        """A recreated topic is read only after a recovery, which begins it again."""
        prefix = self._history.prefix
        for topic in renewed_topics(self._ids, marker.topic_ids):
            if marker.recovered_from is None:
                found, expected = marker.topic_ids[topic], self._ids[topic]
                self._add(entry, f"id {found} of {topic}", f"{expected}, as before")
            name = topic.removeprefix(prefix)
            self._chain.renewed.add(name)
            self._following = {at: to for at, to in self._following.items() if at[0] != name}
        self._ids |= marker.topic_ids

    def _check_offsets(self, entry: Entry, marker: CommitMarker) -> None:
        known = {self._history.prefix + topic for topic in INPUTS}
        if strange := sorted(set(marker.offsets) - known):
            self._add(entry, f"offsets of {', '.join(strange)}", f"of {', '.join(sorted(known))}")
        named: set[Place] = set()
        for place, (first, last, count) in offsets_of(marker, self._history.prefix):
            found = f"{place[0]}/{place[1]}: first {first}, last {last}, count {count}"
            following = self._following.get(place, 0)
            if place in named:
                self._add(entry, f"{found}, a second time", "each partition once")
            if first < following:
                self._add(entry, found, f"first at least {following}: the batches before end there")
            if last < first or not 1 <= count <= last - first + 1:
                self._add(entry, found, "last at or behind first, and a count that lies between")
            named.add(place)
            self._following[place] = max(following, last + 1)

    def _check_positions(self, entry: Entry, marker: CommitMarker) -> None:
        positions = positions_of(marker, self._history.prefix)
        for place in sorted(self._following.keys() | positions):
            position, least = positions.get(place, -1), self._following.get(place, 0)
            if position < least:
                found = f"position {positions.get(place, 'none')} of {place[0]}/{place[1]}"
                self._add(entry, found, f"at least {least}, up to which was read")
            self._following[place] = max(position, least)

    def _check_ends(self, entry: Entry) -> None:
        """The last positions: no batch has read what is not there."""
        ends = {(part.topic, part.partition): part.end for part in self._history.inputs}
        for place, position in positions_of(entry.marker, self._history.prefix).items():
            if (end := ends.get(place, position)) < position:
                found = f"position {position} of {place[0]}/{place[1]}"
                self._add(entry, found, f"at most {end}, where the partition ends")

    def _report_skipped(self, positions: Mapping[Place, int]) -> None:
        """A recovery may skip input that is lost; that must be reported."""
        for (topic, partition), before in self._following.items():
            after = positions.get((topic, partition), before)
            if after > before:
                self._report.not_checked(
                    f"{topic}/{partition}, offsets {before} to {after - 1}: skipped by a recovery, "
                    "they were never answered"
                )

    def _add(self, entry: Entry, found: str, expected: str) -> None:
        self._report.add(FindingKind.MARKER, found, expected, entry.at, batch=entry.label)


def _gap(before: CommitMarker, marker: CommitMarker) -> tuple[str, str] | None:
    """What is wrong between two neighbours: found and expected."""
    last = f"batch {before.batch} of checkpoint {before.checkpoint_id[:CHECKPOINT_SHOWN]}"
    if marker.recovered_from is not None:
        origin = (marker.recovered_from.checkpoint_id, marker.recovered_from.batch)
        if origin == (before.checkpoint_id, before.batch) and marker.batch == -1:
            return None
        found = f"batch {origin[1]} of checkpoint {origin[0][:CHECKPOINT_SHOWN]}"
        return f"batch {marker.batch}, recovered from {found}", f"batch -1, recovered from {last}"
    if before.checkpoint_id != marker.checkpoint_id:
        return f"another checkpoint behind {last}", "a recovery marker that joins both"
    if marker.batch == before.batch + 1:
        return None
    is_one = marker.batch == before.batch + 2
    missing = f"{before.batch + 1}" + ("" if is_one else f"–{marker.batch - 1}")
    return f"no marker of batch {missing}", "a marker of every batch"


def _has_its_headers(read: Read, marker: CommitMarker) -> bool:
    """They say what the marker says; only they say when it was sent."""
    return _timeless(read.headers) == _timeless(marker_headers(marker, 0))


def _timeless(headers: Headers) -> list[tuple[str, bytes | None]]:
    return [(name, b"" if name == "ce_time" and value else value) for name, value in headers]


def _headers_text(headers: Headers) -> str:
    texts = (f"{name}={(value or b'').decode(errors='replace')}" for name, value in headers)
    return ", ".join(texts) or "none"


def _check_commits(history: History, report: AuditReport, chain: MarkerChain) -> None:
    """Each retained marker there is one of the audit, in its order; the last one is the last."""
    if not chain.entries and history.audit.begin > 0:
        return
    indices = {entry.label: index for index, entry in enumerate(chain.entries)}
    reached = -1
    at: Read | Where = Where(ASSIGNER_COMMITS, 0)
    for read in history.commits.messages:
        if read.key != history.query.encode():
            continue
        at = read
        try:
            marker = _decoded(read.value or b"")
        except DecodeError as error:
            report.add(FindingKind.COMMITS, f"no marker: {error}", "a marker", read)
            continue
        name = f"batch {marker.batch}"
        index = indices.get(Label(marker.checkpoint_id, marker.batch))
        if index is None:
            if reached >= 0 or chain.is_whole or not chain.entries:
                found = f"a marker of {name} that the audit does not have"
                report.add(FindingKind.COMMITS, found, "the audit's markers", read)
            continue
        if not _has_its_headers(read, marker):
            found = f"headers {_headers_text(read.headers)}"
            report.add(FindingKind.COMMITS, found, "those of its marker", read)
        if read.value != chain.entries[index].value:
            found = f"another marker of {name} than the audit's"
            report.add(FindingKind.COMMITS, found, "the same bytes", read)
        if index <= reached:
            found = f"{name} behind batch {chain.entries[reached].label.batch}"
            report.add(FindingKind.COMMITS, found, "the order of batches, each once", read)
        reached = index
    if reached < chain.count - 1:
        last = "no marker" if reached < 0 else f"batch {chain.entries[reached].label.batch}"
        expected = f"batch {chain.entries[chain.count - 1].label.batch}, as on the audit"
        report.add(FindingKind.COMMITS, f"{last} as the last one", expected, at)


def _decoded(value: bytes) -> CommitMarker:
    """Raises DecodeError if it is no marker."""
    marker = decode_record(value)
    if not isinstance(marker, CommitMarker):
        raise DecodeError(
            DeadLetterCode.WRONG_TYPE,
            f"the value is a {type(marker).__name__}; expected CommitMarker",
        )
    return marker
