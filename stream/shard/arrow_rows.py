"""How a shard's rows come into Spark's Python worker and go out: as Arrow's columns, whole.

PySpark 4.2 hands them to `transformWithStateInPandas` by way of Python rows: each row of an Arrow
batch becomes a tuple, tuples with equal keys become a DataFrame; what comes back passes through
pandas once more. That is a third of what answering a small request costs. The columns are what both
sides have, so here they pass as they are.

PySpark offers no way to choose, so while a task of ours runs in a worker (`whole_columns`, from the
unpickling of its processor to its `close`) two methods of PySpark's serializer are ours. PySpark is
pinned to one version, and tests go through here on the real Spark. The first batch after a recovery
has another serializer: it comes and goes as DataFrames.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import IO, TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.serializers import (
    ArrowStreamSerializer,
    TransformWithStateInPandasSerializer,
)
from pyspark.sql.streaming.stateful_processor_util import TransformWithStateInPandasFuncMode

if TYPE_CHECKING:
    from pandas import DataFrame

_IN: Final = pa.schema(
    [
        *((name, pa.int64()) for name in ("source", "partition", "offset", "time_ms")),
        *((name, pa.binary()) for name in ("key", "value")),
    ]
)
_OUT: Final = pa.schema(  # as in `bundle.SCHEMA`
    [("shard", pa.int32()), ("sequence", pa.int32()), ("bundle", pa.binary())]
)
_theirs: Final[dict[str, Any]] = {
    name: getattr(TransformWithStateInPandasSerializer, name)
    for name in ("load_stream", "dump_stream")
}


class Rows:
    """Rows of one shard, in the place of a DataFrame."""

    __slots__ = ("columns",)

    def __init__(self, columns: Any) -> None:
        self.columns = columns  # a record batch

    @property
    def iloc(self) -> Self:
        """PySpark chooses columns by `rows.iloc[:, positions]`."""
        return self

    def __getitem__(self, place: tuple[slice, list[int]]) -> Rows:
        _, positions = place
        return Rows(self.columns.select(positions))


def whole_columns() -> None:
    """From now on the serializer of this process hands over `Rows` and takes `bundle_row`'s."""
    for name, method in (("load_stream", _load_stream), ("dump_stream", _dump_stream)):
        setattr(TransformWithStateInPandasSerializer, name, method)


def as_before() -> None:
    """The serializer is PySpark's own again; a stream that has begun continues."""
    for name, method in _theirs.items():
        setattr(TransformWithStateInPandasSerializer, name, method)


def columns_of(piece: DataFrame | Rows) -> Any:
    """The record batch of what Spark hands over."""
    if isinstance(piece, Rows):
        return piece.columns
    return pa.RecordBatch.from_pandas(piece, schema=_IN, preserve_index=False)


def outgoing(label: int, sequence: int, bundle: bytes, *, like: DataFrame | Rows) -> Any:
    """A row that goes out, as the record batch that PySpark would make of a DataFrame; as the
    DataFrame itself, if that is what has come in.
    """
    row = pa.RecordBatch.from_pydict(
        {"shard": [label], "sequence": [sequence], "bundle": [bundle]}, schema=_OUT
    )
    if not isinstance(like, Rows):
        return row.to_pandas()
    return pa.RecordBatch.from_arrays([row.to_struct_array()], names=["_0"])


def _load_stream(self: Any, stream: IO[bytes]) -> Iterator[tuple[Any, Any, Any]]:
    """What PySpark's own gives, with `Rows` for DataFrames."""
    mode = TransformWithStateInPandasFuncMode
    batches = ArrowStreamSerializer.load_stream(self, stream)
    pieces = (piece for batch in batches for piece in _by_key(batch, self.key_offsets))
    for key, group in groupby(pieces, key=lambda piece: piece[0]):
        yield mode.PROCESS_DATA, key, group
    yield mode.PROCESS_TIMER, None, None
    yield mode.COMPLETE, None, None


def _by_key(batch: Any, key_positions: list[int]) -> Iterator[tuple[tuple[Any, ...], Rows]]:
    """The rows of a batch, cut where the key changes; it is one column of integers."""
    (position,) = key_positions
    labels = batch.column(position).to_numpy()
    cuts = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(labels)]
    for begin, end in pairwise(cuts):
        if end > begin:
            yield (int(labels[begin]),), Rows(batch.slice(begin, end - begin))


def _dump_stream(self: Any, iterator: Iterator[Any], stream: IO[bytes]) -> None:
    """What PySpark's own does with DataFrames, with record batches.

    It gives ([(record batches, their type)],) for each key.
    """
    if type(self) is not TransformWithStateInPandasSerializer:  # Of a first batch after a recovery.
        _theirs["dump_stream"](self, iterator, stream)
        return
    batches = (batch for packed in iterator for batch in packed[0][0])
    ArrowStreamSerializer.dump_stream(self, self._write_stream_start(batches, stream), stream)
