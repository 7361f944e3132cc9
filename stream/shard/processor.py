"""The stateful step of the query, as Spark's Python workers run it.

A shard's state is one map variable of Spark's. What a batch does is in `shard/batch.py`; the
decoded copy of the state lives in the shard's server, a process of its own.
"""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from spu_assigner.stream.checkpoint.files import STATE_VARIABLE
from spu_assigner.stream.shard.arrow_rows import Rows, as_before, bundle_row, whole_columns
from spu_assigner.stream.shard.batch import Batch, Options, process
from spu_assigner.stream.shard.bundle import OBSERVED, read_tally
from spu_assigner.stream.shard.clusters import Clusters
from spu_assigner.stream.shard.server import process_on_server, servers_folder
from spu_assigner.stream.shard.spill import spill
from spu_assigner.stream.shard.state_log import Shard
from spu_assigner.stream.shard.tally import Tally

if TYPE_CHECKING:
    from pandas import DataFrame

_NOTHING: Final = (0,) * len(OBSERVED)  # of a bundle that is not its shard's last
SHARDS_KEPT_MAX: Final = 64  # copies in one process that keeps them itself


class SparkStore:
    """Spark's map variable, for the shard that is being processed."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, key: str) -> bytes | None:
        found = self._state.getValue((key,))
        return None if found is None else bytes(found[0])

    def put(self, key: str, value: bytes) -> None:
        self._state.updateValue((key,), (value,))

    def remove(self, key: str) -> None:
        self._state.removeKey((key,))

    def items(self) -> Iterator[tuple[str, bytes]]:
        for key, value in self._state.iterator():
            yield key[0], bytes(value[0])


_KEPT: OrderedDict[tuple[str, int], Shard] = OrderedDict()


def kept_shard(query_name: str, label: int) -> Shard:
    """This process's copy of a shard; a new, empty one if it has none. The oldest give way."""
    shard = _KEPT.get((query_name, label))
    if shard is None:
        shard = _KEPT[query_name, label] = Shard(Clusters())
        while len(_KEPT) > SHARDS_KEPT_MAX:
            _KEPT.popitem(last=False)
    _KEPT.move_to_end((query_name, label))
    return shard


class AssignerProcessor(StatefulProcessor):
    """The stateful step of the query: rows of one shard in, bundles out.

    Args:
        options: what it needs of the settings.
        spills: whether large answers may go by files: the driver is on this machine.
    """

    def __init__(self, options: Options, *, spills: bool = False) -> None:
        self._options = options
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
        is_whole = bool(pieces) and isinstance(pieces[0], Rows)
        batch = Batch.of_columns(pieces) if is_whole else Batch.of_frames(pieces)
        store = SparkStore(self._state)
        if self._options.server_secret is None:
            shard = kept_shard(self._options.query_name, label)
            bundles = process(shard, store, batch, self._options)
        else:
            bundles = process_on_server(label, store, batch, self._options)
        observed = list(_NOTHING)
        bundles = _observing(bundles, observed)
        if self._options.server_secret is not None and self._spills:
            bundles = spill(bundles, servers_folder(self._options.server_secret), label)
        as_row = bundle_row if is_whole else _frame
        for sequence, bundle in enumerate(bundles):
            yield as_row(label, sequence, bundle, observed)

    def handleInitialState(  # noqa: N802  # Spark's name
        self,
        key: Any,
        initialState: DataFrame,  # noqa: N803
        timerValues: Any,  # noqa: N803
    ) -> None:
        """Put a recovered shard's log into the state, before its first batch."""
        store = SparkStore(self._state)
        for name, value in zip(initialState["key"], initialState["value"], strict=True):
            store.put(name, bytes(value))

    def close(self) -> None:
        """Nothing to let go: the copy is for the next batch."""
        as_before()
        _spare_the_collector()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A worker has it now, and is about to read its rows."""
        self.__dict__.update(state)
        whole_columns()


def _observing(bundles: Iterable[bytes], observed: list[int]) -> Iterator[bytes]:
    """The bundles; `observed` is what the one that was given last came to."""
    for bundle in bundles:
        tally = read_tally(bundle)
        observed[:] = Tally.of_bytes(tally).observed if tally else _NOTHING
        yield bundle


def _frame(label: int, sequence: int, bundle: bytes, observed: Sequence[int]) -> DataFrame:
    import pandas as pd

    columns = {"shard": [label], "sequence": [sequence], "bundle": [bundle]}
    numbers = {name: [number] for name, number in zip(OBSERVED, observed, strict=True)}
    return pd.DataFrame({**columns, **numbers})


_is_spared = False


def _spare_the_collector() -> None:
    """Set aside, once in a process, what outlives its tasks.

    PySpark's daemon collects garbage after each task, and so goes through all that pandas and
    pyarrow consist of: several times the work of a small batch.
    """
    global _is_spared  # noqa: PLW0603  # a fact about the process
    if not _is_spared:
        _is_spared = True
        gc.collect()
        gc.freeze()
