"""Input that is gone before it was read: the job stops and names topic, partition, gap and the ways
out, and nothing is answered from what is left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from spu_assigner.core.base.events import Event
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.checkpoint.data_loss import (
    DataLossError,
    PartitionsGoneError,
    TopicReplacedError,
)
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.job.lifecycle import Job, start_query
from spu_assigner.stream.job.session import Jars, build_session
from spu_assigner.stream.job.sink import TransactionalSink
from spu_assigner.stream.jvm.jars import ensure_all
from spu_assigner.stream.jvm.java import Java
from spu_assigner.stream.kafka.errors import TopicsError
from spu_assigner.stream.recover.rebuild import recover
from support.events.builders import Events
from support.job.audits import audit
from support.job.profiled import ENVIRON
from support.kafka.one_topic import OneTopic
from support.kafka.shared_broker import SharedBroker
from support.kafka.traffic import PATIENCE_SECONDS, Kafka, process_all


def requests_topic(settings: Settings) -> OneTopic:
    return OneTopic(settings.bootstrap_servers, f"{settings.topic_prefix}topic-events")


@pytest.fixture(scope="module")
def spark(
    kafka: SharedBroker, java: Java, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """One session for all tests here."""
    flags = {"checkpoint": str(tmp_path_factory.mktemp("x")), "ui_port": 0, "master": "local[2]"}
    found = ensure_all(["spark-kafka", "spark-local"])
    jars = Jars(kafka=found["spark-kafka"], local=found["spark-local"])
    session = build_session(Settings.load(flags=flags, environ=ENVIRON), java=java, jars=jars)
    yield session
    session.stop()


@pytest.fixture
def begin(spark: SparkSession, settings: Settings) -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []

    def start(changed: Settings = settings) -> Job:
        jobs.append(start_query(spark, replace(changed, shards=1)))
        return jobs[-1]

    yield start
    for job in jobs:
        job.end_query()


@pytest.fixture
def stopped(settings: Settings, begin: Callable[[], Job]) -> tuple[Kafka, Events]:
    """A job that has answered five requests and was stopped."""
    kafka, events = Kafka(settings), Events()
    kafka.send(events.joins(0, 1))
    kafka.send([events.create(f"t{number}") for number in range(5)])
    job = begin()
    kafka.wait("topic-status", 5, job)
    process_all(job.query)
    job.end_query()
    return kafka, events


def send_in_transaction(settings: Settings, events: Iterable[Event]) -> None:
    """To partition 0 of the requests; a mark lies behind them then, which is no message."""
    topic = requests_topic(settings)
    client = {"bootstrap.servers": settings.bootstrap_servers, "transactional.id": topic.name}
    producer = Producer(client)
    producer.init_transactions(PATIENCE_SECONDS)
    producer.begin_transaction()
    for event in events:
        producer.produce(topic.name, encode_event(event), event.cluster_id.encode(), partition=0)
    producer.commit_transaction(PATIENCE_SECONDS)


@pytest.mark.smoke
def test_what_ends_a_transaction_is_no_loss(
    settings: Settings, spark: SparkSession, begin: Callable[..., Job], tmp_path: Path
) -> None:
    """Its mark lies behind the last message, and retention takes both: nothing was left unread."""
    kafka, events = Kafka(settings), Events()
    kafka.send(events.joins(0, 1))
    job = begin()
    send_in_transaction(settings, [events.create(f"t{number}") for number in range(3)])
    kafka.wait("topic-status", 3, job)
    process_all(job.query)
    job.end_query()
    topic = requests_topic(settings)
    positions = {each.partition: each.next for each in kafka.markers()[-1].positions[topic.name]}
    assert positions == {0: 4, 1: 0, 2: 0, 3: 0}
    topic.expire(before=-1)
    new = replace(settings, checkpoint=str(tmp_path / "new"), shards=1)
    assert recover(new, spark=spark).skipped == ()
    job = begin(new)
    kafka.send([events.create("u")])
    kafka.wait("topic-status", 4, job)
    process_all(job.query)
    status, report = audit(settings.bootstrap_servers, settings.topic_prefix)
    assert status == 0, report


@pytest.mark.smoke
def test_records_deleted_before_they_were_read_stop_the_job(
    settings: Settings, begin: Callable[[], Job], stopped: tuple[Kafka, Events]
) -> None:
    """Retention was shorter than the job's rest: the gap is reported to the message."""
    kafka, events = stopped
    kafka.send([events.create(f"u{number}") for number in range(6)])
    topic = requests_topic(settings)
    topic.expire(before=8)
    with pytest.raises(DataLossError) as lost:
        begin()
    error = lost.value
    assert (error.topic, error.partition, error.following, error.earliest) == (topic.name, 0, 5, 8)
    message = str(error)
    assert (
        f"partition 0 of {topic.name} has a gap, 3 offsets are gone: 5 was to be read next, "
        in message
    )
    assert "the first one there is 8" in message
    for way in ("mirror", "spu-assigner recover --checkpoint NEW --skip-lost", "retention.ms"):
        assert way in message
    assert len(kafka.read("topic-status")) == 5


