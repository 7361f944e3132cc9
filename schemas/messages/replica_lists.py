"""Replica lists as Avro, an array of arrays of int, in bulk.

Lists that are rows of a `Table` are sliced from bytes prepared once for the table; others go value
by value when they are few, through numpy when they are many. Read back they are one int32 array.
Lists of different length are rare, and go value by value.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

from spu_assigner.core.base.replica_lists import IdMatrix, ReplicaLists, Table
from spu_assigner.schemas.avro.meaning import Reader
from spu_assigner.schemas.avro.readers import compile_reader
from spu_assigner.schemas.avro.strict_reading import read_long, undecodable
from spu_assigner.schemas.avro.writing import PREPARED_LONGS, array_bytes, long_bytes
from spu_assigner.schemas.errors import EncodeError

if TYPE_CHECKING:  # As in the core's module.
    import numpy as np
    from numpy.typing import NDArray

_CACHE_KEY: Final = "avro"  # of Table.cache: (bytes of all rows, where each row begins)
_DIRECT_KEY: Final = "avro_rows_written_directly"
_PREPARE_AFTER: Final = 8  # prepared once 1/8 of its rows were written: preparing costs 1/8 a row
_SCALAR_VALUES_MAX: Final = 128  # up to so many, value by value is faster than numpy
_FROM_ZIGZAG: Final = bytes(each >> 1 for each in range(256))
_NEGATIVE: Final = bytes(range(1, 256, 2))
_UINT32_MAX: Final = 2**32 - 1
_INT_SIZE_MAX: Final = 5  # bytes of a varint of 32 bits


def lists_bytes(lists: ReplicaLists | None) -> bytes:
    """An array of arrays of int. Cost: O(1) calls for rows of a table that is in use.

    Raises:
        EncodeError: there are none: the map is deleted.
    """
    if lists is None:
        raise EncodeError("the map is deleted; it has a tombstone, and no value")
    count = lists.count
    if count == 0:
        return b"\x00"
    table = lists.table
    if table is None:
        rows = _ragged_bytes(lists) if lists.ragged else _rows_bytes(lists.matrix)
        return long_bytes(count) + rows + b"\x00"
    prepared = table.cache.get(_CACHE_KEY) or _prepared(table, count)
    if prepared is None:
        return long_bytes(count) + _rows_bytes(lists.matrix) + b"\x00"
    blob, offsets = prepared
    start = lists.start
    return long_bytes(count) + blob[offsets[start] : offsets[start + count]] + b"\x00"


def _prepared(table: Table, count: int) -> tuple[bytes, array[int]] | None:
    """The bytes of all rows and where each begins, once the table is used enough to pay."""
    written = table.cache.get(_DIRECT_KEY, 0) + count
    if written * _PREPARE_AFTER < table.count:
        table.cache[_DIRECT_KEY] = written
        return None
    blob, sizes = _rows_in_bulk(table.rows)
    offsets = array("q", [0])
    offsets.frombytes(sizes.cumsum().tobytes())
    table.cache[_CACHE_KEY] = (blob, offsets)
    return blob, offsets


def _rows_bytes(matrix: IdMatrix) -> bytes:
    """Each row as an array of int."""
    width = matrix.shape[1]
    if matrix.size > _SCALAR_VALUES_MAX or width == 0:
        return _rows_in_bulk(matrix)[0]
    head = PREPARED_LONGS[width]
    values = map(PREPARED_LONGS.__getitem__, matrix.ravel().tolist())
    try:
        rows = map(b"".join, zip(*[values] * width, strict=True))
        return head + (b"\x00" + head).join(rows) + b"\x00"
    except KeyError:  # A value of more than two bytes.
        return _rows_in_bulk(matrix)[0]


def _ragged_bytes(lists: ReplicaLists) -> bytes:
    """Each list as an array of int."""
    return b"".join([array_bytes([long_bytes(each) for each in row]) for row in lists.tolist()])


def _rows_in_bulk(matrix: IdMatrix) -> tuple[bytes, NDArray[np.int64]]:
    """Each row as an array of int, and the size of each. Cost: O(values), vectorised."""
    import numpy as np

    count, width = matrix.shape
    if width == 0:
        return bytes(count), np.ones(count, dtype=np.int64)
    values = np.empty((count, width + 2), dtype=np.uint32)
    values[:, 0] = width << 1
    values[:, 1:-1] = (matrix << 1) ^ (matrix >> 31)
    values[:, -1] = 0
    largest = int(values.max())
    if largest < 0x80:
        return values.astype(np.uint8).tobytes(), np.full(count, width + 2, dtype=np.int64)
    size_max = (largest.bit_length() + 6) // 7
    out: NDArray[Any] = np.empty((*values.shape, size_max), dtype=np.uint8)
    used = np.empty(out.shape, dtype=np.bool_)
    for place in range(size_max):
        rest = values >> (7 * place)
        out[..., place] = (rest & 0x7F) | ((rest > 0x7F) << 7)
        used[..., place] = rest > 0
    used[..., 0] = True
    return out[used].tobytes(), used.sum(axis=(1, 2), dtype=np.int64)


_read_any_lists: Final[Reader] = compile_reader(
    {"type": "array", "items": {"type": "array", "items": "int"}}
)


def read_lists(data: bytes, position: int) -> tuple[ReplicaLists, int]:
    """Replica lists.

    Raises:
        DecodeError: UNDECODABLE, also for no lists, empty ones, and ids below 0.
        IndexError: the bytes end.
    """
    import numpy as np

    count, first = read_long(data, position)
    width, _ = read_long(data, first)
    size = count * (width + 2)
    if count > 0 and width > 0 and size <= len(data) - first:
        narrow = _narrow_rows(data, first, count, width)
        if narrow is not None:
            ids = np.frombuffer(narrow, dtype=np.uint8).astype(np.int32)
            return ReplicaLists(ids.reshape(count, width)), first + size + 1
        values, end = _varints(data, first, size)
        rows = values.reshape(-1, width + 2)
        if len(rows) and (rows[:, 0] == width << 1).all() and not (rows[:, -1].any() or data[end]):
            zigzag = rows[:, 1:-1]
            if (zigzag & 1).any():
                raise undecodable("an id is below 0; expected 0 or more")
            matrix: IdMatrix = (zigzag >> 1).astype(np.int32)
            return ReplicaLists(matrix), end + 1
    lists, end = _read_any_lists(data, position)  # Several blocks, or several lengths.
    if not lists or not all(lists):
        raise undecodable(
            f"found {lists.count([])} empty of {len(lists)} replica lists; expected ids"
        )
    if (least := min(map(min, lists))) < 0:
        raise undecodable(f"an id is {least}; expected 0 or more")
    return ReplicaLists.of_lists(lists), end


def read_even_lists(data: bytes, position: int) -> tuple[ReplicaLists, int]:
    """Replica lists, all of one length.

    Raises:
        DecodeError: UNDECODABLE, also for no lists, empty ones, ids below 0, or several lengths.
    """
    lists, position = read_lists(data, position)
    if lists.ragged:
        raise undecodable(f"{lists.count} replica lists have several lengths; expected one")
    return lists, position


def _narrow_rows(data: bytes, first: int, count: int, width: int) -> bytes | None:
    """The ids of rows, a byte each; None: they are not all below 64, or not rows of one length."""
    columns = width + 2
    end = first + count * columns
    region = data[first:end]
    if not region.isascii() or data[end : end + 1] != b"\0":
        return None
    if region[::columns] != bytes((width << 1,)) * count or any(region[columns - 1 :: columns]):
        return None
    zigzag = bytearray(count * width)
    for column in range(width):
        zigzag[column::width] = region[column + 1 :: columns]
    narrow = bytes(zigzag.translate(_FROM_ZIGZAG, _NEGATIVE))
    return narrow if len(narrow) == count * width else None


def _varints(data: bytes, position: int, count: int) -> tuple[NDArray[np.uint32], int]:
    """So many varints as they are (zigzag), and where they end; none if one has over 32 bits, or
    if they are fewer: lists may be shorter than the first one.
    """
    import numpy as np

    none = np.empty(0, dtype=np.uint32), position
    span = np.frombuffer(data, np.uint8, min(len(data) - position, count * _INT_SIZE_MAX), position)
    lasts = np.flatnonzero(span < 0x80)[:count]
    firsts = np.concatenate(([0], lasts[:-1] + 1))
    if len(lasts) < count:
        return none
    sizes = lasts - firsts + 1
    size_max = int(sizes.max())
    if size_max > _INT_SIZE_MAX:
        return none
    values = (span[firsts] & 0x7F).astype(np.uint64)
    for place in range(1, size_max):
        longer = np.flatnonzero(sizes > place)
        part = (span[firsts[longer] + place] & 0x7F).astype(np.uint64)
        values[longer] |= part << np.uint64(7 * place)
    if int(values.max()) > _UINT32_MAX:
        return none
    return values.astype(np.uint32), position + int(lasts[-1]) + 1
