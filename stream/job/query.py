"""The query's plan: events in, bundles of answers out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Protocol

from spu_assigner.stream.job.checkpoint.files import absolute
from spu_assigner.stream.job.checkpoint.recovered import Recovery, initial_state, starting_offsets
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import partition_counts
from spu_assigner.stream.kafka.topics import INPUTS
from spu_assigner.stream.local.jvm.callback_auth import require_token

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from spu_assigner.stream.job.shard.batch import Options

SINK: Final = "io.spuassigner.spark.AnswersProvider"


def build_query(
    spark: SparkSession,
    settings: Settings,
    *,
    shards: int,
    run: str,
    recovery: Recovery | None = None,
) -> DataFrame:
    """The query's plan: events in, bundles of answers out.

    `run` names what belongs to it alone in this JVM and in the executors: sources, sink, and shard
    servers.

    With a recovery it is the plan of the first batch: from another state than none, and from where
    the input was read to. Spark takes up later batches with either plan.
    """
    from spu_assigner.stream.job.shard.batch import Options
    from spu_assigner.stream.job.shard.server import options_to_json
    from spu_assigner.stream.job.source import read_events, shard_labels

    options = Options(
        topic_prefix=settings.topic_prefix,
        default_policy=settings.default_policy,
        wire=settings.wire,
    )
    # Where tasks run on this machine, large answers need not pass through the JVM.
    master = spark.sparkContext.master or ""
    is_here = master.startswith("local")
    begins = state = None
    if recovery is not None:
        begins = _begins(settings, recovery)
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
    python: str | None = None,
    silence_seconds_max: float | None = None,
) -> DataFrame:
    """The stateful step: rows of shard and event become rows of shard, sequence, bundle.

    No timers: with them Spark keeps running batches although nothing comes.

    Args:
        spills: whether tasks run on this machine, so that large answers may go by files.
        state: rows of shard, key, value that the state begins with.
        python: the interpreter of the shard servers; by default that of Spark's workers.
        silence_seconds_max: how long a shard server may be silent when it was asked; by default
            its own SILENCE_SECONDS_MAX.
    """
    from pyspark.sql import DataFrame
    from spu_assigner.stream.job.shard.server import SILENCE_SECONDS_MAX, options_to_json

    spark = events.sparkSession
    silence = SILENCE_SECONDS_MAX if silence_seconds_max is None else silence_seconds_max
    plan = extension(spark).ShardProcessor.plan(
        events._jdf,
        None if state is None else state._jdf,
        python or spark.sparkContext.pythonExec,
        run,
        options_to_json(options, spills=spills),
        int(silence * 1000),
    )
    return DataFrame(plan, spark)


def signs_of_life(spark: SparkSession, run: str) -> int:
    """How many signs the query of this run has given: triggers, and those from inside batches."""
    from spu_assigner.stream.job.source import triggers_begun

    return triggers_begun(spark, run) + int(extension(spark).BatchSigns.count(run))


class BatchSink(Protocol):
    """Who sends the batches, called in the query's thread; what it raises stops the query."""

    def begin(self, batch: int) -> str:
        """Before a batch's tasks run: gives what Spark's UI calls them."""

    def commit(self, batch: int, bundles: bytes) -> None:
        """Send a batch, of which this is all that `BatchBuffer.take` reads."""


class _Listener:
    """A sink as Py4J shows it to the JVM."""

    Java = SimpleNamespace(implements=[f"{SINK}$Listener"])

    def __init__(self, sink: BatchSink) -> None:
        self.begin = sink.begin
        self.commit = sink.commit


def register_sink(spark: SparkSession, run: str, sink: BatchSink) -> None:
    """Have the sink given the batches of the queries of this run, by this session's JVM alone."""
    require_token(spark)
    extension(spark).AnswersProvider.register(run, _Listener(sink))


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


def _begins(settings: Settings, recovery: Recovery) -> dict[str, dict[str, int]]:
    """Where a recovered checkpoint begins to read; Spark wants all partitions of then."""
    counts = partition_counts(settings.connection().client(), INPUTS, prefix=settings.topic_prefix)
    return {
        topic: starting_offsets(recovery.positions, topic, partitions=count)
        for topic, count in counts.items()
    }
