"""More than one machine, as far as one machine can show it: executors and shards of the job.

    python tests/bench/scale/scaling.py [--quick] [--write]

The same work, 50 clusters of 64 SPUs and topics of 16 partitions × 3 replicas placed by `fluvio`,
on one broker: with one and with two executors of a core each, in JVMs of their own
(`local-cluster`), beside one process with two cores (`local`), and there with ever more shards,
which are tasks of each batch and shard servers. Latency of single creates, rate and processor time
of a backlog.

Every map is held against the core. With --write the figures go to results/scaling.json. Exit
status: 1 if a map is wrong.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

import pyspark
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from support.bench.figures import keep, percentiles, spread
from support.bench.growing import GrowingJob
from support.bench.loadrun import say
from support.bench.workload import SIZES, creates, joins

WARM_UP_ASKS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A way of running the job."""

    name: str
    master: str
    shards: int


VARIANTS: Final = (
    Variant(name="1 executor", master="local-cluster[1,1,1024]", shards=2),
    Variant(name="2 executors", master="local-cluster[2,1,1024]", shards=2),
    Variant(name="local, 2 shards", master="local[2]", shards=2),
    Variant(name="local, 8 shards", master="local[2]", shards=8),
    Variant(name="local, 32 shards", master="local[2]", shards=32),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is asked for."""

    latencies: int
    backlog: int
    backlogs: int


def measure(job: GrowingJob, variant: Variant, sizes: Sizes) -> dict[str, Any]:
    """One variant."""
    environ = {
        "SPU_ASSIGNER_MASTER": variant.master,
        "SPU_ASSIGNER_SHARDS": str(variant.shards),
        # What Spark's own processes need, which start the executors.
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    number = 0

    def take(count: int) -> list[Any]:
        nonlocal number
        number += count
        return list(creates(number - count, count))

    with job.started(environ):
        job.join(joins())
        job.ask_each(take(WARM_UP_ASKS))
        job.answer(take(sizes.backlog // 5))
        latencies = job.ask_each(take(sizes.latencies))
        backlogs = [job.answer(take(sizes.backlog)) for _ in range(sizes.backlogs)]
    found = {
        "master": variant.master,
        "shards": variant.shards,
        "latency_ms": percentiles(latencies),
        "creates_per_s": spread([each.per_s for each in backlogs]),
        "cpu_s_per_100k_creates": spread([each.cpu_s_per_unit for each in backlogs]),
    }
    say(
        f"  {variant.name:<18} p50 {found['latency_ms']['p50']:6.1f} ms, "
        f"{found['creates_per_s']['median']:8,.0f} creates/s, "
        f"{found['cpu_s_per_100k_creates']['median']:5.1f} s of CPU per 100,000"
    )
    return found


def run(sizes: Sizes, folder: Path, *, quick: bool) -> tuple[dict[str, Any], int]:
    """All variants: the figures, and how many maps are wrong."""
    figures: dict[str, Any] = {}
    wrong = 0
    with EmbeddedBroker(folder / "broker") as broker:
        for number, variant in enumerate(VARIANTS[:3] if quick else VARIANTS):
            job = GrowingJob(broker.bootstrap_servers, f"v{number}", folder)
            figures[variant.name] = measure(job, variant, sizes)
            wrong += job.wrong_answers()
            job.close()
    return {**figures, "wrong_answers": wrong}, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Executors and shards of the job.")
    parser.add_argument("--quick", action="store_true", help="few variants, small backlogs")
    parser.add_argument("--write", action="store_true", help="keep results/scaling.json")
    asked = parser.parse_args()
    sizes = Sizes(latencies=60, backlog=50_000, backlogs=2)
    if asked.quick:
        sizes = Sizes(latencies=10, backlog=2_000, backlogs=1)
    folder = Path(tempfile.mkdtemp(prefix="spu-assigner-scaling-"))
    try:
        figures, wrong = run(sizes, folder, quick=asked.quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    say(f"  wrong answers: {wrong}")
    if asked.write:
        keep("scaling", sizes={**SIZES, "backlog": sizes.backlog}, figures=figures, show=False)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
