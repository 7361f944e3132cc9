"""Spark for the neighbours on Spark: the product's own session, source options and jars.

So what is measured is the program, not how Spark was set up for it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, Final

from spu_assigner.stream.job.checkpoint.files import SHUFFLE_PARTITIONS
from spu_assigner.stream.job.query import FETCH_WAIT_MS_MAX
from spu_assigner.stream.job.session import build_session
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.local.jvm.jars import ensure_all
from spu_assigner.stream.local.jvm.java import ensure_java

SHARDS: Final = "2"  # state partitions, as the product makes them on two cores


def source(spark: Any, settings: Settings) -> Any:
    """The events as a stream of Kafka's rows, with the product's limits on batch and fetch."""
    return (
        spark.readStream.format("kafka")
        .options(
            **{
                **settings.connection().spark(),
                "subscribe": f"{settings.topic_prefix}events",
                "startingOffsets": "earliest",
                "failOnDataLoss": "true",
                "kafka.isolation.level": "read_committed",
                "kafka.fetch.max.wait.ms": str(FETCH_WAIT_MS_MAX),
                "maxOffsetsPerTrigger": str(settings.topic_events_per_batch),
            }
        )
        .load()
    )


def run(query: Callable[[Any, Settings], Any]) -> None:
    """The program: rows of key and value to `PREFIXmaps`. SIGTERM ends it at once, in mid-batch."""
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "prefix", "checkpoint"):
        parser.add_argument(name)
    parser.add_argument("--unseen", action="store_true", help="only rows not seen before: a state")
    options = parser.parse_args()
    settings = Settings.load(
        flags={
            "bootstrap_servers": options.bootstrap,
            "topic_prefix": options.prefix,
            "checkpoint": options.checkpoint,
            "ui_port": 0,
        },
        environ={},
    )
    begun = time.monotonic()
    jars = ensure_all(["spark-kafka", "spark-local"])
    spark = build_session(settings, java=ensure_java(), jars=jars)
    print(f"{time.monotonic() - begun:.1f} s  Spark started", flush=True)
    spark.conf.set(SHUFFLE_PARTITIONS, SHARDS)
    rows = query(spark, settings)
    running = (
        (rows.dropDuplicates() if options.unseen else rows)
        .writeStream.format("kafka")
        .options(
            **{
                **settings.connection().spark(),
                "topic": f"{options.prefix}maps",
                "checkpointLocation": options.checkpoint,
            }
        )
        .outputMode("append")
        .start()
    )
    print(f"{time.monotonic() - begun:.1f} s  query started", flush=True)
    running.awaitTermination()
