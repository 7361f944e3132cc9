"""More than one machine, as far as one machine can show it: executors and shards of the job.

    python tests/bench/scale/scaling.py [--write]

The same work, 50 clusters of 64 SPUs and topics of 16 partitions × 3 replicas placed by `fluvio`,
on one broker: with one and with two executors of a core each, in JVMs of their own
(`local-cluster`), beside one process with two cores (`local`), and there with ever more shards,
which are tasks of each batch and shard servers. Latency of single creates, rate and processor time
of a backlog. At the end `verify` compares all that was written with the core.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

import pyspark
from spu_assigner.core.base.events import Event
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from support.bench.figures import QUICK, keep, parser_of, percentiles, say, spread
from support.bench.measured_job import MeasuredJob
from support.bench.workload import SIZES, creates, joins

VARIANTS: Final = {  # master and shards
    "1 executor": ("local-cluster[1,1,1024]", 2),
    "2 executors": ("local-cluster[2,1,1024]", 2),
    "local, 2 shards": ("local[2]", 2),
    "local, 8 shards": ("local[2]", 8),
    "local, 32 shards": ("local[2]", 32),
}
WARM_UP_ASKS: Final = 30
LATENCIES: Final = 10 if QUICK else 60
BACKLOG: Final = 2_000 if QUICK else 50_000
BACKLOGS: Final = 1 if QUICK else 2


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
        backlogs = [job.answer(take(BACKLOG)) for _ in range(BACKLOGS)]
    return {
        "master": master,
        "shards": shards,
        "latency_ms": percentiles(latencies),
        "creates_per_s": spread([each.per_s for each in backlogs]),
        "cpu_s_per_100k_creates": spread([each.cpu_s_per_unit for each in backlogs]),
        "verified": job.verified(),
    }


def main() -> None:
    options = parser_of(__doc__).parse_args()
    figures = {}
    with (
        tempfile.TemporaryDirectory(prefix="spu-assigner-scaling-") as folder,
        EmbeddedBroker(Path(folder) / "broker") as broker,
    ):
        for number, (name, (master, shards)) in enumerate(VARIANTS.items()):
            job = MeasuredJob(broker, f"v{number}", Path(folder))
            figures[name] = measure(job, master, shards)
            say(f"  {name}: {figures[name]}")
            job.close()
    if options.write:
        keep("scaling", sizes={**SIZES, "backlog": BACKLOG}, figures=figures, show=False)


if __name__ == "__main__":
    main()
