"""Text for a terminal: what may hold anything, and what may be long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

NAMED_MAX: Final = 10  # names or ids in a message


def printable(text: str) -> str:
    """Without what would move a terminal's cursor or colour it: control characters are escaped."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def listed(names: Sequence[object], most: int = NAMED_MAX) -> str:
    """The first of some names or ids, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more if names else "none"


def counted(count: int, what: str) -> str:
    """A number of things."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
