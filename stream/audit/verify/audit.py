"""The audit: are the outputs what the markers say and what follows from the inputs?

    report = verify(history)

One pass, batch by batch, over the messages in their recorded order: `shard` and `sequence` in the
headers. Each batch is checked in the strongest way that what is retained permits:

    replayed    inputs are there from batch 0 on: the core answers them again. Count and digest are
                the marker's; each message that is there is the replay's, byte for byte, in its
                place; what is not there was expired or compacted, and of a compacted topic nothing
                is gone but what a later message of the same key superseded. What the compacted
                topics contain in the end is then the replay's state.
    digest      all its messages are there: count and digest are the marker's
    partly      some have expired or were compacted: those that are there are of this batch, whole
                and in order, and Kafka's offsets have room for those that are not

In each way: every message is of a batch that has a marker, is there once, in its partition, and in
the order of batches. Without the inputs only the digest distinguishes a map that compaction took
from one that was lost.

From a batch of another release on nothing is replayed, since other bytes may be right there
(schemas, policies that changed). Over an input topic that was deleted and recreated only the
markers are checked: by offsets the events of the old topic cannot be told from those of the new.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

from spu_assigner.schemas.messages.wire import CommitMarker
from spu_assigner.stream.audit.verify.checks import Latest, PartitionOrder
from spu_assigner.stream.audit.verify.history import History, Output
from spu_assigner.stream.audit.verify.marker_chain import MarkerChain, positions_of, reads_of
from spu_assigner.stream.audit.verify.model import (
    COMPACTED,
    NOWHERE,
    OUTPUTS,
    AuditReport,
    FindingKind,
    How,
    Place,
    VerifyError,
    Where,
    difference,
)
from spu_assigner.stream.audit.verify.replay import Replay, ReplayError, wire_of
from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.job.batch_buffer import SHARD, BatchBuffer, summary_of
from spu_assigner.stream.job.shard.bundle import KINDS, Message, MessageKind, message_bytes
from spu_assigner.stream.job.shard.input_batch import Row
from spu_assigner.stream.kafka.topics import ASSIGNER_AUDIT, ASSIGNER_COMMITS


def verify(
    history: History, progress: Callable[[int, int], None] = lambda done, count: None
) -> AuditReport:
    """Check a history; `progress` is called with how many batches of how many are done.

    Raises:
        VerifyError: the markers are of other queries.
    """
    report = AuditReport(query=history.query)
    chain = MarkerChain(history, report)
    if not chain.entries:
        if history.spans[ASSIGNER_AUDIT, 0][0] > 0:
            report.not_checked("anything: all markers have expired, and no batch came since")
            return report
        others = {(read.key or b"").decode(errors="replace") for read in history.markers}
        if others - {history.query}:
            raise VerifyError(
                f"there is no marker of query {history.query!r}; expected one of "
                f"{', '.join(sorted(others))}: name it with SPU_ASSIGNER_QUERY_NAME, or another "
                "prefix with --topic-prefix"
            )
    if chain.renewed:
        report.not_checked(
            f"anything but the markers: {', '.join(sorted(chain.renewed))} was deleted and "
            "recreated, so events of the old topic and of the new one have the same ce_id"
        )
        return report
    report.messages = history.output_count()
    audit = _Audit(history, chain, report)
    for index in range(chain.count):
        audit.check(index)
        progress(index + 1, chain.count)
    audit.end()
    return report


class _Audit:
    """Checks batch after batch."""

    def __init__(self, history: History, chain: MarkerChain, report: AuditReport) -> None:
        self._history = history
        self._chain = chain
        self._report = report
        self._index = 0  # of the batch that is checked
        self._following: dict[Place, int] = {}  # up to where the inputs were read
        self._order = PartitionOrder(history, report)
        self._latest = Latest(report)
        self._replay = Replay(history.prefix)
        self._stopped: str | None = None  # why there is no replay any more
        if chain.entries and not chain.is_whole:
            self._stop("what was before is not known")
        self._has_gaps = False  # of some batch without a replay not all messages are there
        for place, start in chain.starts.items():
            for output in history.outputs({place: (0, start - 1)}):
                self._order.begin_behind(output)
        for (topic, partition), (begin, _) in history.spans.items():
            found = f"{topic}/{partition} begins at offset {begin}"
            if begin > 0 and topic in (*COMPACTED, ASSIGNER_COMMITS):
                expected = "0: it is compacted, nothing is ever deleted from its beginning"
                report.add(FindingKind.DELETED, found, expected, Where(topic, partition))
            elif begin > 0 and topic in OUTPUTS:
                report.not_checked(f"{found}: what lay before has expired")

    def check(self, index: int) -> None:
        """Check the next batch."""
        self._index, entry = index, self._chain.entries[index]
        marker = entry.marker
        inputs = self._inputs(marker)
        if index in self._chain.broken:
            self._stop("a marker before is missing")
        if marker.release != RELEASE:
            self._stop(f"release {marker.release} wrote batch {marker.batch}")
        outputs = self._once(self._history.outputs(reads_of(marker, self._history.prefix)))
        if marker.recovered_from is not None and not outputs:
            return  # The state stays as it is.
        if self._stopped is None:
            self._with_replay(marker, entry.value, outputs, inputs)
        else:
            self._report.not_checked(self._stopped, index)
            self._without_replay(marker, outputs)

    def end(self) -> None:
        """Check what can be known only when everything was seen."""
        prefix = self._history.prefix
        for entry in self._chain.entries[self._chain.count :]:
            for output in self._history.outputs(reads_of(entry.marker, prefix)):
                self._latest.found(output)
        for output in self._history.unread_outputs():
            found = f"ce_id {output.ce_id[:300]!r}" if output.ce_id else "no ce_id"
            expected = "the ce_id of an event that a marker's batch has read"
            self._report.add(FindingKind.STRAY, found, expected, output.at)
        self._latest.end(has_gaps=self._has_gaps)
        self._order.end()

    def _stop(self, why: str) -> None:
        self._stopped = self._stopped or f"not replayed: {why}"

    def _inputs(self, marker: CommitMarker) -> list[Row]:
        """What a batch has read; without all of it there is no replay."""
        rows: list[Row] = []
        reads = reads_of(marker, self._history.prefix)
        positions = positions_of(marker, self._history.prefix)
        for place in sorted(reads.keys() | positions):
            name = f"{place[0]}/{place[1]}"
            first, last, count = reads.get(place, (0, -1, 0))
            position = max(last + 1, positions.get(place, 0))
            begun = 0 if self._chain.is_whole else first if place in reads else position
            known = self._following.get(place, begun)
            self._following[place] = position
            start = min(known, first) if place in reads else known
            before = len(rows)
            for row in self._history.inputs(place, start, position - 1):
                if first <= row[2] <= last:
                    rows.append(row)
                elif row[2] >= known and marker.recovered_from is None:
                    expected = f"an answer; batch {marker.batch} read up to {position}"
                    at = Where(*place, row[2], row[4])
                    self._add(FindingKind.INPUT, "a message that no batch has read", expected, at)
            begin = self._history.spans[place][0] if place in self._history.spans else None
            if place in reads and (begin is None or begin > first):
                what = "is not there" if begin is None else f"begins at {begin}"
                self._stop(f"inputs expired: {name} {what}, read from {first}")
            elif len(rows) - before != count:
                self._stop(f"the inputs are not as they were read: {name}")
                found = f"{len(rows) - before} messages from offset {first} to {last}"
                expected = f"{count}, which the batch has read"
                self._add(FindingKind.INPUT, found, expected, Where(*place, first))
        return rows

    def _once(self, placed: list[Output]) -> list[Output]:
        """A batch's messages, each once; those with other headers are reported here."""
        outputs: list[Output] = []
        last: Output | None = None
        for output in placed:
            if output.fault is not None:
                expected = "those that this job writes"
                self._add(FindingKind.ALTERED, output.fault, expected, output.at)
            elif last and (last.shard, last.sequence) == (output.shard, output.sequence):
                topic, partition, offset, _ = last.at
                expected = f"once; it lies at {topic}/{partition}, offset {offset}"
                self._add(FindingKind.TWICE, f"{_name(output)} again", expected, output.at)
                continue
            else:
                last = output
            outputs.append(output)
        return outputs

    def _with_replay(
        self, marker: CommitMarker, value: bytes, outputs: list[Output], inputs: list[Row]
    ) -> None:
        with BatchBuffer() as buffer:
            try:
                self._replay.apply(marker, wire_of(value), inputs, buffer)
            except ReplayError as reason:
                self._stop("the replay failed")
                self._add(FindingKind.REPLAY, str(reason), "every batch can be applied again")
                self._without_replay(marker, outputs)
                return
            summary = summary_of(buffer)
            self._compare(outputs, buffer)
        if summary.count != marker.count:
            found, expected = f"{marker.count} messages by the marker", f"{summary.count}"
            self._add(FindingKind.COUNT, found, f"{expected} by the replay")
        if summary.digest != marker.digest:
            found, expected = f"{marker.digest[:16]}… by the marker", f"{summary.digest[:16]}…"
            self._add(FindingKind.DIGEST, found, f"{expected} by the replay")
        self._report.checked(self._index, How.REPLAYED)

    def _compare(self, outputs: list[Output], buffer: BatchBuffer) -> None:
        """Compare each message with the replay's in its place."""
        faulty = {output.ce_id for output in outputs if output.fault is not None}
        found = {(each.shard, each.sequence): each for each in outputs if each.fault is None}
        for place, answer in _answers(buffer):
            output = found.pop(place, None)
            topic = KINDS[MessageKind(answer.kind)][0]
            if output is not None:
                self._latest.found(output)
                self._order.follow(self._index, output)
                self._compare_one(answer, output)
            elif answer.id in faulty:
                continue  # It is reported.
            elif topic in COMPACTED:
                self._latest.missing(self._index, topic, answer)
            elif not self._order.may_have_expired(topic, answer.key):
                expected, at = f"ce_id {answer.id.decode()}", Where(topic, key=answer.key)
                self._add(FindingKind.MISSING, "no such message", expected, at)
        for output in found.values():
            expected = "no such message by the replay"
            self._add(FindingKind.UNEXPECTED, _name(output), expected, output.at)

    def _compare_one(self, answer: Message, output: Output) -> None:
        value = self._history.value(output)
        for what, found, expected in (
            ("ce_id", output.ce_id, answer.id),
            ("type", KINDS[MessageKind(output.kind)][1], KINDS[MessageKind(answer.kind)][1]),
            ("key", output.at.key, answer.key),
            ("value", value, answer.value),
            ("ce_time", output.time_ms, answer.time_ms),
        ):
            if found != expected:
                one, other = difference(found, expected)
                self._add(FindingKind.ALTERED, f"{what} {one}", f"{what} {other}", output.at)

    def _without_replay(self, marker: CommitMarker, outputs: list[Output]) -> None:
        """Check by count and digest; where messages may be gone, that there is room for them."""
        may_have_lost = self._order.may_have_expired()
        before = dict(self._order.reached)
        for output in outputs:
            self._latest.found(output)
            if output.fault is None:
                self._order.follow(self._index, output)
        missing = marker.count - len(outputs)
        room = self._order.room(before, outputs) if missing else 0
        if missing < 0 or (missing > room and not may_have_lost):
            expected = f"{marker.count}, as the marker says"
            if room:
                expected += f"; at most {room} can have been compacted away"
            self._add(FindingKind.COUNT, f"{len(outputs)} messages", expected)
            return
        if missing:
            self._has_gaps = True
            said = "count and digest: some messages have expired or were compacted away"
            self._report.not_checked(said, self._index)
        if missing or any(output.fault is not None for output in outputs):
            self._report.checked(self._index, How.PARTLY)
            return
        self._report.checked(self._index, How.DIGEST)
        if (found := self._digest(outputs)) != marker.digest:
            expected = f"{marker.digest[:16]}… by the marker"
            self._add(FindingKind.DIGEST, f"{found[:16]}… by the messages", expected)

    def _digest(self, outputs: list[Output]) -> str:
        """The digest of a batch of which all messages are there."""
        digest = hashlib.sha256()
        last, following = None, 0
        for each in outputs:
            if each.shard != last:
                digest.update(SHARD.pack(each.shard))
                last, following = each.shard, 0
            if each.sequence != following:
                found, expected = f"sequence {each.sequence}", f"sequence {following}"
                self._add(FindingKind.ALTERED, found, expected, each.at)
            following = each.sequence + 1
            value = self._history.value(each)
            for piece in message_bytes(each.kind, each.ce_id, each.at.key, value, each.time_ms):
                digest.update(piece)
        return digest.hexdigest()

    def _add(self, kind: FindingKind, found: str, expected: str, at: Where = NOWHERE) -> None:
        self._report.add(kind, found, expected, at, batch=self._index)


def _answers(buffer: BatchBuffer) -> Iterator[tuple[tuple[int, int], Message]]:
    """A batch's messages with their shard, and their number in it."""
    last, sequence = None, 0
    for shard, bundle in buffer.placed():
        if shard != last:
            last, sequence = shard, 0
        for message in bundle.messages():
            yield (shard, sequence), message
            sequence += 1


def _name(output: Output) -> str:
    return f"ce_id {output.ce_id.decode()}"
