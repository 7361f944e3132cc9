"""Reading Avro strictly: what the bytes say, or a `DecodeError`; no crash, no huge allocation.

fastavro accepts silently negative enum and union indexes, longs in place of ints, booleans beyond 1
and what not. The readers here refuse them. A reader takes bytes and a position, and gives the value
and the position after it. It relies on each value taking at least one byte and on schemas without
recursion, which `compile_reader` checks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.schemas.errors import DeadLetterCode, DecodeError

Reader = Callable[[bytes, int], tuple[Any, int]]

VARINT_SIZE_MAX: Final = 10  # 64 bits in groups of 7
INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
_UINT64_MAX: Final = 2**64 - 1


class SchemaError(AssignerError):
    """A schema or the registry of them breaks one of this package's rules."""


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
    byte = data[position]
    if byte & 0x81:  # longer than 63 bytes, or negative
        raw, end = read_bytes(data, position)
        return raw.decode(), end
    position += 1
    end = position + (byte >> 1)
    if end > len(data):
        raise undecodable(f"a length is {byte >> 1}; {len(data) - position} bytes are left")
    return data[position:end].decode(), end


def read_boolean(data: bytes, position: int) -> tuple[bool, int]:
    """One byte, 0 or 1."""
    byte = data[position]
    if byte > 1:
        raise undecodable(f"a boolean is {byte}; expected 0 or 1")
    return byte == 1, position + 1


def read_block(data: bytes, position: int) -> tuple[int, int | None, int]:
    """The head of a block of an array or map: count of items, end if it is given, position."""
    count, position = read_long(data, position)
    end = None
    if count < 0:
        count = -count
        size, position = read_long(data, position)
        end = position + size
        if size < 0 or end > len(data):
            raise undecodable(f"a block has {size} bytes; {len(data) - position} are left")
    if count > len(data) - position:  # Each item takes a byte or more.
        raise undecodable(f"a block has {count} items; {len(data) - position} bytes are left")
    return count, end, position


def compile_reader(schema: Any) -> Reader:
    """A strict reader of one expanded schema (no references to named types).

    Records and maps become dicts, arrays lists, enums their symbols, unions their branch's value.

    Raises:
        SchemaError: a recursive schema, a type of zero width, or one this package does not use.
    """
    match schema:
        case "int" | {"type": "int"}:
            return read_int
        case "long" | {"type": "long"}:
            return read_long
        case "string" | {"type": "string"}:
            return read_text
        case "boolean" | {"type": "boolean"}:
            return read_boolean
        case "bytes" | {"type": "bytes"}:
            return read_bytes
        case list():
            return union_reader([_branch_reader(branch) for branch in schema])
        case {"type": "record", "fields": [_, *_] as fields}:
            return record_reader([(each["name"], compile_reader(each["type"])) for each in fields])
        case {"type": "enum", "symbols": symbols}:
            return _enum(symbols)
        case {"type": "fixed", "size": int(size)} if size > 0:
            return _fixed(size)
        case {"type": "array", "items": items}:
            return array_reader(compile_reader(items))
        case {"type": "map", "values": values}:
            return _map(compile_reader(values))
        case _:
            raise SchemaError(f"cannot read {schema!r}: recursive, of zero width, or unused here")


def record_reader(fields: list[tuple[str, Reader]]) -> Reader:
    """A reader of a record of these fields; it gives a dict."""

    def read(data: bytes, position: int) -> tuple[dict[str, Any], int]:
        values = {}
        for name, read_field in fields:
            values[name], position = read_field(data, position)
        return values, position

    return read


def _branch_reader(branch: Any) -> Reader | None:
    return None if branch in ("null", {"type": "null"}) else compile_reader(branch)


def union_reader(readers: list[Reader | None]) -> Reader:
    """A reader of a union of these branches; None is null."""

    def read(data: bytes, position: int) -> tuple[Any, int]:
        index, position = read_long(data, position)
        if not 0 <= index < len(readers):
            raise undecodable(f"a union's branch is {index}; expected 0 to {len(readers) - 1}")
        read_branch = readers[index]
        return (None, position) if read_branch is None else read_branch(data, position)

    return read


def _enum(symbols: list[str]) -> Reader:
    def read(data: bytes, position: int) -> tuple[str, int]:
        index, position = read_long(data, position)
        if not 0 <= index < len(symbols):
            raise undecodable(f"an enum's index is {index}; expected 0 to {len(symbols) - 1}")
        return symbols[index], position

    return read


def _fixed(size: int) -> Reader:
    def read(data: bytes, position: int) -> tuple[bytes, int]:
        end = position + size
        if end > len(data):
            raise undecodable(f"{size} bytes are expected; {len(data) - position} are left")
        return data[position:end], end

    return read


def array_reader(read_item: Reader, *, kept_max: int | None = None) -> Reader:
    """A reader of an array; items from `kept_max` on are checked, and None stands for each."""

    def read(data: bytes, position: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, end, position = read_block(data, position)
            if count == 0:
                return items, _block_end(end, position)
            for _ in range(count):
                item, position = read_item(data, position)
                items.append(item if kept_max is None or len(items) < kept_max else None)
            _block_end(end, position)

    return read


def _map(read_value: Reader) -> Reader:
    def read(data: bytes, position: int) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        while True:
            count, end, position = read_block(data, position)
            if count == 0:
                return members, _block_end(end, position)
            for _ in range(count):
                name, position = read_text(data, position)
                if name in members:
                    raise undecodable(f"a map has the key {name!r} twice")
                members[name], position = read_value(data, position)
            _block_end(end, position)

    return read


def _block_end(end: int | None, position: int) -> int:
    if end is not None and end != position:
        raise undecodable(f"a block ends at byte {position}; its size says {end}")
    return position
