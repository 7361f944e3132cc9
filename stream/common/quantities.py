"""Numbers of bytes and of bytes per second, as people write and read them; times."""

from __future__ import annotations

import math
import re
import time
from contextlib import suppress
from itertools import pairwise
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_FACTORS: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgtp", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgtp", start=1)},
}
_SIZE: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")
SIZE_MAX: Final = 2**63 - 1  # Kafka has 64 bits for it
_TIMES: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def now_ms() -> int:
    """The wall clock, in ms since 1970."""
    return time.time_ns() // 1_000_000


def bytes_text(size: int) -> str:
    """A number of bytes in the largest unit that leaves a whole number before the point."""
    unit = min(max(size.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{size / 1024**unit:.1f} {_UNITS[unit]}" if unit else f"{size} B"


def byte_size(text: str) -> int:
    """Bytes out of `50GB`, up to Kafka's 64 bits: KB, MB are powers of 1000, KiB, MiB of 1024."""
    found = _SIZE.fullmatch(text)
    factor = None if found is None else _FACTORS.get(found[2].lower())
    if found is None or factor is None or (size := int(float(found[1]) * factor)) > SIZE_MAX:
        raise ValueError(
            f"{text!r:.40} is no size; expected bytes, such as 50GB (50,000,000,000) or 50GiB"
        )
    return size


def byte_rate(text: str) -> int:
    """Bytes per second out of `50MB/s`; `/s` may be left out."""
    with suppress(ValueError):
        if (rate := byte_size(text.strip().removesuffix("/s"))) >= 1:
            return rate
    raise ValueError(
        f"{text!r:.40} is no rate; expected bytes per second from 1 B/s, such as 50MB/s "
        "(50,000,000) or 50MiB/s (52,428,800)"
    )


def duration_text(seconds: float) -> str:
    """A time in its two largest units, rounded up to whole seconds."""
    left = math.ceil(seconds)
    for (unit, name), (below, name_below) in pairwise(_TIMES):
        if left >= unit:
            rest = left % unit // below
            return f"{left // unit} {name}" + (f" {rest} {name_below}" if rest else "")
    return f"{left} s"
