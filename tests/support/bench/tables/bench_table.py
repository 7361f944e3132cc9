"""The table of the benches: what was measured, what it is held to, met or missed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from support.bench.targets import Results, Target, Verdict, figure, targets

WIDTH: Final = 180  # where nobody looks at a terminal
SIGNS: Final = {
    Verdict.MET: "[green]met[/]",
    Verdict.MISSED: "[red]MISSED[/]",
    Verdict.NOT_MEASURED: "[yellow]not measured[/]",
}


def number(value: float) -> str:
    """Three digits that count."""
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _bound(target: Target, bound: float | None) -> str:
    return "" if bound is None else f"{'≤' if target.at_most else '≥'} {number(bound)}"


def show(results: Results, title: str, *, measured_only: bool = False) -> None:
    """The lines, all or those that were measured, and how many of all are met."""
    table = Table(title=title)
    for column in ("what", "policy"):
        table.add_column(column)
    for column in ("ours", "neighbour's"):
        table.add_column(column, justify="right")
    for column in ("neighbour", "held to the target", "reach", "moonshot"):
        table.add_column(column)
    for target in targets(results):
        value = target.value(results)
        if value is None and measured_only:
            continue
        own = figure(results, target.ours)
        others = [f for each in target.beside if (f := figure(results, each)) is not None]
        table.add_row(
            *(target.what, target.policy),
            number(own) if own is not None and target.beside else "",
            number(max(others)) if others else "",
            target.whose,
            f"{number(value)} {target.unit}" if value is not None else "not measured",
            *(
                f"{_bound(target, bound)} {SIGNS[target.verdict(value, bound)]}" if bound else ""
                for bound in (target.reach, target.moonshot)
            ),
        )
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(table)
    for name, counts in count(results).items():
        said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in SIGNS)
        console.print(f"{name}: {said}")


def count(results: Results) -> dict[str, Counter[Verdict]]:
    """How many lines are met, missed and not measured."""
    found: dict[str, Counter[Verdict]] = {"reach": Counter(), "moonshot": Counter()}
    for target in targets(results):
        value = target.value(results)
        for name, bound in (("reach", target.reach), ("moonshot", target.moonshot)):
            if bound is not None:
                found[name][target.verdict(value, bound)] += 1
    return found


def kept(results: Results) -> list[dict[str, Any]]:
    """The lines as they are kept in a file."""
    found = []
    for target in targets(results):
        value = target.value(results)
        found.append(
            {
                "what": target.what,
                "policy": target.policy,
                "neighbour": target.whose or None,
                "value": None if value is None else float(f"{value:.4g}"),
                "unit": target.unit,
                "reach": _bound(target, target.reach) or None,
                "reach_is": target.verdict(value, target.reach),
                "moonshot": _bound(target, target.moonshot) or None,
                "moonshot_is": target.verdict(value, target.moonshot),
            }
        )
    return found


def markdown(results: Results) -> str:
    """The same for docs/: a line for each target, a column for each policy; bold: missed."""
    lines: dict[tuple[str, str, str], dict[str, str]] = {}
    bounds: dict[tuple[str, str, str], tuple[str, str]] = {}
    for target in targets(results):
        value = target.value(results)
        what = f"{target.what} ÷ {target.whose}" if target.whose else target.what
        reach, moonshot = _bound(target, target.reach), _bound(target, target.moonshot)
        line = (what, target.unit, reach)
        bounds[line] = (reach, moonshot)
        lines.setdefault(line, {})[target.policy] = _cell(target, value)
    policies = ("balanced", "fluvio", "kafka")
    rows = [
        f"| what | {' | '.join(f'`{each}`' for each in policies)} | unit | reach | moonshot |",
        f"| --- |{' --- |' * (len(policies) + 3)}",
    ]
    for line, cells in lines.items():
        # An event without a policy costs the same under each.
        shown = [cells.get(policy, cells.get("", "")) for policy in policies]
        columns = (line[0], *shown, line[1], *bounds[line])
        rows.append(f"| {' | '.join(columns)} |")
    return "\n".join(rows) + "\n"


def _cell(target: Target, value: float | None) -> str:
    if value is None:
        return "not measured"
    missed = target.verdict(value, target.reach) is Verdict.MISSED
    star = " ★" if target.verdict(value, target.moonshot) is Verdict.MET else ""
    return (f"**{number(value)}**" if missed else number(value)) + star


def lines_missed(results: Results) -> Sequence[str]:
    """Which lines miss what must be."""
    return [
        f"{target.what}, {target.policy}"
        for target in targets(results)
        if target.verdict(target.value(results), target.reach) is Verdict.MISSED
    ]
