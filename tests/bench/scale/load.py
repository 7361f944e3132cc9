"""The job under load: rates, peak memory by process, and every answer compared with the core.

    python tests/bench/scale/load.py [--write] [--scale 0.1] [scenario …]

Each scenario has a broker and a job of its own, and `spu-assigner verify` judges what it wrote: it
ends with an error if a message is missing, repeated or another.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from spu_assigner.core.base.events import Event, Policy, SpuJoined, TopicCreate
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.bench.figures import keep, parser_of, say
from support.bench.measured_job import MeasuredJob, messages

CAPACITY: Final = 2**31 - 1
RACKS: Final = 20
HEAP: Final = "2g"
ENVIRON: Final = {"SPU_ASSIGNER_SHARDS": "2", "SPU_ASSIGNER_DRIVER_MEMORY": HEAP}
Figures = dict[str, Any]


def join(cluster: str, spu_id: int, rack: str | None = None) -> Event:
    return SpuJoined(
        event_id=f"{cluster}-j{spu_id}",
        cluster_id=cluster,
        spu_id=spu_id,
        rack=rack,
        capacity=CAPACITY,
    )


def create(cluster: str, topic: str, partitions: int, replicas: int) -> Event:
    return TopicCreate(
        event_id=f"{cluster}-{topic}",
        cluster_id=cluster,
        topic=topic,
        partitions=partitions,
        replication_factor=replicas,
    )


def million_creates(job: MeasuredJob, scale: float) -> Figures:
    """Many small topics in many small clusters; all of them live at the end."""
    clusters, count = max(2, round(1_000 * scale)), round(1_000_000 * scale)
    with job.started(ENVIRON), job.sampled() as peaks:
        job.join([join(f"c{c}", s) for c in range(clusters) for s in range(6)])
        work = job.answer([create(f"c{n % clusters}", f"t{n}", 4, 2) for n in range(count)])
    return {
        "clusters": clusters,
        "creates": count,
        "creates_per_s": round(work.per_s),
        "peak_mb": peaks,
    }


def ten_thousand_spus(job: MeasuredJob, scale: float) -> Figures:
    """One cluster as large as one may be."""
    spus = count = max(20, round(10_000 * scale))
    with job.started(ENVIRON), job.sampled() as peaks:
        job.join([join("warm", 0)])
        join_seconds = job.join([join("c", s, f"rack-{s % RACKS}") for s in range(spus)])
        small = job.answer([create("c", f"t{n}", 16, 3) for n in range(count)])
        large = job.answer([create("c", f"large-{n}", 100_000, 3) for n in range(3)])
    return {
        "spus": spus,
        "joins_per_s": round(spus / join_seconds),
        "creates_of_16x3_per_s": round(small.per_s),
        "three_creates_of_100000x3_s": round(large.seconds, 2),
        "peak_mb": peaks,
    }


def maximal_creates(job: MeasuredJob, scale: float) -> Figures:
    """A batch many times larger than its events: 200 maps of 100,000 partitions × 3."""
    return _maximal(job, round(200 * scale), replicas=3, first_spu=0)


def largest_maps(job: MeasuredJob, scale: float) -> Figures:
    """The same with maps of 8.2 MB, as large as a message may be: 16 ids of five bytes a list."""
    return _maximal(job, round(200 * scale), replicas=16, first_spu=2**28)


def _maximal(job: MeasuredJob, count: int, *, replicas: int, first_spu: int) -> Figures:
    """All events are there before the job is: its first batch holds all."""
    spus = job.client("spu-events", "ring-events")
    spus.send(messages([join("c", first_spu + s, f"rack-{s % RACKS}") for s in range(40)]))
    spus.close()
    job.topics.send(messages([create("c", f"t{n}", 100_000, replicas) for n in range(count)]))
    begun = time.perf_counter()
    with job.started(ENVIRON), job.sampled() as peaks:
        job.topics.take(count)
        seconds = time.perf_counter() - begun
    return {
        "maximal_creates": count,
        "partitions": 100_000,
        "replicas": replicas,
        "heap": HEAP,
        "seconds_with_the_start": round(seconds, 1),
        "peak_mb": peaks,
    }


SCENARIOS: Final[dict[str, Callable[[MeasuredJob, float], Figures]]] = {
    each.__name__: each
    for each in (million_creates, ten_thousand_spus, maximal_creates, largest_maps)
}


def figures_of(name: str, scale: float) -> Figures:
    """A scenario on a broker and a job of its own."""
    say(f"{name}: {SCENARIOS[name].__doc__}")
    with (
        tempfile.TemporaryDirectory(prefix=f"spu-assigner-load-{name}-") as folder,
        EmbeddedBroker(Path(folder) / "broker") as broker,
    ):
        job = MeasuredJob(broker, "load", Path(folder), policy=Policy.BALANCED)
        found = SCENARIOS[name](job, scale)
        say("    comparing with the core")
        found["verified"] = job.verified()
        files = (file for file in job.checkpoint.rglob("*") if file.is_file())
        found["checkpoint_mb"] = round(sum(file.stat().st_size for file in files) / 1e6, 1)
        job.close()
    for figure, value in found.items():
        say(f"  {figure:<32} {value}")
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of events")
    parser.add_argument("scenario", nargs="*", choices=[[], *SCENARIOS], default=[])
    asked = parser.parse_args()
    names: Sequence[str] = asked.scenario or list(SCENARIOS)
    found = {name: figures_of(name, asked.scale) for name in names}
    if asked.write:
        keep("load", sizes={"scale": asked.scale}, figures=found, show=False)


if __name__ == "__main__":
    main()
