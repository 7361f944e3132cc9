"""Where a batch's messages go: one transaction holds all of them and the batch's marker.

Spark repeats a batch after a crash, and may have sent it before. So every batch ends with a marker,
and before the first one is sent the last marker is read back:

    the marker is this batch's      sent already: the digests must be equal, nothing is sent
    it is the batch's before        send
    there is none                   only batch 0 may be sent
    anything else, or another
    checkpoint's                    a named error: going on would lose or repeat answers

Taking the transactional id first (`init_transactions`) shuts out an older process that still runs,
and settles what it left open; only then is the marker read. After an error the outcome may not be
known, so the producer is thrown away and this sequence is gone through again.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from spu_assigner.schemas.messages.codec import encode_record
from spu_assigner.schemas.messages.wire import CommitMarker
from spu_assigner.stream.common.native_memory import trim_memory
from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.job.batch_buffer import BatchBuffer, summary_of
from spu_assigner.stream.job.checkpoint.files import Positions
from spu_assigner.stream.job.checkpoint.inputs import InputIdentity
from spu_assigner.stream.job.marker import PlacedMarker, offsets_read, read_marker
from spu_assigner.stream.job.marker_check import SinkError, check_checkpoint, is_sent
from spu_assigner.stream.job.metrics.counters import Metrics
from spu_assigner.stream.job.ownership import Ownership
from spu_assigner.stream.job.shard.bundle import KINDS
from spu_assigner.stream.job.transactional_id import (
    FENCED,
    PURGED,
    IdOwner,
    expired,
    producer_options,
    taken_over,
    transactional_id,
)
from spu_assigner.stream.kafka.cloud_events import marker_headers, output_headers
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.errors import error_text
from spu_assigner.stream.kafka.retry import (
    RETRY_SECONDS_MAX,
    deliver,
    produce_until,
    raise_fatal_cause,
    retry_until,
)
from spu_assigner.stream.kafka.topics import ASSIGNER_AUDIT, ASSIGNER_COMMITS, topic_name

ATTEMPTS_MAX: Final = 3  # of a batch, each with a producer of its own
LARGE_BATCH: Final = 1_000  # messages: the clients' copies of them were some MB
TRANSACTION_SECONDS_MAX: Final = 120  # 1 GB takes a fraction; readers wait for a dead one


@dataclass(frozen=True, slots=True, kw_only=True)
class SentBatch:
    """What became of a batch, for progress and tests."""

    batch: int
    count: int
    repeated: bool  # it was sent already


class TransactionalSink:
    """Sends batches: a `BatchSink`."""

    def __init__(
        self,
        settings: Settings,
        *,
        shards: int,
        positions_after: Callable[[int], Positions] = lambda batch: {},
        metrics: Metrics | None = None,
        ownership: Ownership | None = None,
        id_owner: IdOwner | None = None,
    ) -> None:
        """A sink that is not yet connected.

        Args:
            positions_after: how far the input has been read by a batch, out of the checkpoint.
            ownership, id_owner: this process's; None: there is no checkpoint.
        """
        self.metrics = metrics or Metrics()
        self.failure: BaseException | None = None  # why the query stopped, if it was the sink
        self.last: SentBatch | None = None
        self.events = 0  # in all batches of this process
        self._settings = settings
        self._shards = shards
        self._positions_after = positions_after
        self._ownership = ownership
        self._id_owner = id_owner
        self._is_sending = False  # or has failed to: then it knows by itself what is wrong
        self._producer: Any = None
        self._marker: CommitMarker | None = None
        self._checkpoint_id: str | None = None
        self._inputs = InputIdentity(settings, {})
        self._bound = threading.Event()
        self._begun = 0.0  # when the transaction was; wall clock, which runs while a host sleeps
        self._undelivered: Any = None  # the first error of a message of this transaction
        self._begun_at = 0.0  # the batch's tasks, by the clock of `perf_counter`
        self._parts: dict[str, float] = {}  # seconds of the batch at hand
        prefix = settings.topic_prefix
        self._routes: dict[int, tuple[str, str]] = {  # topic, and name of the type
            kind: (topic_name(topic, prefix=prefix), type_name)
            for kind, (topic, type_name) in KINDS.items()
        }
        self._marker_topics = [
            topic_name(name, prefix=prefix) for name in (ASSIGNER_COMMITS, ASSIGNER_AUDIT)
        ]

    def open(self, checkpoint_id: str | None) -> None:
        """As `take_over`; raises ForeignCheckpointError if the last marker is of another one.

        Args:
            checkpoint_id: None: of a new one, which no marker may be of.
        """
        last = self.take_over()
        if last is not None:
            check_checkpoint(checkpoint_id, last)

    def take_over(self) -> CommitMarker | None:
        """Take over the output whatever checkpoint it is of; gives the last marker."""
        self._connect()
        return self._marker

    def mark(self, marker: CommitMarker) -> None:
        """Commit a marker by itself, after `take_over`."""
        try:
            self._transact(BatchBuffer(), marker)
        except KafkaException as reason:
            self._give_up(reason, batch=marker.batch, attempt=ATTEMPTS_MAX)

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Of the input topics, as the last marker has them."""
        return {} if self._marker is None else self._marker.topic_ids

    def bind(self, checkpoint_id: str, topic_ids: Mapping[str, str] | None = None) -> None:
        """Say which checkpoint the query has, and which topics it reads; batches wait for it."""
        self._checkpoint_id = checkpoint_id
        self._inputs.close()
        self._inputs = InputIdentity(self._settings, topic_ids or {})
        self._bound.set()

    def check_owner(self) -> None:
        """Raise FencedError if the checkpoint has the note of a process that was started later."""
        if self._ownership is not None:
            self._ownership.check()

    def check_id(self) -> None:
        """Raise FencedError if Kafka says that the transactional id is another process's. Not while
        a batch is under way: its sending says so."""
        if self._id_owner is None or self._is_sending:
            return
        if self._id_owner.is_lost() and not self._is_sending:
            raise taken_over(self._settings)

    def close(self) -> None:
        """Let the clients go; what was open is aborted."""
        if self._id_owner is not None:
            self._id_owner.close()
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(KafkaException):
                producer.abort_transaction(0)
        self._inputs.close()

    def begin(self, batch: int) -> None:
        """As `BatchSink`; `failure` holds what it raises."""
        with self._failing():
            self.check_owner()  # The tasks write state where others do.
            sys.audit("spu_assigner.before-collect", batch)
            self._begun_at = time.perf_counter()

    def commit(self, batch: int, bundles: bytes) -> str:
        """As `BatchSink`; `failure` holds what it raises."""
        with self._failing():
            self._parts["collect"] = time.perf_counter() - self._begun_at
            with BatchBuffer() as buffer:
                buffer.take(bundles)
                self._bound.wait()
                self._is_sending = True
                figures = self._send_once(buffer, batch)
                self._is_sending = False
            if self.last is not None and self.last.count >= LARGE_BATCH:
                trim_memory()
            sys.audit("spu_assigner.before-spark-commit", batch)
        return " ".join(map(str, figures))

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except BaseException as reason:
            self.failure = reason
            raise

    def _send_once(self, buffer: BatchBuffer, batch: int) -> tuple[int, ...]:
        begun = time.perf_counter()
        summary = summary_of(buffer)
        marker = CommitMarker(
            query=self._settings.query_name,
            checkpoint_id=self._checkpoint_id or "",
            batch=batch,
            count=summary.count,
            digest=summary.digest,
            offsets=offsets_read(summary.ranges, self._settings.topic_prefix),
            release=RELEASE,
            shards=self._shards,
            default_policy=self._settings.default_policy.value,
            positions=self._positions_after(batch),
            topic_ids=self._inputs.ids,
        )
        for attempt in range(1, ATTEMPTS_MAX + 1):
            self.metrics.attempts += 1
            try:
                if self._producer is None:
                    self._connect()
                # Found at a later attempt, it is what an earlier one of this process has sent.
                repeated = is_sent(marker, self._marker, topic=self._marker_topics[0])
                if not repeated:
                    self._send_alone(buffer, marker)
                    self._marker = marker
            except KafkaException as reason:
                self._give_up(reason, batch=batch, attempt=attempt)
            else:
                break
        self.last = SentBatch(batch=batch, count=summary.count, repeated=repeated)
        events = sum(part.count for parts in marker.offsets.values() for part in parts)
        self.events += events
        self._parts["send"] = time.perf_counter() - begun
        self.metrics.report(
            self._marker or marker,
            summary.tallies,
            is_replay=repeated and attempt == 1,
            at=time.time(),
            parts=self._parts,
        )
        return events, *self.metrics.batch_figures(summary.tallies.values())

    def _send_alone(self, buffer: BatchBuffer, marker: CommitMarker) -> None:
        """Send a batch; the first one only if no other query has the prefix, which may have begun
        at the same time. Of two that send it in the same moment, both see the later marker.
        """
        if self._marker is not None:
            self._transact(buffer, marker)
            return
        self._read_marker()
        self._transact(buffer, marker)
        self._read_marker()

    def _read_marker(self) -> PlacedMarker | None:
        return read_marker(
            self._settings, topic=self._marker_topics[0], seconds_max=RETRY_SECONDS_MAX
        )

    def _connect(self) -> None:
        """The start sequence: shut out older processes, settle what they left, read the marker."""
        try:
            producer = Producer(
                producer_options(self._settings, TRANSACTION_SECONDS_MAX, self._note_undelivered)
            )
            if self._ownership is None:
                retry_until(producer.init_transactions)
            else:
                self._ownership.take(lambda: retry_until(producer.init_transactions))
            if self._id_owner is not None:
                self._id_owner.taken()
            found = self._read_marker()
        except KafkaException as reason:
            error = reason.args[0]
            raise SinkError(
                f"Kafka at {self._settings.bootstrap_servers} did not take up the transactions of "
                f"{transactional_id(self._settings)!r}: {error_text(error)}; check that all of "
                "Kafka's brokers run, and start the job again"
            ) from reason
        self._producer, self._marker = producer, None if found is None else found.marker
        if found is not None:
            self.metrics.begin(found.marker, at=found.written_at)

    def _note_undelivered(self, error: Any, _message: object) -> None:
        if self._undelivered is None and error.code() not in PURGED:
            self._undelivered = error

    def _transact(self, buffer: BatchBuffer, marker: CommitMarker) -> None:
        producer, self._undelivered = self._producer, None
        self._inputs.check()  # If the topics are the same now, they were when the batch was read.
        with raise_fatal_cause(producer):
            producer.begin_transaction()
            self._begun = time.time()
            for topic, key, value, headers in self._outgoing(buffer):
                try:
                    producer.produce(topic, value, key, headers=headers)
                except BufferError:
                    produce_until(producer, topic, value, key, headers)
            data = encode_record(marker, wire=self._settings.wire)
            headers = marker_headers(marker, time_ms=int(self._begun * 1000))
            for topic in self._marker_topics:
                producer.produce(topic, data, marker.query, headers=headers)
            sys.audit("spu_assigner.inside-transaction", marker.batch, producer.flush)
            deliver(producer)
            retry_until(producer.commit_transaction)
            sys.audit("spu_assigner.after-commit", marker.batch)

    def _outgoing(
        self, buffer: BatchBuffer
    ) -> Iterator[tuple[str, bytes | None, bytes | None, list[tuple[str, bytes]]]]:
        """What is sent, in order: topic, key, value, headers."""
        query, routes, last_shard, sequence = self._settings.query_name, self._routes, None, 0
        for shard, bundle in buffer.placed():
            if shard != last_shard:
                last_shard, sequence = shard, 0
            for kind, event_id, key, value, time_ms in bundle.messages():
                topic, name = routes[kind]
                place = shard, sequence
                yield topic, key, value, output_headers(query, name, event_id, time_ms, place)
                sequence += 1

    def _give_up(self, reason: KafkaException, *, batch: int, attempt: int) -> None:
        """Throw the producer away; raise unless the batch may be tried again."""
        error = reason.args[0]
        is_fenced = error.code() in FENCED
        producer, self._producer = self._producer, None
        if producer is not None and not error.fatal():
            try:
                producer.abort_transaction(RETRY_SECONDS_MAX)
            except KafkaException as refusal:
                # It may name a successor that the first error did not name. Of a transaction that
                # was open too long it says the same, and that one may be sent again.
                is_fenced |= refusal.args[0].code() in FENCED and not self._is_expired()
        self.check_owner()  # Where a successor is known, all else follows from it.
        if is_fenced and self._is_expired():  # Of this Kafka says the same as of a successor.
            raise expired(
                self._settings,
                batch=batch,
                seconds=time.time() - self._begun,
                seconds_max=TRANSACTION_SECONDS_MAX,
            ) from reason
        if is_fenced:
            raise taken_over(self._settings) from reason
        if attempt < ATTEMPTS_MAX:  # Whatever it was, the marker says what became of the batch.
            return
        cause = error if self._undelivered is None else self._undelivered
        raise SinkError(
            f"batch {batch} could not be sent ({attempt} of {ATTEMPTS_MAX} attempts): "
            f"{error_text(cause)}; nothing of it is visible, start the job again to repeat it"
        ) from reason

    def _is_expired(self) -> bool:
        return time.time() - self._begun >= TRANSACTION_SECONDS_MAX
