"""The query's stateful step and its sink, which are Java, on the real Spark with shard servers."""

from __future__ import annotations

import glob
import itertools
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from spu_assigner.core.base.events import Event, Policy
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.schemas.messages.wire import Wire
from spu_assigner.stream.job import query as query_module
from spu_assigner.stream.job.batch_buffer import BatchBuffer
from spu_assigner.stream.job.checkpoint.files import SHUFFLE_PARTITIONS
from spu_assigner.stream.job.checkpoint.recovered import STATE_SCHEMA
from spu_assigner.stream.job.query import (
    SINK,
    end_run,
    events_to_bundles,
    register_sink,
    server_numbers,
    server_of,
    shard_labels,
)
from spu_assigner.stream.job.session import build_session
from spu_assigner.stream.job.shard.bundle import Message, MessageKind
from spu_assigner.stream.job.shard.input_batch import Batch
from spu_assigner.stream.job.shard.options import Options
from spu_assigner.stream.job.shard.state_log import HEAD
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.local.jvm.jars import ensure_all
from spu_assigner.stream.local.jvm.java import Java
from spu_assigner.stream.local.jvm.spark_class_archive import jvm_options
from support.events.builders import Events
from support.shard.checkpoint_state import checkpoint_clusters
from support.shard.shard_server import changed_python
from support.shard.stores import batch_bytes, batch_of

SHARDS = 2
LABEL = shard_labels(SHARDS)[0]
OPTIONS = Options(topic_prefix="", default_policy=Policy.FLUVIO, wire=Wire.CONFLUENT)
EVENTS = "shard int, event binary"


def events_of(batch: Batch) -> list[bytes]:
    """As the job's source gives them: a piece of one message, without the count."""
    return [batch_bytes(Batch.of_rows([row]))[8:] for row in batch.rows]


class Taken:
    """Who takes the batches: keeps their messages, in order."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.batches: dict[int, list[tuple[int, Message]]] = {}
        self.sizes: dict[int, int] = {}
        self.failure: str | None = None

    def begin(self, batch: int) -> None:
        self.begun.append(batch)

    def commit(self, batch: int, bundles: bytes) -> str:
        if self.failure is not None:
            raise ValueError(self.failure)
        self.sizes[batch] = len(bundles)
        with BatchBuffer() as buffer:
            buffer.take(bundles)
            self.batches[batch] = [
                (shard, message)
                for shard, bundle in buffer.placed()
                for message in bundle.messages()
            ]
        return "1 2 3 4 5 6 7 8"


class Query:
    """A query over files of rows: each file is a batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.taken = Taken()
        self.run = secrets.token_hex(16)
        self.checkpoint = folder / "checkpoint"
        self._spark = spark
        self._rows = folder / "rows"
        self._rows.mkdir()
        self._numbers = itertools.count()
        self._query: Any = None

    def start(self, state: DataFrame | None = None, *, python: str = sys.executable) -> None:
        register_sink(self._spark, self.run, self.taken)
        self._spark.sparkContext.pythonExec = python
        files = self._spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1)
        plan = events_to_bundles(
            files.parquet(str(self._rows)), OPTIONS, run=self.run, spills=False, state=state
        )
        self._query = (
            plan.writeStream.option("checkpointLocation", str(self.checkpoint))
            .format(SINK)
            .option("listener", self.run)
            .start()
        )

    def batch(self, batch: Batch) -> list[Message]:
        """What is sent of a batch."""
        columns = {
            "shard": pa.array([LABEL] * len(batch.rows), pa.int32()),
            "event": pa.array(events_of(batch), pa.binary()),
        }
        half = self._rows / f".{next(self._numbers)}"
        pq.write_table(pa.table(columns), half)
        half.rename(half.with_name(f"{half.name[1:]}.parquet"))
        self._query.processAllAvailable()
        sent = self.taken.batches[max(self.taken.batches)]
        assert {shard for shard, _ in sent} <= {*server_numbers(LABEL)}
        return [message for _, message in sent]

    def events(self, *events: Event, first: int) -> list[Message]:
        return self.batch(batch_of(events, first))

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()
        end_run(self._spark, self.run)


