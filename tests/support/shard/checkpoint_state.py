"""The state in a job's checkpoint, read with Spark's own reader."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import SparkSession
from spu_assigner.stream.job.shard.clusters import Clusters
from support.shard.stored_entries import read_entries

_READER_OPTIONS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
    # Else each read asks for an endpoint that only a running query makes, and fails without it.
    "spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag": "false",
}


def checkpoint_clusters(checkpoint: str | Path, spark: SparkSession) -> Clusters:
    """The clusters after the last committed batch."""
    session = spark.newSession()
    for name, value in _READER_OPTIONS.items():
        session.conf.set(name, value)
    batch = max(int(path.name) for path in Path(checkpoint, "commits").glob("[0-9]*"))
    rows = (
        session.read.format("statestore")
        .option("stateVarName", "shard")
        .option("batchId", str(batch))
        .load(str(checkpoint))
        .selectExpr("key.shard", "user_map_key.key", "user_map_value.value")
        .collect()
    )
    return read_shards((row[0], row[1], row[2]) for row in rows)


def read_shards(rows: Iterable[tuple[int, str, bytes]]) -> Clusters:
    """The clusters of rows (shard, key, value) of the state."""
    stored: dict[tuple[int, str], dict[str, bytes]] = {}
    for label, key, value in rows:
        half, _, name = key.partition("/")
        stored.setdefault((label, half), {})[name] = bytes(value)
    clusters = Clusters()
    for part in sorted(stored):
        for name, entry in read_entries(stored[part]).items():
            clusters.restore(name, entry)
    return clusters
