"""Tables and curves of the documentation, made of the stored results.

No figure in them is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from support.bench import targets
from support.bench.curves import CAPTIONS
from support.bench.figures import figure, markdown_table

ROOT: Final = Path(__file__).parents[3]
# Which page has which tables, by the names of their places.
PAGES: Final = {
    "README.md": ("headline",),
    "docs/moves.md": ("moves",),
    "docs/decisions/scaling.md": ("scaling", "paper"),
    "docs/performance.md": (
        *("targets", "cost", "restart", "create", "curves", "neighbours"),
        *("worst", "evenness", "movement"),
    ),
}
# The scenario of comparison.json and the incidents of movement.json, as the page calls them.
UNEVEN: Final = "3 uneven racks (500, 300, 200), equal capacities"
_INCIDENTS: Final = {
    "decommission": ("one SPU decommissioned", -1),
    "2 join": ("2 empty SPUs join, rebalance", 2),
    "3 join": ("3 empty SPUs join, rebalance", 3),
}
PROGRAMS: Final = {"this": "the job", "spark_alone": "Spark alone"}  # of cost.json
PARTS: Final = {  # of a batch, as the job's metrics have them
    "latest_offset": "where the input ends",
    "wal_commit": "the batch's offsets noted",
    "query_planning": "planned",
    "collect": "tasks: read, decided, state written",
    "send": "Kafka's transaction",
    "commit_offsets": "the batch noted as done",
}
SECONDS_MAX: Final = 5  # of an event
Figures = Mapping[str, Any]


def tables(results: targets.Results) -> dict[str, str]:
    """By the names of their places."""
    of = {name: result["figures"] for name, result in results.items()}
    return {
        "headline": _headline(of),
        "moves": _moves(of["moves"]),
        "targets": targets.table(results),
        "cost": targets.cost_table(of["cost"]),
        "restart": _restart(of["cost"]),
        "create": _create(of["cost"]),
        "scaling": _scaling(of["scaling"]),
        "paper": _paper(of["scaling"]["on paper"]),
        "worst": _worst(of["worst_events"]),
        "neighbours": neighbours(of["neighbours"]),
        "curves": "".join(
            f"![{caption}](../tests/bench/curves/{name}.png)\n"
            for name, caption in CAPTIONS.items()
        ),
        "evenness": evenness(of["comparison"][UNEVEN]),
        "movement": movement(of["movement"]),
    }


def publish_tables(results: targets.Results, root: Path = ROOT) -> None:
    """Write the tables into the pages."""
    for name in PAGES:
        page = root / name
        text = with_tables(page.read_text(encoding="utf-8"), name, results)
        page.write_text(text, encoding="utf-8")


def with_tables(text: str, page: str, results: targets.Results) -> str:
    """The text of a page with its tables as the results have them.

    Raises:
        ValueError: the page has no place for a table, or several.
    """
    made = tables(results)
    for name in PAGES[page]:
        place = re.compile(f"(?<=<!-- {name} -->\n).*(?=<!-- /{name} -->)", re.DOTALL)
        text, count = place.subn(lambda _, table=made[name]: table, text)  # type: ignore[misc]
        if count != 1:
            raise ValueError(f"{page} has {count} places for {name!r}")
    return text


def _headline(of: Figures) -> str:
    """The few figures that README shows."""
    lasting, many = of["cost"]["this"], of["growth"]["many"]
    latency, idle = lasting["lone"]["latency_ms"], lasting["idle"]
    rates = (
        f"{of['neighbours'][f'spu-assigner {policy}']['events_per_s']['median']:,.0f}/s"
        for policy in ("balanced", "fluvio")
    )
    shares = " / ".join(f"{idle[who] * 100:.1f} %" for who in ("job_cores", "broker_cores"))
    memory = many["peak_mb_after_restart"]["tree"] / targets.MB_IN_GIB
    start = many["restart_s"]["first_answer"]["median"]
    topics = "1,000,000 topics in state"
    p50_p95 = f"{latency['p50']:.0f} / {latency['p95']:.0f} ms"
    return markdown_table(
        ["measured", "`balanced`", "`fluvio`"],
        [
            ["one create at a time, after some minutes: p50 / p95", p50_p95, ""],
            ["a backlog of creates (16 partitions × 3 replicas)", *rates],
            ["idle: the job / its broker, of a core", shares, ""],
            ["idle: memory of all processes", f"{lasting['memory_mib']['tree']} MiB", ""],
            [f"{topics}: memory of all processes", "", f"{memory:.2f} GiB"],
            [f"{topics}: start of the process to its first answer", "", f"{start:.1f} s"],
        ],
    )


def _restart(figures: Figures) -> str:
    """What a start after a kill waits for."""
    steps = (
        ("Spark_started", "the session, from the process's start"),
        ("query_started", "checks, the transactional id, the plan"),
        ("first_answer", "the first batch, on a cold JVM"),
    )
    named = {**PROGRAMS, "spark_stateful": "Spark with a state"}
    programs = {each: name for each, name in named.items() if each in figures}
    rows, before = [], dict.fromkeys(programs, 0.0)
    for step, what in steps:
        reached = {each: figures[each]["restart_s"][step]["median"] for each in programs}
        rows.append([what, *(f"{reached[each] - before[each]:.1f}" for each in programs)])
        before = reached
    cpu = (figure(figures, each, "restart_cpu_s", "median") for each in programs)
    rows.append(["CPU time of all processes", *(f"{seconds or 0:.1f}" for seconds in cpu)])
    return markdown_table(["s", *programs.values()], rows)


def _create(figures: Figures) -> str:
    """Where the time of a lone create goes, and its CPU time."""
    lone = {each: figures[each]["lone"] for each in PROGRAMS}
    parts = lone["this"]["ms_by_part"]
    rows = [[what, f"{parts[part]:.1f}", ""] for part, what in PARTS.items()]
    for name in lone["this"]["jvm_cpu_ms_by_thread"]:
        cells = (lone[each]["jvm_cpu_ms_by_thread"].get(name, 0.0) for each in PROGRAMS)
        rows.append([f"CPU: {name}", *(f"{cell:.1f}" for cell in cells)])
    return markdown_table(["ms", *PROGRAMS.values()], rows)


def _scaling(figures: Figures) -> str:
    """The same backlog on one machine, with more executors."""
    return markdown_table(
        [
            *("what", "creates/s", "CPU s of the driver", "of the executors"),
            *("driver's share", "one create, p50"),
        ],
        [
            [
                name,
                f"{found['creates_per_s']['median']:,.0f}",
                *(f"{found['cpu_s_per_100k'][who]:.1f}" for who in ("driver", "executors")),
                f"{found['driver_share_of_cpu'] * 100:.0f} %",
                f"{found['latency_ms']['p50']:.0f} ms",
            ]
            for name, found in figures.items()
            if "master" in found
        ],
    )


def _paper(figures: Figures) -> str:
    """What limits more executors than there are here."""
    return markdown_table(
        [
            *("executors of 2 cores", "creates/s", "planning / deciding / sending of a batch"),
            *("fullest shard ÷ mean", "limited by"),
        ],
        [
            [
                name.split()[0],
                f"{found['creates_per_s']:,}",
                " / ".join(str(ms) for ms in found["ms_of_a_batch"].values()) + " ms",
                str(found["fullest_shard_of_mean"]),
                found["limited_by"],
            ]
            for name, found in figures.items()
        ],
    )


def _moves(figures: Figures) -> str:
    """The same moves by the command and by Kafka's tool."""
    rows = (
        ("steps of a person", "steps_of_a_person", ""),
        ("seconds", "seconds", ".0f"),
        ("bytes copied ÷ bytes to copy", "bytes_per_byte_to_move", ".2f"),
        ("bytes ÷ seconds ÷ throttle", "rate_to_throttle", ".2f"),
        ("the same, the most of any 11 s", "most_to_throttle", ".2f"),
        ("moves at once, at most", "moves_at_once", ""),
    )
    return markdown_table(
        ["", "`apply --moves`", "`kafka-reassign-partitions`"],
        [
            [what, *(format(figures[who][name], form) for who in ("apply", "tool"))]
            for what, name, form in rows
        ],
    )