@pytest.fixture(scope="module")
def spark(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with the options of the job."""
    jars = ensure_all(["spark-kafka", "spark-local"])
    checkpoint = str(tmp_path_factory.mktemp("session"))
    flags = {"checkpoint": checkpoint, "ui_port": 0, "master": "local[2]"}
    options = jvm_options(java, jars["spark-local"])
    session = build_session(
        Settings.load(flags=flags, environ={}), java=java, jars=jars, jvm_options=options
    )
    session.conf.set(SHUFFLE_PARTITIONS, str(SHARDS))
    yield session
    session.stop()


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Iterator[Query]:
    made = Query(spark, tmp_path)
    yield made
    made.stop()


def maps(messages: list[Message]) -> dict[bytes, object]:
    """Replica lists by key."""
    found: dict[bytes, object] = {}
    for message in messages:
        if message.kind == MessageKind.REPLICA_MAP:
            record = None if message.value is None else decode_record(message.value)
            assert record is None or isinstance(record, ReplicaMap)
            assert message.key is not None
            lists = None if record is None or record.replicas is None else record.replicas.tolist()
            found[message.key] = lists
    return found


def servers(run: str) -> list[int]:
    """The processes of a run's shard servers."""
    locks = glob.glob(f"/tmp/spu-assigner-*-{run[:16]}/*.lock")
    return [int(Path(lock).read_text(encoding="ascii")) for lock in locks]


def wait_until(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_every_shard_has_a_state_partition_of_its_own(spark: SparkSession) -> None:
    """Two in one partition would leave another without work; the labels follow Spark's hash."""
    for shards in (1, 2, 3, 8, 100):
        labels = spark.createDataFrame([(label,) for label in shard_labels(shards)], "x int")
        rows = labels.selectExpr(f"pmod(hash(x), {shards})").collect()
        assert [row[0] for row in rows] == list(range(shards))


@pytest.mark.smoke
def test_rows_go_to_the_shard_and_bundles_and_state_come_back(query: Query) -> None:
    """The whole way, twice: the next batch goes on from the state of the one before."""
    events = Events()
    query.start()
    sent = query.events(*events.joins(0, 1, 2), events.create("a", 2, 1), first=0)
    kinds = [message.kind for message in sent]
    answers = [MessageKind.RING_EVENT] * 3 + [MessageKind.REPLICA_MAP, MessageKind.TOPIC_STATUS]
    assert kinds[:5] == answers
    assert maps(sent) == {b"c1/a": [[0], [1]]}
    assert sent[0].id == b"spu-events/0/0/0"
    assert maps(query.events(events.create("b", 2, 1), first=9)) == {b"c1/b": [[2], [0]]}
    assert query.taken.begun == [0, 1]


def test_the_state_can_be_read_by_others(query: Query, spark: SparkSession) -> None:
    """Rows of Spark's statestore reader and our codec give the clusters back."""
    events = Events()
    query.start()
    query.events(*events.joins(0, 1), events.create("a"), events.create("b"), first=0)
    query.events(events.delete("a"), first=9)
    query.stop()
    clusters = checkpoint_clusters(query.checkpoint, spark)
    assert sorted(clusters["c1"].topics) == ["b"]
    assert sorted(clusters["c1"].spus) == [0, 1]


def test_a_first_batch_begins_with_the_state_that_it_is_given(
    query: Query, spark: SparkSession
) -> None:
    """A recovered one: what it holds is read, and what is damaged in it stops the query by name."""
    half = server_of(b"c1", [LABEL]) - server_numbers(LABEL)[0]
    damaged = [(LABEL, f"{half}/{HEAD}", bytearray(b"\x09" + bytes(100)))]
    query.start(spark.createDataFrame(damaged, STATE_SCHEMA))
    with pytest.raises(StreamingQueryException, match="ShardFormatError: a shard's state has form"):
        query.events(Events().join(0), first=0)


def test_a_state_of_before_a_shard_had_two_servers_is_refused(
    query: Query, spark: SparkSession
) -> None:
    """Its head has no half in its name: taken for no state, all that was decided would be lost."""
    earlier = [(LABEL, HEAD, bytearray(b"\x02" + bytes(100)))]
    query.start(spark.createDataFrame(earlier, STATE_SCHEMA))
    with pytest.raises(StreamingQueryException, match="has format 2, this release reads 3"):
        query.events(Events().join(0), first=0)


def test_both_servers_of_a_shard_answer_in_one_batch(query: Query) -> None:
    """Each has half of the clusters; the state of both is in the shard's."""
    one, other = Events("c1"), Events("c2")
    assert server_of(b"c1", [LABEL]) != server_of(b"c2", [LABEL])
    query.start()
    query.events(one.join(0), other.join(0), first=0)
    query.events(one.create("a"), other.create("b"), first=2)
    assert maps(query.events(one.create("c"), other.create("d"), first=4)) == {
        b"c1/c": [[0]],
        b"c2/d": [[0]],
    }
    assert {shard for shard, _ in query.taken.batches[2]} == {*server_numbers(LABEL)}


def test_what_the_listener_raises_stops_the_query(query: Query) -> None:
    """A batch that was not sent must not pass for done."""
    query.taken.failure = "it cannot be sent"
    query.start()
    with pytest.raises(StreamingQueryException, match="it cannot be sent"):
        query.events(Events().join(0), first=0)
    assert not query.taken.batches


def test_an_interpreter_that_cannot_be_started_stops_the_query(query: Query) -> None:
    """On a cluster it may be missing on one machine."""
    query.start(python="/nowhere/python3")
    with pytest.raises(StreamingQueryException, match=r"the server of shard \d+ cannot be reached"):
        query.events(Events().join(0), first=0)


def test_large_answers_go_by_a_file_of_the_driver(query: Query) -> None:
    """A driver that held all answers of a batch could run out of memory."""
    events = Events()
    query.start()
    joins = events.joins(*range(20), capacity=10_000_000)
    creates = [events.create(f"t{number}", 20_000, 3) for number in range(50)]
    before = set(glob.glob("/tmp/spu-assigner-*.spill"))
    sent = query.events(*joins, *creates, first=0)
    assert sum(len(message.value or b"") for message in sent) > 4 * 1024 * 1024
    assert query.taken.sizes[0] < 64 * 1024
    assert len(maps(sent)) == 50
    assert set(glob.glob("/tmp/spu-assigner-*.spill")) == before


def test_the_servers_end_with_the_run(query: Query) -> None:
    """Spark's JVM may live on, in a notebook or a test."""
    query.start()
    query.events(Events().join(0), first=0)
    [process] = servers(query.run)
    query.stop()
    wait_until(lambda: not Path(f"/proc/{process}").exists() and not servers(query.run))


def test_a_server_that_is_stuck_in_an_event_is_killed_and_named(
    query: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task would wait for it for ever, and the query with it."""
    endless = """
def decide_for_ever(*_, **__):
    while True:
        pass
    yield
server.process = decide_for_ever"""
    monkeypatch.setattr(query_module, "SILENCE_SECONDS_MAX", 3)
    query.start(python=changed_python(tmp_path, endless))
    gave_no_sign = r"the server of shard \d+ gave no sign of life for 3 s and was killed"
    with pytest.raises(StreamingQueryException, match=gave_no_sign):
        query.events(Events().join(0), first=0)
    [process] = servers(query.run)
    wait_until(lambda: not Path(f"/proc/{process}").exists())


def test_a_task_that_fails_in_the_middle_lets_the_server_go(query: Query, tmp_path: Path) -> None:
    """Whatever it fails of: a server that still wrote to it would answer no other task."""
    damaged_once = """
pack, packed = server.pack_entry, []
def damaged_entry(key, value):
    packed.append(key)
    return bytes([0, 0, 0, 99, 0, 0, 0, 0]) if len(packed) == 1 else pack(key, value)
server.pack_entry = damaged_entry
batch.HELD_SIZE_MAX = 1"""
    python = changed_python(tmp_path, damaged_once)
    events = Events()
    joins = events.joins(*range(20), capacity=10_000_000)
    creates = [events.create(f"t{number}", 20_000, 3) for number in range(20)]
    query.start(python=python)
    with pytest.raises(StreamingQueryException, match="BufferUnderflowException"):
        query.events(*joins, *creates, first=0)
    [process] = servers(query.run)
    query.start(python=python)
    sent = query.events(events.create("last", 1, 1), first=99)
    assert list(maps(sent)) == [b"c1/last"]
    assert servers(query.run) == [process]
