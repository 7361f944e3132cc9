"""The lock files of Python packages: each line an exact version with hashes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from packaging.markers import Marker
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[3]
_REQUIREMENT: Final = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[0-9][A-Za-z0-9.!+_-]*)"
    r"(?:\s*;\s*(?P<marker>[^\\]*?))?(?:\s+--hash=sha256:[0-9a-f]{64})+"
)


def read_lock(text: str) -> dict[str, str]:
    """The version of each package that a lock has for this machine.

    Raises:
        ValueError: a line has no exact version, or no SHA-256.
    """
    found = {}
    plain = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in filter(str.strip, re.sub(r"\\\n", " ", plain).splitlines()):
        match = _REQUIREMENT.fullmatch(line.strip())
        if match is None:
            raise ValueError(f"{line.split()[0]!r} has no exact version with SHA-256 hashes")
        if match["marker"] is None or Marker(match["marker"]).evaluate():
            found[canonicalize_name(match["name"])] = match["version"]
    return found
