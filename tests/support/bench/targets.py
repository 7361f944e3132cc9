"""What the product is held to, and the table that says whether the results reach it.

`reach` is what must be; `moonshot` is what would be more than anybody asks for. A figure without
its neighbour says little, so most are ratios of two of the same run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from support.bench.figures import figure, markdown_table

Results = Mapping[str, Any]  # by name what a bench has kept
Bounds = Sequence[float | None]  # reach, moonshot
POLICIES: Final = ("balanced", "fluvio", "kafka")
# By policy the rate of a backlog beside Kafka Streams', and CPU s of 100,000.
BACKLOG: Final = {"fluvio": (0.9, 5.0), "balanced": (None, 5.5)}
MB_IN_GIB: Final = 2**30 / 1_000_000
LINEAR: Final = 1.1  # as slope on logarithmic scales: 1 is linear, the rest is what noise may add
# Times, over all sizes, of what an event does not touch: it may cost no more than that the
# processor's caches hold less of a larger state.
UNTOUCHED: Final = {"clusters": 2.0, "topics in state": 1.2}

# Cases of core_ratios: 16 × 3 on 64 SPUs.
RACKED: Final = "on 3 racks"
UNEQUAL: Final = "on 3 racks, 3 capacities"
RULED: Final = "4 resources and 2 rules"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A cell of the table."""

    what: str
    policy: str
    ours: tuple[str, ...]  # the name of a result, then the way to a figure in it
    beside: str = ""  # the neighbour, whose same figure is the divisor
    unit: str = "×"
    scale: float = 1.0
    at_most: bool = False
    reach: float | None = None
    moonshot: float | None = None

    def value(self, results: Results) -> float | None:
        """The figure, or its ratio to the neighbour's; None: it was not measured."""
        result, *place = self.ours
        found = results.get(result, {}).get("figures", {})
        own = figure(found, *place)
        if own is None or not self.beside:
            return own if own is None else own / self.scale
        other = figure(found, self.beside, *place[1:])
        return own / other if other else None

    def meets(self, value: float, bound: float | None) -> bool:
        if bound is None:
            return False
        return value <= bound if self.at_most else value >= bound

    def bound(self, bound: float | None) -> str:
        return "" if bound is None else f"{'≤' if self.at_most else '≥'} {number(bound)}"

    def cell(self, value: float | None) -> str:
        """Bold: missed; a star: more than anybody asks for."""
        if value is None:
            return "not measured"
        missed = self.reach is not None and not self.meets(value, self.reach)
        star = " ★" if self.meets(value, self.moonshot) else ""
        return (f"**{number(value)}**" if missed else number(value)) + star


