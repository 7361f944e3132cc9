"""What each part of the two profiles is worth, as a table for README."""

from __future__ import annotations

from typing import Any, Final

HEAD: Final = (
    "| `--profile throughput`, and with what of `latency` | p50 / p95 ms | CPU ms a create "
    "| backlog, creates/s | CPU s per 100,000 | start, s |",
    "| --- | --- | --- | --- | --- | --- |",
)


def table(figures: dict[str, Any]) -> str:
    """Of the figures in `profiles.json`, in Markdown."""
    lines = list(HEAD)
    for name, figure in figures.items():
        latency = figure["latency_ms"]
        cells = (
            f"{figure['shown']}",
            f"{latency['p50']:.0f} / {latency['p95']:.0f}",
            f"{figure['cpu_ms_per_create']['median']:.0f}",
            f"{_rounded(figure['creates_per_s']['median']):,}",
            f"{figure['cpu_s_per_100k']['median']:.1f}",
            f"{figure['start_s']['median']:.0f}",
        )
        mark = "**" if name in ("throughput", "latency") else ""
        lines.append("| " + " | ".join(f"{mark}{cell}{mark}" for cell in cells) + " |")
    return "\n".join(lines)


def _rounded(rate: float) -> int:
    """Two hundred creates a second are within what a repetition differs by."""
    return round(rate / 100) * 100
