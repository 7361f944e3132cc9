"""Reading Avro strictly: what the bytes say, or a `DecodeError`; no crash, no huge allocation.

fastavro accepts silently negative enum and union indexes, longs in place of ints, booleans beyond 1
and what not. The readers here refuse them. A reader takes bytes and a position, and gives the value
and the position after it. It relies on each value taking at least one byte, which `compile_reader`
checks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from spu_assigner.schemas.avro.meaning import Reader
from spu_assigner.schemas.errors import DeadLetterCode, DecodeError

VARINT_SIZE_MAX: Final = 10  # 64 bits in groups of 7
INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
_UINT64_MAX: Final = 2**64 - 1


def undecodable(message: str) -> DecodeError:
    """The error for bytes that their schema does not allow."""
    return DecodeError(DeadLetterCode.UNDECODABLE, message)


def read_whole(read: Reader, data: bytes, position: int) -> Any:
    """The value that fills the bytes from the position to the end.

    Raises:
        DecodeError: UNDECODABLE or TRAILING_BYTES.
    """
    try:
        value, end = read(data, position)
    except IndexError:
        raise undecodable(f"the {len(data)} bytes end inside a value") from None
    except UnicodeDecodeError as error:
        raise undecodable(f"a text is no UTF-8: {error.reason}") from None
    if end != len(data):
        raise DecodeError(
            DeadLetterCode.TRAILING_BYTES,
            f"{len(data) - end} bytes follow the value, which ends at byte {end}; expected none",
        )
    return value


def read_long(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = byte & 0x7F
    shift = 7
    end = position + VARINT_SIZE_MAX
    while byte >= 0x80:
        position += 1
        if position == end:
            raise undecodable(f"a varint has more than {VARINT_SIZE_MAX} bytes")
        byte = data[position]
        value |= (byte & 0x7F) << shift
        shift += 7
    if value > _UINT64_MAX:
        raise undecodable("a varint has more than 64 bits")
    return (value >> 1) ^ -(value & 1), position + 1


def read_int(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint within 32 bits."""
    value, position = read_long(data, position)
    if not INT_MIN <= value <= INT_MAX:
        raise undecodable(f"an int is {value}; expected {INT_MIN} to {INT_MAX}")
    return value, position


def read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    """A length and so many bytes."""
    size, position = read_long(data, position)
    end = position + size
    if size < 0 or end > len(data):
        raise undecodable(f"a length is {size}; {len(data) - position} bytes are left")
    return data[position:end], end


def read_text(data: bytes, position: int) -> tuple[str, int]:
    """A length and so many bytes of UTF-8."""
    raw, end = read_bytes(data, position)
    return raw.decode(), end


def read_boolean(data: bytes, position: int) -> tuple[bool, int]:
    """One byte, 0 or 1."""
    byte = data[position]
    if byte > 1:
        raise undecodable(f"a boolean is {byte}; expected 0 or 1")
    return byte == 1, position + 1


def fixed_reader(size: int, load: Callable[[bytes], Any] | None = None) -> Reader:
    """A reader of so many bytes, or of what they stand for."""

    def read(data: bytes, position: int) -> tuple[Any, int]:
        end = position + size
        if end > len(data):
            raise undecodable(f"{size} bytes are expected; {len(data) - position} are left")
        raw = data[position:end]
        return (raw if load is None else load(raw)), end

    return read


def array_reader(
    read_item: Reader, *, load: Callable[[list[Any]], Any] = list, kept_max: int | None = None
) -> Reader:
    """A reader of an array; items from `kept_max` on are checked, and None stands for each."""

    def read(data: bytes, position: int) -> tuple[Any, int]:
        items: list[Any] = []
        while True:
            count, position = read_long(data, position)
            if count == 0:
                return load(items), position
            end = None
            if count < 0:
                count = -count
                size, position = read_long(data, position)
                end = position + size
                if size < 0 or end > len(data):
                    raise undecodable(f"a block has {size} bytes; {len(data) - position} are left")
            if count > len(data) - position:  # Each item takes a byte or more.
                left = len(data) - position
                raise undecodable(f"a block has {count} items; {left} bytes are left")
            for _ in range(count):
                item, position = read_item(data, position)
                items.append(item if kept_max is None or len(items) < kept_max else None)
            if end is not None and end != position:
                raise undecodable(f"a block ends at byte {position}; its size says {end}")

    return read


def map_reader(read_value: Reader) -> Reader:
    """A reader of a map, whose keys are all different: the bytes are those of an array of pairs."""

    def read_pair(data: bytes, position: int) -> tuple[tuple[str, Any], int]:
        name, position = read_text(data, position)
        value, position = read_value(data, position)
        return (name, value), position

    read_pairs = array_reader(read_pair)

    def read(data: bytes, position: int) -> tuple[dict[str, Any], int]:
        pairs, position = read_pairs(data, position)
        members = dict(pairs)
        if len(members) != len(pairs):
            raise undecodable(f"a map of {len(pairs)} members has a key twice")
        return members, position

    return read
