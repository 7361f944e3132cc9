"""Where the time of a topic-create goes in Python: µs a create, by part, without Spark or broker.

    python tests/bench/hot_path.py [--creates 20000] [--rounds 3] [--policy fluvio …] [--functions]

`whole` is a shard's part of a batch as its server runs it (`shard_batch.process`) on encoded source
messages: the work unit is a create of 16 partitions × 3 replicas, over 50 clusters of 64 SPUs. The
parts are the same calls one after the other, each over all creates, so they do not add up exactly.
`sink` is what the driver does with the bundles until librdkafka has each message; its producer has
no broker. `core alone` is 1,000 topics × 10 partitions through `machine.step`, on 1,000 SPUs.

Times are CPU seconds of this process, the least of all rounds. Profiles before and after changes of
the hot path are kept in `profiles/`.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import io
import pstats
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from confluent_kafka import Producer
from spu_assigner.core.base.events import Event, Policy
from spu_assigner.core.base.records import Record
from spu_assigner.core.decision.answers import answers
from spu_assigner.core.decision.machine import decide, step
from spu_assigner.core.state.cluster_state import ClusterState, evolve
from spu_assigner.schemas.messages.codec import decode_event, encode_event, encode_record
from spu_assigner.schemas.messages.wire import Wire
from spu_assigner.stream.job.batch_buffer import BatchBuffer, summary_of
from spu_assigner.stream.job.shard.batch import Options
from spu_assigner.stream.job.shard.bundle import Bundler, InputSource, MessageKind
from spu_assigner.stream.job.shard.clusters import Clusters
from spu_assigner.stream.job.shard.input_batch import Batch
from spu_assigner.stream.job.shard.server import YOUNG_OBJECTS_MAX
from spu_assigner.stream.job.shard.state_log import Shard
from spu_assigner.stream.job.sink import TransactionalSink
from spu_assigner.stream.kafka.config.settings import Settings

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `support`, as pytest does
from support.bench.workload import creates, joins
from support.shard.stores import DictStore, batch_bytes, begin, commit, run_batch

INPUT_PARTITIONS: Final = 4
CORE_SPUS: Final = 1_000
CORE_TOPICS: Final = 1_000
CORE_PARTITIONS: Final = 10
POLICIES: Final = ("fluvio", "kafka", "balanced")


def batch_of(events: Sequence[Event], source: InputSource, first: int) -> Batch:
    """The messages of these events, as Spark hands them over: input partition by partition."""
    numbers = np.arange(len(events))
    partition = numbers % INPUT_PARTITIONS
    order = np.argsort(partition, kind="stable")
    return Batch(
        source=np.full(len(events), source.value, dtype=np.int64),
        partition=partition[order],
        offset=(first + numbers // INPUT_PARTITIONS)[order],
        time_ms=(1_700_000_000_000 + first + numbers // 40)[order],
        keys=[events[number].cluster_id.encode() for number in order.tolist()],
        values=[encode_event(events[number]) for number in order.tolist()],
    )


def options_of(policy: Policy) -> Options:
    return Options(
        topic_prefix="",
        default_policy=policy,
        wire=Wire.CONFLUENT,
    )


@dataclass
class Figures:
    """The least CPU time of each part, in µs a create."""

    count: int
    parts: dict[str, float]

    def time(self, name: str, work: Callable[[], Any]) -> Any:
        """Do it and note what it took."""
        gc.collect()
        begun = time.process_time()
        done = work()
        took = (time.process_time() - begun) * 1e6 / self.count
        self.parts[name] = min(took, self.parts.get(name, took))
        return done


def joined_shard(policy: Policy) -> tuple[Shard[Clusters], DictStore]:
    """A shard whose clusters have all their SPUs."""
    shard, store = Shard(Clusters()), DictStore()
    batch = batch_of(joins(), InputSource.SPU_EVENTS, 0)
    list(run_batch(shard, store, batch, options_of(policy)))
    return shard, store


def whole(policy: Policy, figures: Figures, profile: cProfile.Profile | None = None) -> list[bytes]:
    """A batch as the shard server runs it: gives the bundles."""
    shard, store = joined_shard(policy)
    warm = creates(0, 8_000)
    list(run_batch(shard, store, batch_of(warm, InputSource.TOPIC_EVENTS, 0), options_of(policy)))
    events = creates(8_000, figures.count)
    batch = batch_of(events, InputSource.TOPIC_EVENTS, 500)

    def work() -> list[bytes]:
        return list(run_batch(shard, store, batch, options_of(policy)))

    if profile is not None:
        return profile.runcall(work)
    return figures.time("whole", work)  # type: ignore[no-any-return]


def parts(policy: Policy, figures: Figures) -> None:
    """The same by part."""
    shard, store = joined_shard(policy)
    clusters = shard.copy
    for event in creates(0, 8_000):
        step(clusters.of(event.cluster_id), event, default_policy=policy)
    events = creates(8_000, figures.count)
    batch = batch_of(events, InputSource.TOPIC_EVENTS, 500)
    rows = batch_bytes(batch)
    asked = figures.time("exchange: ask", lambda: Batch.of_bytes([rows]))
    assert asked.values == batch.values
    figures.time("merge", batch.order)
    values = [value for value in batch.values if value is not None]
    decoded = figures.time("decode", lambda: [decode_event(each, kind="topic") for each in values])

    states = [clusters.of(event.cluster_id) for event in decoded]
    deciding = evolving = 0.0
    decisions: list[Sequence[Record]] = []
    gc.collect()
    clock = time.process_time
    for state, event in zip(states, decoded, strict=True):
        begun = clock()
        records = decide(state, event, default_policy=policy)
        middle = clock()
        for record in records:
            evolve(state, record)
        evolving += clock() - middle
        deciding += middle - begun
        decisions.append(records)
    for name, took in (("decide", deciding), ("evolve", evolving)):
        figures.parts[name] = min(took * 1e6 / figures.count, figures.parts.get(name, 1e9))

    encoded = figures.time(
        "encode", lambda: [list(map(encode_record, answers(each))) for each in decisions]
    )
    messages = [
        (f"{event.cluster_id}/{event.topic}".encode(), replica_map, status)
        for event, (replica_map, status) in zip(decoded, encoded, strict=True)
    ]
    figures.time("pack", lambda: packed(messages))
    entries = {b"m" + name: made for name, made, _ in messages}
    begin(shard, store)
    figures.time("state: commit", lambda: commit(shard, store, entries))


def packed(messages: Iterable[tuple[bytes, bytes, bytes]]) -> list[bytes]:
    """Maps and statuses in bundles."""
    bundler = Bundler()
    kinds = MessageKind.REPLICA_MAP.value, MessageKind.TOPIC_STATUS.value
    for number, (name, *values) in enumerate(messages):
        for kind, value in zip(kinds, values, strict=True):
            event_id = b"topic-events/1/%d/%d" % (number, kind)
            bundler.put(kind, event_id, name, value, 1_700_000_000_000)
    return [*bundler.full, bundler.close(())]


def sink(bundles: Sequence[bytes], figures: Figures) -> None:
    """What the driver does with a batch's bundles."""
    with BatchBuffer() as buffer:
        for sequence, bundle in enumerate(bundles):
            buffer.add(0, sequence, bundle)
        figures.time("sink: digest", lambda: summary_of(buffer))
        sender = TransactionalSink(Settings.load(environ={}), shards=1)
        figures.time("sink: unpack, headers", lambda: sum(1 for _ in sender._outgoing(buffer)))
        producer = Producer(
            {
                "bootstrap.servers": "127.0.0.1:1",
                "log_level": 0,
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 1_000_000,
            }
        )
        produce = producer.produce

        def hand_over() -> None:
            for topic, key, value, headers in sender._outgoing(buffer):
                produce(topic, value, key, headers=headers)

        figures.time("sink: all, with produce", hand_over)
        producer.purge()


