"""What can be said to `make`: the targets and variables of the Makefile."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

MAKEFILE: Final = Path(__file__).parents[3] / "Makefile"


@cache
def targets() -> frozenset[str]:
    """All targets, those that only others ask for included."""
    return frozenset(re.findall(r"^([a-z-]+):", MAKEFILE.read_text(encoding="utf-8"), re.MULTILINE))


@cache
def variables() -> frozenset[str]:
    """Those that a user may set; the audit reads its own, and docker/ the name of an image."""
    text = MAKEFILE.read_text(encoding="utf-8")
    return frozenset(re.findall(r"^([A-Z_]+) \?=", text, re.MULTILINE)) | {"AUDIT", "KAFKA_IMAGE"}


def unknown_words(words: Iterable[str]) -> list[str]:
    """Those of a call of `make` that are neither a target nor the value of a variable."""
    return [
        word
        for word in words
        if word not in targets() and word.partition("=")[0] not in variables()
    ]
