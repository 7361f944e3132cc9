"""A shard without Kafka or Spark: events in, messages out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from spu_assigner.core.base.events import Event
from spu_assigner.schemas.messages.wire import Wire
from spu_assigner.stream.job.shard.batch import Options
from spu_assigner.stream.job.shard.bundle import Bundle
from spu_assigner.stream.job.shard.clusters import Clusters
from spu_assigner.stream.job.shard.input_batch import Batch, Row
from spu_assigner.stream.job.shard.state_log import Shard, read_entries
from spu_assigner.stream.kafka.config.settings import Settings
from support.job.streams import INPUTS, TOPIC_EVENTS, Outgoing
from support.shard.stores import DictStore, run_batch

Raw = tuple[bytes, bytes]  # key and value on `topic-events`
TIME_MS = 1_700_000_000_000
OPTIONS = Options(
    topic_prefix="",
    default_policy=Settings.load(environ={}).default_policy,
    wire=Wire.CONFLUENT,
)


class OneShard:
    """Answers what it is sent, each call as one batch, in the order given."""

    def __init__(self, store: DictStore | None = None) -> None:
        self.clusters, self.store = Clusters(), store or DictStore()
        self._shard = Shard(self.clusters)
        self._sent: Counter[str] = Counter()

    def bundles(self, events: Iterable[Event | Raw]) -> list[Bundle]:
        rows: list[Row] = []
        for event in events:
            sent = (
                Outgoing(topic=TOPIC_EVENTS, key=event[0], value=event[1])
                if isinstance(event, tuple)
                else Outgoing.of_event(event)
            )
            time_ms = TIME_MS + self._sent.total()
            source, offset = INPUTS.index(sent.topic), self._sent[sent.topic]
            rows.append((source, 0, offset, time_ms, sent.key, sent.value))
            self._sent[sent.topic] += 1
        batch = Batch.of_rows(rows)
        return [Bundle(data) for data in run_batch(self._shard, self.store, batch, OPTIONS)]

    def stored(self) -> dict[bytes, bytes]:
        """The entries that are valid in the store."""
        return read_entries(self.store.current)
