"""A replica assigner as a user first writes it with Spark's `transformWithState`.

Grouped by cluster; a row for each event; the ring and the chain index in a value, the topics in a
map with a put for each; Spark's own sink to Kafka, which repeats answers after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fluvio import place, replica_map
from messages import decode, encode_map
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from spark_session import run, source
from spu_assigner.stream.kafka.config.settings import Settings


class Cluster(StatefulProcessor):
    """The events of one cluster, one after the other."""

    def init(self, handle: Any) -> None:
        self._cluster = handle.getValueState("cluster", "ring array<int>, index bigint")
        self._topics = handle.getMapState("topics", "topic string", "cause string")

    def handleInputRows(  # noqa: N802  # Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        known = self._cluster.get()
        ring, index = (list(known[0]), known[1]) if known else ([], 0)
        # A cluster is on one partition, but a shuffle promises no order.
        for row in sorted(rows, key=lambda row: row.offset):
            kind, event = decode(bytes(row.value))
            if kind == "SpuJoined":
                ring = sorted({*ring, event["spu_id"]})
                continue
            replicas, topic = event["replication_factor"], event["topic"]
            if not 1 <= replicas <= len(ring) or self._topics.containsKey((topic,)):
                continue
            lists = place(ring, index, event["partitions"], replicas)
            index += event["partitions"]
            self._topics.updateValue((topic,), (event["event_id"],))
            value = encode_map(replica_map(event, lists, index))
            yield Row(key=f"{key[0]}/{topic}", value=bytearray(value))
        self._cluster.update((ring, index))

    def close(self) -> None:
        """Nothing is held."""


def answers(spark: Any, settings: Settings) -> Any:
    """The maps."""
    return (
        source(spark, settings)
        .selectExpr("cast(key as string) as cluster", "offset", "value")
        .groupBy("cluster")
        .transformWithState(
            statefulProcessor=Cluster(),
            outputStructType="key string, value binary",
            outputMode="Append",
            timeMode="None",
        )
    )


if __name__ == "__main__":
    run(answers)
