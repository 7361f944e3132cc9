"""Rows that pass as columns are the rows that PySpark's own serializer gives, and come back alike.

Both sides of each test are the pinned PySpark's code, over the streams that its JVM reads and
writes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.pandas.serializers import (
    TransformWithStateInPandasInitStateSerializer,
    TransformWithStateInPandasSerializer,
)
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType
from spu_assigner.stream.shard import arrow_rows
from spu_assigner.stream.shard.bundle import SCHEMA
from spu_assigner.stream.shard.input_batch import Batch

pytestmark = pytest.mark.smoke
_COLUMNS = pa.schema(
    [
        ("shard", pa.int32()),
        ("source", pa.int32()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("time_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
_OPTIONS: dict[str, Any] = {
    "timezone": "UTC",
    "safecheck": True,
    "assign_cols_by_name": True,
    "prefer_int_ext_dtype": False,
    "arrow_max_records_per_batch": 10_000,
    "arrow_max_bytes_per_batch": 2**31 - 1,
    "int_to_decimal_coercion_enabled": False,
}
_TYPES = {"int": IntegerType(), "binary": BinaryType()}
_OUT = StructType(
    [StructField(name, _TYPES[kind]) for name, kind in map(str.split, SCHEMA.split(", "))]
)
_POSITIONS = [0, 1, 2, 3, 4, 5, 6]


@pytest.fixture
def serializer() -> Iterator[Any]:
    """As a worker makes it; PySpark's own methods are back afterwards."""
    made = TransformWithStateInPandasSerializer(**_OPTIONS)
    made.key_offsets = [0]
    yield made
    arrow_rows.as_before()


def stream_of(*batches: list[tuple[Any, ...]]) -> io.BytesIO:
    """What the JVM writes."""
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, _COLUMNS) as writer:
        for rows in batches:
            columns = list(zip(*rows, strict=True)) if rows else [()] * len(_COLUMNS)
            arrays = [
                pa.array(column, type=field.type)
                for column, field in zip(columns, _COLUMNS, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_COLUMNS))
    stream.seek(0)
    return stream


def read(serializer: Any, stream: io.BytesIO) -> list[tuple[Any, ...]]:
    """All that a task is handed: mode, key and the batch that the shard makes of its rows."""
    found: list[tuple[Any, ...]] = []
    for mode, key, group in serializer.load_stream(stream):
        if group is None:
            found.append((mode, key))
            continue
        pieces = [rows.iloc[:, _POSITIONS] for _, rows in group]
        table = pa.Table.from_batches([arrow_rows.columns_of(piece) for piece in pieces])
        batch = Batch.of_arrow(table)
        numbers = (batch.source, batch.partition, batch.offset, batch.time_ms)
        found.append((mode, key, [each.tolist() for each in numbers], batch.keys, batch.values))
    return found


def row(shard: int, offset: int, key: bytes | None, value: bytes | None) -> tuple[Any, ...]:
    return shard, 1, offset % 3, offset, 1_700_000_000_000 + offset, key, value


def test_rows_are_those_that_pyspark_gives(serializer: Any) -> None:
    """Over several batches, with keys that change within one, and values that are missing."""
    batches = [
        [row(5, 1, b"a", b"x"), row(5, 2, b"b", None)],
        [],
        [row(5, 3, None, b""), row(7, 4, b"a", bytes(300)), row(7, 5, b"c", b"y")],
    ]
    theirs = read(serializer, stream_of(*batches))
    arrow_rows.whole_columns()
    assert read(serializer, stream_of(*batches)) == theirs
    assert [each[1] for each in theirs] == [(5,), (7,), None, None]


def test_no_rows_are_no_rows(serializer: Any) -> None:
    theirs = read(serializer, stream_of())
    arrow_rows.whole_columns()
    assert read(serializer, stream_of()) == theirs


@pytest.mark.parametrize("bundles", [[], [b"one"], [b"", bytes(100_000), b"three"]])
def test_what_goes_out_is_what_pyspark_writes(serializer: Any, bundles: list[bytes]) -> None:
    """The JVM reads it by position and type."""

    def written(like: Any) -> tuple[bytes, list[Any]]:
        stream = io.BytesIO()
        rows = [
            arrow_rows.outgoing(7, sequence, bundle, like=like)
            for sequence, bundle in enumerate(bundles)
        ]
        serializer.dump_stream(iter([[(iter(rows), _OUT)]]), stream)
        data = stream.getvalue()
        if not data:
            return b"", []
        reader = pa.ipc.open_stream(data[4:])
        return data[:4], [(reader.schema.types, batch.to_pylist()) for batch in reader]

    theirs = written(pd.DataFrame())
    arrow_rows.whole_columns()
    assert written(arrow_rows.Rows(None)) == theirs


def test_a_recovery_s_first_batch_goes_out_as_ever() -> None:
    """It comes as DataFrames, by a serializer that has inherited what is ours."""
    made = TransformWithStateInPandasInitStateSerializer(**_OPTIONS)
    frame = arrow_rows.outgoing(7, 0, b"one", like=pd.DataFrame())

    def written() -> bytes:
        stream = io.BytesIO()
        made.dump_stream(iter([[(iter([frame]), _OUT)]]), stream)
        return stream.getvalue()

    theirs = written()
    arrow_rows.whole_columns()
    try:
        assert written() == theirs
    finally:
        arrow_rows.as_before()


def test_pyspark_s_own_methods_come_back(serializer: Any) -> None:
    """Another query's rows in a worker that had ours before."""
    before = serializer.load_stream.__func__, serializer.dump_stream.__func__
    arrow_rows.whole_columns()
    assert serializer.load_stream.__func__ is not before[0]
    arrow_rows.as_before()
    assert (serializer.load_stream.__func__, serializer.dump_stream.__func__) == before
