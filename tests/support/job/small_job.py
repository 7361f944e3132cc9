"""A job without Spark: the shard, the sink and a real Kafka, for tests of what it leaves there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient
from spu_assigner.core.base.events import Event
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.job.batch_buffer import BatchBuffer
from spu_assigner.stream.job.sink import TransactionalSink
from spu_assigner.stream.shard.batch import Options
from spu_assigner.stream.shard.bundle import InputSource
from spu_assigner.stream.shard.clusters import Clusters
from spu_assigner.stream.shard.input_batch import Batch, Row
from spu_assigner.stream.shard.state_log import Shard
from support.job.profiled import SHARDS
from support.job.stores import TIME_MS, DictStore, run_batch
from support.job.streams import SPU_EVENTS, TOPIC_EVENTS, Outgoing, Streams
from support.kafka.reading import outputs, settled

SHARDS_LEFT = 4 if SHARDS > 1 else 1  # it suits the profile; of several, no start would choose it
SOURCES = {SPU_EVENTS: InputSource.SPU_EVENTS, TOPIC_EVENTS: InputSource.TOPIC_EVENTS}


class SmallJob:
    """Applies events batch by batch, each to the partition 0 of its topic."""

    def __init__(self, settings: Settings, sink: TransactionalSink, admin: AdminClient) -> None:
        self.streams = Streams(settings.bootstrap_servers, settings.topic_prefix)
        self.clusters = Clusters()
        self._shard, self._store = Shard(self.clusters), DictStore()
        self._options = Options(
            topic_prefix=settings.topic_prefix,
            default_policy=settings.default_policy,
            wire=settings.wire,
        )
        self._sink = sink
        self._admin = admin
        self._outputs = outputs(settings.topic_prefix)
        self._sent: Counter[str] = Counter()
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
            source, offset = SOURCES[message.topic], self._sent[message.topic]
            rows.append((source, 0, offset, TIME_MS, message.key, message.value))
            self._sent[message.topic] += 1
        batch = Batch.of_rows(rows)
        with BatchBuffer() as buffer:
            bundles = run_batch(self._shard, self._store, batch, self._options)
            for sequence, bundle in enumerate(bundles):
                buffer.add(0, sequence, bundle)
            self._sink._send_once(buffer, self._batch)
        settled(self._admin, self._outputs)
        self._batch += 1

    def states(self) -> dict[str, ClusterState]:
        """What it knows."""
        return dict(self.clusters)


@contextmanager
def small_job(settings: Settings, checkpoint_id: str = "old") -> Iterator[SmallJob]:
    """A job that begins at batch 0 of this checkpoint."""
    sink = TransactionalSink(settings, shards=SHARDS_LEFT)
    sink.open(checkpoint_id)
    sink.bind(checkpoint_id)
    try:
        with AdminClient({**settings.connection().client(), "log_level": 0}) as admin:
            yield SmallJob(settings, sink, admin)
    finally:
        sink.close()
