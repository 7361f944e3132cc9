"""The audit: are the outputs what the markers say and what follows from the inputs?

Every message is of a batch that has a marker, is there once, in its partition, in the order of its
headers `shard` and `sequence`. Each batch is checked in the strongest way that what is left allows:

    replayed    inputs are there from batch 0 on: the core answers them again, and each message that
                is there is the same, byte for byte; of a compacted topic nothing is gone but what a
                later message of the same key superseded
    digest      all its messages are there: count and digest are the marker's
    partly      some have expired or were compacted: Kafka's offsets have room for those

From a batch of another release on nothing is replayed, since other bytes may be right there. Over
an input topic that was recreated only the markers are checked: its offsets occur twice.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import Policy
from spu_assigner.stream.audit.verify.history import History, Output, PartitionOrder
from spu_assigner.stream.audit.verify.marker_chain import Entry, MarkerChain, wire_of
from spu_assigner.stream.audit.verify.model import (
    COMPACTED,
    OUTPUTS,
    AuditReport,
    FindingKind,
    How,
    Label,
    Place,
    VerifyError,
    Where,
    difference,
    short,
)
from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.job.batch_buffer import SHARD, BatchBuffer, summary_of
from spu_assigner.stream.job.query import server_of, shard_labels
from spu_assigner.stream.job.shard.batch import ShardBatch
from spu_assigner.stream.job.shard.bundle import KINDS, Message, MessageKind, message_bytes
from spu_assigner.stream.job.shard.clusters import Clusters
from spu_assigner.stream.job.shard.input_batch import Batch, Row
from spu_assigner.stream.job.shard.options import Options
from spu_assigner.stream.kafka.topics import ASSIGNER_AUDIT, ASSIGNER_COMMITS


def verify(history: History) -> AuditReport:
    """Check a history; raises VerifyError if the markers are of other queries."""
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
    report.messages = history.output_count
    audit = _Audit(history, chain, report)
    for index in range(chain.count):
        audit.check(index)
    report.batch = None
    audit.end()
    return report


class _Audit:
    """Checks batch after batch."""

    def __init__(self, history: History, chain: MarkerChain, report: AuditReport) -> None:
        self._history = history
        self._chain = chain
        self._report = report
        self._add = report.add
        self._following: dict[Place, int] = {}  # up to where the inputs were read
        self._order = PartitionOrder(history, report)
        self._latest = Latest(report)
        self._clusters = Clusters()  # the state of the replay
        self._stopped = None if chain.is_whole else "not replayed: what was before is not known"
        self._has_gaps = False  # of some batch without a replay not all messages are there
        for (topic, partition), (begin, _) in history.spans.items():
            found = f"{topic}/{partition} begins at offset {begin}"
            if begin > 0 and topic in (*COMPACTED, ASSIGNER_COMMITS):
                expected = "0: it is compacted, nothing is ever deleted from its beginning"
                report.add(FindingKind.DELETED, found, expected, Where(topic, partition))
            elif begin > 0 and topic in OUTPUTS:
                report.not_checked(f"{found}: what lay before has expired")

    def check(self, index: int) -> None:
        """Check the next batch."""
        entry = self._chain.entries[index]
        self._report.batch = entry.label
        inputs = self._inputs(entry)
        if index in self._chain.broken:
            self._stop("a marker before is missing")
        if entry.marker.release != RELEASE:
            self._stop(f"release {entry.marker.release} wrote batch {entry.label.batch}")
        outputs = self._once(self._history.outputs(entry.reads))
        if entry.marker.recovered_from is not None and not outputs:
            return  # The state stays as it is.
        if self._stopped is None:
            self._with_replay(entry, outputs, inputs)
        else:
            self._report.not_checked(self._stopped)
            self._without_replay(entry, outputs)

    def end(self) -> None:
        """Check what can be known only when everything was seen."""
        for entry in self._chain.entries[self._chain.count :]:
            for output in self._history.outputs(entry.reads):
                self._latest.found(output)
        for output in self._history.unread_outputs():
            expected = "that of an event that a marker's batch has read"
            self._add(FindingKind.STRAY, f"ce_id {short(output.ce_id)}", expected, output.at)
        self._latest.end(has_gaps=self._has_gaps)
        self._order.end()

    def _stop(self, why: str) -> None:
        self._stopped = self._stopped or f"not replayed: {why}"

    def _inputs(self, entry: Entry) -> list[Row]:
        """What a batch has read; without all of it there is no replay."""
        found: list[Row] = []
        for place in sorted(entry.reads.keys() | entry.positions):
            name, position = f"{place[0]}/{place[1]}", entry.positions.get(place, 0)
            first, last, count = entry.reads.get(place, (position, position - 1, 0))
            position = max(last + 1, position)
            known = self._following.get(place, 0 if self._chain.is_whole else first)
            self._following[place] = position
            own = self._history.inputs(place, first, last)
            rest = self._history.inputs(place, known, first - 1)
            rest += self._history.inputs(place, max(known, last + 1), position - 1)
            for row in () if entry.marker.recovered_from else rest:
                at, expected = Where(*place, row[2], row[4]), f"an answer; read up to {position}"
                self._add(FindingKind.INPUT, "a message that no batch has read", expected, at)
            ends = (own[0][2], own[-1][2]) if own else (first, last)
            begin, _ = self._history.spans.get(place, (last + 1, 0))
            if count and begin > first:
                self._stop(f"inputs expired: {name} begins at {begin}, read from {first}")
            elif (len(own), *ends) != (count, first, last):
                self._stop(f"the inputs are not as they were read: {name}")
                what = f"{len(own)} messages from offset {ends[0]} to {ends[1]}"
                expected = f"{count} from {first} to {last}, which the batch has read"
                self._add(FindingKind.INPUT, what, expected, Where(*place, first))
            found += own
        return found

    def _once(self, placed: list[Output]) -> list[Output]:
        """A batch's messages, each once; those with other headers are reported here."""
        outputs: list[Output] = []
        last: Output | None = None
        for output in placed:
            if output.fault is not None:
                expected = "those that this job writes"
                self._add(FindingKind.ALTERED, output.fault, expected, output.at)
            elif last and (last.shard, last.sequence) == (output.shard, output.sequence):
                expected = f"once; it lies at {last.topic}/{last.partition}, offset {last.offset}"
                self._add(FindingKind.TWICE, f"{output.ce_id!r} again", expected, output.at)
                continue
            else:
                last = output
            outputs.append(output)
        return outputs

    def _with_replay(self, entry: Entry, outputs: list[Output], inputs: list[Row]) -> None:
        marker = entry.marker
        with BatchBuffer() as buffer:
            try:
                self._replay(entry, inputs, buffer)
            except (AssignerError, ValueError, ZeroDivisionError) as reason:
                self._stop("the replay failed")
                found = f"{type(reason).__name__}: {reason}"
                self._add(FindingKind.REPLAY, found, "every batch can be applied again")
                self._without_replay(entry, outputs)
                return
            summary = summary_of(buffer)
            self._compare(outputs, buffer)
        if (summary.count, summary.digest) != (marker.count, marker.digest):
            found = f"{marker.count} messages, {marker.digest} by the marker"
            expected = f"{summary.count} messages, {summary.digest} by the replay"
            self._add(FindingKind.DIGEST, found, expected)
        self._report.checked[How.REPLAYED] += 1

    def _replay(self, entry: Entry, rows: list[Row], buffer: BatchBuffer) -> None:
        """Apply a batch's messages as the job did, divided into its marker's `shards`: where the
        broker's clock stepped back, their order depends on which of them a shard has."""
        options = Options(
            topic_prefix=self._history.prefix,
            default_policy=Policy(entry.marker.default_policy),
            wire=wire_of(entry.read.value or b""),
        )
        labels = shard_labels(entry.marker.shards)
        shares: defaultdict[int, list[Row]] = defaultdict(list)
        for row in rows:
            shares[server_of(row[4] or b"", labels)].append(row)
        for number, share in shares.items():
            bundles = ShardBatch(self._clusters, options).apply(Batch.of_rows(share))
            for sequence, bundle in enumerate(bundles):
                buffer.add(number, sequence, bundle)

    def _compare(self, outputs: list[Output], buffer: BatchBuffer) -> None:
        """Compare each message with the replay's in its place."""
        faulty = {output.ce_id for output in outputs if output.fault is not None}
        found = {(each.shard, each.sequence): each for each in outputs if each.fault is None}
        for place, answer in _answers(buffer):
            output = found.pop(place, None)
            topic = KINDS[MessageKind(answer.kind)][0]
            if output is not None:
                self._latest.found(output)
                self._order.follow(output)
                self._compare_one(answer, output)
            elif answer.id in faulty:
                continue  # It is reported.
            elif topic in COMPACTED:
                self._latest.missing(topic, answer)
            elif not self._order.may_have_expired(topic, answer.key):
                expected, at = f"ce_id {answer.id.decode()}", Where(topic, key=answer.key)
                self._add(FindingKind.MISSING, "no such message", expected, at)
        for output in found.values():
            expected = "no such message by the replay"
            self._add(FindingKind.UNEXPECTED, repr(output.ce_id), expected, output.at)

    def _compare_one(self, answer: Message, output: Output) -> None:
        value = self._history.value(output)
        for what, found, expected in (
            ("ce_id", output.ce_id, answer.id),
            ("type", KINDS[MessageKind(output.kind)][1], KINDS[MessageKind(answer.kind)][1]),
            ("key", output.key, answer.key),
            ("value", value, answer.value),
            ("ce_time", output.time_ms, answer.time_ms),
        ):
            if found != expected:
                one, other = difference(found, expected)
                self._add(FindingKind.ALTERED, f"{what} {one}", f"{what} {other}", output.at)

    def _without_replay(self, entry: Entry, outputs: list[Output]) -> None:
        """Check by count and digest; where messages may be gone, that there is room for them."""
        marker = entry.marker
        may_have_lost = self._order.may_have_expired()
        before = dict(self._order.reached)
        for output in outputs:
            self._latest.found(output)
            if output.fault is None:
                self._order.follow(output)
        missing = marker.count - len(outputs)
        room = self._order.room(before, outputs) if missing else 0
        if missing < 0 or (missing > room and not may_have_lost):
            expected = f"{marker.count} by the marker; {room} can have been compacted away"
            self._add(FindingKind.COUNT, f"{len(outputs)} messages", expected)
        elif missing or any(output.fault is not None for output in outputs):
            self._has_gaps = True
            self._report.not_checked("count and digest: some messages are gone, or altered")
            self._report.checked[How.PARTLY] += 1
        else:
            self._report.checked[How.DIGEST] += 1
            if (found := self._digest(outputs)) != marker.digest:
                expected = f"{marker.digest} by the marker"
                self._add(FindingKind.DIGEST, f"{found} by the messages", expected)

    def _digest(self, outputs: list[Output]) -> str:
        """The digest of a batch of which all messages are there."""
        digest = hashlib.sha256()
        for shard, group in groupby(outputs, key=lambda each: each.shard):
            digest.update(SHARD.pack(shard))
            for sequence, each in enumerate(group):
                if each.sequence != sequence:
                    found, expected = f"sequence {each.sequence}", f"sequence {sequence}"
                    self._add(FindingKind.ALTERED, found, expected, each.at)
                value = self._history.value(each)
                for piece in message_bytes(each.kind, each.ce_id, each.key, value, each.time_ms):
                    digest.update(piece)
        return digest.hexdigest()


