"""What a job costs its owner, as a table for the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from support.bench.figures import figure, markdown_table


class Line(NamedTuple):
    """A line of the table, and what it is held to: at most."""

    what: str
    place: str  # of the figure, with points between
    unit: str
    reach: float
    moonshot: float


LINES: Final = (
    Line("idle: the job", "idle.job_cores", "cores", 0.05, 0.02),
    Line("idle: the broker that it polls", "idle.broker_cores", "cores", 0.05, 0.02),
    Line("CPU time of one create, job without broker", "lone.job_cpu_ms", "ms", 80, 40),
    Line("one create at a time, p50", "lone.latency_ms.p50", "ms", 70, 20),
    Line("one create at a time, p95", "lone.latency_ms.p95", "ms", 110, 20),
    Line("the same with a pause of 0.3 s between, p50", "paused_ms.p50", "ms", 60, 20),
    Line("the first create after a minute without one", "after_idle_ms.median", "ms", 100, 50),
    Line("200 creates a second, evenly spread: the job", "steady.job_cores", "cores", 0.5, 0.2),
    Line(
        "200 creates a second, evenly spread: the broker", "steady.broker_cores", "cores", 0.5, 0.2
    ),
    Line(
        "start after a kill to the answer of a create that waits, median of 3",
        *("restart_s.median", "s", 6, 4),
    ),
    Line("memory of all processes of an idle job", "memory_mib", "MiB", 900, 600),
)
HEAD: Final = (
    *("what", "this", "Spark alone", "earlier", "this ÷ earlier"),
    *("unit", "reach", "moonshot"),
)


def table(figures: Mapping[str, Any]) -> str:
    """Of the figures in `cost.json`, in Markdown; bold: target missed."""
    rows = []
    for line in LINES:
        this, alone, earlier = (
            figure(figures, program, *line.place.split("."))
            for program in ("this", "spark_alone", "earlier")
        )
        shown = _shown(this)
        if this is not None and this > line.reach:
            shown = f"**{shown}**"
        elif this is not None and this <= line.moonshot:
            shown = f"{shown} ★"
        ratio = f"{this / earlier:.2f}" if this is not None and earlier else ""
        bounds = (f"≤ {bound:g}" for bound in (line.reach, line.moonshot))
        rows.append([line.what, shown, _shown(alone), _shown(earlier), ratio, line.unit, *bounds])
    return markdown_table(HEAD, rows)


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
