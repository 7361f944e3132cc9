"""What the product is held to, and what a run of the benches says of it.

`reach` is what must be; `moonshot` is what would be more than anybody asks for. A figure without
its neighbour says little, so most are ratios of two of the same run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from support.bench.figures import slope

Results = Mapping[str, Any]  # by name what a bench has kept
Figure = tuple[str, ...]  # the name of a result, then the way to a figure in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """What a backlog is to reach by a policy."""

    of_plain_loop: float  # times its rate
    of_kafka_streams: float | None
    cpu_s: float  # for 100,000 creates


PRODUCT: Final = {
    "spu-assigner fluvio": Goals(of_plain_loop=1.5, of_kafka_streams=0.9, cpu_s=5.0),
    "spu-assigner balanced": Goals(of_plain_loop=1.0, of_kafka_streams=None, cpu_s=5.5),
}
SMALL: Final = "1,000 topics × 10"
MB_IN_GIB: Final = 2**30 / 1_000_000
LINEAR: Final = 1.1  # as slope on logarithmic scales: 1 is linear, the rest is what noise may add
# Times, over all sizes, of what an event does not touch: it may cost no more than that the
# processor's caches hold less of a larger state.
UNTOUCHED: Final = {"clusters": 2.0, "topics in state": 1.2}


JOB_CURVES: Final = {
    "clusters": "clusters",
    "spus": "SPUs of the cluster",
    "lists": "lists of the map",
}


class Verdict(StrEnum):
    MET = "met"
    MISSED = "missed"
    NOT_ASKED = "–"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A line of the table."""

    what: str
    policy: str
    ours: Figure
    of: Callable[[Results], float | None] | None = None  # what is held to it, if not `ours`
    beside: Sequence[Figure] = ()  # the neighbour's; of several the largest counts
    whose: str = ""  # they are
    unit: str = "×"
    scale: float = 1.0
    at_most: bool = False
    reach: float | None = None
    moonshot: float | None = None

    def value(self, results: Results) -> float | None:
        """What is held to the target: the figure, or its ratio to the neighbour's."""
        if self.of is not None:
            return self.of(results)
        own = figure(results, self.ours)
        if own is None or not self.beside:
            return own if own is None else own / self.scale
        others = [figure(results, each) for each in self.beside]
        known = [each for each in others if each is not None]
        return own / max(known) if len(known) == len(others) and max(known) else None

    def verdict(self, value: float | None, bound: float | None) -> Verdict:
        if bound is None:
            return Verdict.NOT_ASKED
        if value is None:
            return Verdict.NOT_MEASURED
        is_met = value <= bound if self.at_most else value >= bound
        return Verdict.MET if is_met else Verdict.MISSED


def figure(results: Results, place: Figure) -> float | None:
    """A figure; None: it was not measured."""
    found: Any = results.get(place[0], {}).get("figures")
    for key in place[1:]:
        found = found.get(key) if isinstance(found, Mapping) else None
    return float(found) if isinstance(found, int | float) else None


def read_results(folder: Path) -> Results:
    """What is kept in a folder."""
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.json"))
    }


def targets(results: Results) -> list[Target]:
    """All lines, for what was measured."""
    return [
        *_beside_neighbours(),
        *_planner(),
        *_job_growth(),
        *_job_curves(results),
        *_core_growth(results),
        *_core_creates(),
        *_simulate(),
    ]


def _neighbour(name: str, what: str, rank: str = "median") -> Figure:
    return ("neighbours", name, what, rank)


def _beside_neighbours() -> list[Target]:
    found = []
    for product, goals in PRODUCT.items():
        policy = product.split()[-1]
        rate = _neighbour(product, "events_per_s")
        found += [
            Target(
                what="creates/s of a backlog",
                policy=policy,
                ours=rate,
                beside=[_neighbour(name, "events_per_s")],
                whose=name,
                reach=reach,
                moonshot=moonshot,
            )
            for name, reach, moonshot in (
                ("plain loop", goals.of_plain_loop, 2.0),
                ("Quix Streams 100 ms", 3.0, None),
                ("naive transformWithState", 6.0, None),
                ("plain loop with table codec", None, 0.8),
                ("Kafka Streams 100 ms", goals.of_kafka_streams, 1.0),
            )
        ]
        found += [
            *_latencies(product, policy),
            Target(
                what="CPU of 100,000 creates",
                policy=policy,
                ours=_neighbour(product, "cpu_s_per_100k"),
                unit="s",
                at_most=True,
                reach=goals.cpu_s,
                moonshot=2.5,
            ),
        ]
    return found


