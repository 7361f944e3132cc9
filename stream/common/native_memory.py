"""Memory that C code has freed."""

from __future__ import annotations

import ctypes


def trim_memory() -> None:
    """Give what the C library keeps of it back to the system; glibc alone has a call for that."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
