"""The query's plan: both input topics as one stream of events in, bundles of answers out.

The order of the union matters. Spark asks its sources for their latest offsets one after the other,
in the order they stand in: topic events first, SPU events last. A join that was acknowledged before
a create was sent is therefore in the create's batch or an earlier one, never in a later one. While
another producer's transaction is open on the SPU events, a join that was acknowledged after its
beginning cannot be read yet; topic events are held back until it can (`HeldEvents.java`).

While nothing comes, the source that is asked first waits at the broker for events of both topics
(`LongPollKafkaProvider.java`), so an idle job takes little CPU time of its own and of the broker's.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Protocol

from spu_assigner.core.base.errors import InvariantError
from spu_assigner.stream.job.checkpoint.files import absolute
from spu_assigner.stream.job.checkpoint.recovered import (
    STATE_FILE,
    STATE_SCHEMA,
    Recovery,
    starting_offsets,
)
from spu_assigner.stream.job.shard.bundle import SOURCE_TOPICS, InputSource
from spu_assigner.stream.job.shard.options import Options, options_to_json
from spu_assigner.stream.kafka.config.settings import Settings, SettingsError
from spu_assigner.stream.kafka.topic_admin import partition_counts
from spu_assigner.stream.kafka.topics import INPUTS, SPU_EVENTS, topic_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SINK: Final = "io.spuassigner.spark.AnswersProvider"
# How long the broker holds an empty fetch back, by default 500 ms. Spark asks for a partition's
# ends each time it has fetched; by then its consumer has asked for more, and the broker answers the
# questions of a connection one after the other.
FETCH_WAIT_MS_MAX: Final = 0
# Where a partition ends is asked of its leader. If that broker has crashed, Kafka's admin client
# can wait for it, and for no other, until the call's time is up (KAFKA-20673): by default 60 s. For
# the next call Spark takes a new client, which finds the new leader. In all as long as before.
CALL_MS_MAX: Final = 10_000
CALLS_MAX: Final = 17  # 1 s apart; by default 3
# At least, from a batch of several events to the next one: under a steady load batches would follow
# each other at once, and what they cost would be most of the job's work. At 200 creates a second a
# quarter less than with half of it.
BATCH_INTERVAL_MS: Final = 1_000
# Of a shard server that was asked. No event takes longer than some seconds, and `/live` reports a
# job without a sign of life after half of this: a supervisor may act before.
SILENCE_SECONDS_MAX: Final = 600.0
SERVERS: Final = 2  # of a shard: each decides for half of its clusters, beside the other
_HALF_BIT: Final = 16  # of a key's CRC-32
_LABELS_TRIED_MAX: Final = 1_000_000  # a shard's label is found after about as many as shards
LONG_POLL_SOURCE: Final = "io.spuassigner.spark.LongPollKafkaProvider"


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
        place = f"{absolute(settings.checkpoint)}/{STATE_FILE}"
        state = spark.read.schema(STATE_SCHEMA).parquet(place)
    events = read_events(spark, settings, shards=shards, group=run, begins=begins)
    if shards == 1:  # Its task reads the input: a stage less to plan, start and clear up.
        events = events.coalesce(1)
    if is_here and not master.startswith("local-cluster"):
        extension(spark).FirstBatch.prepare()
        extension(spark).ShardServers.prepare(
            spark.sparkContext.pythonExec,
            run,
            options_to_json(options, spills=True),
            [number for label in shard_labels(shards) for number in server_numbers(label)],
        )
    return events_to_bundles(events, options, run=run, spills=is_here, state=state)


def read_events(
    spark: SparkSession,
    settings: Settings,
    *,
    shards: int,
    group: str,
    begins: Mapping[str, Mapping[str, int]] | None = None,
) -> DataFrame:
    """The rows: shard, event (`stream/local/jvm/spark_extension/EventReaders.java`).

    Args:
        group: a name of this query and no other in the JVM.
        begins: by the topic's whole name, for each of its partitions where a new checkpoint begins
            to read (-2: at the first message); by default all from their first messages.
    """
    _require_secrets(spark, settings)
    sources = {
        "longPollGroup": group,
        "longPollSources": "2",
        "longPollIntervalMs": str(BATCH_INTERVAL_MS),
        "eventShards": ",".join(map(str, shard_labels(shards))),
    }
    topics = _source(
        spark,
        settings,
        InputSource.TOPIC_EVENTS,
        begins,
        longPollFirst="true",
        heldBehind=topic_name(SPU_EVENTS, prefix=settings.topic_prefix),
        **sources,
        # Only this one is limited: in a backlog membership is caught up first.
        maxOffsetsPerTrigger=str(settings.topic_events_per_batch),
    )
    return topics.union(_source(spark, settings, InputSource.SPU_EVENTS, begins, **sources))


def triggers_begun(spark: SparkSession, group: str) -> int:
    """How many triggers the query of this group has begun: one a second at least while it lives."""
    source = getattr(spark._jvm, LONG_POLL_SOURCE)
    return int(source.triggersBegun(group))


def _require_secrets(spark: SparkSession, settings: Settings) -> None:
    """Spark resolves references to variables in its own JVM, which may be older than they are."""
    for variable in settings.security.variables():
        if spark.sparkContext._jvm.System.getenv(variable) is None:  # type: ignore[union-attr]  # there is one
            raise SettingsError(
                variable,
                found="not in the environment of Spark's JVM",
                expected=f"it there too, at its start; or a file named by {variable}_FILE",
            )


def _source(
    spark: SparkSession,
    settings: Settings,
    source: InputSource,
    begins: Mapping[str, Mapping[str, int]] | None,
    **options: str,
) -> DataFrame:
    name = topic_name(SOURCE_TOPICS[source], prefix=settings.topic_prefix)
    first = "earliest" if begins is None else json.dumps({name: begins[name]})
    return (
        spark.readStream.format(LONG_POLL_SOURCE)
        .options(
            **{
                **settings.connection().spark(),
                "subscribe": name,
                "eventSource": str(source.value),
                # Of a new checkpoint: no event is passed over.
                "startingOffsets": first,
                "failOnDataLoss": "true",  # a gap must not pass for an event that never was
                "kafka.isolation.level": "read_committed",
                "kafka.fetch.max.wait.ms": str(FETCH_WAIT_MS_MAX),
                "kafka.request.timeout.ms": str(CALL_MS_MAX),  # no more than that of a call
                "kafka.default.api.timeout.ms": str(CALL_MS_MAX),
                "fetchOffset.numRetries": str(CALLS_MAX),
                **options,
            }
        )
        .load()
    )


def shard_labels(shards: int) -> list[int]:
    """For each state partition a number that Spark's hash sends to it, so that none holds two."""
    labels: dict[int, int] = {}
    for label in range(_LABELS_TRIED_MAX):
        labels.setdefault(spark_partition(label, shards), label)
        if len(labels) == shards:
            return [labels[partition] for partition in range(shards)]
    raise ValueError(f"no labels for {shards} shards among the first {_LABELS_TRIED_MAX} numbers")