def _worst(figures: Figures) -> str:
    """The event of each kind that takes the longest; bold: more than an event may take."""
    worst: dict[str, str] = {}  # by kind, the first word of a name
    for name in figures:
        kind = name.split()[0].rstrip(",")
        slowest = worst.setdefault(kind, name)
        worst[kind] = max(slowest, name, key=lambda each: figures[each]["seconds"]["median"])
    rows = []
    for name in worst.values():
        seconds = figures[name]["seconds"]["median"]
        shown = f"**{seconds:.2f}**" if seconds > SECONDS_MAX else f"{seconds:.2f}"
        answer, _, code = figures[name]["answer"].partition("rejected, ")
        rows.append([name, shown, f"rejected with `{code}`" if code else answer])
    return markdown_table(["event", "CPU s", "answer"], rows)


def neighbours(figures: Figures) -> str:
    """A line for each contestant."""
    rows = []
    for name, each in figures.items():
        if "latency_ms" in each:
            cells = (
                " / ".join(f"{each['latency_ms'][rank]:.0f}" for rank in ("p50", "p95", "p99")),
                f"{each['events_per_s']['median']:,.0f}",
                f"{each['cpu_s_per_100k']['median']:.1f}",
            )
        else:
            cells = ("failed" if "failed" in each else "could not be run", "", "")
        rows.append([name, *cells])
    head = ["program", "p50 / p95 / p99 ms", "creates/s", "CPU s per 100,000"]
    return markdown_table(head, rows)


