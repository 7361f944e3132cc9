"""Columns of byte strings in one piece: what lies in Arrow's arrays, without an object for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

NONE: Final = -1  # the size of a missing string

Sizes = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class BytesColumn:
    """Byte strings one after the other: how long each is (-1: there is none), and all of them."""

    sizes: Sizes
    data: bytes | memoryview

    def __len__(self) -> int:
        return len(self.sizes)

    @classmethod
    def of_list(cls, values: Sequence[bytes | None]) -> BytesColumn:
        sizes = [NONE if value is None else len(value) for value in values]
        data = b"".join([value for value in values if value is not None])
        return cls(np.array(sizes, dtype=np.int32), data)

    @classmethod
    def of_arrays(cls, arrays: Iterable[Any]) -> BytesColumn:
        """From Arrow arrays of byte strings; the bytes of a single one are not copied."""
        columns = [_of_array(array) for array in arrays]
        if len(columns) == 1:
            return columns[0]
        sizes = [column.sizes for column in columns] or [np.zeros(0, dtype=np.int32)]
        return cls(np.concatenate(sizes), b"".join(column.data for column in columns))

    def tolist(self) -> list[bytes | None]:
        """Each by itself.

        Raises:
            ValueError: the sizes and the bytes do not fit together.
        """
        sizes = self.sizes
        if len(sizes) and sizes.min() < NONE:
            raise ValueError(f"a size of {sizes.min()}")
        ends = np.zeros(len(sizes) + 1, dtype=np.int64)
        np.cumsum(np.maximum(sizes, 0), out=ends[1:])
        if int(ends[-1]) != len(self.data):
            raise ValueError(f"{len(self.data)} bytes for sizes of {ends[-1]} together")
        # Arrow cuts five times as fast as a loop of slices.
        cut = pa.Array.from_buffers(
            pa.large_binary(), len(sizes), [None, pa.py_buffer(ends), pa.py_buffer(self.data)]
        )
        values: list[bytes | None] = cut.to_pylist()
        for index in np.flatnonzero(sizes == NONE).tolist():
            values[index] = None
        return values


def _of_array(array: Any) -> BytesColumn:
    _, offsets, data = array.buffers()
    width = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    ends = np.frombuffer(offsets, dtype=width)[array.offset : array.offset + len(array) + 1]
    sizes = np.diff(ends).astype(np.int32)
    if array.null_count:
        missing = array.is_null().to_numpy(zero_copy_only=False)
        if sizes[missing].any():  # Allowed by the format: bytes that belong to nobody.
            return BytesColumn.of_list(array.to_pylist())
        sizes[missing] = NONE
    begin, end = (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)
    return BytesColumn(sizes, b"" if data is None else memoryview(data)[begin:end])