class Latest:
    """Of each key of the compacted topics: is the last value of the replay the last in Kafka?"""

    def __init__(self, report: AuditReport) -> None:
        self._report = report
        self._held: set[Where] = set()  # keys of which some value is there
        self._missing: dict[Where, tuple[Label | None, str, str]] = {}  # batch, found, expected

    def found(self, output: Output) -> None:
        """A message is there."""
        if output.topic in COMPACTED:
            key = Where(output.topic, key=output.key)
            self._missing.pop(key, None)
            (self._held.discard if output.is_gone else self._held.add)(key)

    def missing(self, topic: str, message: Message) -> None:
        """The replay has it, and it is not there; a tombstone goes when it has done its work."""
        key = Where(topic, key=message.key)
        self._missing.pop(key, None)
        if message.value is not None or key in self._held:
            what = "the tombstone" if message.value is None else "the latest value"
            said = (f"{what} of the key is gone", f"ce_id {message.id.decode()}")
            self._missing[key] = (self._report.batch, *said)

    def end(self, *, has_gaps: bool) -> None:
        """Report what is missing, unless what is gone behind the replay may have deleted it."""
        if has_gaps and self._missing:
            self._report.not_checked(
                f"{len(self._missing):,} keys of compacted topics, whose last value by the replay "
                "is gone: what was compacted later may have deleted them"
            )
            return
        for at, (batch, found, expected) in self._missing.items():
            self._report.add(FindingKind.MISSING, found, expected, at, batch)


def _answers(buffer: BatchBuffer) -> Iterator[tuple[tuple[int, int], Message]]:
    """A batch's messages with their shard, and their number in it."""
    for shard, placed in groupby(buffer.placed(), key=lambda each: each[0]):
        messages = (message for _, bundle in placed for message in bundle.messages())
        for sequence, message in enumerate(messages):
            yield (shard, sequence), message