def _latencies(product: str, policy: str) -> list[Target]:
    bounds = (("p50", 140.0, 80.0), ("p95", 200.0, None), ("p99", 300.0, None))
    return [
        *(
            Target(
                what=f"one create at a time, {rank}",
                policy=policy,
                ours=_neighbour(product, "latency_ms", rank),
                unit="ms",
                at_most=True,
                reach=reach,
                moonshot=moonshot,
            )
            for rank, reach, moonshot in bounds
        ),
        Target(
            what="one create at a time, p50",
            policy=policy,
            ours=_neighbour(product, "latency_ms", "p50"),
            beside=[_neighbour("Spark stateless echo", "latency_ms", "p50")],
            whose="Spark stateless echo",
            at_most=True,
            reach=3.0,
        ),
    ]


def _planner() -> list[Target]:
    def on_ring(
        policy: str,
        ring: str,
        reach: float | None,
        moonshot: float | None,
        other_ring: str | None = None,
    ) -> Target:
        theirs = f"kafka's placer, one topic, {other_ring or ring}"
        return Target(
            what=f"one topic × 100,000, {ring}",
            policy=policy,
            ours=("planner", f"{policy}, one topic, {ring}", "median"),
            beside=[("planner", theirs, "median")],
            whose=f"Kafka's AdminUtils, {other_ring or ring}",
            reach=reach,
            moonshot=moonshot,
        )

    def of_all_rings(policy: str) -> Target:
        ring = "the least of all rings with racks"
        return Target(
            what=f"one topic × 100,000, {ring}",
            policy=policy,
            ours=("planner", f"{policy}, one topic, {ring}: times kafka's placer"),
            whose="Kafka's AdminUtils, the same ring",
            reach=1.0,
            moonshot=3.0,
        )

    def small(policy: str, spus: str) -> Target:
        return Target(
            what=f"{SMALL}, {spus} SPUs",
            policy=policy,
            ours=("planner", f"{policy}, 1,000 topics, {spus} SPUs", "median"),
            beside=[
                ("planner", f"{placer}, 1,000 topics, {spus} SPUs", "median")
                for placer in ("kafka's placer", "kraft's placer")
            ],
            whose="the best of Kafka's placers",
            reach=1.0,
            moonshot=3.0,
        )

    policies = ("fluvio", "kafka", "balanced")
    return [
        *(on_ring(policy, "no racks", 1.0, 5.0) for policy in ("fluvio", "kafka")),
        on_ring("balanced", "no racks", None, None),
        on_ring("balanced", "no racks", 1.0, 3.0, "10 racks"),
        on_ring("balanced", "1,000 capacities, no racks", None, None),
        *(on_ring(policy, "10 racks", 1.0, 3.0) for policy in policies),
        *map(of_all_rings, ("kafka", "balanced")),
        *(small(policy, spus) for spus in ("1,000", "64") for policy in policies),
        *(
            Target(
                what=f"{SMALL}, 1,000 SPUs",
                policy=policy,
                ours=("planner", f"{policy}, 1,000 topics, 1,000 SPUs", "median"),
                unit="million partitions/s",
                scale=1e6,
                reach=3.0,
                moonshot=9.0,
            )
            for policy in policies
        ),
    ]


def _job_growth() -> list[Target]:
    """The job with a million topics in its state, beside the same with a thousand."""
    largest = "1,000,000 topics in state"
    ratios = (("one create at a time, p50", "latency_p50"), ("s a create", "seconds_per_create"))
    memory = (("after a restart", "peak_mb_after_restart"), ("filled", "peak_mb_while_filling"))
    return [
        *(
            Target(
                what=f"job, {what}: topics in state 1,000 → 1,000,000",
                policy="fluvio",
                ours=("growth", "many_of_few", name, "median"),
                unit="× the cost",
                at_most=True,
                reach=1.2,
                moonshot=1.05,  # flat
            )
            for what, name in ratios
        ),
        *(
            Target(
                what=f"memory of all processes, {largest}, {when}",
                policy="fluvio",
                ours=("growth", "many", name, "tree"),
                unit="GiB",
                scale=MB_IN_GIB,
                at_most=True,
                reach=3.0,
                moonshot=2.0,
            )
            for when, name in memory
        ),
        Target(
            what=f"start of the process to its first answer, {largest}",
            policy="fluvio",
            ours=("growth", "many", "restart_s", "first_answer", "median"),
            unit="s",
            at_most=True,
            reach=30.0,
            moonshot=15.0,
        ),
    ]


