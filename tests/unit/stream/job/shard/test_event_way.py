"""How long the way of a create is, from Kafka's bytes to Kafka's bytes."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType
from typing import Any, Final

import pytest
from spu_assigner.core.base.events import Event, Policy
from spu_assigner.schemas.messages.wire import Wire
from spu_assigner.stream.job.batch_buffer import BatchBuffer, summary_of
from spu_assigner.stream.job.shard.batch import Options
from spu_assigner.stream.job.shard.clusters import Clusters
from spu_assigner.stream.job.shard.input_batch import Batch
from spu_assigner.stream.job.shard.state_log import Shard
from spu_assigner.stream.job.sink import TransactionalSink
from spu_assigner.stream.kafka.config.settings import Settings
from support.events.builders import Events
from support.shard.stores import DictStore, batch_of, run_batch

MODULES_MAX: Final = 25
FUNCTIONS_MAX: Final = 60
FEW, MANY = 10, 50

Function = tuple[str, str]  # module and name


class Way:
    """Runs batches of creates through a shard and the sink, and counts calls of our functions."""

    def __init__(self, policy: Policy) -> None:
        self._options = Options(topic_prefix="", default_policy=policy, wire=Wire.CONFLUENT)
        self._shard, self._store = Shard(Clusters()), DictStore()
        self._sink = TransactionalSink(Settings.load(environ={}), shards=1)
        self._events = Events()
        self._topics = 0
        self._send(self._batch(self._events.joins(*range(12))))

    def calls(self, count: int) -> Counter[Function]:
        """How often each function is called for so many creates."""
        names = range(self._topics, self._topics + count)
        self._topics += count
        batch = self._batch([self._events.create(f"t{name:04d}", 16, 3) for name in names])
        counts: Counter[Function] = Counter()

        def note(frame: FrameType, kind: str, _arg: Any) -> None:
            module = frame.f_globals.get("__name__", "")
            # What `dataclass` writes (its file is "<string>") nobody has to read.
            is_ours = module.startswith("spu_assigner.") and frame.f_code.co_filename[0] != "<"
            if kind == "call" and is_ours:
                # Of a generator each item is a call, of a comprehension its function's own.
                name = frame.f_code.co_qualname
                if not name.endswith((".<genexpr>", ".<listcomp>", ".<dictcomp>", ".<setcomp>")):
                    counts[module, name] += 1

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            self._send(batch)
        finally:
            sys.setprofile(before)
        return counts

    def _batch(self, events: Sequence[Event]) -> Batch:
        """Messages as Kafka has them, each a millisecond after the one before."""
        batch = batch_of(events, self._topics)
        return replace(batch, time_ms=batch.time_ms + batch.offset)

    def _send(self, batch: Batch) -> None:
        with BatchBuffer() as buffer:
            bundles = run_batch(self._shard, self._store, batch, self._options)
            for sequence, bundle in enumerate(bundles):
                buffer.add(0, sequence, bundle)
            summary_of(buffer)
            assert len(list(self._sink._outgoing(buffer))) >= len(batch.keys)


@pytest.mark.parametrize("policy", [Policy.FLUVIO, Policy.KAFKA])
def test_the_way_of_a_create_is_short(policy: Policy) -> None:
    """Who changes what is done with an event must be able to read all of it."""
    way = Way(policy)
    way.calls(FEW)  # What is made once is there then.
    few, many = way.calls(FEW), way.calls(MANY)
    # Once for every second create, or more often: what depends on sizes is not exact.
    passed = sorted(each for each in many if many[each] - few[each] > (MANY - FEW) / 2)
    modules = {module for module, _ in passed}
    found = "\n".join(f"{module} {name}" for module, name in passed)
    assert passed, "the count itself must work"
    assert len(modules) <= MODULES_MAX, f"{len(modules)} modules:\n{found}"
    assert len(passed) <= FUNCTIONS_MAX, f"{len(passed)} functions:\n{found}"
