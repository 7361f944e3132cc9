"""What each part of the two profiles is worth, as a table for README."""

from __future__ import annotations

from typing import Any, Final

HEAD: Final = (
    "| what is set | one at a time: p50 / p95 ms | × p50 | CPU ms | backlog: creates/s | × "
    "| CPU s per 100,000 |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


def table(figures: dict[str, Any]) -> str:
    """Of the figures in `profiles.json`, in Markdown."""
    lines = list(HEAD)
    for figure in figures.values():
        latency, ratios = figure["latency_ms"], figure["of_throughput"]
        cells = (
            figure["shown"],
            f"{latency['p50']:.0f} / {latency['p95']:.0f}",
            f"{ratios['latency_ms']['median']:.2f}",
            f"{figure['cpu_ms_per_create']['median']:.0f}",
            f"{_rounded(figure['creates_per_s']['median']):,}",
            f"{ratios['creates_per_s']['median']:.2f}",
            f"{figure['cpu_s_per_100k']['median']:.1f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _rounded(rate: float) -> int:
    """To a hundred a second: repetitions differ by more."""
    return round(rate / 100) * 100