def evenness(placers: Mapping[str, Sequence[Figures]]) -> str:
    """A line for each placer; of several seeds the range."""
    head = (
        *("placer", "leaders on an SPU", "replicas on an SPU"),
        *("largest difference of SPUs alike", "furthest off its fair share"),
        *("lists on distinct racks", "peers of an SPU"),
    )
    rows = [
        [
            placer,
            *(
                f"{_range(runs, f'{what}_min', '…')} – {_range(runs, f'{what}_max', '…')}"
                for what in ("leaders", "replicas")
            ),
            _range(runs, "alike_replicas_spread"),
            _range(runs, "replicas_off"),
            _range(runs, "diverse_percent", unit=" %"),
            _range(runs, "peers_median"),
        ]
        for placer, runs in placers.items()
    ]
    return markdown_table(head, rows)


def _range(runs: Sequence[Figures], figure: str, sign: str = " … ", unit: str = "") -> str:
    values = [run[figure] for run in runs if run[figure] is not None]
    if not values:
        return "–"
    low, high = (f"{end(values):.10g}{unit}" for end in (min, max))
    return low if low == high else f"{low}{sign}{high}"


def movement(figures: Figures) -> str:
    """A line for each incident of the topics that `balanced` placed."""
    tool, once_more = "kafka-reassign-partitions --generate", "balanced run once more"
    incidents: dict[tuple[int, str], dict[str, Figures]] = {}
    for each in figures.values():
        if each["policy"] == "balanced":
            incidents.setdefault((each["spus"], each["incident"]), {})[each["by"]] = each
    rows = []
    for (spus, incident), by in incidents.items():
        ours = by["spu-assigner"]
        what, joined = _INCIDENTS[incident]
        rows.append(
            [
                f"{spus - joined} SPUs: {what}",
                f"{ours['at_least']:,}",
                f"**{ours['moved']:,}**",
                f"{by[tool]['moved']:,}",
                f"{by[once_more]['moved']:,}",
            ]
        )
    head = (
        *("3,600 replicas in 3 racks", "least possible", "ours", f"`{tool}`"),
        "the policy run once more",
    )
    return markdown_table(head, rows)
