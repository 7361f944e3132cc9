"""Shards without Spark and servers: events in, messages out, their state in a dict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
from spu_assigner.core.base.events import Event, SpuEvent
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.schemas.messages.wire import Wire
from spu_assigner.stream.job.shard.batch import process
from spu_assigner.stream.job.shard.bundle import Bundle, InputSource
from spu_assigner.stream.job.shard.clusters import Clusters
from spu_assigner.stream.job.shard.input_batch import Batch, Row
from spu_assigner.stream.job.shard.options import Options
from spu_assigner.stream.job.shard.state_log import HEAD, CopyT, Entries, Shard, segment_key
from spu_assigner.stream.kafka.config.settings import Settings
from support.job.streams import INPUTS, TOPIC_EVENTS, Outgoing
from support.shard.stored_entries import read_entries

TIME_MS = 1_700_000_000_000


class DictStore:
    """A store whose uncommitted changes can be thrown away, as Spark's are when a batch fails."""

    def __init__(self) -> None:
        self.committed: dict[str, bytes] = {}
        self.current: dict[str, bytes] = {}
        self.calls = 0
        self.read: list[str] = []  # keys
        self.fails_at: int | None = None

    def _called(self) -> None:
        self.calls += 1
        if self.fails_at is not None and self.calls >= self.fails_at:
            raise ConnectionError("the state server is gone")

    def get(self, key: str) -> bytes | None:
        self._called()
        self.read.append(key)
        return self.current.get(key)

    def write(self, key: str, value: bytes | None) -> None:
        self._called()
        if value is None:
            del self.current[key]
        else:
            self.current[key] = value

    def commit(self) -> None:
        self.committed = dict(self.current)

    def abort(self) -> None:
        self.current = dict(self.committed)
        self.fails_at = None

    @property
    def size(self) -> int:
        return sum(map(len, self.current.values()))


def begin(shard: Shard[CopyT], store: DictStore) -> range:
    """Hand a shard what it needs of the state before a batch: gives the segments."""
    numbers = shard.begin(store.get(HEAD))
    shard.take(store.get(segment_key(number)) or b"" for number in numbers)
    return numbers


def write_ahead(shard: Shard[CopyT], store: DictStore, entries: Entries) -> None:
    """Write a part of a batch's changes."""
    for key, value in shard.write_ahead(entries):
        store.write(key, value)


def commit(shard: Shard[CopyT], store: DictStore, entries: Entries) -> None:
    """Write a batch's changes."""
    for key, value in shard.commit(entries):
        store.write(key, value)


def run_batch(
    shard: Shard[Clusters], store: DictStore, batch: Batch, options: Options
) -> Iterator[bytes]:
    """A batch, as worker and shard server process it together: gives the bundles."""
    begin(shard, store)
    for part in process(shard, batch, options):
        if isinstance(part, bytes):
            yield part
        else:
            store.write(*part)


def batch_of(events: Iterable[Event], first: int = 0, *, time_ms: int = TIME_MS) -> Batch:
    """Events in the partitions 0, at these offsets and one time."""
    return Batch.of_rows(
        [
            (
                InputSource.SPU_EVENTS if isinstance(event, SpuEvent) else InputSource.TOPIC_EVENTS,
                0,
                first + number,
                time_ms,
                event.cluster_id.encode(),
                encode_event(event),
            )
            for number, event in enumerate(events)
        ]
    )


def batch_bytes(batch: Batch) -> bytes:
    """What `Batch.of_bytes` reads, in one piece."""
    sizes = [[-1 if each is None else len(each) for each in row[4:]] for row in batch.rows]
    longs = [(*row[:4], *own) for row, own in zip(batch.rows, sizes, strict=True)]
    body = b"".join((key or b"") + (value or b"") for *_, key, value in batch.rows)
    columns = np.array(longs, dtype="<i8").reshape(-1, 6).T
    return len(longs).to_bytes(8, "little") + columns.tobytes() + body


Raw = tuple[bytes, bytes]  # key and value on `topic-events`
OPTIONS = Options(
    topic_prefix="", default_policy=Settings.load(environ={}).default_policy, wire=Wire.CONFLUENT
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