def server_numbers(label: int) -> range:
    """The numbers of a shard's servers, which messages have as their `shard`."""
    return range(SERVERS * label, SERVERS * label + SERVERS)


def server_of(key: bytes, labels: Sequence[int]) -> int:
    """The number of the server that decides events of this key (`ShardProcessor.java`)."""
    crc = zlib.crc32(key)
    return server_numbers(labels[crc % len(labels)])[crc >> _HALF_BIT & 1]


def spark_partition(value: int, partitions: int) -> int:
    """The partition of a row grouped by one int: Spark's Murmur3, seed 42, modulo the number."""
    mask = 0xFFFFFFFF
    k = value * 0xCC9E2D51 & mask
    k = (k << 15 | k >> 17) & mask
    k = k * 0x1B873593 & mask
    h = 42 ^ k
    h = (h << 13 | h >> 19) & mask
    h = (h * 5 + 0xE6546B64) & mask
    h ^= 4  # the size of an int
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ h >> shift) * factor & mask
    h ^= h >> 16
    return (h - (1 << 32) if h >> 31 else h) % partitions


def events_to_bundles(
    events: DataFrame, options: Options, *, run: str, spills: bool, state: DataFrame | None = None
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

    def begin(self, batch: int) -> None:
        """Called before a batch's tasks run."""

    def commit(self, batch: int, bundles: bytes) -> str:
        """Send a batch, of which this is all that `BatchBuffer.take` reads.

        Returns what Spark's UI shows of it: the `FIGURES` of `AnswersProvider.java`, as integers
        with blanks between them.
        """


def register_sink(spark: SparkSession, run: str, sink: BatchSink) -> None:
    """Have the sink given the batches of the queries of this run, by this session's JVM alone."""
    _require_token(spark)
    # As Py4J shows it to the JVM, which sees these alone.
    java = SimpleNamespace(implements=[f"{SINK}$Listener"])
    listener = SimpleNamespace(Java=java, begin=sink.begin, commit=sink.commit)
    extension(spark).AnswersProvider.register(run, listener)


def _require_token(spark: SparkSession) -> None:
    """Have this process listen, and to its own JVM alone; raises InvariantError if it cannot.

    PySpark gives each JVM a token, without which its port answers nothing. The other way, by which
    the JVM hands batches to the sink, is a port of this process that every user of the machine can
    connect to, and so call the sink. Py4J can ask for a token there as well, but PySpark does not
    let it, and on the JVM's side the token is a field without a setter.
    """
    from py4j.java_gateway import JavaObject
    from py4j.protocol import Py4JJavaError
    from pyspark.java_gateway import ensure_callback_server_started

    gateway = spark.sparkContext._gateway
    if gateway is None:
        raise InvariantError("Spark's session has no gateway to a JVM")
    token = gateway.gateway_parameters.auth_token
    if not token:
        raise InvariantError("Spark's JVM was started without a token: any process could drive it")
    gateway.callback_server_parameters.auth_token = token
    ensure_callback_server_started(gateway)
    client = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()
    try:
        field = client.getClass().getSuperclass().getDeclaredField("authToken")
        field.setAccessible(True)
        field.set(client, token)
    except Py4JJavaError as reason:
        raise InvariantError(
            f"Py4J keeps its token elsewhere than version 0.10.9.9 does: {reason.java_exception}"
        ) from reason


def begin_query(plan: DataFrame, settings: Settings, run: str) -> StreamingQuery:
    """Start the query, or go on with it."""
    return (
        plan.writeStream.queryName(settings.query_name)
        .option("checkpointLocation", absolute(settings.checkpoint))
        .outputMode("append")
        .format(SINK)
        .option("listener", run)
        .option("query", settings.query_name)
        .start()
    )


def end_run(spark: SparkSession, run: str) -> None:
    """Let go what belongs to a run: the sink, and the shard servers of this machine."""
    extension(spark).AnswersProvider.unregister(run)
    extension(spark).ShardServers.end(run)


def extension(spark: SparkSession) -> Any:
    """The package of `stream/local/jvm/spark_extension`."""
    return spark.sparkContext._jvm.io.spuassigner.spark  # type: ignore[union-attr]  # there is one
