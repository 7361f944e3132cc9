"""Tables and curves of the documentation, made of the stored results.

No figure in them is written by hand.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from support.bench_table import markdown
from support.curves import drawable
from support.profile_table import table as profile_table
from support.targets import Results

ROOT: Final = Path(__file__).parents[2]
OPENS: Final = "<!-- {name} -->\n"
CLOSES: Final = "<!-- /{name} -->"
# Which page has which tables, by the names of their places.
PAGES: Final = {
    "README.md": ("headline",),
    "docs/performance.md": ("targets", "curves", "neighbours", "profiles"),
}


def tables(results: Results) -> dict[str, str]:
    """By the names of their places."""
    return {
        "headline": _headline(results),
        "targets": markdown(results),
        "neighbours": _neighbours(results),
        "profiles": _profiles(results),
        "curves": _curves(results),
    }


def publish_tables(results: Results, root: Path = ROOT) -> None:
    """Write the tables into the pages."""
    for name in PAGES:
        page = root / name
        text = with_tables(page.read_text(encoding="utf-8"), name, results)
        page.write_text(text, encoding="utf-8")


def with_tables(text: str, page: str, results: Results) -> str:
    """The text of a page with its tables as the results have them.

    Raises:
        ValueError: the page has no place for a table, or several.
    """
    made = tables(results)
    for name in PAGES[page]:
        opens, closes = OPENS.format(name=name), CLOSES.format(name=name)
        place = re.compile(f"(?<={re.escape(opens)}).*(?={re.escape(closes)})", re.DOTALL)
        text, count = place.subn(lambda _, table=made[name]: table, text)  # type: ignore[misc]
        if count != 1:
            raise ValueError(f"{page} has {count} places for {name!r}")
    return text


def _headline(results: Results) -> str:
    """The few figures that README shows."""
    contestants: dict[str, Any] = results.get("neighbours", {}).get("figures", {})
    ours = [contestants.get(f"spu-assigner {policy}", {}) for policy in ("balanced", "fluvio")]
    many: dict[str, Any] = results.get("growth", {}).get("figures", {}).get("many", {})
    rows = [
        "| measured | `balanced` | `fluvio` |",
        "| --- | --- | --- |",
        _row(
            "one create at a time: p50 / p95",
            [_latency(each["latency_ms"]) if "latency_ms" in each else None for each in ours],
        ),
        _row(
            "a backlog of creates (16 partitions × 3 replicas)",
            [
                f"{each['events_per_s']['median']:,.0f}/s" if "events_per_s" in each else None
                for each in ours
            ],
        ),
    ]
    memory, start = many.get("peak_mb_after_restart"), many.get("restart_s")
    rows += [
        _row(
            "1,000,000 topics in state: memory of all processes",
            [None, f"{memory['tree'] / 1024:.2f} GiB" if memory else None],
            absent="",
        ),
        _row(
            "1,000,000 topics in state: start of the process to its first answer",
            [None, f"{start['first_answer']['median']:.1f} s" if start else None],
            absent="",
        ),
    ]
    return "\n".join(rows) + "\n"


def _latency(ranks: dict[str, float]) -> str:
    return f"{ranks['p50']:.0f} / {ranks['p95']:.0f} ms"


def _row(what: str, cells: list[str | None], *, absent: str = "not measured") -> str:
    return f"| {' | '.join([what, *(cell or absent for cell in cells)])} |"


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
        f"![{picture.caption}](../tests/bench/curves/{name}.png)\n"
        for name, picture in drawable(results).items()
    )
