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
from contextlib import ExitStack
from pathlib import Path

import pytest
from spu_assigner.core.base.events import Event
from spu_assigner.stream.job.checkpoint.local_files import LocalFiles
from spu_assigner.stream.job.faults import CheckpointSharedError
from spu_assigner.stream.job.lifecycle import Job
from spu_assigner.stream.job.marker_check import FencedError
from spu_assigner.stream.job.ownership import FOLDER, Ownership
from spu_assigner.stream.job.sink import TransactionalSink
from spu_assigner.stream.job.transactional_id import ASK_SECONDS
from spu_assigner.stream.kafka.config.settings import Settings
from support.events.builders import Events
from support.job.audits import audit
from support.job.batch_buffers import batch_buffer
from support.job.programs import running
from support.job.shards import SHARDS
from support.kafka.traffic import Kafka

PATIENCE_SECONDS = 180.0
IDLE = "Events are answered"  # printed when the query has begun
TAKEN = "another process has taken over query 'spu-assigner'"
SPARKS_WORDS = ("CONCURRENT_STREAM", "Multiple streaming", "concurrently using")
LIBRDKAFKAS_WORDS = ("FATAL", "%0|", "%1|", "%3|", "rdkafka")


class Jobs:
    """Programs of one query on one checkpoint, and what they have said."""

    def __init__(self, settings: Settings, folder: Path, stack: ExitStack) -> None:
        self.settings = settings
        self.kafka = Kafka(settings)
        self._folder = folder
        self._stack = stack
        self._logs: dict[int, Path] = {}
        self.answers = 0  # expected on topic-status

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """One more, which has begun and has nothing to do."""
        job = self.begin(*options)
        self.wait(lambda: IDLE in self.said(job), job, "to begin")
        return job

    def begin(self, *options: str) -> subprocess.Popen[bytes]:
        home = self._folder / f"job-{len(self._logs)}"
        home.mkdir()
        command = [
            *(sys.executable, "-m", "spu_assigner.stream.cli", "run"),
            *("-b", self.settings.bootstrap_servers),
            *("--topic-prefix", self.settings.topic_prefix),
            *("--checkpoint", self.settings.checkpoint),
            *("--shards", str(SHARDS), "--ui-port", "0", "--metrics-port", "off"),
            *options,
        ]
        log = home / "output"
        with_master = {"SPU_ASSIGNER_MASTER": "local[2]"}
        job = self._stack.enter_context(running(command, log, with_master, cwd=home))
        self._logs[job.pid] = log
        return job

    def said(self, job: subprocess.Popen[bytes]) -> str:
        """Both outputs."""
        return self._logs[job.pid].read_text(encoding="utf-8", errors="replace")

    def logged(self, job: subprocess.Popen[bytes]) -> str:
        """What Spark has logged."""
        log = Path(self.settings.checkpoint).with_name("spark.log")
        return log.read_text(encoding="utf-8", errors="replace")

    def wait(self, is_so: Callable[[], bool], job: subprocess.Popen[bytes], what: str) -> None:
        """Until it is so; `job` must not end before."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            assert job.poll() is None, f"{what}: ended with {job.returncode}: {self.said(job)}"
            assert time.monotonic() < deadline, f"{what}: not in {PATIENCE_SECONDS} s"
            time.sleep(0.02)

    def send(self, *events: Event) -> None:
        self.kafka.send(events)
        self.answers += sum(type(event).__name__ == "TopicCreate" for event in events)

    def wait_answered(self, job: subprocess.Popen[bytes]) -> None:
        """Until all creates that were sent are answered."""
        self.wait(
            lambda: len(self.kafka.read("topic-status")) >= self.answers, job, "to answer all"
        )

    def wait_shut_out(self, job: subprocess.Popen[bytes]) -> None:
        """Until a job has ended by itself, by the name that is documented."""
        assert job.wait(PATIENCE_SECONDS) == 1, self.said(job)
        lines = [line for line in self.said(job).splitlines() if line.startswith("spu-assigner: ")]
        assert len(lines) == 1, self.said(job)
        assert TAKEN in lines[0]

    def check(self) -> None:
        """Each create was answered once, the outputs are as they should be, nobody spoke Java."""
        status, report = audit(
            self.settings.bootstrap_servers, self.settings.topic_prefix, "--strict"
        )
        assert status == 0, report
        assert len(self.kafka.read("topic-status")) == self.answers
        batches = [marker.batch for marker in self.kafka.markers()]
        assert batches == list(range(len(batches)))
        for log in self._logs.values():
            said = log.read_text(encoding="utf-8", errors="replace")
            assert not any(words in said for words in (*SPARKS_WORDS, *LIBRDKAFKAS_WORDS)), said


@pytest.fixture
def jobs(settings: Settings, tmp_path: Path) -> Iterator[Jobs]:
    with ExitStack() as stack:
        yield Jobs(settings, tmp_path, stack)


@pytest.mark.long("two whole jobs run on one checkpoint")
def test_of_two_idle_jobs_the_older_ends_without_an_event_and_the_newer_answers(
    jobs: Jobs,
) -> None:
    """It would have planned the batch of the next event first, in its successor's way."""
    older, events = jobs.start(), Events()
    jobs.send(*events.joins(0, 1, 2), events.create("a", 2))
    jobs.wait_answered(older)
    newer = jobs.start()
    jobs.wait_shut_out(older)
    jobs.send(events.create("b", 2))
    jobs.wait_answered(newer)
    jobs.check()
    for job in (older, newer):  # Nor did the two ever meet.
        assert not any(words in jobs.logged(job) for words in SPARKS_WORDS)


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
    jobs: Jobs, send_signal: Callable[[int, int], None], in_flight: int
) -> None:
    """Its processes were stopped before the newer one started, and wake when that answers."""
    older, events = jobs.start(), Events()
    jobs.send(*events.joins(0, 1, 2), events.create("a", 2))
    jobs.wait_answered(older)
    send_signal(older.pid, signal.SIGSTOP)
    try:
        newer = jobs.start()
        for name in ("b", "c"):
            jobs.send(events.create(name, 2))
            jobs.wait_answered(newer)
        for number in range(in_flight):
            jobs.send(events.create(f"x{number}", 2))
            if number == 10:
                send_signal(older.pid, signal.SIGCONT)
    finally:
        send_signal(older.pid, signal.SIGCONT)
    jobs.wait_answered(newer)
    jobs.wait_shut_out(older)
    jobs.send(events.create("d", 2))
    jobs.wait_answered(newer)
    assert newer.poll() is None
    jobs.check()