def _job_curves(results: Results) -> list[Target]:
    """At most linear in what a create touches, as the job's user sees it."""
    measures = (
        ("one create at a time, p50", lambda point: point["latency_ms"]["p50"]),
        ("CPU of a create", lambda point: point["cpu_ms_per_create"]),
    )
    found = []
    for policy, curves in results.get("growth_curves", {}).get("figures", {}).items():
        for curve, points in curves.items() if isinstance(curves, Mapping) else ():
            sizes = [point["size"] for point in points]
            for what, measure in measures:
                values = [measure(point) for point in points]
                is_flat = curve in UNTOUCHED
                value = values[-1] / values[0] if is_flat else slope(sizes, values)
                found.append(
                    Target(
                        what=f"job, {what}: {JOB_CURVES[curve]} {sizes[0]:,} → {sizes[-1]:,}",
                        policy=policy,
                        ours=("growth_curves",),
                        of=lambda _, value=value: value,  # type: ignore[misc]
                        unit="× the cost" if is_flat else "slope",
                        at_most=True,
                        reach=UNTOUCHED.get(curve, LINEAR),
                    )
                )
    return found


def _core_growth(results: Results) -> list[Target]:
    """At most linear in what an event touches, and nothing for what it does not touch."""
    found = []
    for curve, kinds in results.get("core_growth", {}).get("figures", {}).items():
        sizes = kinds["sizes"]
        for kind in kinds:
            if kind == "sizes":
                continue
            event, _, policy = kind.partition(", ")
            measure = "times" if curve in UNTOUCHED else "slope"
            found.append(
                Target(
                    what=f"{event}: {curve} {sizes[0]:,} → {sizes[-1]:,}",
                    policy=policy,
                    ours=("core_growth", curve, kind, measure),
                    unit="× the cost" if measure == "times" else "slope",
                    at_most=True,
                    reach=UNTOUCHED.get(curve, LINEAR),
                )
            )
    return found


def _core_creates() -> list[Target]:
    """Creates of 16 × 3 in the core: what needs and rules cost those who name them, and others."""
    return [
        *(
            Target(
                what=f"core: 16 × 3 with 4 resources and 2 rules, {spus} SPUs",
                policy="balanced",
                ours=("constraints", f"us a create on {spus} SPUs, 4 resources and 2 rules"),
                unit="µs",
                at_most=True,
                reach=reach,
            )
            for spus, reach in (("64", 150.0), ("1,000", 600.0))
        ),
        Target(
            # Of the program that was timed in the line above. A share of 0.833 would be 150 µs.
            what="the same on 64 SPUs, instructions now",
            policy="balanced",
            ours=("by_rules", "64 SPUs", "instructions"),
            beside=[("by_rules", "64 SPUs", "instructions_beside")],
            whose="when it was timed",
            at_most=True,
        ),
        *(
            Target(
                what=f"core: 16 × 3 with neither, {ring}, instructions",
                policy=policy,
                ours=("no_need", f"{case}; none{suffix}", "instructions", "one create"),
                beside=[("no_need", f"{case}; none{suffix}", "instructions", "beside")],
                whose="before there were any",
                at_most=True,
                reach=1.0,
            )
            for policy, suffix in (("balanced", ""), ("fluvio", "; fluvio"))
            for ring, case in (
                ("64 SPUs", "64 SPUs, 1 kind"),
                ("64 SPUs on 3 racks", "64 SPUs, 3 racks, 1 kind"),
            )
        ),
    ]


def _simulate() -> list[Target]:
    return [
        Target(
            what="`spu-assigner simulate`, one event, the whole process",
            policy="",
            ours=("simulate", "simulate_s", "median"),
            unit="s",
        )
    ]
