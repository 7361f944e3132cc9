"""The whole way: a real broker, real Spark, events in and answers out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from spu_assigner.core.base.events import Event
from spu_assigner.stream.audit.rebuild import recover
from spu_assigner.stream.job.checkpoint.files import ShardsChangedError
from spu_assigner.stream.job.lifecycle import Job, start
from spu_assigner.stream.job.marker_check import FencedError, ForeignCheckpointError
from spu_assigner.stream.job.shard.clusters import read_shards
from spu_assigner.stream.job.sink import TransactionalSink
from spu_assigner.stream.job.source import shard_labels
from spu_assigner.stream.kafka.client import Reader, Sender, SentMessage
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.errors import ClientError, TopicsError
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.events.builders import Events
from support.job.shards import SHARDS
from support.kafka.shared_broker import SharedBroker
from support.kafka.traffic import PATIENCE_SECONDS, Kafka, expected_maps


def life_of(cluster_id: str, first: int, topics: range) -> list[Event]:
    events = Events(cluster_id, first=first)
    return [
        event
        for number in topics
        for event in (
            events.create(f"t{number}", 5, 3),
            *([events.delete(f"t{number - 1}")] if number % 3 == 2 else []),
        )
    ]


@pytest.mark.long("a job starts twice")
def test_a_restart_goes_on_and_repeats_nothing(
    settings: Settings, run: Callable[..., Job], tmp_path: Path
) -> None:
    """Stopped in the middle, its last batch forgotten by Spark, and started again: as if never."""
    kafka = Kafka(settings)
    joins = [event for name in ("c1", "c2", "c3") for event in Events(name).joins(0, 1, 2, 3)]
    before = [event for name in ("c1", "c2", "c3") for event in life_of(name, 100, range(10))]
    after = [event for name in ("c1", "c2", "c3") for event in life_of(name, 200, range(10, 20))]
    statuses = len(before)
    kafka.send([*joins, *before])
    job = run()
    kafka.wait("topic-status", statuses, job)
    job.stop()
    newest = max(int(path.name) for path in (tmp_path / "checkpoint/commits").glob("[0-9]*"))
    (tmp_path / f"checkpoint/commits/{newest}").unlink()  # as if it had died before noting it
    kafka.send(after)
    job = run()
    statuses += len(after)
    kafka.wait("topic-status", statuses, job)
    job.stop()
    assert len(kafka.read("topic-status")) == statuses
    assert kafka.maps() == expected_maps([*joins, *before, *after])
    batches = [marker.batch for marker in kafka.markers()]
    assert batches == list(range(len(batches)))
    ids = [dict(message.headers() or [])["ce_id"] for message in kafka.read("topic-status")]
    assert len(set(ids)) == statuses


def test_the_state_can_be_read_from_the_checkpoint(
    settings: Settings, run: Callable[..., Job]
) -> None:
    """Spark's statestore reader and our codec show what the job knows."""
    kafka, events = Kafka(settings), Events()
    kafka.send([*events.joins(0, 1), events.create("a"), events.create("b"), events.delete("a")])
    job = run()
    kafka.wait("topic-status", 3, job)
    job.query.stop()
    rows = (
        job.spark.read.format("statestore")
        .option("stateVarName", "shard")
        .load(settings.checkpoint)
        .selectExpr("key.shard", "user_map_key.key", "user_map_value.value")
        .collect()
    )
    clusters = read_shards((row[0], row[1], row[2]) for row in rows)
    assert sorted(clusters["c1"].topics) == ["b"]