def test_records_deleted_while_the_job_runs_stop_it(
    settings: Settings,
    begin: Callable[[], Job],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reported in the same words, though it is Spark that finds it."""
    go_on, waits = threading.Event(), threading.Event()
    send = TransactionalSink.commit

    def held(self: TransactionalSink, batch: int, bundles: bytes) -> None:
        waits.set()
        assert go_on.wait(PATIENCE_SECONDS)
        send(self, batch, bundles)

    monkeypatch.setattr(TransactionalSink, "commit", held)
    kafka, events = Kafka(settings), Events()
    kafka.send([*events.joins(0, 1), events.create("a")])
    job = begin()
    assert waits.wait(PATIENCE_SECONDS)  # A batch is under way; what comes now is for the next one.
    for number in range(6):
        kafka.send_raw("topic-events", b"c1", b"%d" % number, partition=1)
    topic = requests_topic(settings)
    topic.expire(before=4, partition=1)
    go_on.set()
    with pytest.raises(DataLossError) as lost:
        job.await_termination(PATIENCE_SECONDS)
    error = lost.value
    assert (error.topic, error.partition, error.following, error.earliest) == (topic.name, 1, 0, 4)
    assert len(kafka.read("topic-status")) == 1
    assert kafka.read("dead-letter") == []


def test_a_recreated_topic_is_not_taken_for_the_old_one(
    settings: Settings, begin: Callable[[], Job], stopped: tuple[Kafka, Events]
) -> None:
    """Also when it has grown past the old offset: by offsets alone five would be passed over."""
    kafka, events = stopped
    topic = requests_topic(settings)
    topic.recreate()
    kafka.send([events.create(f"u{number}") for number in range(9)])
    with pytest.raises(TopicReplacedError, match=r"recreated.*its id is .*--skip-lost"):
        begin()
    Path(settings.checkpoint, "input-topics").unlink()  # as of a release that did not note it
    topic.recreate()
    kafka.send([events.create(f"v{number}") for number in range(2)])
    with pytest.raises(TopicReplacedError, match="ends at offset 2, and was read to 5"):
        begin()
    topic.recreate(partitions=2)
    with pytest.raises(PartitionsGoneError, match=r"2 partitions, and 2, 3 .* fewer"):
        begin()
    assert len(kafka.read("topic-status")) == 5


@pytest.mark.long("a job starts, and its topic is deleted under it")
def test_a_topic_deleted_while_the_job_runs_stops_it(
    settings: Settings, begin: Callable[[], Job]
) -> None:
    """It is the topic that is missing, whatever Spark makes of it."""
    kafka, events = Kafka(settings), Events()
    kafka.send([*events.joins(0, 1), events.create("a")])
    job = begin()
    kafka.wait("topic-status", 1, job)
    requests_topic(settings).remove()
    with pytest.raises(TopicsError, match=r"topic-events.* cannot be described"):
        job.await_termination(PATIENCE_SECONDS)