@pytest.mark.long("two whole jobs run on one checkpoint")
def test_an_older_job_that_wakes_beside_an_idle_one_with_an_event_is_outlived(jobs: Jobs) -> None:
    """Both have the same batch to plan, and neither has seen its event before."""
    older, events = jobs.start(), Events()
    jobs.send(*events.joins(0, 1, 2), events.create("a", 2))
    jobs.wait_answered(older)
    os.killpg(older.pid, signal.SIGSTOP)
    try:
        newer = jobs.start()
        os.killpg(newer.pid, signal.SIGSTOP)
        jobs.send(events.create("b", 2), events.create("c", 2))
    finally:
        os.killpg(older.pid, signal.SIGCONT)
        os.killpg(newer.pid, signal.SIGCONT)
    jobs.wait_shut_out(older)
    jobs.wait_answered(newer)
    jobs.send(events.create("d", 2))
    jobs.wait_answered(newer)
    jobs.check()


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
    messages than the owner would have taken. The owner resumes with it, and ends nothing.
    """
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
        assert job.watch.health.ready().ok
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
def test_a_foreign_checkpoint_is_refused_and_shuts_nobody_out(jobs: Jobs) -> None:
    """The marker is looked at before the transactional id is taken."""
    settings = jobs.settings
    owner = TransactionalSink(settings, shards=SHARDS)
    owner.open("one")
    owner.bind("one")
    owner._send_once(batch_buffer(b"a"), 0)
    job = jobs.begin()
    assert job.wait(PATIENCE_SECONDS) == 1
    (line,) = [line for line in jobs.said(job).splitlines() if line.startswith("spu-assigner: ")]
    assert "is of checkpoint one, and this is a new one" in line
    assert not Path(settings.checkpoint, FOLDER).exists()
    owner._send_once(batch_buffer(b"b", first=1), 1)
    owner.close()


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
    assert job.watch.health.ready().ok
    other = TransactionalSink(settings, shards=SHARDS)
    other.take_over()
    with pytest.raises(FencedError, match=TAKEN):
        job.await_termination(PATIENCE_SECONDS)
    other.close()
    ready = job.watch.health.ready()
    assert not ready.ok
    assert TAKEN in ready.body["reason"]
