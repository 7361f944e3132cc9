"""Values in messages: any value, however long or deep, spelt out in bounded time and length."""

from __future__ import annotations

from reprlib import Repr
from typing import Final

SHOWN_BITS_MAX: Final = 128  # of a wrong integer in a message, more than any id has


class _Brief(Repr):
    def repr_int(self, x: int, level: int) -> str:
        if x.bit_length() > SHOWN_BITS_MAX:  # Python refuses to spell out the longest
            return f"<an integer of {x.bit_length()} bits>"
        return super().repr_int(x, level)


bounded_repr = _Brief().repr

_LONG: Final = _Brief()
_LONG.maxstring = 160
long_repr: Final = _LONG.repr  # of texts of which more is worth seeing
