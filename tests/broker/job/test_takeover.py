"""Two jobs on one checkpoint: the one that was started last goes on, whatever the other one does.

Both are programs as a user runs them, on a real broker with real Spark. No output of theirs may
show Spark's own words for it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from spu_assigner.stream.job.checkpoint.files import LocalFiles
from spu_assigner.stream.job.faults import CheckpointSharedError
from spu_assigner.stream.job.lifecycle import Job, start
from spu_assigner.stream.job.marker_check import FencedError, ForeignCheckpointError
from spu_assigner.stream.job.ownership import FOLDER, Ownership
from spu_assigner.stream.job.sink import TransactionalSink
from spu_assigner.stream.job.transactional_id import ASK_SECONDS
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.local.jvm.java import Java
from support.events.builders import Events
from support.job.batch_buffers import MakeSink, batch_buffer
from support.job.judge import audit
from support.job.streams import SHARDS
from support.job.trial import Trial
from support.kafka.shared_broker import SharedBroker
from support.kafka.traffic import Kafka

PATIENCE_SECONDS = 180.0
SEED = 11
PROGRAM = (sys.executable, "-m", "spu_assigner.stream.cli", "run")
IDLE = "Events are answered"  # printed when the query has begun
TAKEN = "another process has taken over query 'spu-assigner'"
SPARKS_WORDS = ("CONCURRENT_STREAM", "Multiple streaming", "concurrently using")
LIBRDKAFKAS_WORDS = ("FATAL", "%0|", "%1|", "%3|", "rdkafka")


@pytest.fixture
def trial(kafka: SharedBroker, java: Java, topic_prefix: str, tmp_path: Path) -> Iterator[Trial]:
    trial = Trial(kafka, topic_prefix, tmp_path, SEED)
    yield trial
    trial.close()


def started(trial: Trial) -> subprocess.Popen[bytes]:
    """One more job, which has begun and has nothing to do."""
    job = trial.start(command=PROGRAM)
    trial.wait(lambda: IDLE in trial.log_end(job), "to begin")
    trial.wait(trial.is_applied, "to apply all that was sent")
    return job


def check_shut_out(trial: Trial, older: subprocess.Popen[bytes]) -> None:
    """The older job has ended by itself, by the name that is documented; the newer one goes on."""
    assert older.wait(PATIENCE_SECONDS) == 1, trial.log_end(older)
    said = trial.log_end(older)
    (line,) = (line for line in said.splitlines() if line.startswith("spu-assigner: "))
    assert TAKEN in line
    trial.check()
    said += trial.log_end()
    assert not any(words in said for words in (*SPARKS_WORDS, *LIBRDKAFKAS_WORDS)), said


@pytest.mark.long("two whole jobs run on one checkpoint")
def test_of_two_idle_jobs_the_older_ends_without_an_event_and_the_newer_answers(
    trial: Trial,
) -> None:
    """It would have planned the batch of the next event first, in its successor's way."""
    older = started(trial)
    started(trial)
    check_shut_out(trial, older)
    log = Path(trial.checkpoint).with_name("spark.log").read_text(errors="replace")
    assert not any(words in log for words in SPARKS_WORDS)  # Nor did the two ever meet.


@pytest.mark.long("two whole jobs run on one checkpoint")
@pytest.mark.parametrize(
    ("send_signal", "in_flight"),
    [
        pytest.param(os.killpg, 0, id="idle"),
        pytest.param(os.killpg, 30, id="in flight"),
        pytest.param(os.kill, 0, id="driver alone"),  # Spark plans in the JVM, which goes on.
    ],
)
def test_an_older_job_that_stood_still_ends_when_it_wakes(
    trial: Trial, send_signal: Callable[[int, int], None], in_flight: int
) -> None:
    """Its processes were stopped before the newer one started, and wake when that answers."""
    older = started(trial)
    send_signal(older.pid, signal.SIGSTOP)
    try:
        started(trial)
        for _ in range(2):
            trial.send(5)
            trial.wait(trial.is_applied, "to answer")
        for number in range(in_flight):
            trial.send(1)
            if number == 10:
                send_signal(older.pid, signal.SIGCONT)
    finally:
        send_signal(older.pid, signal.SIGCONT)
    check_shut_out(trial, older)


def plant_next_batch(settings: Settings, *, events: int) -> int:
    """Plan the next batch as another process would: with so many of the messages to come."""
    offsets, batch = Path(settings.checkpoint, "offsets"), newest(settings, "offsets")
    lines = (offsets / str(batch)).read_text().splitlines()
    for place, line in enumerate(lines[2:], start=2):
        topics = json.loads(line)
        for topic, partitions in topics.items():
            if topic.endswith("topic-events"):
                topics[topic] = {
                    number: offset + (events if number == "0" else 0)
                    for number, offset in partitions.items()
                }
        lines[place] = json.dumps(topics, separators=(",", ":"))
    half = offsets / ".planted"
    half.write_text("\n".join(lines))
    half.replace(offsets / str(batch + 1))
    return batch + 1


def newest(settings: Settings, log: str) -> int:
    """The last batch that a log of Spark's has; -1: none."""
    names = (path.name for path in Path(settings.checkpoint, log).glob("[0-9]*"))
    return max(map(int, names), default=-1)


