"""Sinks by themselves, without the job that makes their batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from spu_assigner.stream.job.sink import TransactionalSink
from spu_assigner.stream.kafka.config.settings import Settings
from support.job.batch_buffers import MakeSink


@pytest.fixture
def make_sink(settings: Settings) -> Iterator[MakeSink]:
    """A sink as a new process of a query has it, bound to a checkpoint."""
    made: list[TransactionalSink] = []

    def make(
        checkpoint_id: str = "one", *, query: str = "spu-assigner", opened: bool = True
    ) -> TransactionalSink:
        sink = TransactionalSink(replace(settings, query_name=query), shards=2)
        made.append(sink)
        if opened:
            sink.open(checkpoint_id)
        sink.bind(checkpoint_id)
        return sink

    yield make
    for sink in made:
        sink.close()
