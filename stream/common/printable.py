"""Free text for a terminal: racks, labels and event ids may hold anything."""

from __future__ import annotations


def printable(text: str) -> str:
    """Without what would move a terminal's cursor or colour it: control characters are escaped."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
