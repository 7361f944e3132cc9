"""What each part of the two profiles is worth, as a table for the documentation."""

from __future__ import annotations

from typing import Any, Final

HEAD: Final = (
    "| what is set | one at a time: p50 / p95 ms | × | CPU ms | × | backlog: creates/s | × "
    "| CPU s per 100,000 | × |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
)


def table(figures: dict[str, Any]) -> str:
    """Of the figures in `profiles.json`, in Markdown."""
    lines = list(HEAD)
    for figure in figures.values():
        latency, ratios = figure["latency_ms"], figure.get("of_throughput")
        cells = (
            figure["shown"],
            f"{latency['p50']:.0f} / {latency['p95']:.0f}",
            _ratio(ratios, "latency_ms"),
            f"{figure['cpu_ms_per_create']['median']:.0f}",
            _ratio(ratios, "cpu_ms_per_create"),
            f"{_rounded(figure['creates_per_s']['median']):,}",
            _ratio(ratios, "creates_per_s"),
            f"{figure['cpu_s_per_100k']['median']:.1f}",
            _ratio(ratios, "cpu_s_per_100k"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _rounded(rate: float) -> int:
    """To a hundred a second: repetitions differ by more."""
    return round(rate / 100) * 100


def _ratio(ratios: dict[str, Any] | None, name: str) -> str:
    """To the job of profile throughput that was up at the same time."""
    if ratios is None:
        return "1"
    found = ratios[name]
    return f"{found['median'] if isinstance(found, dict) else found:.2f}"
