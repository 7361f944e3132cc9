"""The job dies in every way, at every place, in mid-stream; what it has written is always right.

One broker and one stream serve all tests. Each finds the job as the one before left it and leaves
it recovered: what was sent before the death is applied, and every message on every topic is held
against the markers and, by `spu-assigner verify`, the core (`support/job/judge.py`).
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.job import sink as sink_module
from spu_assigner.stream.job.batch_buffer import BatchBuffer
from spu_assigner.stream.job.checkpoint.files import LocalFiles
from spu_assigner.stream.job.marker_check import FencedError, TransactionExpiredError
from spu_assigner.stream.job.ownership import Ownership
from spu_assigner.stream.job.sink import SentBatch, TransactionalSink
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from spu_assigner.stream.local.jvm.java import Java
from support.failpoints import Failpoint
from support.job import blind_sink, short_transactions
from support.job.batch_buffers import batch_buffer
from support.job.programs import left_after
from support.job.trial import BROKER_SETTINGS, IN_A_BATCH, JOB, Trial
from support.kafka.reading import settled

PREFIX = "crash."
SEED = 5
OPEN_SECONDS = 5  # a transaction of `sink` at most; sending one takes a fraction of a second
WRITTEN = ("replica-map", "assigner-commits", "assigner-audit")  # by `sink`
# Last the one in an open transaction: the job after it is not armed, and serves the next tests.
FAILPOINTS = sorted(IN_A_BATCH, key=lambda each: each is Failpoint.INSIDE_TRANSACTION)
NEXT = dict(pairwise(FAILPOINTS))  # what a recovered job is armed with
PROGRAM = (sys.executable, "-m", "spu_assigner.stream.cli", "run")
SHORT = (sys.executable, short_transactions.__file__)
BLIND = (sys.executable, blind_sink.__file__)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker of this module's own: it is killed and stopped."""
    broker = EmbeddedBroker(settings=BROKER_SETTINGS)
    try:
        broker.start()
    except AssignerError as reason:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no broker can be had: {reason}")
    with broker:
        yield broker


@pytest.fixture(scope="module")
def trial(
    broker: EmbeddedBroker, java: Java, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Trial]:
    trial = Trial(broker, PREFIX, tmp_path_factory.mktemp("crash"), SEED)
    yield trial
    trial.close()


@pytest.mark.long("a driver is killed, and a second one starts Spark again")
@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param(each, marks=pytest.mark.smoke if each is Failpoint.INSIDE_TRANSACTION else ())
        for each in FAILPOINTS
    ],
)
def test_a_driver_killed_in_a_batch_answers_every_request_once(
    trial: Trial, failpoint: Failpoint
) -> None:
    """Its process group is killed where the batch is nowhere, in an open transaction, in Kafka
    but known to nobody, and in Kafka but not known to Spark."""
    trial.ensure(failpoint)
    assert trial.die() == -signal.SIGKILL
    is_sent = failpoint in (Failpoint.AFTER_COMMIT, Failpoint.BEFORE_SPARK_COMMIT)
    assert trial.sent_and_not_noted(at_least=is_sent) == is_sent
    following = NEXT.get(failpoint)
    trial.start(following, SHORT if following is None else JOB)
    trial.check()


@pytest.mark.long("the driver is killed and started several times")
def test_a_driver_killed_at_any_moment_answers_every_request_once(trial: Trial) -> None:
    """Where nobody has thought of a failpoint; the moment is another one in each run."""
    trial.ensure()
    end = time.monotonic() + random.SystemRandom().uniform(0.0, 3.0)
    while time.monotonic() < end:
        trial.send(5)
    trial.kill()
    trial.start(command=SHORT)
    trial.check()


