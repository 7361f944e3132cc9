"""How the job's cost grows: with clusters, with SPUs in a cluster, with replica lists in a map.

    python tests/bench/scale/growth_curves.py [--quick] [--write] [--policy fluvio,balanced]

One job on a broker of its own, one for each policy. At each point, once its SPUs have joined and a
few creates have warmed it up: the latency of single creates, from before one is produced until its
answer is read, then the rate of a backlog and the processor time of all of the job's processes.

Every map is held against the core. With --write the figures go to results/growth_curves.json. Exit
status: 1 if a map is wrong.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from spu_assigner.core.base.events import Event, Policy, SpuJoined, TopicCreate
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from support.bench.figures import keep, percentiles
from support.bench.growing import GrowingJob
from support.bench.loadrun import say

PARTITIONS: Final = 16
REPLICAS: Final = 3
SPUS: Final = 64  # of a cluster, where they are not what grows
SPUS_OF_MANY: Final = 8  # where clusters are
CAPACITY: Final = 2**31 - 1
POLICIES: Final = (Policy.FLUVIO, Policy.BALANCED)
LISTS_MAX: Final = 2_000_000  # of a backlog
WARM_UP: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """So many of what grows."""

    curve: str
    size: int
    clusters: int = 1
    spus: int = SPUS
    partitions: int = PARTITIONS

    @property
    def prefix(self) -> str:
        return f"{self.curve}-{self.size}"

    def joins(self) -> list[Event]:
        return [
            SpuJoined(
                event_id=f"{self.prefix}-{cluster}-j{spu}",
                cluster_id=f"{self.prefix}-{cluster}",
                spu_id=spu,
                capacity=CAPACITY,
            )
            for cluster in range(self.clusters)
            for spu in range(self.spus)
        ]

    def creates(self, policy: Policy) -> Iterator[Event]:
        """Without end, over the clusters in turn."""
        number = 0
        while True:
            yield TopicCreate(
                event_id=f"{self.prefix}-e{number}",
                cluster_id=f"{self.prefix}-{number % self.clusters}",
                topic=f"t{number}",
                partitions=self.partitions,
                replication_factor=REPLICAS,
                policy=policy,
            )
            number += 1


def points(*, quick: bool) -> list[Point]:
    """All that are measured."""
    many = (1, 100) if quick else (1, 10, 100, 1_000, 10_000)
    wide = (10, 100) if quick else (10, 100, 1_000, 10_000)
    long = (1, 1_000) if quick else (1, 10, 100, 1_000, 10_000, 100_000)
    return [
        *(Point(curve="clusters", size=n, clusters=n, spus=SPUS_OF_MANY) for n in many),
        *(Point(curve="spus", size=n, spus=n) for n in wide),
        *(Point(curve="lists", size=n, partitions=n) for n in long),
    ]


def measure(job: GrowingJob, point: Point, policy: Policy, *, quick: bool) -> dict[str, Any]:
    """One point."""
    asks, most = (10, 1_000) if quick else (30, 10_000)
    joins_s = job.join(point.joins())
    creates = point.creates(policy)

    def take(count: int) -> Sequence[Event]:
        return [next(creates) for _ in range(count)]

    count = max(2, min(most, LISTS_MAX // point.partitions))
    job.ask_each(take(WARM_UP))
    latencies = job.ask_each(take(asks))
    job.answer(take(max(2, count // 10)))
    backlog = job.answer(take(count))
    found = {
        "size": point.size,
        "joins_per_s": round(point.clusters * point.spus / joins_s),
        "latency_ms": percentiles(latencies),
        "backlog": count,
        "creates_per_s": round(backlog.per_s, 1),
        "cpu_ms_per_create": round(1000 * backlog.cpu_s / count, 3),
    }
    say(
        f"    {point.curve:<9} {point.size:>7,}: p50 {found['latency_ms']['p50']:7.1f} ms, "
        f"{backlog.per_s:10,.1f} creates/s, {found['cpu_ms_per_create']:9.3f} ms of CPU a create"
    )
    return found


def run(policies: Sequence[Policy], folder: Path, *, quick: bool) -> tuple[dict[str, Any], int]:
    """All curves: the figures, and how many maps are wrong."""
    figures: dict[str, Any] = {}
    wrong = 0
    for policy in policies:
        say(f"  {policy}")
        curves: dict[str, list[dict[str, Any]]] = {}
        with EmbeddedBroker(folder / f"broker-{policy}") as broker:
            job = GrowingJob(broker.bootstrap_servers, policy.value, folder)
            with job.started():
                for point in points(quick=quick):
                    found = measure(job, point, policy, quick=quick)
                    curves.setdefault(point.curve, []).append(found)
            wrong += job.wrong_answers()
            job.close()
        figures[policy.value] = curves
    return {**figures, "wrong_answers": wrong}, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="How the job's cost grows.")
    parser.add_argument("--quick", action="store_true", help="few points, small")
    parser.add_argument("--write", action="store_true", help="keep results/growth_curves.json")
    parser.add_argument("--policy", default=",".join(POLICIES), help="by name, with commas")
    asked = parser.parse_args()
    policies = [Policy(name) for name in asked.policy.split(",")]
    folder = Path(tempfile.mkdtemp(prefix="spu-assigner-curves-"))
    try:
        figures, wrong = run(policies, folder, quick=asked.quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    say(f"  wrong answers: {wrong}")
    if asked.write:
        sizes = {"partitions": PARTITIONS, "replicas": REPLICAS, "spus": SPUS}
        sizes |= {"spus_where_clusters_grow": SPUS_OF_MANY}
        keep("growth_curves", sizes=sizes, figures=figures, show=False)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