def core_alone(policy: Policy, *, same_events: bool = False) -> float:
    """µs a topic of 1,000 topics × 10 partitions through the core, with what it takes to make the
    events."""
    state = ClusterState("c0")
    for event in joins(1, CORE_SPUS):
        step(state, event, default_policy=policy)
    best = float("inf")
    for number in range(7):
        begun = time.process_time()
        for event in creates(
            number * CORE_TOPICS, CORE_TOPICS, clusters=1, partitions=CORE_PARTITIONS
        ):
            step(state, event, default_policy=policy)
        if number > 1:
            best = min(best, (time.process_time() - begun) * 1e6 / CORE_TOPICS)
    return best


def functions(policy: Policy, count: int) -> str:
    """The functions that take most, under a profiler, which itself doubles what small ones take."""
    profile = cProfile.Profile()
    whole(policy, Figures(count, {}), profile)
    out = io.StringIO()
    pstats.Stats(profile, stream=out).strip_dirs().sort_stats("tottime").print_stats(45)
    return "\n".join(line for line in out.getvalue().splitlines() if line.strip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--creates", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--policy", nargs="*", default=POLICIES)
    parser.add_argument("--functions", action="store_true", help="also a profile by function")
    given = parser.parse_args()
    gc.set_threshold(YOUNG_OBJECTS_MAX)
    found: dict[str, dict[str, float]] = {}
    for name in given.policy:
        policy = Policy(name)
        figures = Figures(given.creates, {})
        for _ in range(given.rounds):
            bundles = whole(policy, figures)
            parts(policy, figures)
            sink(bundles, figures)
        figures.parts["core alone"] = core_alone(policy)
        found[name] = figures.parts
    print(f"µs a create, {given.creates} creates, least of {given.rounds} rounds")
    print(f"{'':<26}" + "".join(f"{name:>10}" for name in found))
    for part in found[given.policy[0]]:
        print(f"{part:<26}" + "".join(f"{parts[part]:>10.2f}" for parts in found.values()))
    if given.functions:
        for name in given.policy:
            print(f"\n{name}\n{functions(Policy(name), given.creates)}")


if __name__ == "__main__":
    main()
