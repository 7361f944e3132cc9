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
from spu_assigner.stream.audit.rebuild import recover, survey
from spu_assigner.stream.job.checkpoint.files import LocalFiles
from spu_assigner.stream.job.checkpoint.inputs import (
    DataLossError,
    InputError,
    LostInputError,
    TopicReplacedError,
    check_inputs,
    read_inputs,
)
from spu_assigner.stream.job.lifecycle import Job, start_query
from spu_assigner.stream.job.metrics import watcher
from spu_assigner.stream.job.session import build_session, ensure_jars
from spu_assigner.stream.job.sink import TransactionalSink
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.local.jvm.java import Java
from support.events.builders import Events
from support.job.judge import audit
from support.kafka.one_topic import OneTopic
from support.kafka.shared_broker import SharedBroker
from support.kafka.traffic import PATIENCE_SECONDS, Kafka, process_all


def requests_topic(settings: Settings) -> OneTopic:
    return OneTopic(settings.bootstrap_servers, f"{settings.topic_prefix}topic-events")


class HeldBatches:
    """Batches that have read all of theirs, and are kept from being sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._released, self._waits = threading.Event(), threading.Event()
        send = TransactionalSink.commit

        def held(sink: TransactionalSink, batch: int, bundles: bytes) -> str:
            self._waits.set()
            assert self._released.wait(PATIENCE_SECONDS)
            return send(sink, batch, bundles)

        monkeypatch.setattr(TransactionalSink, "commit", held)

    def wait(self) -> None:
        """Until there is one."""
        assert self._waits.wait(PATIENCE_SECONDS)

    def release(self) -> None:
        self._released.set()


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> HeldBatches:
    return HeldBatches(monkeypatch)


@pytest.fixture(scope="module")
def spark(
    kafka: SharedBroker, java: Java, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """One session for all tests here."""
    flags = {"checkpoint": str(tmp_path_factory.mktemp("x")), "ui_port": 0, "master": "local[2]"}
    settings = Settings.load(flags=flags, environ={})
    session = build_session(settings, java=java, jars=ensure_jars(settings.checkpoint))
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
    settings: Settings, begin: Callable[..., Job], batches: HeldBatches
) -> None:
    """Reported in the same words, though it is Spark that finds it."""
    kafka, events = Kafka(settings), Events()
    kafka.send([*events.joins(0, 1), events.create("a")])
    job = begin()
    batches.wait()  # One is under way; what comes now is for the next one.
    for number in range(6):
        kafka.send_raw("topic-events", b"c1", b"%d" % number, partition=1)
    topic = requests_topic(settings)
    topic.expire(before=4, partition=1)
    batches.release()
    with pytest.raises(DataLossError) as lost:
        job.await_termination(PATIENCE_SECONDS)
    error = lost.value
    assert (error.topic, error.partition, error.following, error.earliest) == (topic.name, 1, 0, 4)
    assert len(kafka.read("topic-status")) == 1
    assert kafka.read("dead-letter") == []


def test_a_recreated_topic_is_not_taken_for_the_old_one(
    settings: Settings, begin: Callable[..., Job], stopped: tuple[Kafka, Events]
) -> None:
    """Also when it has grown past the old offset: by offsets alone five would be passed over."""
    kafka, events = stopped
    inputs = read_inputs(LocalFiles(), settings.checkpoint)
    topic = requests_topic(settings)
    topic.recreate()
    kafka.send([events.create(f"u{number}") for number in range(9)])
    with pytest.raises(TopicReplacedError, match=r"recreated: its id is .*--skip-lost"):
        begin()
    Path(settings.checkpoint, "input-topics").unlink()  # The last marker has the ids as well.
    with pytest.raises(TopicReplacedError, match=r"recreated: its id is .*--skip-lost"):
        begin()
    without_ids = replace(inputs, ids={})  # as of a broker that gives none
    topic.recreate()
    kafka.send([events.create(f"v{number}") for number in range(2)])
    with pytest.raises(TopicReplacedError, match="ends at offset 2, and was read to 5"):
        check_inputs(settings, without_ids)
    topic.recreate(partitions=2)
    with pytest.raises(InputError, match=r"2 partitions, and 2, 3 .* fewer"):
        check_inputs(settings, without_ids)
    assert len(kafka.read("topic-status")) == 5


@pytest.mark.smoke
def test_a_topic_recreated_during_a_batch_is_not_taken_for_the_old_one(
    settings: Settings, begin: Callable[..., Job], batches: HeldBatches
) -> None:
    """The batch has read the old one, or the new one from there on: nothing of it is sent."""
    kafka, events = Kafka(settings), Events()
    kafka.send([*events.joins(0, 1), events.create("a")])
    job = begin()
    batches.wait()
    topic = requests_topic(settings)
    topic.recreate()
    kafka.send([events.create(f"u{number}") for number in range(9)])
    batches.release()
    with pytest.raises(TopicReplacedError, match=f"{topic.name} was deleted and recreated: its id"):
        job.await_termination(PATIENCE_SECONDS)
    assert kafka.read("topic-status") == kafka.read("assigner-commits") == []
    with pytest.raises(TopicReplacedError, match="was deleted and recreated: its id is"):
        begin()


def test_a_topic_recreated_after_the_last_batch_is_read_whole_once_the_loss_is_accepted(
    settings: Settings,
    spark: SparkSession,
    begin: Callable[..., Job],
    stopped: tuple[Kafka, Events],
    tmp_path: Path,
) -> None:
    """`recover` names it; what it makes is not for a topic that is recreated after it either."""
    kafka, events = stopped
    topic = requests_topic(settings)
    topic.recreate()
    kafka.send([events.create(f"u{number}") for number in range(9)])
    new = replace(settings, checkpoint=str(tmp_path / "new"), shards=1)
    said = f"{topic.name}, partition 0: read up to offset 5 of a topic that was deleted and recre"
    for attempt in (survey, recover):
        with pytest.raises(LostInputError, match=said):
            attempt(new)
    report = recover(new, spark=spark, skip_lost=True)
    assert report.positions[topic.name][0].next == 0
    assert {(each.topic, each.is_renewed) for each in report.skipped} == {(topic.name, True)}
    topic.recreate()
    kafka.send([events.create(f"v{number}") for number in range(9)])
    with pytest.raises(TopicReplacedError, match="was deleted and recreated: its id is"):
        begin(new)
    again = replace(new, checkpoint=str(tmp_path / "again"))
    recover(again, spark=spark, skip_lost=True)
    job = begin(again)
    kafka.wait("topic-status", 5 + 9, job)
    assert {key.decode() for key in kafka.maps()} == {
        f"c1/{name}{number}" for name, count in (("t", 5), ("v", 9)) for number in range(count)
    }
    status, found = audit(settings.bootstrap_servers, settings.topic_prefix)
    assert (status, found["findings"]) == (0, [])
    assert "topic-events was deleted and recreated" in str(found["not_checked"])


@pytest.mark.parametrize("written", [0, 3])
def test_an_idle_job_ends_where_its_input_is_recreated(
    settings: Settings, begin: Callable[..., Job], monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """No batch would come before the new topic has grown past the old one's offsets."""
    monkeypatch.setattr(watcher, "LAG_SECONDS", 0.2)
    kafka, events = Kafka(settings), Events()
    kafka.send([*events.joins(0, 1), *(events.create(f"t{number}") for number in range(5))])
    job = begin()
    kafka.wait("topic-status", 5, job)
    process_all(job.query)
    topic = requests_topic(settings)
    topic.recreate()
    kafka.send([events.create(f"u{number}") for number in range(written)])
    with pytest.raises(TopicReplacedError, match=f"{topic.name} was deleted and recreated: its id"):
        job.await_termination(PATIENCE_SECONDS)
    assert len(kafka.read("topic-status")) == 5
