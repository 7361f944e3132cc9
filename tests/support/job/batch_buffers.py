"""A batch's bundles, without the job that makes them, and what was sent of such batches."""

from __future__ import annotations

from collections.abc import Callable

from spu_assigner.stream.job.batch_buffer import BatchBuffer
from spu_assigner.stream.job.shard.bundle import Bundler, InputSource, MessageKind, SourceRange
from spu_assigner.stream.job.sink import TransactionalSink
from spu_assigner.stream.kafka.config.settings import Settings
from support.kafka.reading import committed, outputs, settled

MakeSink = Callable[..., TransactionalSink]


def batch_buffer(
    *values: bytes | None, first: int = 0, shard: int = 0, partition: int = 0
) -> BatchBuffer:
    bundler = Bundler()
    for number, value in enumerate(values):
        place = b"topic-events/%d/%d/0" % (partition, first + number)
        bundler.put(MessageKind.REPLICA_MAP, place, b"c1/t", value, 1_700_000_000_123)
    last = first + len(values) - 1
    read = SourceRange(
        source=InputSource.TOPIC_EVENTS,
        partition=partition,
        first=first,
        last=last,
        count=len(values),
    )
    box = BatchBuffer()
    for sequence, bundle in enumerate([*bundler.full, bundler.close([read] if values else [])]):
        box.add(shard, sequence, bundle)
    return box


def sent_values(settings: Settings) -> list[bytes | None]:
    """The values of all replica maps, once what was committed is seen."""
    settled(settings.bootstrap_servers, outputs(settings.topic_prefix))
    topic = f"{settings.topic_prefix}replica-map"
    return [message.value() for message in committed(settings.bootstrap_servers, topic)]
