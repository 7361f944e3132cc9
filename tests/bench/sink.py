"""What one transactional producer in the driver can do: the sink alone, on a real broker.

    python tests/bench/sink.py [--quick] [--write]

Creates are decided once, by the job's own step and without Spark; their bundles are then sent as
the driver sends them: digest, one transaction, marker. Of each size of map: creates, messages and
bytes a second, and the processor time of this process (the sink's thread and librdkafka's) and of
the broker. With --write the figures go to results/sink.json.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from spu_assigner.stream.job.batch_buffer import BatchBuffer
from spu_assigner.stream.job.shard.batch import Options
from spu_assigner.stream.job.shard.bundle import Bundle
from spu_assigner.stream.job.shard.clusters import Clusters
from spu_assigner.stream.job.shard.state_log import Shard
from spu_assigner.stream.job.sink import TransactionalSink
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from support.bench.figures import keep, spread
from support.bench.loadrun import say
from support.bench.workload import SIZES, creates, joins
from support.shard.stores import DictStore, batch_of, run_batch

SHARDS: Final = 2
# Partitions of a map, and creates of a batch: usual ones as in a backlog, and two larger kinds.
KINDS: Final = ((16, 20_000), (1_000, 2_000), (100_000, 20))
CPU_UNIT: Final = 100_000


def decided(settings: Settings, partitions: int, count: int) -> list[bytes]:
    """The bundles of so many creates."""
    options = Options(
        topic_prefix=settings.topic_prefix,
        default_policy=settings.default_policy,
        wire=settings.wire,
    )
    shard, store = Shard(Clusters()), DictStore()
    for events in (joins(), creates(0, count, partitions=partitions)):
        bundles = list(run_batch(shard, store, batch_of(events), options))
    return bundles


def measure(
    sink: TransactionalSink, bundles: list[bytes], first_batch: int, *, rounds: int, broker: int
) -> dict[str, Any]:
    """Send the same bundles as so many batches; the first is not counted."""
    messages = [message for data in bundles for message in Bundle(data).messages()]
    size = sum(len(each.key or b"") + len(each.value or b"") for each in messages)
    seconds, cpu, broker_cpu = [], [], []
    for number in range(rounds + 1):
        with BatchBuffer() as buffer:
            for sequence, bundle in enumerate(bundles):
                buffer.add(0, sequence, bundle)
            begun = time.perf_counter(), time.process_time(), cpu_seconds(broker)
            sink._send_once(buffer, first_batch + number)
            seconds.append(time.perf_counter() - begun[0])
            cpu.append(time.process_time() - begun[1])
            broker_cpu.append(cpu_seconds(broker) - begun[2])
    del seconds[0], cpu[0], broker_cpu[0]
    return {
        "messages_of_a_batch": len(messages),
        "mb_of_a_batch": round(size / 1e6, 2),
        "seconds_of_a_batch": spread(seconds),
        "messages_per_s": round(len(messages) / median(seconds)),
        "mb_per_s": round(size / 1e6 / median(seconds), 1),
        "cpu_s_per_100k_messages": round(median(cpu) * CPU_UNIT / len(messages), 2),
        "broker_cpu_s_per_100k_messages": round(
            sum(broker_cpu) / rounds * CPU_UNIT / len(messages), 2
        ),
    }


def cpu_seconds(pid: int) -> float:
    """Processor time of one process."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def run(folder: Path, *, quick: bool) -> dict[str, Any]:
    """All kinds of maps."""
    figures = {}
    with EmbeddedBroker(folder / "broker") as broker:
        flags = {"bootstrap_servers": broker.bootstrap_servers, "default_policy": "fluvio"}
        settings = Settings.load(flags=flags, environ={})
        create_topics(settings.connection().client())
        sink = TransactionalSink(settings, shards=SHARDS)
        sink.open("bench")
        sink.bind("bench")
        pid = broker.pid
        if pid is None:
            sys.exit("the broker has ended")
        batch, rounds = 0, 2 if quick else 10
        for partitions, creates_of_a_batch in KINDS:
            count = max(2, creates_of_a_batch // (10 if quick else 1))
            bundles = decided(settings, partitions, count)
            found = measure(sink, bundles, batch, rounds=rounds, broker=pid)
            batch += rounds + 1
            figures[f"{partitions} partitions"] = {
                "creates_of_a_batch": count,
                "creates_per_s": round(count / found["seconds_of_a_batch"]["median"]),
                **found,
            }
            say(
                f"  maps of {partitions:>7,} × 3: {found['messages_per_s']:>8,} messages/s, "
                f"{found['mb_per_s']} MB/s, CPU s per 100,000 messages: sink "
                f"{found['cpu_s_per_100k_messages']}, broker "
                f"{found['broker_cpu_s_per_100k_messages']}"
            )
        sink.close()
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description="The driver's sink alone.")
    parser.add_argument("--quick", action="store_true", help="small batches, few of them")
    parser.add_argument("--write", action="store_true", help="keep results/sink.json")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="spu-assigner-sink-"))
    try:
        figures = run(folder, quick=asked.quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if asked.write:
        keep("sink", sizes=dict(SIZES), figures=figures, show=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
