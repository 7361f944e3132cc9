"""The query's plan: events in, bundles of answers out."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from spu_assigner.stream.checkpoint.files import absolute
from spu_assigner.stream.checkpoint.recovered import Recovery, initial_state, starting_offsets
from spu_assigner.stream.config.profile import tuning
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import partition_counts
from spu_assigner.stream.kafka.topics import INPUTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def build_query(
    spark: SparkSession,
    settings: Settings,
    *,
    shards: int,
    group: str,
    recovery: Recovery | None = None,
) -> DataFrame:
    """The query's plan: events in, bundles of answers out. `group` names its sources.

    With a recovery it is the plan of the first batch: from another state than none, and from where
    the input was read to. Spark takes up later batches with either plan.
    """
    from spu_assigner.stream.job.source import read_events
    from spu_assigner.stream.shard.batch import Options
    from spu_assigner.stream.shard.bundle import SCHEMA
    from spu_assigner.stream.shard.processor import AssignerProcessor

    options = Options(
        topic_prefix=settings.topic_prefix,
        default_policy=settings.default_policy,
        wire=settings.wire,
    )
    # Where tasks run on this machine, large answers need not pass through the JVM.
    is_here = (spark.sparkContext.master or "").startswith("local")
    begins = state = None
    if recovery is not None:
        begins = _begins(settings, recovery)
        state = initial_state(spark, absolute(settings.checkpoint)).groupBy("shard")
    events = read_events(spark, settings, shards=shards, group=group, begins=begins)
    if shards == 1 and tuning(settings.profile).in_one_task:
        events = events.coalesce(1)
    # No timers: with them Spark keeps running batches although nothing comes.
    return events.groupBy("shard").transformWithStateInPandas(
        statefulProcessor=AssignerProcessor(options, secret=secrets.token_hex(16), spills=is_here),
        outputStructType=SCHEMA,
        outputMode="Append",
        timeMode="None",
        initialState=state,
    )


def _begins(settings: Settings, recovery: Recovery) -> dict[str, dict[str, int]]:
    """Where a recovered checkpoint begins to read; Spark wants all partitions of then."""
    counts = partition_counts(settings.connection().client(), INPUTS, prefix=settings.topic_prefix)
    return {
        topic: starting_offsets(recovery.positions, topic, partitions=count)
        for topic, count in counts.items()
    }