def test_every_shard_has_a_state_partition_of_its_own(spark_jvm: None) -> None:
    """Two in one partition would leave another without work; the labels follow Spark's hash."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    )
    try:
        for shards in (1, 2, 3, 8, 100):
            labels = spark.createDataFrame([(label,) for label in shard_labels(shards)], "x int")
            rows = labels.selectExpr(f"pmod(hash(x), {shards})").collect()
            assert [row[0] for row in rows] == list(range(shards))
    finally:
        spark.stop()


def shard_servers() -> set[int]:
    """The processes that hold a shard for this process's Spark now, each by its shard's lock.

    Only those: a lock outlives who was killed, and its number may be another process's by now.
    """
    found = set()
    for lock in Path(tempfile.gettempdir()).glob(f"spu-assigner-{os.getuid()}-*/*.lock"):
        with suppress(
            FileNotFoundError, ProcessLookupError, ValueError
        ):  # It ends, or just begins.
            pid = int(lock.read_text())
            if b"job.shard.server" in Path(f"/proc/{pid}/cmdline").read_bytes() and is_own(pid):
                found.add(pid)
    return found


def is_own(pid: int) -> bool:
    """Whether this process has started it, or what has started it."""
    while pid not in (0, os.getpid()):
        # After the name, which may hold anything: state, parent.
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    return pid != 0


def test_a_batch_larger_than_one_record_batch_passes(
    settings: Settings, run: Callable[..., Job]
) -> None:
    """Large maps of one batch come to the driver in pieces."""
    kafka, events = Kafka(settings), Events()
    creates = [events.create(f"t{number}", 100_000, 3) for number in range(30)]
    joins = [events.join(spu_id, capacity=100_000_000) for spu_id in range(200)]
    kafka.send([*joins, *creates])
    job = run()
    assert len(kafka.wait("replica-map", 30, job)) == 30


def test_another_number_of_shards_is_refused(settings: Settings, run: Callable[..., Job]) -> None:
    """The state is divided; a part of the clusters would be looked for in the wrong place."""
    kafka, events = Kafka(settings), Events()
    kafka.send([events.join(0), events.create("a")])
    job = run()
    kafka.wait("topic-status", 1, job)
    job.stop()
    with pytest.raises(ShardsChangedError, match=rf"shards is 3, but .* has its state in {SHARDS}"):
        start(replace(settings, shards=3))
    assert run(replace(settings, shards=None)).shards == SHARDS


@pytest.mark.long("two jobs run and a checkpoint is recovered")
def test_a_new_checkpoint_has_one_shard_and_a_recovered_one_as_many_as_are_asked_for(
    settings: Settings, run: Callable[..., Job], tmp_path: Path
) -> None:
    """With one shard its task reads the input, too; both are the same state."""
    kafka, events = Kafka(settings), Events()
    kafka.send([events.join(0), events.create("a")])
    job = run(replace(settings, shards=None))
    kafka.wait("topic-status", 1, job)
    assert job.shards == 1
    job.stop()
    new = replace(settings, shards=2, checkpoint=str(tmp_path / "new"))
    assert recover(new).shards == 2
    job = run(replace(new, shards=None))
    kafka.send([events.create("b")])
    kafka.wait("topic-status", 2, job)
    assert job.shards == 2


def test_a_new_checkpoint_for_answered_events_is_refused(
    settings: Settings, run: Callable[..., Job], tmp_path: Path
) -> None:
    """It would answer all events a second time."""
    kafka, events = Kafka(settings), Events()
    kafka.send([events.join(0), events.create("a")])
    job = run()
    kafka.wait("topic-status", 1, job)
    job.stop()
    with pytest.raises(ForeignCheckpointError, match="and this is a new one"):
        start(replace(settings, checkpoint=str(tmp_path / "another")))


def test_a_query_that_is_shut_out_stops_by_name(
    settings: Settings, run: Callable[..., Job]
) -> None:
    """What stops a query is reported as itself, not as a Java stack trace."""
    kafka, events = Kafka(settings), Events()
    kafka.send([events.join(0), events.create("a")])
    job = run()
    kafka.wait("topic-status", 1, job)
    other = TransactionalSink(settings, shards=SHARDS)
    other.open(job.query.id)
    kafka.send([events.create("b")])
    with pytest.raises(FencedError, match="another process has taken over"):
        job.await_termination(PATIENCE_SECONDS)
    other.close()


@pytest.mark.smoke
def test_missing_topics_are_reported_before_anything_starts(
    kafka: SharedBroker, topic_prefix: str
) -> None:
    """One line, and what to do."""
    flags = {"bootstrap_servers": kafka.bootstrap_servers, "topic_prefix": topic_prefix}
    with pytest.raises(TopicsError, match="topics create"):
        start(Settings.load(flags=flags, environ={}))


def test_a_broker_that_does_not_answer_is_reported() -> None:
    """One line, no stack trace."""
    with pytest.raises(ClientError, match=r"no Kafka broker answers at 127\.0\.0\.1:1"):
        start(Settings.load(flags={"bootstrap_servers": "127.0.0.1:1"}, environ={}))


def test_an_unknown_host_beside_a_broker_stops_nobody(
    settings: Settings, run: Callable[..., Job]
) -> None:
    """A list of brokers is there to be incomplete: topics, job and clients use the one that is."""
    mixed = replace(settings, bootstrap_servers=f"brokr.invalid:9092,{settings.bootstrap_servers}")
    create_topics(mixed.connection().client(), prefix=mixed.topic_prefix)
    kafka, events = Kafka(settings), Events()
    job = run(mixed)
    sent: list[SentMessage] = []
    with Reader(mixed.connection(), ["topic-status"]) as reader:
        sender = Sender(mixed.connection(), sent.append)
        for event in (events.join(0), events.create("a")):
            sender.send(event)
        sender.flush()
        kafka.wait("topic-status", 1, job)
        assert [each.error for each in sent] == [None, None]
        assert len(reader.drain()) == 1
