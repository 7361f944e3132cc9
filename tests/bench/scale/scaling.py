"""More than one machine, as far as one machine can show it: executors, and what limits a hundred.

    python tests/bench/scale/scaling.py [--write]

The same backlog, 50 clusters of 64 SPUs and topics of 16 partitions × 3 replicas by `fluvio`, on
one broker: with 1, 2 and 4 executors of a core each, in JVMs of their own (`local-cluster`), beside
one process (`local`). They share this machine's cores, so what counts is not the rate but which
process uses the CPU, and what a create takes of the driver, of which there is one. `verify`
compares all that was written with the core.

On paper: executors of two cores each, one shard for each core, as fast as measured here. A batch
is planned, decided by all executors, and sent by the driver, one after the other; the shard with
most creates ends last, which is simulated with the job's own rule for clusters of equal load.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

import pyspark
from spu_assigner.core.base.events import Event
from spu_assigner.stream.job.query import SERVERS, server_of, shard_labels
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from support.bench.figures import QUICK, keep, parser_of, percentiles, say, spread
from support.bench.measured_job import CPU_UNIT, MeasuredJob
from support.bench.processes import BROKER
from support.bench.workload import SIZES, creates, joins

SHARDS: Final = 4
VARIANTS: Final = {  # master and shards
    "1 executor": ("local-cluster[1,1,1024]", SHARDS),
    "2 executors": ("local-cluster[2,1,1024]", SHARDS),
    "4 executors": ("local-cluster[4,1,1024]", SHARDS),
    "local, 4 shards": ("local[2]", SHARDS),
    "local, 32 shards": ("local[2]", 8 * SHARDS),
}
WARM_UP_ASKS: Final = 30
LATENCIES: Final = 10 if QUICK else 60
BACKLOG: Final = 2_000 if QUICK else 50_000
BACKLOGS: Final = 1 if QUICK else 2
DRIVER: Final = ("jvm", "driver")  # its processes; those of the executors are the rest
EXECUTORS: Final = (1, 10, 100)
CORES: Final = 2  # of an executor
CLUSTERS: Final = 10_000
BATCH: Final = Settings().topic_events_per_batch


def measure(job: MeasuredJob, master: str, shards: int) -> dict[str, Any]:
    """One variant."""
    environ = {
        "SPU_ASSIGNER_MASTER": master,
        "SPU_ASSIGNER_SHARDS": str(shards),
        # What Spark's own processes need, which start the executors.
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    asked = iter(creates(0, WARM_UP_ASKS + BACKLOG // 5 + LATENCIES + BACKLOGS * BACKLOG))

    def take(count: int) -> list[Event]:
        return [next(asked) for _ in range(count)]

    with job.started(environ):
        job.join(joins())
        job.ask_each(take(WARM_UP_ASKS))
        job.answer(take(BACKLOG // 5))
        latencies = job.ask_each(take(LATENCIES))
        before = job.parts()
        works = [job.answer(take(BACKLOG)) for _ in range(BACKLOGS)]
        parts = job.parts()
    parts.subtract(before)
    unit = CPU_UNIT / (BACKLOGS * BACKLOG)
    cpu = sum((each.cpu for each in works), Counter[str]())
    driver = sum(cpu[each] for each in DRIVER)
    return {
        "master": master,
        "shards": shards,
        "latency_ms": percentiles(latencies),
        "creates_per_s": spread([each.per_s for each in works]),
        "cpu_s_per_100k": {
            "driver": round(driver * unit, 2),
            "executors": round((cpu.total() - cpu[BROKER] - driver) * unit, 2),
        },
        "driver_share_of_cpu": round(driver / (cpu.total() - cpu[BROKER]), 3),
        "sending_s_per_100k": round(parts["send"] * unit, 2),
        "verified": job.verified(),
    }


def fullest_shard(shards: int) -> float:
    """Its part of all creates, where the clusters are asked for equally."""
    labels = shard_labels(shards)
    numbers = (server_of(f"c{each}".encode(), labels) // SERVERS for each in range(CLUSTERS))
    return max(Counter(numbers).values()) / CLUSTERS


def on_paper(measured: dict[str, Any]) -> dict[str, Any]:
    """Creates a second with more executors, and what a batch of a backlog waits for most."""
    few, many = measured["local, 4 shards"], measured["local, 32 shards"]
    base, more = (each["latency_ms"]["p50"] / 1000 for each in (few, many))
    shard = max(0.0, more - base) / (many["shards"] - few["shards"])  # here; there it is shared
    decide = measured["1 executor"]["cpu_s_per_100k"]["executors"] / CPU_UNIT
    send = measured["1 executor"]["sending_s_per_100k"] / CPU_UNIT
    found = {}
    for executors in EXECUTORS:
        shards = executors * CORES
        fullest = fullest_shard(shards)
        steps = {
            "planning": base + shard * CORES,
            "deciding": BATCH * fullest * decide,
            "sending": BATCH * send,
        }
        found[f"{executors} executors"] = {
            "fullest_shard_of_mean": round(fullest * shards, 2),
            "ms_of_a_batch": {step: round(1000 * took) for step, took in steps.items()},
            "creates_per_s": round(BATCH / sum(steps.values())),
            "limited_by": max(steps, key=lambda step: steps[step]),
        }
    return found


def main() -> None:
    options = parser_of(__doc__).parse_args()
    figures: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="spu-assigner-scaling-") as folder,
        EmbeddedBroker(Path(folder) / "broker") as broker,
    ):
        for number, (name, (master, shards)) in enumerate(VARIANTS.items()):
            job = MeasuredJob(broker, f"v{number}", Path(folder))
            figures[name] = measure(job, master, shards)
            say(f"  {name}: {figures[name]}")
            job.close()
    figures["on paper"] = on_paper(figures)
    say(f"  on paper: {figures['on paper']}")
    if options.write:
        sizes = {**SIZES, "backlog": BACKLOG, "batch": BATCH, "clusters_on_paper": CLUSTERS}
        keep("scaling", sizes=sizes, figures=figures, show=False)


if __name__ == "__main__":
    main()
