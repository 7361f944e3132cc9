"""Columns of byte strings: whatever Arrow holds comes out as it was."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.stream.shard.columns import BytesColumn

_VALUES = st.lists(st.none() | st.binary(max_size=20), max_size=12)


@given(
    pieces=st.lists(_VALUES, max_size=4),
    cut=st.integers(0, 5),
    large=st.booleans(),
)
def test_arrays_come_out_as_they_were(
    pieces: list[list[bytes | None]], cut: int, large: bool
) -> None:
    """Also slices, which begin in the middle of their buffers."""
    kind = pa.large_binary() if large else pa.binary()
    arrays = [pa.array(values, type=kind)[cut:] for values in pieces]
    expected = [value for values in pieces for value in values[cut:]]
    assert BytesColumn.of_arrays(arrays).tolist() == expected


@given(values=_VALUES)
def test_lists_come_out_as_they_were(values: list[bytes | None]) -> None:
    column = BytesColumn.of_list(values)
    assert len(column) == len(values)
    assert column.tolist() == values


def test_bytes_under_a_missing_value_belong_to_nobody() -> None:
    """Arrow allows them; cut by sizes alone they would shift all that follow."""
    full = pa.array([b"abc", b"hidden", b"d"], type=pa.binary())
    missing = pa.array([True, False, True]).buffers()[1]
    array = pa.Array.from_buffers(pa.binary(), 3, [missing, *full.buffers()[1:]])
    assert BytesColumn.of_arrays([array]).tolist() == [b"abc", None, b"d"]


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ([2, -2], "a size of -2"),
        ([2, 3], "4 bytes for sizes of 5"),
        ([2], "4 bytes for sizes of 2"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes: list[int], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        BytesColumn(np.array(sizes, dtype=np.int32), b"abcd").tolist()
