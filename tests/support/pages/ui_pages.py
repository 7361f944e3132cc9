"""The pages without a broker: what a job would write goes straight into what they know."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from spu_assigner.core.base.events import Event, SpuJoined, SpuLeft
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.config.connection import Connection
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.shard.batch import Options, ShardBatch
from spu_assigner.stream.shard.bundle import KINDS, Bundle, InputSource, MessageKind
from spu_assigner.stream.shard.clusters import Clusters
from spu_assigner.stream.shard.input_batch import Batch, Row
from spu_assigner.stream.ui.known import Known
from spu_assigner.stream.ui.live import Live, ReadingHealth
from support.pages.ui_story import Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A message as the client would give it."""

    topic: str
    its_key: bytes | None
    its_value: bytes | None
    time_ms: int = 1_700_000_000_000

    def key(self) -> bytes | None:
        return self.its_key

    def value(self) -> bytes | None:
        return self.its_value

    def timestamp(self) -> tuple[int, int]:
        return 1, self.time_ms


class _Shards:
    """The part without Kafka: events to bundles."""

    def __init__(self, settings: Settings) -> None:
        self._clusters = Clusters()
        self._options = Options(
            topic_prefix=settings.topic_prefix,
            default_policy=settings.default_policy,
            wire=settings.wire,
        )
        self._offsets = {InputSource.SPU_EVENTS: 0, InputSource.TOPIC_EVENTS: 0}
        self._clock = 0  # the broker's, in milliseconds

    def bundles(self, events: Iterable[Event | Raw]) -> list[bytes]:
        """Applied in this order."""
        rows: list[Row] = []
        self._clock = max(self._clock, int(time.time() * 1000))
        for event in events:
            is_spu = isinstance(event, SpuJoined | SpuLeft)
            source = InputSource.SPU_EVENTS if is_spu else InputSource.TOPIC_EVENTS
            key, value = event if isinstance(event, tuple) else _message(event)
            rows.append((source, 0, self._offsets[source], self._clock, key, value))
            self._offsets[source] += 1
            self._clock += 1  # applied in the order given
        batch = Batch.of_rows(rows)
        return list(ShardBatch(self._clusters, self._options).apply(batch))


def _message(event: Event) -> Raw:
    return event.cluster_id.encode(), encode_event(event)


def told(batches: Iterable[Sequence[Event | Raw]]) -> list[Told]:
    """All messages that a job writes for batches of events."""
    shards = _Shards(Settings.load(environ={}))
    return [
        Told(
            topic=KINDS[MessageKind(message.kind)][0],
            its_key=message.key,
            its_value=message.value,
            time_ms=message.time_ms,
        )
        for batch in batches
        for bundle in shards.bundles(batch)
        for message in Bundle(bundle).messages()
    ]


def known_of(messages: Iterable[Told], *, is_loaded: bool = False) -> Known:
    """What the pages know after these."""
    known = Known()
    for message in messages:
        known.take(message.topic, cast(Any, message), is_loaded=is_loaded)
    return known


class Still:
    """Stands where `Live` does, and follows nothing."""

    def __init__(self, known: Known, health: ReadingHealth | None = None) -> None:
        self._known = known
        self._lock = threading.RLock()
        self.health = health or ReadingHealth(trouble=None, read=1, total=1, is_loaded=True)
        self.connection = Connection(bootstrap_servers="127.0.0.1:1")

    @contextmanager
    def known(self) -> Iterator[Known]:
        with self._lock:
            yield self._known

    def as_live(self) -> Live:
        return cast(Live, self)
