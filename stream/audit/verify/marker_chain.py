"""The chain of markers: which batches there are, and what each read.

Rules: within a checkpoint batches follow each other without a gap; only a recovery marker (batch
-1) leads from one checkpoint to the next; of each input partition a batch begins where the one
before ended, at its position; positions lie behind what was read, within the partition, and never
move back. The input topics keep their ids, but over a recovery. `assigner-commits` says what the
audit says.

After a finding the chain continues with what there is, in the order of batches, so that one damaged
marker does not cause findings in all batches behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from spu_assigner.schemas.errors import DeadLetterCode, DecodeError
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.schemas.messages.wire import CommitMarker
from spu_assigner.stream.audit.verify.history import History, time_ms_of
from spu_assigner.stream.audit.verify.model import (
    CHECKPOINT_SHOWN,
    INPUTS,
    AuditReport,
    FindingKind,
    Label,
    Place,
    Read,
    Where,
    short,
)
from spu_assigner.stream.kafka.cloud_events import marker_headers
from spu_assigner.stream.kafka.topic_ids import renewed_topics
from spu_assigner.stream.kafka.topics import ASSIGNER_AUDIT, ASSIGNER_COMMITS

Problem = tuple[str, str]  # found and expected
Reads = Mapping[Place, tuple[int, int, int]]  # of each input partition: first, last, count


class Entry(NamedTuple):
    """A marker of the chain; decoded at each use, since there may be very many."""

    at: Where  # on the audit
    label: Label
    value: bytes

    @property
    def marker(self) -> CommitMarker:
        return _decoded(self.value)


@dataclass(slots=True)
class MarkerChain:
    """The markers in the order of their batches."""

    entries: list[Entry]
    others: set[bytes]  # queries whose markers are there as well
    count: int = 0  # of entries that are checked; those behind are later than the fixed end
    is_whole: bool = False  # it begins with the query's very first batch
    starts: Mapping[Place, int] = field(default_factory=dict)  # what was read before the first
    broken: set[int] = field(default_factory=set)  # indices before which a marker is missing
    renewed: set[str] = field(default_factory=set)  # input topics that were recreated


def reads_of(marker: CommitMarker, prefix: str) -> Reads:
    """What a batch has read; of inputs alone, whatever else is named."""
    return {
        (topic, each.partition): (each.first, each.last, each.count)
        for topic in INPUTS
        for each in marker.offsets.get(prefix + topic, ())
    }


def positions_of(marker: CommitMarker, prefix: str) -> dict[Place, int]:
    """The next offset of each input partition."""
    return {
        (topic, each.partition): each.next
        for topic in INPUTS
        for each in marker.positions.get(prefix + topic, ())
    }


def read_chain(history: History, report: AuditReport) -> MarkerChain:
    """Read all markers and check how they follow each other."""
    chain = MarkerChain(*_entries(history, report))
    end, entries = history.end_offset, chain.entries
    chain.count = sum(end is None or (each.at.offset or 0) < end for each in entries)
    if entries:
        marker = entries[0].marker
        positions, reads = positions_of(marker, history.prefix), reads_of(marker, history.prefix)
        # After a recovery there is a batch 0 as well: if anything has expired, only one that reads
        # from the very beginning is the first.
        is_first = all(
            position == 0 or (place in reads and reads[place][0] == 0)
            for place, position in positions.items()
        )
        has_begin = history.spans[ASSIGNER_AUDIT, 0][0] == 0
        chain.is_whole = marker.batch == 0 and (has_begin or is_first)
        if not chain.is_whole:
            chain.starts = positions | {place: first for place, (first, _, _) in reads.items()}
    _Links(history, report, chain).check()
    report.labels = [entry.label for entry in entries[: chain.count]]
    _check_commits(history, report, chain)
    return chain


def _entries(history: History, report: AuditReport) -> tuple[list[Entry], set[bytes]]:
    """The query's markers in order, each batch once; the keys of other queries' markers."""
    entries: dict[Label, Entry] = {}
    others: set[bytes] = set()
    for read in history.markers:
        if read.key != history.query.encode():
            others.add(read.key or b"")
            found, expected = f"query {read.key!r}", f"query {history.query!r}"
            report.add(FindingKind.MARKER, found, expected, read.at)
            continue
        try:
            marker = _decoded(read.value or b"")
        except DecodeError as error:
            report.add(FindingKind.MARKER, f"no marker: {error}", "a marker", read.at)
            continue
        label = Label(marker.checkpoint_id, marker.batch)
        if marker.query != history.query:
            found, expected = f"query {marker.query!r}", f"query {history.query!r}"
            report.add(FindingKind.MARKER, found, expected, read.at, batch=label)
        if not _has_its_headers(read, marker):
            found = f"headers {short(read.headers)}"
            report.add(FindingKind.MARKER, found, "those of its marker", read.at, batch=label)
        if label in entries:
            found = "a second marker of the batch"
            report.add(FindingKind.TWICE, found, "one", read.at, batch=label)
        else:
            entries[label] = Entry(read.at, label, read.value or b"")
    checkpoints = {checkpoint_id: -at for at, (checkpoint_id, _) in enumerate(reversed(entries))}
    ordered = sorted(
        entries.values(), key=lambda each: (checkpoints[each.label.checkpoint_id], each.label.batch)
    )
    reached = -1
    for entry in ordered:
        if (offset := entry.at.offset or 0) < reached:
            found, expected = "a marker before those of earlier batches", "the order of batches"
            report.add(FindingKind.MISPLACED, found, expected, entry.at, batch=entry.label)
        reached = offset
    return ordered, others


class _Links:
    """Checks each marker of the chain against those before."""

    def __init__(self, history: History, report: AuditReport, chain: MarkerChain) -> None:
        self._history = history
        self._prefix = history.prefix
        self._report = report
        self._chain = chain
        self._shards: dict[str, int] = {}  # by checkpoint
        self._following: dict[Place, int] = {}  # where the next batch begins, at the earliest
        self._ids: dict[str, str] = {}  # of the input topics, Kafka's

    def check(self) -> None:
        before: CommitMarker | None = None
        for index, entry in enumerate(self._chain.entries):
            marker = entry.marker
            problems = [*self._of_itself(marker), *self._of_ids(marker)]
            if before is None:
                problems += self._of_first(entry)
            elif gap := _gap(before, marker):
                self._chain.broken.add(index)
                problems.append(gap)
            problems += self._of_positions(marker, is_joined=index not in self._chain.broken)
            if index == self._chain.count - 1:
                problems += self._of_ends(marker)
            for found, expected in problems:
                self._report.add(FindingKind.MARKER, found, expected, entry.at, batch=entry.label)
            before = marker

    def _of_itself(self, marker: CommitMarker) -> Iterator[Problem]:
        shards = self._shards.setdefault(marker.checkpoint_id, marker.shards)
        if shards != marker.shards:
            yield f"{marker.shards} shards", f"{shards}, as the checkpoint has"
        if marker.recovered_from is not None and (marker.count or marker.offsets):
            yield "a recovery marker with messages or offsets", "none of both"
        if marker.count < 0 or marker.shards < 1:
            found = f"count {marker.count}, {marker.shards} shards"
            yield found, "no number below 0, and at least 1 shard"
        known = {self._prefix + topic for topic in INPUTS}
        if strange := sorted(set(marker.offsets) - known):
            yield f"offsets of {', '.join(strange)}", f"of {', '.join(sorted(known))}"

    def _of_first(self, entry: Entry) -> Iterator[Problem]:
        begin, (checkpoint_id, batch) = self._history.spans[ASSIGNER_AUDIT, 0][0], entry.label
        if begin > 0 and not self._chain.is_whole:
            self._report.not_checked(
                f"batches before {batch} of checkpoint {checkpoint_id[:CHECKPOINT_SHOWN]}: their "
                f"markers have expired ({ASSIGNER_AUDIT} begins at offset {begin})"
            )
        elif not self._chain.is_whole:
            found = f"batch {batch} as the first marker, and nothing has expired"
            yield found, "batch 0 as the first"

    def _of_ids(self, marker: CommitMarker) -> Iterator[Problem]:
        """A recreated topic is read only after a recovery, which begins it again."""
        for topic in renewed_topics(self._ids, marker.topic_ids):
            if marker.recovered_from is None:
                found, expected = marker.topic_ids[topic], self._ids[topic]
                yield f"id {found} of {topic}", f"{expected}, as before"
            name = topic.removeprefix(self._prefix)
            self._chain.renewed.add(name)
            self._following = {at: to for at, to in self._following.items() if at[0] != name}
        self._ids |= marker.topic_ids

    def _of_positions(self, marker: CommitMarker, *, is_joined: bool) -> Iterator[Problem]:
        """What was read begins where the batch before ended, and ends at the positions."""
        positions = positions_of(marker, self._prefix)
        if marker.recovered_from is not None and is_joined:
            self._report_skipped(positions)
        for place, (first, last, count) in reads_of(marker, self._prefix).items():
            found = f"{place[0]}/{place[1]}: first {first}, last {last}, count {count}"
            following = self._following.get(place, 0)
            if first < following:
                yield found, f"first at least {following}: the batches before end there"
            if last < first or not 1 <= count <= last - first + 1:
                yield found, "last at or behind first, and a count that lies between"
            self._following[place] = max(following, last + 1)
        for place in sorted(self._following.keys() | positions):
            position, least = positions.get(place, -1), self._following.get(place, 0)
            if position < least:
                found = f"position {positions.get(place, 'none')} of {place[0]}/{place[1]}"
                yield found, f"at least {least}, up to which was read"
            self._following[place] = max(position, least)

    def _of_ends(self, marker: CommitMarker) -> Iterator[Problem]:
        """No batch has read what is not there."""
        for place, position in positions_of(marker, self._prefix).items():
            _, end = self._history.spans.get(place, (0, position))
            if end < position:
                found = f"position {position} of {place[0]}/{place[1]}"
                yield found, f"at most {end}, where the partition ends"

    def _report_skipped(self, positions: Mapping[Place, int]) -> None:
        """A recovery may skip input that is lost; that must be reported."""
        for (topic, partition), before in self._following.items():
            after = positions.get((topic, partition), before)
            if after > before:
                self._report.not_checked(
                    f"{topic}/{partition}, offsets {before} to {after - 1}: skipped by a recovery, "
                    "they were never answered"
                )


def _gap(before: CommitMarker, marker: CommitMarker) -> Problem | None:
    """What is wrong between two neighbours."""
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
    time_ms = time_ms_of(dict(read.headers).get("ce_time"))
    return time_ms is not None and read.headers == marker_headers(marker, time_ms)


def _check_commits(history: History, report: AuditReport, chain: MarkerChain) -> None:
    """Each retained marker there is one of the audit, in its order; the last one is the last."""
    own = history.query.encode()
    markers = [read for read in history.markers if read.key == own]
    if not markers and history.spans[ASSIGNER_AUDIT, 0][0] > 0:
        return
    places = {(read.value, read.headers): read.offset for read in markers}
    reached, at = -1, Where(ASSIGNER_COMMITS, 0)
    for read in history.commits:
        if read.key != own:
            continue
        at = read.at
        place = places.get((read.value, read.headers), -1)
        if place > reached:
            reached = place
        elif reached >= 0 or chain.is_whole or not chain.entries:  # Else it is older than those.
            found = f"a marker with headers {short(read.headers)}"
            expected = "the same bytes as on the audit, in its order, each once"
            report.add(FindingKind.COMMITS, found, expected, at)
    end = history.end_offset
    last = [read for read in markers if end is None or read.offset < end][-1:]
    if last and reached < last[0].offset:
        found, expected = "an earlier marker as the last one", f"that of {_name(last[0])}"
        report.add(FindingKind.COMMITS, found, expected, at)


def _name(read: Read) -> str:
    return (dict(read.headers).get("ce_id") or b"?").decode(errors="replace")


def _decoded(value: bytes) -> CommitMarker:
    """Raises DecodeError if it is no marker."""
    marker = decode_record(value)
    if not isinstance(marker, CommitMarker):
        raise DecodeError(
            DeadLetterCode.WRONG_TYPE,
            f"the value is a {type(marker).__name__}; expected CommitMarker",
        )
    return marker