@pytest.mark.long("a driver is terminated, one loses its JVM, and a third starts")
def test_a_job_that_was_stopped_and_killed_is_as_one_that_was_not(trial: Trial) -> None:
    """Terminated as by a supervisor, and left without its JVM, in mid-stream: no process stays."""
    job = trial.ensure(command=PROGRAM)
    trial.send(200)
    job.send_signal(signal.SIGTERM)
    assert job.wait(90) == 128 + signal.SIGTERM
    assert left_after(job) == {}
    job = trial.ensure(command=SHORT)
    trial.send(200)
    (jvm,) = trial.processes("SparkSubmit")
    os.kill(jvm, signal.SIGKILL)
    assert job.wait(90) == 1
    assert left_after(job) == {}
    said = "Spark's JVM has ended: killed, or out of memory; start the job again"
    assert said in trial.log_end(job)
    trial.start(command=SHORT)
    trial.check()


def test_a_shard_server_that_is_killed_is_replaced(trial: Trial) -> None:
    """It is a process of its own; its task asks a new one, and the job goes on.

    The job's own process decides nothing, and holds nothing for it."""
    job = trial.ensure(command=SHORT)
    assert "numpy" not in Path(f"/proc/{job.pid}/maps").read_text(encoding="ascii")
    first, *forked = sorted(trial.processes("stream.job.shard.server"))
    assert forked
    os.kill(first, signal.SIGKILL)
    trial.check()
    assert job.poll() is None
    assert not {first, *forked} & set(trial.processes("stream.job.shard.server"))


def test_a_broker_that_is_killed_and_comes_back_is_waited_for(
    trial: Trial, broker: EmbeddedBroker
) -> None:
    """A transaction whose outcome is not known is asked for, then sent again if it did not hold."""
    trial.ensure(command=SHORT)
    trial.send(200)
    broker.kill()
    broker.start()
    trial.check_restarted(SHORT)


def test_a_broker_that_stands_still_loses_nothing(trial: Trial, broker: EmbeddedBroker) -> None:
    """Longer than a transaction may be open: Kafka aborts it, and the batch is sent again."""
    trial.ensure(command=SHORT)
    trial.send(200)
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        time.sleep(2 * short_transactions.TRANSACTION_SECONDS)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    trial.check_restarted(SHORT)


@pytest.mark.long("two whole jobs run on one checkpoint")
def test_the_older_of_two_drivers_is_shut_out_by_name(trial: Trial) -> None:
    """Both are at work on one stream and one checkpoint; the second one takes over."""
    older = trial.ensure(command=SHORT)
    trial.start()
    while older.poll() is None:
        trial.send(5)
        trial.judge.look()
    assert older.returncode == 1
    assert "another process has taken over query 'spu-assigner'" in trial.log_end(older)
    trial.check()


class Interrupted(TransactionalSink):
    """A sink that something happens to when all messages of a batch have been handed over."""

    happens: Callable[[Interrupted], None] | None = None

    def _outgoing(self, buffer: BatchBuffer) -> Iterator[Any]:
        yield from super()._outgoing(buffer)
        if self.happens is not None:
            happens, self.happens = self.happens, None
            happens(self)


@pytest.fixture
def sink(
    broker: EmbeddedBroker, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Interrupted]:
    """A sink by itself that has sent batch 0; its transactions last seconds at most."""
    monkeypatch.setattr(sink_module, "TRANSACTION_SECONDS_MAX", OPEN_SECONDS)
    create_topics({"bootstrap.servers": broker.bootstrap_servers}, prefix=topic_prefix)
    flags = {"bootstrap_servers": broker.bootstrap_servers, "topic_prefix": topic_prefix}
    sink = Interrupted(Settings.load(flags=flags, environ={}), shards=1)
    sink.open("one")
    sink.bind("one")
    sink._send_once(batch_buffer(b"a"), 0)
    yield sink
    sink.close()


def test_a_transaction_that_was_open_too_long_is_no_other_process(
    sink: Interrupted, broker: EmbeddedBroker, topic_prefix: str
) -> None:
    """Kafka says of both that the producer is fenced; the operator must not look for a second
    driver where the machine stood still."""

    def stand_still(sink: Interrupted) -> None:
        sink._producer.flush()
        time.sleep(OPEN_SECONDS)
        settled(broker.bootstrap_servers, [f"{topic_prefix}{name}" for name in WRITTEN])

    sink.happens = stand_still
    message = (
        rf"transaction of batch 1 was open for \d+ s and Kafka permits {OPEN_SECONDS} s"
        r".*start the job again"
    )
    with pytest.raises(TransactionExpiredError, match=message):
        sink._send_once(batch_buffer(b"b", first=1), 1)
    sink.open("one")
    sink._send_once(batch_buffer(b"b", first=1), 1)
    assert sink.last == SentBatch(batch=1, count=1, repeated=False)


