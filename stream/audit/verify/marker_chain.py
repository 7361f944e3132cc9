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


class Entry(NamedTuple):
    """A marker of the chain; decoded at each use, since there may be very many."""

    at: Where  # on the audit
    label: Label
    value: bytes

    @property
    def marker(self) -> CommitMarker:
        return _decoded(self.value)


def reads_of(marker: CommitMarker, prefix: str) -> dict[Place, tuple[int, int, int]]:
    """What a batch has read of each input partition: first, last, count."""
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


class MarkerChain:
    """The markers in the order of their batches, checked against each other."""

    def __init__(self, history: History, report: AuditReport) -> None:
        self._history = history
        self._report = report
        self.entries = _entries(history, report)
        end = history.end_offset
        # Of entries that are checked; those behind are later than the fixed end.
        self.count = sum(end is None or (each.at.offset or 0) < end for each in self.entries)
        self.is_whole = False  # it begins with the query's very first batch
        self.starts: Mapping[Place, int] = {}  # what was read before the first
        self.broken: set[int] = set()  # indices before which a marker is missing
        self.renewed: set[str] = set()  # input topics that were recreated
        self._following: dict[Place, int] = {}  # where the next batch begins, at the earliest
        self._ids: dict[str, str] = {}  # of the input topics, Kafka's
        self._shards: dict[str, int] = {}  # by checkpoint
        before: CommitMarker | None = None
        for index, entry in enumerate(self.entries):
            marker = entry.marker
            problems = [*self._of_first(marker)] if before is None else [*_gap(before, marker)]
            if before is not None and problems:
                self.broken.add(index)
            problems += [*self._of_checkpoint(marker), *self._of_positions(index, marker)]
            for found, expected in problems:
                report.add(FindingKind.MARKER, found, expected, entry.at, batch=entry.label)
            before = marker
        report.labels = [entry.label for entry in self.entries[: self.count]]
        self._check_commits()

    def _of_first(self, marker: CommitMarker) -> Iterator[Problem]:
        positions = positions_of(marker, self._history.prefix)
        reads = reads_of(marker, self._history.prefix)
        begin = self._history.spans[ASSIGNER_AUDIT, 0][0]
        # After a recovery there is a batch 0 as well: if anything has expired, only one that reads
        # from the very beginning is the first.
        is_first = all(
            position == 0 or (place in reads and reads[place][0] == 0)
            for place, position in positions.items()
        )
        self.is_whole = marker.batch == 0 and (begin == 0 or is_first)
        if self.is_whole:
            return
        self.starts = positions | {place: first for place, (first, _, _) in reads.items()}
        if begin > 0:
            self._report.not_checked(
                f"batches before {marker.batch} of checkpoint "
                f"{marker.checkpoint_id[:CHECKPOINT_SHOWN]}: their markers have expired "
                f"({ASSIGNER_AUDIT} begins at offset {begin})"
            )
        else:
            found = f"batch {marker.batch} as the first marker, and nothing has expired"
            yield found, "batch 0 as the first"

    def _of_checkpoint(self, marker: CommitMarker) -> Iterator[Problem]:
        shards = self._shards.setdefault(marker.checkpoint_id, marker.shards)
        if shards != marker.shards:
            yield f"{marker.shards} shards", f"{shards}, as the checkpoint has"
        if marker.recovered_from is not None and (marker.count or marker.offsets):
            yield "a recovery marker with messages or offsets", "none of both"
        for topic in renewed_topics(self._ids, marker.topic_ids):
            if marker.recovered_from is None:
                found, expected = marker.topic_ids[topic], self._ids[topic]
                yield f"id {found} of {topic}", f"{expected}, as before"
            name = topic.removeprefix(self._history.prefix)
            self.renewed.add(name)
            self._following = {at: to for at, to in self._following.items() if at[0] != name}
        self._ids |= marker.topic_ids

    def _of_positions(self, index: int, marker: CommitMarker) -> Iterator[Problem]:
        """What was read begins where the batch before ended, and ends at the positions."""
        positions = positions_of(marker, self._history.prefix)
        if marker.recovered_from is not None and index not in self.broken:
            self._report_skipped(positions)
        for place, (first, last, count) in reads_of(marker, self._history.prefix).items():
            found = f"{place[0]}/{place[1]}: first {first}, last {last}, count {count}"
            following = self._following.get(place, 0)
            if first < following:
                yield found, f"first at least {following}: the batches before end there"
            if last < first or not 1 <= count <= last - first + 1:
                yield found, "last at or behind first, and a count that lies between"
            self._following[place] = max(following, last + 1)
        for place in sorted(self._following.keys() | positions):
            position, least = positions.get(place, -1), self._following.get(place, 0)
            found = f"position {positions.get(place, 'none')} of {place[0]}/{place[1]}"
            if position < least:
                yield found, f"at least {least}, up to which was read"
            end = self._history.spans.get(place, (0, position))[1]
            if end < position and index == self.count - 1:
                yield found, f"at most {end}, where the partition ends"
            self._following[place] = max(position, least)

    def _report_skipped(self, positions: Mapping[Place, int]) -> None:
        """A recovery may skip input that is lost; that must be reported."""
        for (topic, partition), before in self._following.items():
            after = positions.get((topic, partition), before)
            if after > before:
                self._report.not_checked(
                    f"{topic}/{partition}, offsets {before} to {after - 1}: skipped by a recovery, "
                    "they were never answered"
                )

    def _check_commits(self) -> None:
        """Each retained marker there is one of the audit, in its order; the last is the last."""
        history, own = self._history, self._history.query.encode()
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
            elif reached >= 0 or self.is_whole or not self.entries:  # Else older than the audit.
                found = f"a marker with headers {short(read.headers)}"
                expected = "the same bytes as on the audit, in its order, each once"
                self._report.add(FindingKind.COMMITS, found, expected, at)
        end = history.end_offset
        last = [read for read in markers if end is None or read.offset < end][-1:]
        if last and reached < last[0].offset:
            found = "an earlier marker as the last one"
            expected = f"that of {ASSIGNER_AUDIT} at offset {last[0].offset}"
            self._report.add(FindingKind.COMMITS, found, expected, at)


