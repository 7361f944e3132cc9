"""README's tables and curves, made of the stored results: no figure in them is written by hand."""

from __future__ import annotations

import re
from typing import Any, Final

from support.bench_table import markdown
from support.curves import drawable
from support.profile_table import table as profile_table
from support.targets import Results

OPENS: Final = "<!-- {name} -->\n"
CLOSES: Final = "<!-- /{name} -->"


def tables(results: Results) -> dict[str, str]:
    """By the names of their places in README."""
    return {
        "targets": markdown(results),
        "neighbours": _neighbours(results),
        "profiles": _profiles(results),
        "curves": _curves(results),
    }


def with_tables(readme: str, results: Results) -> str:
    """README with its tables as the results have them.

    Raises:
        ValueError: it has no place for one.
    """
    for name, table in tables(results).items():
        opens, closes = OPENS.format(name=name), CLOSES.format(name=name)
        place = re.compile(f"(?<={re.escape(opens)}).*(?={re.escape(closes)})", re.DOTALL)
        readme, count = place.subn(lambda _, table=table: table, readme)  # type: ignore[misc]
        if count != 1:
            raise ValueError(f"README has {count} places for {name!r}")
    return readme


def _neighbours(results: Results) -> str:
    rows = [
        "| who | guarantee | p50 / p95 / p99 ms | creates/s | CPU s per 100,000 |",
        "| --- | --- | --- | --- | --- |",
    ]
    figures: dict[str, Any] = results.get("neighbours", {}).get("figures", {})
    for name, each in figures.items():
        if "latency_ms" in each:
            cells = (
                " / ".join(f"{each['latency_ms'][rank]:.0f}" for rank in ("p50", "p95", "p99")),
                f"{each['events_per_s']['median']:,.0f}",
                f"{each['cpu_s_per_100k']['median']:.1f}",
            )
        else:
            cells = ("failed" if "failed" in each else "could not be run", "", "")
        rows.append(f"| {' | '.join((name, each['guarantee'], *cells))} |")
    return "\n".join(rows) + "\n"


def _profiles(results: Results) -> str:
    figures: dict[str, Any] = results.get("profiles", {}).get("figures", {})
    return profile_table(figures) + "\n" if figures else "Not measured yet.\n"


def _curves(results: Results) -> str:
    return "".join(
        f"![{picture.caption}](tests/bench/curves/{name}.png)\n"
        for name, picture in drawable(results).items()
    )