def number(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def table(results: Results, *, measured_only: bool = False) -> str:
    """In Markdown: a line for each target, a column for each policy."""
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for target in targets(results):
        value = target.value(results)
        if value is None and measured_only:
            continue
        what = f"{target.what} ÷ {target.beside}" if target.beside else target.what
        line = (what, target.unit, target.bound(target.reach), target.bound(target.moonshot))
        lines.setdefault(line, {})[target.policy] = target.cell(value)
    # An event without a policy costs the same under each.
    return markdown_table(
        ["what", *(f"`{each}`" for each in POLICIES), "unit", "reach", "moonshot"],
        [
            [what, *(cells.get(each, cells.get("", "")) for each in POLICIES), *rest]
            for (what, *rest), cells in lines.items()
        ],
    )


# What a job costs its owner: the line, the place of the figure, its unit, reach and moonshot. A
# figure in × is divided by that of Spark alone.
RESTART: Final = "restart_s.first_answer.median"
COST: Final = (
    ("restart after a kill to the answer of a waiting create", RESTART, "s", None, None),
    ("the same ÷ Spark alone", RESTART, "×", 1.2, 1.0),
    ("one create at a time, p50", "lone.latency_ms.p50", "ms", 70, 20),
    ("CPU time of one create, job without broker", "lone.job_cpu_ms", "ms", 60, 40),
    ("memory of all processes of an idle job", "memory_mib.tree", "MiB", 750, 600),
    ("of it: Spark's JVM", "memory_mib.jvm", "MiB", None, None),
    ("of it: the shard's two servers", "memory_mib.servers", "MiB", None, None),
    ("200 creates/s: job and broker", "steady.cores", "cores", 0.4, 0.3),
    ("idle: the job", "idle.job_cores", "cores", 0.05, 0.02),
    ("idle: the broker that it polls", "idle.broker_cores", "cores", 0.05, 0.02),
    ("the same after a pause of 0.3 s, p50", "paused_ms.p50", "ms", 60, 20),
    ("the first create after a minute without one", "after_idle_ms.median", "ms", 100, 50),
)


def cost_table(figures: Mapping[str, Any]) -> str:
    """Of the figures in `cost.json`, in Markdown."""
    rows = []
    for what, place, unit, *bounds in COST:
        this, alone = (
            figure(figures, program, *place.split(".")) for program in ("this", "spark_alone")
        )
        if unit == "×":
            this, alone = (this / alone if this and alone else None), None
        target = _most(what, "balanced", (), unit, bounds)
        other = "" if alone is None else number(alone)
        rows.append([what, target.cell(this), other, unit, *map(target.bound, bounds)])
    return markdown_table(["what", "the job", "Spark alone", "unit", "reach", "moonshot"], rows)


def targets(results: Results) -> Iterator[Target]:
    """All, for what was measured."""
    yield from _beside_neighbours()
    start = ("first_start", "make run", "first_map", "median")
    what = "`make run` in a fresh clone to the first map, network apart"
    yield _most(what, "fluvio", start, "s", (45.0, 25.0))
    yield from _job_growth()
    yield from _core_growth(results)
    for case, policy, reach in (  # what is cheap by a table, and what takes the general way
        ("small creates", "fluvio", 35.0),
        ("small creates", "balanced", 80.0),
        (RACKED, "balanced", 150.0),
        (UNEQUAL, "balanced", 250.0),
        (RULED, "balanced", 300.0),
    ):
        place = ("core_ratios", f"{case}, {policy}", "us_an_event", "median")
        yield from _missed(_most(f"core: {case}", policy, place, "µs", (reach, None)), results)


def _most(
    what: str, policy: str, place: tuple[str, ...], unit: str, bounds: Bounds, **more: Any
) -> Target:
    reach, moonshot = bounds
    bound = {"at_most": True, "reach": reach, "moonshot": moonshot}
    return Target(what=what, policy=policy, ours=place, unit=unit, **bound, **more)


def _beside_neighbours() -> Iterator[Target]:
    for policy, (of_kafka_streams, cpu_s) in BACKLOG.items():
        ours = ("neighbours", f"spu-assigner {policy}")
        for name, reach, moonshot in (
            ("Quix Streams 100 ms", 3.0, None),
            ("naive transformWithState", 6.0, None),
            (f"plain loop with core {policy}", 0.9, 1.2),
            ("Kafka Streams 100 ms", of_kafka_streams, 1.0),
        ):
            yield Target(
                what="creates/s of a backlog",
                policy=policy,
                ours=(*ours, "events_per_s", "median"),
                beside=name,
                reach=reach,
                moonshot=moonshot,
            )
        alone = "one create at a time"
        p50, echo = (*ours, "latency_ms", "p50"), "Spark stateless echo"
        yield _most(f"{alone}, p50", policy, p50, "ms", (140.0, 80.0))
        yield _most(f"{alone}, p50", policy, p50, "×", (2.0, 1.5), beside=echo)
        cpu = (*ours, "cpu_s_per_100k", "median")
        yield _most("CPU of 100,000 creates", policy, cpu, "s", (cpu_s, 2.5))


def _job_growth() -> Iterator[Target]:
    """The job with a million topics in its state, beside the same with a thousand."""
    largest = "1,000,000 topics in state"
    for what, name in (
        ("one create at a time, p50", "latency_p50"),
        ("s a create", "seconds_per_create"),
    ):
        place = ("growth", "many_of_few", name, "median")
        line = f"job, {what}: topics in state 1,000 → 1,000,000"
        yield _most(line, "fluvio", place, "× the cost", (1.2, 1.05))
    place = ("growth", "many", "peak_mb_after_restart", "tree")
    what = f"memory of all processes, {largest}"
    yield _most(what, "fluvio", place, "GiB", (3.0, 2.0), scale=MB_IN_GIB)
    what = f"start of the process to its first answer, {largest}"
    place = ("growth", "many", "restart_s", "first_answer", "median")
    yield _most(what, "fluvio", place, "s", (30.0, 15.0))


def _core_growth(results: Results) -> Iterator[Target]:
    """What is more than linear in what an event touches, or not flat in what it does not touch: a
    picture shows the rest."""
    for curve, kinds in results.get("core_growth", {}).get("figures", {}).items():
        sizes = kinds["sizes"]
        for kind in (each for each in kinds if each != "sizes"):
            event, _, policy = kind.partition(", ")
            what = f"{event}: {curve} {sizes[0]:,} → {sizes[-1]:,}"
            measure, unit = ("times", "× the cost") if curve in UNTOUCHED else ("slope", "slope")
            place = ("core_growth", curve, kind, measure)
            bounds = (UNTOUCHED.get(curve, LINEAR), None)
            yield from _missed(_most(what, policy, place, unit, bounds), results)


def _missed(target: Target, results: Results) -> Iterator[Target]:
    """The target, unless it was measured and is met."""
    value = target.value(results)
    if value is None or not target.meets(value, target.reach):
        yield target