def test_a_process_that_took_over_from_one_that_stood_still_is_named(
    sink: Interrupted, broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path
) -> None:
    """Kafka says the same of both; the checkpoint has the successor's note."""
    earlier, later = (Ownership(LocalFiles(), str(tmp_path), query="q") for _ in range(2))
    sink._ownership = earlier
    earlier.take(lambda: None)

    def stand_still(sink: Interrupted) -> None:
        sink._producer.flush()
        later.take(lambda: None)
        time.sleep(OPEN_SECONDS)
        settled(broker.bootstrap_servers, [f"{topic_prefix}{name}" for name in WRITTEN])

    sink.happens = stand_still
    with pytest.raises(FencedError, match="another process has taken over query 'q'"):
        sink._send_once(batch_buffer(b"b", first=1), 1)


class NoName:
    """A producer to whose commits Kafka answers as it does to one in a hundred that meet the start
    of a successor: with an error that names nothing. All else is the real one's."""

    def __init__(self, producer: Any, *, commits: bool) -> None:
        self._producer, self._commits = producer, commits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)

    def commit_transaction(self, seconds: float) -> None:
        if self._commits:
            self._producer.commit_transaction(seconds)
        raise KafkaException(KafkaError(KafkaError.UNKNOWN))


def test_a_takeover_that_kafka_does_not_name_at_the_commit_is_found_out(
    sink: Interrupted, broker: EmbeddedBroker
) -> None:
    flags = {
        "bootstrap_servers": broker.bootstrap_servers,
        "topic_prefix": sink._settings.topic_prefix,
    }
    successor = TransactionalSink(Settings.load(flags=flags, environ={}), shards=1)
    sink.happens = lambda _: successor.open("one")
    sink._producer = NoName(sink._producer, commits=False)
    with pytest.raises(FencedError, match="another process has taken over query 'spu-assigner'"):
        sink._send_once(batch_buffer(b"b", first=1), 1)
    successor.bind("one")
    successor._send_once(batch_buffer(b"b", first=1), 1)
    assert successor.last == SentBatch(batch=1, count=1, repeated=False)
    successor.close()


@pytest.mark.parametrize("commits", [True, False])
def test_a_commit_that_ends_in_a_fault_of_the_broker_is_looked_up(
    sink: Interrupted, commits: bool
) -> None:
    """It may hold or not: what is sent is sent once."""
    sink._producer = NoName(sink._producer, commits=commits)
    sink._send_once(batch_buffer(b"b", first=1), 1)
    assert sink.last == SentBatch(batch=1, count=1, repeated=commits)


@pytest.mark.long("the counter-proof kills a whole job at each point and lets it end")
def test_without_a_look_at_the_marker_the_same_run_shows_duplicates(
    broker: EmbeddedBroker, java: Java, tmp_path: Path
) -> None:
    """The counter-proof: the tests above would see it, and transactions alone do not prevent it."""
    trial = Trial(broker, "blind.", tmp_path, SEED)
    try:
        trial.start(Failpoint.AFTER_COMMIT, BLIND)
        trial.die()
        trial.start(Failpoint.BEFORE_SPARK_COMMIT, BLIND)
        trial.die()
        trial.judge.look(at_all=True)
        after_commit = trial.judge.counts.copy()
        batch = trial.noted_by_spark() + 1
        trial.start(None, BLIND)
        trial.wait(lambda: trial.noted_by_spark() >= batch, "to repeat a batch")
        trial.judge.look(at_all=True)
        assert (after_commit["second markers"], trial.judge.counts["second markers"]) == (1, 2)
        assert 0 < after_commit["duplicates"] < trial.judge.counts["duplicates"]
        assert any("ce_id" in fault for fault in trial.judge.faults)
    finally:
        trial.close()
