"""The audit: are the outputs what the markers say and what follows from the inputs?

    report = verify(history)

Each batch is judged in the strongest way that what is retained permits:

    replayed    inputs are there from batch 0 on: the core answers them once more. Count and digest
                are the marker's; each message that is there is the replay's, byte for byte, and in
                its order; what is not there was expired or compacted, and of a compacted topic
                nothing is gone but what a later message of the same key superseded. What the
                compacted topics tell in the end is then the replay's state.
    digest      all its messages are there: count and digest are the marker's
    partly      some have expired or were compacted: those that are there are of this batch, whole
                and in order, and Kafka's offsets have room for those that are not

In each way: every message is of a batch that has a marker, lies there once, and in the order of
batches. Not to be seen, and no fault: that an older value of a compacted key is gone, or the oldest
messages of any other topic; this is what compaction and retention do. Without the inputs no more
than digest tells a map that compaction took from one that was lost.

A batch of another release is not replayed, since other bytes may be right there (schemas, policies
that changed); its outputs are taken over, if they have their digest, and the replay goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from spu_assigner.schemas.messages.wire import CommitMarker
from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.job.batch_buffer import BatchBuffer
from spu_assigner.stream.shard.bundle import KINDS, Message, MessageKind
from spu_assigner.stream.verify.batch_walk import (
    BatchInputs,
    InputTopics,
    OutputTopics,
    Placed,
    Shelf,
)
from spu_assigner.stream.verify.digest_order import (
    STATE_KINDS,
    DigestOrder,
    Event,
    SourceEvent,
    expected_headers,
)
from spu_assigner.stream.verify.marker_chain import MarkerChain, read_chain
from spu_assigner.stream.verify.messages import (
    Latest,
    Partitions,
    cluster_of,
    difference,
    fault,
    short,
)
from spu_assigner.stream.verify.model import (
    COMPACTED,
    AuditFinding,
    AuditReport,
    FindingKind,
    History,
    How,
    VerifyError,
    finding_of,
)
from spu_assigner.stream.verify.replay import Replay, ReplayError, summary, wire_of


def verify(history: History, progress: Callable[[int, int], None] | None = None) -> AuditReport:
    """Judge a history; `progress` is told how many batches of how many are done.

    Raises:
        VerifyError: the markers are of other queries.
    """
    report = AuditReport(query=history.query)
    chain = read_chain(history, report)
    if not chain.entries and history.audit.begin > 0:
        report.not_checked("anything: all markers have expired, and no batch came since")
        return report
    if chain.others and not chain.entries:
        names = ", ".join(sorted(name.decode(errors="replace") for name in chain.others))
        raise VerifyError(
            f"there is no marker of query {history.query!r}; expected one of {names}: name it with "
            "--query-name, or another prefix with --topic-prefix"
        )
    for name in sorted(chain.others):
        report.not_checked(
            f"query {name.decode(errors='replace')!r} writes to the same topics; "
            "its batches are left out"
        )
    judge = _Judge(history, chain, report)
    for index in range(chain.count):
        judge.batch(index)
        if progress is not None:
            progress(index + 1, chain.count)
    judge.end()
    return report


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """What is there of a batch."""

    index: int
    marker: CommitMarker
    placed: Sequence[Placed]  # its messages
    shelf: Shelf  # with their values
    room: int  # for messages that compaction took
    applied: BatchInputs  # of the inputs


class _Judge:
    """Judges batch after batch."""

    def __init__(self, history: History, chain: MarkerChain, report: AuditReport) -> None:
        self._history = history
        self._chain = chain
        self._report = report
        self._outputs = OutputTopics(history, chain, report)
        self._inputs = InputTopics(history, chain, report)
        self._partitions = Partitions(history, report)
        self._replay = Replay(query=history.query, prefix=history.prefix)
        self._stopped: str | None = None  # why there is no replay any more
        if chain.entries and not chain.is_whole:
            self._stopped = "not replayed: what was before is not known"
        self._latest = Latest(report)
        self._has_gaps = False  # of some batch without a replay not all messages are there

    def batch(self, index: int) -> None:
        """Judge the next batch."""
        if index in self._chain.broken and self._stopped is None:
            self._stopped = "not replayed: a marker before is missing"
        placed, shelf, room = self._outputs.take(index)
        batch = _Batch(
            index=index,
            marker=self._chain.entries[index].marker,
            placed=placed,
            shelf=shelf,
            room=room,
            applied=self._inputs.take(index),
        )
        self._partitions.judge(index, placed)
        try:
            self._judge(batch)
        finally:
            shelf.close()

    def _judge(self, batch: _Batch) -> None:
        marker, index = batch.marker, batch.index
        if marker.recovered_from is not None and not batch.placed:
            return  # The state goes on as it is.
        if marker.release != RELEASE:
            order = self._without_replay(batch)
            release = marker.release or "before 0.3"
            self._report.not_checked(f"not replayed: written by release {release}", index)
            self._take_over(order, batch.shelf, release)
            return
        if self._stopped is None and batch.applied.lacking is not None:
            self._stopped = f"not replayed: {batch.applied.lacking}"
        if self._stopped is None:
            self._replayed(batch)
        else:
            self._report.not_checked(self._stopped, index)
            self._without_replay(batch)

    def end(self) -> None:
        """Judge what can be told only when everything was seen."""
        for placed in self._outputs.rest(self._chain.count):
            self._see(placed)
        self._latest.judge(has_gaps=self._has_gaps)
        self._partitions.end()

    def _replayed(self, batch: _Batch) -> None:
        index, marker = batch.index, batch.marker
        wire = wire_of(self._chain.entries[index].value)
        with BatchBuffer() as buffer:
            try:
                self._replay.answer(marker, wire, batch.applied.messages, buffer)
            except ReplayError as reason:
                self._stopped = "not replayed: the replay broke off"
                self._add(
                    index, FindingKind.REPLAY, str(reason), "every batch can be answered again"
                )
                self._without_replay(batch)
                return
            digest, count = summary(buffer)
            expected = (each for bundle in buffer.bundles() for each in bundle.messages())
            self._compare(batch, expected)
        if count != marker.count:
            told = f"{marker.count} messages by the marker"
            self._add(index, FindingKind.COUNT, told, f"{count} by the replay")
        if digest != marker.digest:
            told = f"{marker.digest[:16]}… by the marker"
            self._add(index, FindingKind.DIGEST, told, f"{digest[:16]}… by the replay")
        self._report.checked(index, How.REPLAYED)

    def _compare(self, batch: _Batch, expected: Iterable[Message]) -> None:
        """Hold each message against the replay's."""
        index, shelf = batch.index, batch.shelf
        found = {each.ce_id: each for each in batch.placed}
        reached: dict[tuple[str, int], int] = {}
        for message in expected:
            topic = KINDS[MessageKind(message.kind)][0]
            placed = found.pop(message.id, None)
            if placed is None:
                if topic in COMPACTED:
                    self._latest.missing(index, topic, message)
                elif not self._outputs.has_expired(index, topic, message.key, reached):
                    self._missing(index, topic, message)
                continue
            read = placed.read
            if topic in COMPACTED:
                self._latest.found((topic, message.key), is_gone=message.value is None)
            self._compare_one(index, message, placed, shelf)
            place = (read.topic, read.partition)
            if read.offset < reached.get(place, -1):
                told = f"before offset {reached[place]}"
                self._report.add(finding_of(read, FindingKind.MISPLACED, told, "behind it"), index)
            reached[place] = max(read.offset, reached.get(place, -1))
        for placed in found.values():
            told = f"ce_id {placed.ce_id.decode()}"
            expected_text = "no such message by the replay"
            self._report.add(
                finding_of(placed.read, FindingKind.UNEXPECTED, told, expected_text), index
            )

    def _compare_one(self, index: int, message: Message, placed: Placed, shelf: Shelf) -> None:
        read = placed.read
        kind, ce_id, key, value, time_ms = message
        for what, found, expected in (
            ("topic", read.topic, KINDS[MessageKind(kind)][0]),
            ("key", read.key, key),
            ("value", shelf.value(placed), value),
            (
                "headers",
                read.headers,
                expected_headers(self._history.query, kind, ce_id, time_ms),
            ),
        ):
            if found != expected:
                told, wanted = difference(found, expected)
                self._report.add(
                    finding_of(read, FindingKind.ALTERED, f"{what} {told}", f"{what} {wanted}"),
                    index,
                )

    def _missing(self, index: int, topic: str, message: Message) -> None:
        label = self._report.labels[index]
        self._report.add(
            AuditFinding(
                kind=FindingKind.MISSING,
                found="no such message",
                expected=f"ce_id {message.id.decode()}",
                batch=label.batch,
                checkpoint_id=label.checkpoint_id,
                topic=topic,
                key=message.key,
            )
        )

    def _without_replay(self, batch: _Batch) -> list[Placed] | None:
        """Judge by count and digest, or message by message; gives the order if it is proved."""
        index, placed, shelf, room = batch.index, batch.placed, batch.shelf, batch.room
        marker, applied = batch.marker, batch.applied
        for each in placed:
            self._see(each)
        sources: dict[Event, SourceEvent] | None = None
        if applied.lacking is None:
            sources = {
                (source, read.partition, read.offset): SourceEvent(read.time_ms, read.key or b"")
                for source, read in applied.messages
            }
            for each in placed:
                if each.origin[:3] not in sources:
                    told = f"ce_id {each.ce_id.decode()}"
                    wanted = "an event of the inputs"
                    self._report.add(
                        finding_of(each.read, FindingKind.UNEXPECTED, told, wanted), index
                    )
            placed = [each for each in placed if each.origin[:3] in sources]
        order = DigestOrder(placed, shelf, query=self._history.query, sources=sources)
        self._judge_each(index, placed, shelf, order)
        missing = marker.count - len(placed)
        if missing < 0 or (
            missing > 0 and room < missing and not self._outputs.may_have_lost(index)
        ):
            told = f"{len(placed)} messages"
            wanted = f"{marker.count}, as the marker says"
            if room:
                wanted += f"; at most {room} can have been compacted away"
            self._add(index, FindingKind.COUNT, told, wanted)
        elif missing > 0:
            self._has_gaps = True
            self._report.checked(index, How.PARTLY)
            self._report.not_checked(
                "count and digest: some messages have expired or were compacted away", index
            )
        elif order.faulty:
            self._report.checked(index, How.PARTLY)
        else:
            proved = order.digest(marker)
            self._report.checked(index, How.DIGEST)
            if proved is None:
                told = "in no order do the messages have the marker's digest"
                self._add(index, FindingKind.DIGEST, told, f"{marker.digest[:16]}…")
            else:
                self._judge_order(index, proved)
            return proved
        return None

    def _judge_each(
        self, index: int, placed: Sequence[Placed], shelf: Shelf, order: DigestOrder
    ) -> None:
        for each in order.faulty:
            told = f"headers {short(each.read.headers)}"
            self._report.add(
                finding_of(each.read, FindingKind.ALTERED, told, "those that this job writes"),
                index,
            )
        for each in placed:
            if (wrong := fault(each, shelf.value(each))) is not None:
                self._report.add(finding_of(each.read, FindingKind.ALTERED, *wrong), index)
        reached: dict[object, tuple[int, int]] = {}
        for each in placed:  # What holds in every order: one cluster's, of one input partition.
            source, partition, offset, ordinal = each.origin
            is_state = each.kind in STATE_KINDS
            at = (0, ordinal) if is_state else (offset, ordinal)
            event = None if is_state else (source, partition)
            line = (each.read.topic, each.read.partition, cluster_of(each), event)
            if at < reached.get(line, at):
                told = f"behind a later one of {cluster_of(each)!r}"
                wanted = "the order of the events"
                self._report.add(finding_of(each.read, FindingKind.MISPLACED, told, wanted), index)
            reached[line] = at

    def _judge_order(self, index: int, order: Sequence[Placed]) -> None:
        reached: dict[tuple[str, int], int] = {}
        for each in order:
            place = (each.read.topic, each.read.partition)
            if each.read.offset < reached.get(place, -1):
                told = f"before offset {reached[place]}"
                self._report.add(
                    finding_of(each.read, FindingKind.MISPLACED, told, "behind it"), index
                )
            reached[place] = max(each.read.offset, reached.get(place, -1))

    def _take_over(self, order: list[Placed] | None, shelf: Shelf, release: str) -> None:
        if self._stopped is not None:
            return
        if order is None:
            self._stopped = f"not replayed: a batch of release {release} before is not all there"
            return
        try:
            self._replay.take_over(order, shelf)
        except ReplayError as reason:
            self._stopped = f"not replayed: what release {release} wrote makes no state ({reason})"

    def _see(self, placed: Placed) -> None:
        """A message that no replay gives."""
        read = placed.read
        if read.topic in COMPACTED:
            self._latest.found((read.topic, read.key), is_gone=read.value is None)

    def _add(self, index: int, kind: FindingKind, found: str, expected: str) -> None:
        self._report.add(AuditFinding(kind=kind, found=found, expected=expected), index)
