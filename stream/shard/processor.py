"""The stateful step of the query, as Spark's Python workers run it.

A shard's state is one map variable of Spark's. The shard's server, a process of its own, holds its
decoded copy and processes the batch (`shard/batch.py`).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from spu_assigner.stream.checkpoint.files import STATE_VARIABLE
from spu_assigner.stream.shard.arrow_rows import (
    Rows,
    as_before,
    columns_of,
    outgoing,
    whole_columns,
)
from spu_assigner.stream.shard.batch import Options
from spu_assigner.stream.shard.server_client import process_on_server, servers_folder
from spu_assigner.stream.shard.spill import spill

if TYPE_CHECKING:
    from pandas import DataFrame


class SparkStore:
    """Spark's map variable, for the shard that is being processed."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, key: str) -> bytes | None:
        found = self._state.getValue((key,))
        return None if found is None else bytes(found[0])

    def write(self, key: str, value: bytes | None) -> None:
        if value is None:
            self._state.removeKey((key,))
        else:
            self._state.updateValue((key,), (value,))


class AssignerProcessor(StatefulProcessor):
    """The stateful step of the query: rows of one shard in, bundles out.

    Args:
        options: what it needs of the settings.
        secret: of this run: other runs' shard servers are never asked.
        spills: whether large answers may go by files: the driver is on this machine.
    """

    def __init__(self, options: Options, *, secret: str, spills: bool = False) -> None:
        self._options = options
        self._secret = secret
        self._spills = spills

    def init(self, handle: Any) -> None:
        self._state = handle.getMapState(STATE_VARIABLE, "key string", "value binary")

    def handleInputRows(  # noqa: N802  # Spark's name
        self,
        key: Any,
        rows: Iterator[DataFrame | Rows],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Any]:
        label = int(key[0])
        pieces = list(rows)
        bundles = process_on_server(
            label,
            SparkStore(self._state),
            [columns_of(piece) for piece in pieces],
            self._options,
            secret=self._secret,
        )
        if self._spills:
            bundles = spill(bundles, servers_folder(self._secret), label)
        for sequence, bundle in enumerate(bundles):
            yield outgoing(label, sequence, bundle, like=pieces[0])

    def handleInitialState(  # noqa: N802  # Spark's name
        self,
        key: Any,
        initialState: DataFrame,  # noqa: N803
        timerValues: Any,  # noqa: N803
    ) -> None:
        """Put a recovered shard's log into the state, before its first batch."""
        store = SparkStore(self._state)
        for name, value in zip(initialState["key"], initialState["value"], strict=True):
            store.write(name, bytes(value))

    def close(self) -> None:
        """The task ends; the copy is for the next batch."""
        as_before()
        _freeze_once()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A worker has it now, and is about to read its rows."""
        self.__dict__.update(state)
        whole_columns()


_is_frozen = False


def _freeze_once() -> None:
    """Exclude, once in a process, what outlives its tasks from garbage collection.

    PySpark's daemon collects garbage after each task, and so goes through all that pandas and
    pyarrow consist of: several times the work of a small batch.
    """
    global _is_frozen  # noqa: PLW0603  # a fact about the process
    if not _is_frozen:
        _is_frozen = True
        gc.collect()
        gc.freeze()
