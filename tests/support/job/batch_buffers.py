"""A batch's bundles, without the job that makes them."""

from __future__ import annotations

from spu_assigner.stream.job.batch_buffer import BatchBuffer
from spu_assigner.stream.shard.bundle import Bundler, InputSource, Message, MessageKind, SourceRange


def batch_buffer(
    *values: bytes | None, first: int = 0, shard: int = 0, partition: int = 0
) -> BatchBuffer:
    bundler = Bundler()
    full: list[bytes] = []
    for number, value in enumerate(values):
        place = b"topic-events/%d/%d/0" % (partition, first + number)
        message = Message(MessageKind.REPLICA_MAP, place, b"c1/t", value, 1_700_000_000_123)
        if (bundle := bundler.add(message)) is not None:
            full.append(bundle)
    last = first + len(values) - 1
    read = SourceRange(
        source=InputSource.TOPIC_EVENTS,
        partition=partition,
        first=first,
        last=last,
        count=len(values),
    )
    box = BatchBuffer()
    for sequence, bundle in enumerate([*full, bundler.close([read] if values else [])]):
        box.add(shard, sequence, bundle)
    return box
