"""The query's plan: events in, bundles of answers out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Protocol

from spu_assigner.stream.job.checkpoint.files import absolute
from spu_assigner.stream.job.checkpoint.recovered import Recovery, initial_state, starting_offsets
from spu_assigner.stream.job.shard.batch import Options
from spu_assigner.stream.job.shard.server import SILENCE_SECONDS_MAX, options_to_json
from spu_assigner.stream.job.source import read_events, shard_labels, triggers_begun
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import partition_counts
from spu_assigner.stream.kafka.topics import INPUTS
from spu_assigner.stream.local.jvm.callback_auth import require_token

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SINK: Final = "io.spuassigner.spark.AnswersProvider"


def build_query(
    spark: SparkSession,
    settings: Settings,
    *,
    shards: int,
    run: str,
    recovery: Recovery | None = None,
) -> DataFrame:
    """The query's plan.

    Args:
        run: names what belongs to it alone in this JVM and in the executors: sources, sink, and
            shard servers.
        recovery: what the first batch begins with: a state, and where the input was read to. Spark
            takes up later batches with or without it.
    """
    options = Options(
        topic_prefix=settings.topic_prefix,
        default_policy=settings.default_policy,
        wire=settings.wire,
    )
    # Where tasks run on this machine, large answers need not pass through the JVM.
    master = spark.sparkContext.master or ""
    is_here = master.startswith("local")
    begins = state = None
    if recovery is not None:  # Spark wants all partitions of then.
        client, prefix = settings.connection().client(), settings.topic_prefix
        begins = {
            topic: starting_offsets(recovery.positions, topic, partitions=count)
            for topic, count in partition_counts(client, INPUTS, prefix=prefix).items()
        }
        state = initial_state(spark, absolute(settings.checkpoint))
    events = read_events(spark, settings, shards=shards, group=run, begins=begins)
    if shards == 1:  # Its task reads the input: a stage less to plan, start and clear up.
        events = events.coalesce(1)
    if is_here and not master.startswith("local-cluster"):
        extension(spark).ShardServers.prepare(
            spark.sparkContext.pythonExec,
            run,
            options_to_json(options, spills=True),
            shard_labels(shards),
        )
    return events_to_bundles(events, options, run=run, spills=is_here, state=state)


def events_to_bundles(
    events: DataFrame,
    options: Options,
    *,
    run: str,
    spills: bool,
    state: DataFrame | None = None,
) -> DataFrame:
    """The stateful step: rows of shard and event become rows of shard, sequence, bundle.

    No timers: with them Spark keeps running batches although nothing comes.

    Args:
        spills: whether tasks run on this machine, so that large answers may go by files.
        state: rows of shard, key, value that the state begins with.
    """
    from pyspark.sql import DataFrame

    spark = events.sparkSession
    plan = extension(spark).ShardProcessor.plan(
        events._jdf,
        None if state is None else state._jdf,
        spark.sparkContext.pythonExec,
        run,
        options_to_json(options, spills=spills),
        int(SILENCE_SECONDS_MAX * 1000),
    )
    return DataFrame(plan, spark)


def signs_of_life(spark: SparkSession, run: str) -> int:
    """How many signs the query of this run has given: triggers, and those from inside batches."""
    return triggers_begun(spark, run) + int(extension(spark).BatchSigns.count(run))


class BatchSink(Protocol):
    """Who sends the batches, called in the query's thread; what it raises stops the query."""

    def begin(self, batch: int) -> str:
        """Before a batch's tasks run: gives what Spark's UI calls them."""

    def commit(self, batch: int, bundles: bytes) -> None:
        """Send a batch, of which this is all that `BatchBuffer.take` reads."""


def register_sink(spark: SparkSession, run: str, sink: BatchSink) -> None:
    """Have the sink given the batches of the queries of this run, by this session's JVM alone."""
    require_token(spark)
    # As Py4J shows it to the JVM, which sees these alone.
    java = SimpleNamespace(implements=[f"{SINK}$Listener"])
    listener = SimpleNamespace(Java=java, begin=sink.begin, commit=sink.commit)
    extension(spark).AnswersProvider.register(run, listener)


def begin_query(plan: DataFrame, settings: Settings, run: str) -> StreamingQuery:
    """Start the query, or go on with it."""
    return (
        plan.writeStream.queryName(settings.query_name)
        .option("checkpointLocation", absolute(settings.checkpoint))
        .outputMode("append")
        .format(SINK)
        .option("listener", run)
        .start()
    )


def end_run(spark: SparkSession, run: str) -> None:
    """Let go what belongs to a run: the sink, and the shard servers of this machine."""
    extension(spark).AnswersProvider.unregister(run)
    extension(spark).ShardServers.end(run)


def extension(spark: SparkSession) -> Any:
    """The package of `stream/local/jvm/spark_extension`."""
    return spark.sparkContext._jvm.io.spuassigner.spark  # type: ignore[union-attr]  # there is one