def wait_noted(settings: Settings, job: Job) -> None:
    """Until Spark has noted its last batch as done."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while newest(settings, "commits") < newest(settings, "offsets"):
        job.await_termination(0.05)
        assert time.monotonic() < deadline


@pytest.mark.long("two whole jobs run on one checkpoint")
def test_a_batch_that_another_process_planned_is_taken_as_planned(
    settings: Settings, run: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was shut out, and wakes later, plans a batch before it notices: with other
    messages than the owner would have taken. The owner resumes with it, and ends nothing."""
    monkeypatch.setattr("spu_assigner.stream.job.lifecycle.RESTARTS_MAX", 1)
    kafka, events = Kafka(settings), Events()
    job = run()
    kafka.send([*events.joins(0, 1), events.create("a")])
    kafka.wait("topic-status", 1, job)
    for number in range(3):  # More than without a batch of its own between them.
        wait_noted(settings, job)
        planted = plant_next_batch(settings, events=1)
        before = len(kafka.read("topic-status"))
        kafka.send([events.create(f"{name}{number}") for name in ("b", "c", "d")])
        kafka.wait("topic-status", before + 3, job)
        assert job.restarts == number + 1
        (marker,) = (each for each in kafka.markers() if each.batch == planted)
        assert sum(each.count for parts in marker.offsets.values() for each in parts) == 1
        assert job.watch.health.ready()["ready"]
    status, report = audit(settings.bootstrap_servers, settings.topic_prefix, "--strict")
    assert status == 0, report


@pytest.mark.parametrize("is_planned", [False, True])
def test_a_job_that_was_shut_out_runs_no_task_and_says_why(
    settings: Settings, run: Callable[..., Job], is_planned: bool
) -> None:
    """Its tasks would write state that its successor writes too, which may have planned before."""
    kafka, events = Kafka(settings), Events()
    job = run()
    kafka.send([*events.joins(0, 1), events.create("a")])
    kafka.wait("topic-status", 1, job)
    wait_noted(settings, job)
    job._over.set()  # as if it slept
    Ownership(LocalFiles(), settings.checkpoint, query=settings.query_name).take(lambda: None)
    batch = newest(settings, "offsets")
    if is_planned:
        plant_next_batch(settings, events=1)
    kafka.send([events.create("b")])
    with pytest.raises(FencedError, match=TAKEN):
        job.await_termination(PATIENCE_SECONDS)
    assert job.restarts == 0
    assert newest(settings, "offsets") == batch + 1
    files = [path.name for path in Path(settings.checkpoint, "state").rglob("*") if path.is_file()]
    assert any(name.startswith(f"{batch + 1}.") for name in files), files  # of the batch before
    assert not any(name.startswith(f"{batch + 2}.") for name in files), files


def test_a_process_that_never_stops_planning_is_reported_by_name(
    settings: Settings, run: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not ours, or of a release that does not notice; the job does not restart for ever."""
    monkeypatch.setattr("spu_assigner.stream.job.lifecycle.RESTARTS_MAX", 0)
    kafka, events = Kafka(settings), Events()
    job = run()
    kafka.send([*events.joins(0, 1), events.create("a")])
    kafka.wait("topic-status", 1, job)
    wait_noted(settings, job)
    plant_next_batch(settings, events=1)
    kafka.send([events.create("b")])
    with pytest.raises(CheckpointSharedError, match="another process writes checkpoint") as caught:
        job.await_termination(PATIENCE_SECONDS)
    assert not any(words in str(caught.value) for words in SPARKS_WORDS)


@pytest.mark.smoke
def test_a_foreign_checkpoint_is_refused_and_shuts_nobody_out(
    settings: Settings, make_sink: MakeSink
) -> None:
    """A new one would answer all events again; the marker is looked at before the id is taken."""
    owner = make_sink("one")
    owner._send_once(batch_buffer(b"a"), 0)
    with pytest.raises(ForeignCheckpointError, match="is of checkpoint one, and this is a new one"):
        start(settings)
    assert not Path(settings.checkpoint, FOLDER).exists()
    owner._send_once(batch_buffer(b"b", first=1), 1)


@pytest.mark.long("an idle job asks Kafka each five seconds whose the id is")
def test_an_idle_job_whose_transactional_id_was_taken_ends_without_an_event(
    settings: Settings, run: Callable[..., Job]
) -> None:
    """`recover` takes it, and a job on another checkpoint: neither leaves a note in this one."""
    kafka, events = Kafka(settings), Events()
    job = run()
    kafka.send([*events.joins(0, 1), events.create("a")])
    kafka.wait("topic-status", 1, job)
    kafka.send([events.create("b")])  # Its own batch is no other producer's.
    assert not job.await_termination(2 * ASK_SECONDS)
    assert job.watch.health.ready()["ready"]
    other = TransactionalSink(settings, shards=SHARDS)
    other.take_over()
    with pytest.raises(FencedError, match=TAKEN):
        job.await_termination(PATIENCE_SECONDS)
    other.close()
    ready = job.watch.health.ready()
    assert not ready["ready"]
    assert TAKEN in ready["reason"]
