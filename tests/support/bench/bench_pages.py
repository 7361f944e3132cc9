"""Tables and curves of the documentation, made of the stored results.

No figure in them is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from support.bench.curves import drawable
from support.bench.tables.bench_table import markdown
from support.bench.tables.cost_table import table as cost_table
from support.bench.tables.worst_table import table as worst_table
from support.bench.targets import MB_IN_GIB, Results

ROOT: Final = Path(__file__).parents[3]
OPENS: Final = "<!-- {name} -->\n"
CLOSES: Final = "<!-- /{name} -->"
# Which page has which tables, by the names of their places.
PAGES: Final = {
    "README.md": ("headline",),
    "docs/moves.md": ("moves",),
    "docs/performance.md": (
        *("targets", "cost", "curves", "neighbours"),
        *("worst", "evenness", "movement"),
    ),
}
# Scenarios of comparison.json, and incidents of movement.json, as the page calls them.
_UNEVEN: Final = "3 uneven racks (500, 300, 200), equal capacities"
_INCIDENTS: Final = {
    "decommission": ("one SPU decommissioned", -1),
    "2 join": ("2 empty SPUs join, rebalance", 2),
    "3 join": ("3 empty SPUs join, rebalance", 3),
}


def tables(results: Results) -> dict[str, str]:
    """By the names of their places."""
    return {
        "headline": _headline(results),
        "moves": _moves(results),
        "targets": markdown(results),
        "cost": cost_table(results.get("cost", {}).get("figures", {})) + "\n",
        "worst": worst_table(results.get("worst_events", {}).get("figures", {})) + "\n",
        "neighbours": _neighbours(results),
        "curves": _curves(results),
        "evenness": _evenness(results, _UNEVEN),
        "movement": _movement(results),
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
    lasting: dict[str, Any] = results.get("cost", {}).get("figures", {}).get("this", {})
    many: dict[str, Any] = results.get("growth", {}).get("figures", {}).get("many", {})
    rows = [
        "| measured | `balanced` | `fluvio` |",
        "| --- | --- | --- |",
        _row(
            "one create at a time, after some minutes: p50 / p95",
            [_latency(lasting["lone"]["latency_ms"]) if lasting else "not measured", None],
            absent="",
        ),
        _row(
            "a backlog of creates (16 partitions × 3 replicas)",
            [
                f"{each['events_per_s']['median']:,.0f}/s" if each else None
                for each in map(contestants.get, ("spu-assigner balanced", "spu-assigner fluvio"))
            ],
        ),
        *_idle(lasting),
    ]
    memory, start = many.get("peak_mb_after_restart"), many.get("restart_s")
    rows += [
        _row(
            "1,000,000 topics in state: memory of all processes",
            [None, f"{memory['tree'] / MB_IN_GIB:.2f} GiB" if memory else None],
            absent="",
        ),
        _row(
            "1,000,000 topics in state: start of the process to its first answer",
            [None, f"{start['first_answer']['median']:.1f} s" if start else None],
            absent="",
        ),
    ]
    return "\n".join(rows) + "\n"


def _idle(figures: dict[str, Any]) -> list[str]:
    """What a job takes that nobody asks for anything."""
    if not figures:
        return []
    idle = figures["idle"]
    shares = f"{idle['job_cores'] * 100:.1f} % / {idle['broker_cores'] * 100:.1f} %"
    return [
        _row("idle: the job / its broker, of a core", [shares, None], absent=""),
        _row("idle: memory of all processes", [f"{figures['memory_mib']} MiB", None], absent=""),
    ]


def _moves(results: Results) -> str:
    """The same moves by the command and by Kafka's tool."""
    figures = results.get("moves", {}).get("figures")
    if not figures:
        return ""
    rows = ["| | `apply --moves` | `kafka-reassign-partitions` |", "| --- | --- | --- |"]
    for name, what, form in (
        ("steps_of_a_person", "steps of a person", ""),
        ("seconds", "seconds", ".0f"),
        ("bytes_per_byte_to_move", "bytes copied ÷ bytes to copy", ".2f"),
        ("rate_to_throttle", "bytes ÷ seconds ÷ throttle", ".2f"),
        ("most_to_throttle", "the same, the most of any 11 s", ".2f"),
        ("moves_at_once", "moves at once, at most", ""),
    ):
        cells: list[str | None] = [format(figures[who][name], form) for who in ("apply", "tool")]
        rows.append(_row(what, cells))
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


def _curves(results: Results) -> str:
    return "".join(
        f"![{picture.caption}](../tests/bench/curves/{name}.png)\n"
        for name, picture in drawable(results).items()
    )


def _evenness(results: Results, scenario: str) -> str:
    """A line for each placer; of several seeds the range."""
    rows = [
        "| placer | leaders on an SPU | replicas on an SPU | largest difference of SPUs alike "
        "| furthest off its fair share | lists on distinct racks | peers of an SPU |",
        f"|{' --- |' * 7}",
    ]
    figures: dict[str, Any] = results.get("comparison", {}).get("figures", {})
    for placer, runs in figures.get(scenario, {}).items():
        cells = [
            *(
                f"{_range(runs, f'{what}_min', '…')} – {_range(runs, f'{what}_max', '…')}"
                for what in ("leaders", "replicas")
            ),
            _range(runs, "alike_replicas_spread"),
            _range(runs, "replicas_off"),
            f"{_range(runs, 'diverse_percent')} %",
            _range(runs, "peers_median"),
        ]
        rows.append(f"| {' | '.join([placer, *cells])} |")
    return "\n".join(rows) + "\n"


def _range(runs: Sequence[dict[str, Any]], figure: str, sign: str = " … ") -> str:
    low, high = (f"{end(run[figure] for run in runs):.10g}" for end in (min, max))
    return low if low == high else f"{low}{sign}{high}"


def _movement(results: Results) -> str:
    """A line for each incident of the topics that `balanced` placed."""
    tool = "kafka-reassign-partitions --generate"
    rows = [
        f"| 3,600 replicas in 3 racks | least possible | ours | `{tool}` "
        "| the policy run once more | replicas / leaders on an SPU, ours | Kafka's |",
        f"|{' --- |' * 7}",
    ]
    figures: dict[str, Any] = results.get("movement", {}).get("figures", {})
    balanced = [each for each in figures.values() if each["policy"] == "balanced"]
    for ours in (each for each in balanced if each["by"] == "spu-assigner"):
        theirs, once_more = (
            next(
                each
                for each in balanced
                if each["by"] == by and (each["spus"], each["incident"]) == _of(ours)
            )
            for by in (tool, "balanced run once more")
        )
        what, joined = _INCIDENTS[ours["incident"]]
        cells = [
            f"{ours['spus'] - joined} SPUs: {what}",
            f"{ours['at_least']:,}",
            f"**{ours['moved']:,}**",
            f"{theirs['moved']:,}",
            f"{once_more['moved']:,}",
            *(
                " / ".join("–".join(map(str, each[what])) for what in ("replicas", "leaders"))
                for each in (ours, theirs)
            ),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _of(row: dict[str, Any]) -> tuple[int, str]:
    return row["spus"], row["incident"]
