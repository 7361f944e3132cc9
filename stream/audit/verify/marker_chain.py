"""The chain of markers: which batches there are, and what each read.

Rules: within a checkpoint batches follow each other without a gap; only a recovery marker (batch
-1) leads from one checkpoint to the next; of each input partition a batch begins where the one
before ended; positions lie behind what was read and never move back. The input topics keep their
ids, but over a recovery. `assigner-commits` says what the audit says. After a finding the chain
continues with what there is, so that one damaged marker does not cause findings in all behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.schemas.messages.wire import CommitMarker, Wire
from spu_assigner.stream.audit.verify.history import History, time_ms_of
from spu_assigner.stream.audit.verify.model import (
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
from spu_assigner.stream.kafka.topics import ASSIGNER_AUDIT, ASSIGNER_COMMITS, INPUTS

Problem = tuple[str, str]  # found and expected


class Entry:
    """A marker of the chain."""

    def __init__(self, read: Read, marker: CommitMarker, prefix: str) -> None:
        self.read = read  # on the audit
        self.marker = marker
        self.label = Label(marker.checkpoint_id, marker.batch)
        # Of each input partition: first, last and count of what was read, and the next offset.
        parts = _of_inputs(marker.offsets, prefix)
        self.reads = {place: (each.first, each.last, each.count) for place, each in parts}
        self.positions = {at: each.next for at, each in _of_inputs(marker.positions, prefix)}


def _of_inputs(parts: Mapping[str, Any], prefix: str) -> list[tuple[Place, Any]]:
    return [
        ((topic, each.partition), each)
        for topic in INPUTS
        for each in parts.get(prefix + topic, ())
    ]


def wire_of(value: bytes) -> Wire:
    """The encoding of a message."""
    return Wire.CONFLUENT if value.startswith(b"\0") else Wire.SINGLE_OBJECT


class MarkerChain:
    """The markers in the order of their batches, checked against each other."""

    def __init__(self, history: History, report: AuditReport) -> None:
        self._history = history
        self._report = report
        self.entries = self._read_entries()
        # Of entries that are checked; those behind are later than the fixed end.
        self.count = sum(each.read.offset < history.end_offset for each in self.entries)
        self.is_whole = False  # it begins with the query's very first batch
        self.broken: set[int] = set()  # indices before which a marker is missing
        self.renewed: set[str] = set()  # input topics that were recreated
        self._following: dict[Place, int] = {}  # where the next batch begins, at the earliest
        self._ids: dict[str, str] = {}  # of the input topics, Kafka's
        for index, (before, entry) in enumerate(
            zip((None, *self.entries), self.entries, strict=False)
        ):
            problems = [*(self._of_first(entry) if before is None else _gap(before, entry))]
            if before is not None and problems:
                self.broken.add(index)
            problems += [*self._of_checkpoint(entry), *self._of_positions(index, entry)]
            for found, expected in problems:
                report.add(FindingKind.MARKER, found, expected, entry.read.at, entry.label)
        report.labels = [entry.label for entry in self.entries[: self.count]]
        self._check_commits()

    def _of_first(self, entry: Entry) -> Iterator[Problem]:
        begin = self._history.spans[ASSIGNER_AUDIT, 0][0]
        firsts = {place: first for place, (first, _, _) in entry.reads.items()}
        starts = {**entry.positions, **firsts}
        # A recovery has a batch 0 as well; but only the first reads from the very beginning.
        self.is_whole = entry.label.batch == 0 and (begin == 0 or not any(starts.values()))
        if self.is_whole:
            return
        # Outputs of batches whose markers have expired are no strays.
        self._history.outputs({place: (0, start - 1) for place, start in starts.items()})
        if begin > 0:
            why = f"the markers have expired ({ASSIGNER_AUDIT} begins at offset {begin})"
            self._report.not_checked(f"what came before {entry.label}: {why}")
        else:
            yield f"{entry.label} as the first marker, and nothing has expired", "batch 0"

    def _of_checkpoint(self, entry: Entry) -> Iterator[Problem]:
        marker = entry.marker
        if marker.recovered_from is not None and (marker.count or marker.offsets):
            yield "a recovery marker with messages or offsets", "none of both"
        for topic in renewed_topics(self._ids, marker.topic_ids):
            if marker.recovered_from is None:
                yield f"id {marker.topic_ids[topic]} of {topic}", f"{self._ids[topic]}, as before"
            name = topic.removeprefix(self._history.prefix)
            self.renewed.add(name)
            self._following = {at: to for at, to in self._following.items() if at[0] != name}
        self._ids |= marker.topic_ids

    def _of_positions(self, index: int, entry: Entry) -> Iterator[Problem]:
        """What was read begins where the batch before ended, and ends at the positions."""
        if entry.marker.recovered_from is not None and index not in self.broken:
            for (topic, partition), before in self._following.items():
                # A recovery may skip input that is lost; that must be reported.
                if (after := entry.positions.get((topic, partition), before)) > before:
                    name = f"{topic}/{partition}, offsets {before} to {after - 1}"
                    self._report.not_checked(f"{name}: skipped by a recovery, never answered")
        for place, (first, last, count) in entry.reads.items():
            found = f"{place[0]}/{place[1]}: first {first}, last {last}, count {count}"
            following = self._following.get(place, 0)
            if first < following or not 1 <= count <= last - first + 1:
                yield found, f"first at least {following}, and a count that fits"
            self._following[place] = max(following, last + 1)
        for place in sorted(self._following.keys() | entry.positions):
            position, least = entry.positions.get(place, -1), self._following.get(place, 0)
            found = f"position {position} of {place[0]}/{place[1]}"
            if position < least:
                yield found, f"at least {least}, up to which was read"
            end = self._history.spans.get(place, (0, position))[1]
            if end < position and index == self.count - 1:
                yield found, f"at most {end}, where the partition ends"
            self._following[place] = max(position, least)

    def _check_commits(self) -> None:
        """Each retained marker there is one of the audit, in its order; the last is the last."""
        history, own = self._history, self._history.query.encode()
        places = {(each.value, each.headers): each.offset for each in history.markers}
        reached, at, begin = -1, Where(ASSIGNER_COMMITS, 0), history.spans[ASSIGNER_AUDIT, 0][0]
        for read in (each for each in history.commits if each.key == own):
            at, place = read.at, places.get((read.value, read.headers), -1)
            # One that is older than the audit may be there as well.
            if place <= reached and (reached >= 0 or begin == 0):
                found = f"a marker with headers {short(read.headers)}"
                expected = "the same bytes as on the audit, in its order, each once"
                self._report.add(FindingKind.COMMITS, found, expected, at)
            reached = max(reached, place)
        last = max((entry.read.offset for entry in self.entries[: self.count]), default=-1)
        if reached < last:
            found, expected = "an earlier marker as the last one", f"that at offset {last}"
            self._report.add(FindingKind.COMMITS, found, f"{expected} of {ASSIGNER_AUDIT}", at)

    def _read_entries(self) -> list[Entry]:
        """The query's markers in order, each batch once."""
        query, report = self._history.query, self._report
        entries: dict[Label, Entry] = {}
        for read in self._history.markers:
            marker: object
            try:
                marker = decode_record(read.value or b"")
            except DecodeError as error:
                marker = error
            own = (query.encode(), query)
            if not isinstance(marker, CommitMarker) or (read.key, marker.query) != own:
                found, expected = f"key {read.key!r}, {short(marker)}", f"a marker of {query!r}"
                report.add(FindingKind.MARKER, found, expected, read.at)
                continue
            label = Label(marker.checkpoint_id, marker.batch)
            # The headers say what the marker says; only they say when it was sent.
            time_ms = time_ms_of(dict(read.headers).get("ce_time"))
            if time_ms is None or [*read.headers] != marker_headers(marker, time_ms):
                found = f"headers {short(read.headers)}"
                report.add(FindingKind.MARKER, found, "those of its marker", read.at, label)
            if label in entries:
                report.add(FindingKind.TWICE, "a second marker of the batch", "one", read.at, label)
                continue
            entries[label] = Entry(read, marker, self._history.prefix)
        ranks = {checkpoint_id: -at for at, (checkpoint_id, _) in enumerate(reversed(entries))}
        ordered = sorted(
            entries.values(), key=lambda each: (ranks[each.label.checkpoint_id], each.label.batch)
        )
        for before, entry in pairwise(ordered):
            if entry.read.offset < before.read.offset:
                found, expected = "a marker before those of earlier batches", "the order of batches"
                report.add(FindingKind.MISPLACED, found, expected, entry.read.at, entry.label)
        return ordered


def _gap(before: Entry, entry: Entry) -> Iterator[Problem]:
    """What is wrong between two neighbours."""
    label = entry.label
    if (origin := entry.marker.recovered_from) is not None:
        lost = Label(origin.checkpoint_id, origin.batch)
        if lost != before.label or label.batch != -1:
            found = f"batch {label.batch}, recovered from {lost}"
            yield found, f"batch -1, recovered from {before.label}"
    elif before.label.checkpoint_id != label.checkpoint_id:
        yield f"another checkpoint behind {before.label}", "a recovery marker that joins both"
    elif label.batch != before.label.batch + 1:
        yield f"batch {label.batch} behind {before.label}", "a marker of every batch"
