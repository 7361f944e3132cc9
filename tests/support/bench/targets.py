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
MB_IN_GIB: Final = 2**30 / 1_000_000
LINEAR: Final = 1.1  # as slope on logarithmic scales: 1 is linear, the rest is what noise may add
# Times, over all sizes, of what an event does not touch: it may cost no more than that the
# processor's caches hold less of a larger state.
UNTOUCHED: Final = {"clusters": 2.0, "topics in state": 1.2}


# Cases of core_ratios: 16 × 3 on 64 SPUs.
RACKED: Final = "on 3 racks"
UNEQUAL: Final = "on 3 racks, 3 capacities"
RULED: Final = "4 resources and 2 rules"


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
        *_job_growth(),
        *_core_growth(results),
        *_core_speed(),
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


def _core_speed() -> list[Target]:
    """A create in the core; what is cheap by a table, and what takes the general way."""
    return [
        Target(
            what=f"core: {case}",
            policy=policy,
            ours=("core_ratios", f"{case}, {policy}", "us_an_event", "median"),
            unit="µs",
            at_most=True,
            reach=reach,
        )
        for case, policy, reach in (
            ("small creates", "fluvio", 35.0),
            ("small creates", "balanced", 80.0),
            (RACKED, "balanced", 150.0),
            (UNEQUAL, "balanced", 250.0),
            (RULED, "balanced", 300.0),
        )
    ]
