"""The audit: are the outputs what the markers say and what follows from the inputs?

    report = verify(history)

Each batch is checked in the strongest way that what is retained permits:

    replayed    inputs are there from batch 0 on: the core answers them again. Count and digest are
                the marker's; each message that is there is the replay's, byte for byte, and in its
                order; what is not there was expired or compacted, and of a compacted topic nothing
                is gone but what a later message of the same key superseded. What the compacted
                topics contain in the end is then the replay's state.
    digest      all its messages are there: count and digest are the marker's
    partly      some have expired or were compacted: those that are there are of this batch, whole
                and in order, and Kafka's offsets have room for those that are not

In each way: every message is of a batch that has a marker, is there once, and in the order of
batches. Not visible, and no fault: that an older value of a compacted key is gone, or the oldest
messages of any other topic; this is what compaction and retention do. Without the inputs only the
digest distinguishes a map that compaction took from one that was lost.

A batch of another release is not replayed, since other bytes may be right there (schemas, policies
that changed); if its outputs have their digest, the replay continues from them.

Over an input topic that was deleted and recreated only the markers are checked: by offsets the
events of the old topic cannot be told from those of the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing

from spu_assigner.schemas.messages.wire import CommitMarker
from spu_assigner.stream.audit.verify.batch_walk import (
    BatchInputs,
    InputTopics,
    OutputMessages,
    OutputTopics,
    Placed,
)
from spu_assigner.stream.audit.verify.digest_order import (
    STATE_KINDS,
    has_expected_headers,
    order_by_digest,
)
from spu_assigner.stream.audit.verify.marker_chain import MarkerChain, read_chain
from spu_assigner.stream.audit.verify.messages import Latest, Partitions, difference, fault, short
from spu_assigner.stream.audit.verify.model import (
    COMPACTED,
    NOWHERE,
    AuditReport,
    FindingKind,
    History,
    How,
    Read,
    VerifyError,
    Where,
)
from spu_assigner.stream.audit.verify.replay import Replay, ReplayError, wire_of
from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.job.batch_buffer import BatchBuffer, summary_of
from spu_assigner.stream.job.shard.bundle import KINDS, Message, MessageKind
from spu_assigner.stream.kafka.cloud_events import Headers, output_headers

Reached = dict[tuple[str, int], int]  # by topic and partition: the last offset


def verify(
    history: History, progress: Callable[[int, int], None] = lambda done, count: None
) -> AuditReport:
    """Check a history; `progress` is called with how many batches of how many are done.

    Raises:
        VerifyError: the markers are of other queries.
    """
    report = AuditReport(query=history.query)
    chain = read_chain(history, report)
    others = [name.decode(errors="replace") for name in sorted(chain.others)]
    if not chain.entries and history.audit.begin > 0:
        report.not_checked("anything: all markers have expired, and no batch came since")
        return report
    if others and not chain.entries:
        raise VerifyError(
            f"there is no marker of query {history.query!r}; expected one of {', '.join(others)}: "
            "name it with SPU_ASSIGNER_QUERY_NAME, or another prefix with --topic-prefix"
        )
    for name in others:
        report.not_checked(f"query {name!r} writes to the same topics; its batches are left out")
    if chain.renewed:
        report.not_checked(
            f"anything but the markers: {', '.join(sorted(chain.renewed))} was deleted and "
            "recreated, so events of the old topic and of the new one have the same ce_id"
        )
        return report
    audit = _Audit(history, chain, report)
    for index in range(chain.count):
        audit.check(index)
        progress(index + 1, chain.count)
    audit.end()
    return report


class _Audit:
    """Checks batch after batch."""

    def __init__(self, history: History, chain: MarkerChain, report: AuditReport) -> None:
        self._query = history.query
        self._chain = chain
        self._report = report
        self._index = 0  # of the batch that is checked
        self._outputs = OutputTopics(history, chain, report)
        self._inputs = InputTopics(history, chain, report)
        self._partitions = Partitions(history, report)
        self._replay = Replay(prefix=history.prefix)
        self._stopped: str | None = None  # why there is no replay any more
        if chain.entries and not chain.is_whole:
            self._stop("what was before is not known")
        self._latest = Latest(report)
        self._has_gaps = False  # of some batch without a replay not all messages are there

    def check(self, index: int) -> None:
        """Check the next batch."""
        self._index = index
        marker = self._chain.entries[index].marker
        inputs = self._inputs.take(index)
        if index in self._chain.broken:
            self._stop("a marker before is missing")
        with closing(self._outputs.take(index)) as messages:
            placed = messages.all()
            self._partitions.check(index, placed)
            if marker.recovered_from is not None and not placed:
                return  # The state stays as it is.
            if marker.release != RELEASE:
                said = f"not replayed: written by release {marker.release}"
                self._report.not_checked(said, self._index)
                order = self._without_replay(marker, messages, inputs)
                self._restore(messages, order, marker.release)
                return
            if inputs.lacking is not None:
                self._stop(inputs.lacking)
            if self._stopped is None:
                self._with_replay(marker, messages, inputs)
            else:
                self._report.not_checked(self._stopped, self._index)
                self._without_replay(marker, messages, inputs)

    def end(self) -> None:
        """Check what can be known only when everything was seen."""
        for placed in self._outputs.rest(self._chain.count):
            self._see(placed)
        self._latest.end(has_gaps=self._has_gaps)
        self._partitions.end()

    def _stop(self, why: str) -> None:
        if self._stopped is None:
            self._stopped = f"not replayed: {why}"

    def _with_replay(
        self, marker: CommitMarker, messages: OutputMessages, inputs: BatchInputs
    ) -> None:
        wire = wire_of(self._chain.entries[self._index].value)
        with BatchBuffer() as buffer:
            try:
                self._replay.apply(marker, wire, inputs.messages, buffer)
            except ReplayError as reason:
                self._stop("the replay failed")
                expected = "every batch can be applied again"
                self._add(FindingKind.REPLAY, str(reason), expected)
                self._without_replay(marker, messages, inputs)
                return
            summary = summary_of(buffer)
            self._compare(messages, _placed_answers(buffer))
        if summary.count != marker.count:
            found, expected = f"{marker.count} messages by the marker", f"{summary.count}"
            self._add(FindingKind.COUNT, found, f"{expected} by the replay")
        if summary.digest != marker.digest:
            found, expected = f"{marker.digest[:16]}… by the marker", f"{summary.digest[:16]}…"
            self._add(FindingKind.DIGEST, found, f"{expected} by the replay")
        self._report.checked(self._index, How.REPLAYED)

    def _compare(
        self, messages: OutputMessages, answers: Iterable[tuple[int, int, Message]]
    ) -> None:
        """Compare each message with the replay's."""
        found = {each.ce_id: each for each in messages.all()}
        reached: Reached = {}
        for shard, sequence, answer in answers:
            topic = KINDS[MessageKind(answer.kind)][0]
            placed = found.pop(answer.id, None)
            if placed is not None:
                if topic in COMPACTED:
                    self._latest.found((topic, answer.key), is_gone=answer.value is None)
                headers = output_headers(
                    self._query,
                    KINDS[MessageKind(answer.kind)][1],
                    answer.id,
                    answer.time_ms,
                    shard=shard,
                    sequence=sequence,
                )
                self._compare_one(answer, headers, placed.read, messages.value(answer.id))
                self._check_order(placed.read, reached)
            elif topic in COMPACTED:
                self._latest.missing(self._index, topic, answer)
            elif not self._outputs.has_expired(self._index, topic, answer.key, reached):
                expected, at = f"ce_id {answer.id.decode()}", Where(topic, key=answer.key)
                self._add(FindingKind.MISSING, "no such message", expected, at)
        for placed in found.values():
            self._unexpected(placed, "no such message by the replay")

    def _compare_one(
        self, answer: Message, headers: Headers, read: Read, value: bytes | None
    ) -> None:
        for what, found, expected in (
            ("topic", read.topic, KINDS[MessageKind(answer.kind)][0]),
            ("key", read.key, answer.key),
            ("value", value, answer.value),
            ("headers", read.headers, headers),
        ):
            if found != expected:
                one, other = difference(found, expected)
                self._add(FindingKind.ALTERED, f"{what} {one}", f"{what} {other}", read)

    def _check_order(self, read: Read, reached: Reached) -> None:
        place = (read.topic, read.partition)
        last = reached.get(place, -1)
        if read.offset < last:
            found = f"before offset {last}"
            self._add(FindingKind.MISPLACED, found, "behind it", read)
        reached[place] = max(read.offset, last)

    def _without_replay(
        self, marker: CommitMarker, messages: OutputMessages, inputs: BatchInputs
    ) -> list[Placed] | None:
        """Check by count and digest, or message by message; gives the order if it is proved."""
        placed, room = messages.all(), messages.room
        for each in placed:
            self._see(each)
        events: set[tuple[int, int, int]] | None = None
        if inputs.lacking is None:
            events = {(source, at.partition, at.offset) for source, at in inputs.messages}
            for each in placed:
                if each.origin[:3] not in events:
                    self._unexpected(each, "an event of the inputs")
            placed = [each for each in placed if each.origin[:3] in events]
        is_faulty = self._check_each(placed, messages)
        missing = marker.count - len(placed)
        if missing < 0 or (missing > room and not self._outputs.may_have_lost(self._index)):
            expected = f"{marker.count}, as the marker says"
            if room:
                expected += f"; at most {room} can have been compacted away"
            self._add(FindingKind.COUNT, f"{len(placed)} messages", expected)
        elif missing > 0:
            self._has_gaps = True
            self._report.checked(self._index, How.PARTLY)
            self._report.not_checked(
                "count and digest: some messages have expired or were compacted away", self._index
            )
        elif is_faulty:
            self._report.checked(self._index, How.PARTLY)
        else:
            self._report.checked(self._index, How.DIGEST)
            order = order_by_digest(messages, placed, marker.digest)
            reached: Reached = {}
            for each in order or ():
                self._check_order(each.read, reached)
            if order is None:
                found = "in no order do the messages have the marker's digest"
                expected = f"{marker.digest[:16]}…"
                self._add(FindingKind.DIGEST, found, expected)
            return order
        return None

    def _check_each(self, placed: Sequence[Placed], messages: OutputMessages) -> bool:
        """Each message by itself, and what holds in every order; whether headers are wrong."""
        is_faulty = False
        for each in placed:
            if not has_expected_headers(each, self._query):
                is_faulty = True
                found = f"headers {short(each.read.headers)}"
                self._add(FindingKind.ALTERED, found, "those that this job writes", each.read)
            if (wrong := fault(each, messages.value(each.ce_id))) is not None:
                self._add(FindingKind.ALTERED, *wrong, each.read)
        reached: dict[object, tuple[int, int]] = {}
        for each in placed:  # One cluster's messages of one input partition keep their order.
            source, partition, offset, ordinal = each.origin
            key = each.read.key or b""
            cluster_id = key if each.kind is MessageKind.DEAD_LETTER else key.partition(b"/")[0]
            is_state = each.kind in STATE_KINDS
            at = (0, ordinal) if is_state else (offset, ordinal)
            event = None if is_state else (source, partition)
            line = (each.read.topic, each.read.partition, cluster_id, event)
            if at < reached.get(line, at):
                found, expected = f"behind a later one of {cluster_id!r}", "the order of the events"
                self._add(FindingKind.MISPLACED, found, expected, each.read)
            reached[line] = at
        return is_faulty

    def _restore(self, messages: OutputMessages, order: list[Placed] | None, release: str) -> None:
        """Continue the replay from what another release wrote."""
        if self._stopped is None and order is None:
            self._stop(f"a batch of release {release} before is not all there")
        elif self._stopped is None:
            try:
                self._replay.restore(messages, order or [])
            except ReplayError as reason:
                self._stop(f"what release {release} wrote makes no state ({reason})")

    def _see(self, placed: Placed) -> None:
        """A message that is not compared with a replay's."""
        read = placed.read
        if read.topic in COMPACTED:
            self._latest.found((read.topic, read.key), is_gone=read.value is None)

    def _add(
        self, kind: FindingKind, found: str, expected: str, at: Read | Where = NOWHERE
    ) -> None:
        self._report.add(kind, found, expected, at, batch=self._index)

    def _unexpected(self, placed: Placed, expected: str) -> None:
        found = f"ce_id {placed.ce_id.decode()}"
        self._add(FindingKind.UNEXPECTED, found, expected, placed.read)


def _placed_answers(buffer: BatchBuffer) -> Iterator[tuple[int, int, Message]]:
    """A batch's messages with their shard, and their number in it."""
    counts: dict[int, int] = {}
    for shard, bundle in buffer.placed():
        for message in bundle.messages():
            yield shard, counts.setdefault(shard, 0), message
            counts[shard] += 1
