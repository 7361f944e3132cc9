"""A real job is live while a batch is worked on, however long, and not when it is stuck."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from glob import glob
from pathlib import Path

import pytest
from spu_assigner.stream.job import session
from spu_assigner.stream.job.lifecycle import Job, start
from spu_assigner.stream.job.metrics import health
from spu_assigner.stream.kafka.config.settings import Settings
from support.events.builders import Events
from support.kafka.traffic import PATIENCE_SECONDS, Kafka
from support.shard.shard_server import changed_python

SILENCE_SECONDS = 10.0  # in place of five minutes
SLOW = """
import time
step = batch.step
def slow_step(*args, **given):
    time.sleep(0.2)
    return step(*args, **given)
batch.step = slow_step"""
EVENTS = 150  # half a minute of them


@pytest.fixture
def slow_job(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[tuple[Job, Kafka]]:
    """Its shards take 0.2 s for an event, and all that waits for a sign of life waits for less."""
    heartbeat = {"spark.executor.heartbeatInterval": "500ms"}
    options = session.session_options
    monkeypatch.setattr(session, "session_options", lambda given: options(given) | heartbeat)
    monkeypatch.setenv("PYSPARK_PYTHON", changed_python(tmp_path, SLOW))
    monkeypatch.setattr(health, "SILENCE_SECONDS_MAX", SILENCE_SECONDS)
    with start(replace(settings, metrics_port=0)) as job:
        yield job, Kafka(settings)


def until_live_is(job: Job, ok: bool) -> str | None:
    """What is said then."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (verdict := job.watch.health.live())["live"] != ok:
        assert time.monotonic() < deadline, verdict
        time.sleep(0.2)
    return verdict["reason"]


@contextmanager
def standing_still(job: Job) -> Iterator[None]:
    """The job's shard servers do nothing."""
    locks = glob(f"/tmp/spu-assigner-*-{job.run[:16]}/*.lock")
    pids = [int(Path(lock).read_text(encoding="ascii")) for lock in locks]
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    yield
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.long("a batch of half a minute, and one that stands still for as long as that is")
def test_a_long_batch_is_live_and_one_that_stands_still_is_not(slow_job: tuple[Job, Kafka]) -> None:
    """A supervisor that restarts a job at work would do so for ever: the batch begins again."""
    job, kafka = slow_job
    events = Events()
    kafka.send([*events.joins(0, 1), events.create("first", 1, 1)])
    kafka.wait("topic-status", 1, job)
    until_live_is(job, True)
    kafka.send([events.create(f"t{number}", 1, 1) for number in range(EVENTS)])
    answers = [job.watch.health.live()]
    while job.sink.last is None or job.sink.events < EVENTS:
        time.sleep(0.2)
        answers.append(job.watch.health.live())
    assert all(each["live"] for each in answers)
    with standing_still(job):
        kafka.send([events.create("last", 1, 1)])
        assert "no sign of life from the query" in (until_live_is(job, False) or "")
    until_live_is(job, True)
    kafka.wait("topic-status", EVENTS + 2, job)
    assert max(each["last_sign_seconds"] for each in answers) < SILENCE_SECONDS
