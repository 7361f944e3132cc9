"""Writing Avro: the primitives.

The bytes are those of any writer that puts an array into one block. Short values are looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from spu_assigner.core.base.errors import bounded_repr
from spu_assigner.schemas.avro.strict_reading import INT_MAX, INT_MIN
from spu_assigner.schemas.errors import EncodeError

LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1
_PREPARED_COUNT: Final = 8_192  # all that take two bytes


@lru_cache(maxsize=4_096)  # A chain's index is in two maps: where one ends, the next begins.
def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


PREPARED_LONGS: Final = {value: _varint(value) for value in range(_PREPARED_COUNT)}


def long_bytes(value: int, name: str = "a number") -> bytes:
    """A long; `name` is for the message of the error."""
    prepared = PREPARED_LONGS.get(value)
    if prepared is not None:
        return prepared
    if not LONG_MIN <= value <= LONG_MAX:
        raise EncodeError(f"{name} is {bounded_repr(value)}; expected 64 bits")
    return _varint(value)


def int_bytes(value: int, name: str) -> bytes:
    """An int, likewise."""
    prepared = PREPARED_LONGS.get(value)
    if prepared is not None:
        return prepared
    if not INT_MIN <= value <= INT_MAX:
        raise EncodeError(f"{name} is {bounded_repr(value)}; expected {INT_MIN} to {INT_MAX}")
    return _varint(value)


@lru_cache(maxsize=256)  # A cluster's name is in each message, an event's in several.
def text_bytes(text: str) -> bytes:
    """A string."""
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(
            f"a text has half a surrogate pair at character {error.start}, {text[:80]!r}; "
            "expected Unicode"
        ) from None
    return (PREPARED_LONGS.get(len(raw)) or _varint(len(raw))) + raw


def bytes_bytes(raw: bytes) -> bytes:
    """A byte string."""
    return long_bytes(len(raw)) + raw


def array_bytes(items: Sequence[bytes]) -> bytes:
    """An array in one block, or a map as its members."""
    return long_bytes(len(items)) + b"".join(items) + b"\x00" if items else b"\x00"
