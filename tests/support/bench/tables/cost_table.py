"""What a job costs its owner, as a table for the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the table, and what it is held to: at most."""

    what: str
    place: tuple[str, ...]  # of the figure
    unit: str
    reach: float
    moonshot: float


LINES: Final = (
    Line(
        what="idle: the job",
        place=("idle", "job_cores"),
        unit="cores",
        reach=0.05,
        moonshot=0.02,
    ),
    Line(
        what="idle: the broker that it polls",
        place=("idle", "broker_cores"),
        unit="cores",
        reach=0.05,
        moonshot=0.02,
    ),
    Line(
        what="CPU time of one create, job without broker",
        place=("lone", "job_cpu_ms"),
        unit="ms",
        reach=80,
        moonshot=40,
    ),
    Line(
        what="one create at a time, p50",
        place=("lone", "latency_ms", "p50"),
        unit="ms",
        reach=70,
        moonshot=20,
    ),
    Line(
        what="one create at a time, p95",
        place=("lone", "latency_ms", "p95"),
        unit="ms",
        reach=110,
        moonshot=20,
    ),
    Line(
        what="the same with a pause of 0.3 s between, p50",
        place=("paused_ms", "p50"),
        unit="ms",
        reach=60,
        moonshot=20,
    ),
    Line(
        what="the first create after a minute without one",
        place=("after_idle_ms", "median"),
        unit="ms",
        reach=100,
        moonshot=50,
    ),
    Line(
        what="200 creates a second, evenly spread: the job",
        place=("steady", "job_cores"),
        unit="cores",
        reach=0.5,
        moonshot=0.2,
    ),
    Line(
        what="200 creates a second, evenly spread: the broker",
        place=("steady", "broker_cores"),
        unit="cores",
        reach=0.5,
        moonshot=0.2,
    ),
    Line(
        what="start after a kill to the answer of a create that waits, median of 3",
        place=("restart_s", "median"),
        unit="s",
        reach=6,
        moonshot=4,
    ),
    Line(
        what="memory of all processes of an idle job",
        place=("memory_mib",),
        unit="MiB",
        reach=900,
        moonshot=600,
    ),
)
HEAD: Final = (
    "| what | this | Spark alone | earlier | this ÷ earlier | unit | reach | moonshot |",
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
)


def table(figures: Mapping[str, Any]) -> str:
    """Of the figures in `cost.json`, in Markdown; bold: target missed."""
    rows = list(HEAD)
    for line in LINES:
        this = figure(figures.get("this", {}), line)
        alone = figure(figures.get("spark_alone", {}), line)
        earlier = figure(figures.get("earlier", {}), line)
        shown = "" if this is None else _shown(this)
        if this is not None and this > line.reach:
            shown = f"**{shown}**"
        elif this is not None and this <= line.moonshot:
            shown = f"{shown} ★"
        cells = (
            line.what,
            shown,
            "" if alone is None else _shown(alone),
            "" if earlier is None else _shown(earlier),
            "" if this is None or not earlier else f"{this / earlier:.2f}",
            line.unit,
            f"≤ {line.reach:g}",
            f"≤ {line.moonshot:g}",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def figure(figures: Mapping[str, Any], line: Line) -> float | None:
    """The figure of a line; None: it was not measured."""
    found: Any = figures
    for key in line.place:
        found = found.get(key) if isinstance(found, Mapping) else None
    return float(found) if isinstance(found, int | float) else None
