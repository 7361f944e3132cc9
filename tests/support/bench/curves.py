"""The curves of the benches as pictures, drawn from the results alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from support.bench.targets import Results

mpl.use("agg")  # no screen is needed

DOTS: Final = 110  # an inch
GREY: Final = "#777777"
COLOURS: Final = {
    "balanced": "#0072b2",  # distinct to all eyes
    "fluvio": "#d55e00",
    "kafka": "#009e73",
    "": "#cc79a7",
}
POLICIES: Final = ("balanced", "fluvio")
LINES: Final = {"create": "-", "grow": "--", "delete": ":"}
MARKED: Final[Mapping[str, Any]] = {"marker": "o", "markersize": 3.5, "lw": 1.5}
TITLES: Final = {
    "clusters": "clusters, each of 64 SPUs",
    "SPUs of the cluster": "SPUs of the cluster",
    "lists of the map": "replica lists of the map",
    "replicas that have to move": "replicas that have to move",
    "topics in state": "topics in state",
}


CAPTIONS: Final = {
    "core_growth": "What an event costs the core as clusters, rings, maps and the state grow",
    "neighbours": "The product beside others that do its work",
}


def core_growth(curves: Mapping[str, Mapping[str, Any]]) -> Figure:
    """What an event costs the core, over what grows; dashed: linear."""
    figure = Figure(figsize=(11, 6.6), layout="constrained")
    figure.suptitle("CPU time of an event in the core, µs (grey: in proportion)")
    panels = figure.subplots(2, 3).flat
    for panel, (name, kinds) in zip(panels, curves.items(), strict=False):
        sizes = kinds["sizes"]
        _on_scales(panel, TITLES.get(name, name))
        shown: list[float] = []
        for kind, costs in kinds.items():
            if kind == "sizes":
                continue
            medians = [each["median"] for each in costs["us"]]
            shown += medians
            event, _, policy = kind.partition(", ")
            colour = COLOURS.get(policy, COLOURS[""])
            style = LINES.get(event, "-")
            panel.plot(sizes, medians, style, color=colour, label=kind, **MARKED)
        _proportion(panel, sizes, shown)
        panel.legend(fontsize=7, frameon=False, ncols=2 if len(panel.lines) > 5 else 1)
    for panel in list(figure.axes)[len(curves) :]:
        panel.set_axis_off()
    return figure


def neighbours(contestants: Mapping[str, Any]) -> Figure:
    """The product beside others that do this work."""
    figures = {
        name: each
        for name, each in contestants.items()
        if "latency_ms" in each and name != "raw echo"
    }
    names = list(figures)
    shown: Sequence[tuple[str, Callable[[Any], float], str]] = (
        ("creates a second (more is better)", lambda f: f["events_per_s"]["median"], "{:,.0f}"),
        ("p50 of one create at a time, ms", lambda f: f["latency_ms"]["p50"], "{:.0f}"),
        ("CPU s of 100,000 creates", lambda f: f["cpu_s_per_100k"]["median"], "{:.1f}"),
    )
    figure = Figure(figsize=(11, 0.36 * len(names) + 1.2), layout="constrained")
    figure.suptitle("The same work on one broker and two cores; hollow: at least once")
    for panel, (title, value, form) in zip(
        figure.subplots(1, len(shown), sharey=True), shown, strict=True
    ):
        values = [value(figures[name]) for name in names]
        for place, (name, length) in enumerate(zip(names, values, strict=True)):
            words = name.split()
            (colour,) = [COLOURS[each] for each in POLICIES if each in words] or [GREY]
            is_whole = figures[name]["guarantee"] == "exactly once"
            panel.barh(
                place, length, color=colour if is_whole else "none", edgecolor=colour, height=0.7
            )
            panel.text(length, place, " " + form.format(length), va="center", fontsize=8)
        panel.set_title(title, fontsize=9)
        panel.set_xlim(0, max(values) * 1.2)
        panel.set_yticks(range(len(names)), names, fontsize=8)
        panel.tick_params(axis="x", labelsize=7)
        panel.spines[["top", "right"]].set_visible(False)
    figure.axes[0].invert_yaxis()
    return figure


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw both pictures. Returns the files."""
    files = []
    for picture in (core_growth, neighbours):
        name = picture.__name__
        files.append(folder / f"{name}.png")
        # The same results give the same file: it does not show what drew it.
        drawn = picture(results[name]["figures"])
        drawn.savefig(files[-1], dpi=DOTS, metadata={"Software": None})
    return files


def _proportion(panel: Axes, sizes: Sequence[float], shown: Sequence[float]) -> None:
    """A line of slope 1 through the highest point, and decades that leave the legend room."""
    first, last, highest = sizes[0], sizes[-1], max(shown)
    panel.plot([first, last], [highest * first / last, highest], "--", color=GREY, lw=0.8)
    lowest = 10 ** math.floor(math.log10(min(shown)))
    panel.set_ylim(lowest, 10 ** math.ceil(math.log10(highest) + 0.8))


def _on_scales(panel: Axes, title: str) -> None:
    """Before anything is drawn."""
    panel.set_xscale("log")
    panel.set_yscale("log")
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(FuncFormatter(_plain))
        axis.set_minor_formatter(NullFormatter())
    panel.set_title(title, fontsize=9)
    panel.tick_params(labelsize=8)
    panel.grid(visible=True, which="major", lw=0.4, color="#dddddd")
    panel.spines[["top", "right"]].set_visible(False)


def _plain(value: float, _: object) -> str:
    """1,000 for a thousand; millions with an M, that axes stay narrow."""
    return f"{value / 1e6:,g} M" if value >= 1e6 else f"{value:,g}"
