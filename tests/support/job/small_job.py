"""A job without Spark: the shard, the sink and a real Kafka, for tests of what it leaves there."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager

from confluent_kafka.admin import AdminClient
from spu_assigner.core.base.events import Event
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.messages.wire import PartitionPosition
from spu_assigner.stream.job.batch_buffer import BatchBuffer
from spu_assigner.stream.job.checkpoint.files import Positions
from spu_assigner.stream.job.query import server_numbers, server_of, shard_labels
from spu_assigner.stream.job.shard.bundle import InputSource
from spu_assigner.stream.job.shard.clusters import Clusters
from spu_assigner.stream.job.shard.input_batch import Batch, Row
from spu_assigner.stream.job.shard.options import Options
from spu_assigner.stream.job.shard.state_log import Shard
from spu_assigner.stream.job.sink import TransactionalSink
from spu_assigner.stream.kafka.config.settings import Settings
from support.job.streams import SPU_EVENTS, TOPIC_EVENTS, Outgoing, Read, Streams
from support.kafka.reading import outputs, settled
from support.shard.stores import TIME_MS, DictStore, run_batch

SHARDS_LEFT = 4  # no start would choose it
POLL_SECONDS = 0.02
SOURCES = {SPU_EVENTS: InputSource.SPU_EVENTS, TOPIC_EVENTS: InputSource.TOPIC_EVENTS}


class SmallJob:
    """Applies events batch by batch, each to the partition 0 of its topic."""

    def __init__(self, settings: Settings, sink: TransactionalSink, admin: AdminClient) -> None:
        self.streams = Streams(settings.bootstrap_servers, settings.topic_prefix)
        self._labels = shard_labels(SHARDS_LEFT)
        numbers = [number for label in self._labels for number in server_numbers(label)]
        self._clusters = [Clusters() for _ in numbers]
        stored = [(Shard(each), DictStore()) for each in self._clusters]
        self._servers = [*zip(numbers, stored, strict=True)]
        self._options = Options(
            topic_prefix=settings.topic_prefix,
            default_policy=settings.default_policy,
            wire=settings.wire,
        )
        self._prefix = settings.topic_prefix
        self._sink = sink
        self._admin = admin
        self._outputs = outputs(settings.topic_prefix)
        self._answered: Counter[tuple[str, int]] = Counter()  # by topic and partition
        self._batch = 0

    def apply(self, events: Iterable[Event]) -> None:
        """Send these, and answer them as one batch."""
        messages = [Outgoing.of_event(event, 0) for event in events]
        self.streams.send(messages)
        self.answer(messages)

    def answer(self, messages: list[Outgoing]) -> None:
        """Answer these as one batch, as if they were there; back when the answers can be read."""
        rows: list[Row] = []
        for message in messages:
            source, offset = SOURCES[message.topic], self._answered[message.topic, 0]
            rows.append((source, 0, offset, TIME_MS, message.key, message.value))
            self._answered[message.topic, 0] += 1
        self._run(rows)

    def answer_unsettled(self, events: Iterable[Event]) -> None:
        """As `apply`, while a transaction is open; back when the answers are committed."""
        outputs, self._outputs = self._outputs, []
        self.apply(events)
        self._outputs = outputs

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Answer what others send meanwhile, as a job that runs."""
        is_over, faults = threading.Event(), list[BaseException]()

        def work() -> None:
            try:
                with closing(self.streams.tail(*SOURCES)) as tail:
                    while not is_over.is_set():
                        self._answer_reads(list(tail.more()))
                        is_over.wait(POLL_SECONDS)
            except BaseException as fault:  # It is raised in the test.
                faults.append(fault)

        worker = threading.Thread(target=work)
        worker.start()
        try:
            yield
        finally:
            is_over.set()
            worker.join()
        if faults:
            raise faults[0]

    def _answer_reads(self, reads: Sequence[Read]) -> None:
        """Those that were not answered yet, as one batch."""
        rows: list[Row] = []
        for read in reads:
            if read.offset >= self._answered[read.topic, read.partition]:
                place = (SOURCES[read.topic], read.partition, read.offset, read.time_ms)
                rows.append((*place, read.key, read.value))
                self._answered[read.topic, read.partition] = read.offset + 1
        if rows:
            self._run(rows)

    def _run(self, rows: Sequence[Row]) -> None:
        with BatchBuffer() as buffer:
            for number, (shard, store) in self._servers:
                own = [row for row in rows if server_of(row[4] or b"", self._labels) == number]
                bundles = run_batch(shard, store, Batch.of_rows(own), self._options)
                for sequence, bundle in enumerate(bundles if own else ()):
                    buffer.add(number, sequence, bundle)
            self._sink._send_once(buffer, self._batch)
        settled(self._admin, self._outputs)
        self._batch += 1

    def positions(self) -> Positions:
        """How far the input is answered."""
        found: dict[str, tuple[PartitionPosition, ...]] = {}
        for (topic, number), following in sorted(self._answered.items()):
            place = PartitionPosition(partition=number, next=following)
            name = self._prefix + topic
            found[name] = (*found.get(name, ()), place)
        return found

    def states(self) -> dict[str, ClusterState]:
        """What it knows."""
        return {name: state for each in self._clusters for name, state in each.items()}


@contextmanager
def small_job(settings: Settings, checkpoint_id: str = "old") -> Iterator[SmallJob]:
    """A job that begins at batch 0 of this checkpoint."""
    jobs: list[SmallJob] = []
    sink = TransactionalSink(
        settings, shards=SHARDS_LEFT, positions_after=lambda batch: jobs[0].positions()
    )
    sink.open(checkpoint_id)
    sink.bind(checkpoint_id)
    try:
        with AdminClient({**settings.connection().client(), "log_level": 0}) as admin:
            jobs.append(SmallJob(settings, sink, admin))
            yield jobs[0]
    finally:
        sink.close()
