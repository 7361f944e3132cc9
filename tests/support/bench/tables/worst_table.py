"""The event of each kind that takes the longest, as a table for the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SECONDS_MAX: Final = 5


def table(figures: Mapping[str, Any]) -> str:
    """In Markdown; bold: more than an event may take."""
    rows = ["| event | CPU s | answer |", "| --- | --- | --- |"]
    worst: dict[str, str] = {}  # by kind, the first word of a name
    for name in figures:
        kind = name.split()[0].rstrip(",")
        slowest = worst.setdefault(kind, name)
        worst[kind] = max(slowest, name, key=lambda each: figures[each]["seconds"]["median"])
    for name in worst.values():
        found = figures[name]
        seconds = found["seconds"]["median"]
        shown = f"**{seconds:.2f}**" if seconds > SECONDS_MAX else f"{seconds:.2f}"
        answer, _, code = found["answer"].partition("rejected, ")
        answer = f"rejected with `{code}`" if code else answer
        rows.append(f"| {name} | {shown} | {answer} |")
    return "\n".join(rows)