def _entries(history: History, report: AuditReport) -> list[Entry]:
    """The query's markers in order, each batch once."""
    entries: dict[Label, Entry] = {}
    for read in history.markers:
        try:
            if read.key != history.query.encode():
                raise DecodeError(
                    DeadLetterCode.KEY_MISMATCH,
                    f"the key is {read.key!r}; expected {history.query!r}",
                )
            marker = _decoded(read.value or b"")
        except DecodeError as error:
            expected = f"a marker of query {history.query!r}"
            report.add(FindingKind.MARKER, f"no such marker: {error}", expected, read.at)
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
    return ordered


def _gap(before: CommitMarker, marker: CommitMarker) -> Iterator[Problem]:
    """What is wrong between two neighbours."""
    last = f"batch {before.batch} of checkpoint {before.checkpoint_id[:CHECKPOINT_SHOWN]}"
    if (origin := marker.recovered_from) is not None:
        is_last = (origin.checkpoint_id, origin.batch) == (before.checkpoint_id, before.batch)
        if not is_last or marker.batch != -1:
            found = f"batch {origin.batch} of checkpoint {origin.checkpoint_id[:CHECKPOINT_SHOWN]}"
            found = f"batch {marker.batch}, recovered from {found}"
            yield found, f"batch -1, recovered from {last}"
    elif before.checkpoint_id != marker.checkpoint_id:
        yield f"another checkpoint behind {last}", "a recovery marker that joins both"
    elif marker.batch != before.batch + 1:
        yield f"batch {marker.batch} behind {last}", "a marker of every batch"


def _has_its_headers(read: Read, marker: CommitMarker) -> bool:
    """They say what the marker says; only they say when it was sent."""
    time_ms = time_ms_of(dict(read.headers).get("ce_time"))
    return time_ms is not None and read.headers == marker_headers(marker, time_ms)


def _decoded(value: bytes) -> CommitMarker:
    """Raises DecodeError if it is no marker."""
    marker = decode_record(value)
    if not isinstance(marker, CommitMarker):
        raise DecodeError(
            DeadLetterCode.WRONG_TYPE,
            f"the value is a {type(marker).__name__}; expected CommitMarker",
        )
    return marker
