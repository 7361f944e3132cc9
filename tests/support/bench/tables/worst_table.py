"""The worst event of each kind, as a table for the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SECONDS_MAX: Final = 5


def table(figures: Mapping[str, Any]) -> str:
    """In Markdown; bold: more than an event may take."""
    rows = ["| event | CPU s | answer |", "| --- | --- | --- |"]
    for name, found in figures.items():
        seconds = found["seconds"]["median"]
        shown = f"**{seconds:.2f}**" if seconds > SECONDS_MAX else f"{seconds:.2f}"
        answer, _, code = found["answer"].partition("rejected, ")
        answer = f"rejected with `{code}`" if code else answer
        rows.append(f"| {name} | {shown} | {answer} |")
    return "\n".join(rows)
