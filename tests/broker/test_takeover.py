"""Two jobs on one checkpoint: the one that was started last goes on, whatever the other one does.

Both are programs as a user runs them, on a real broker with real Spark. No output of theirs may
show Spark's own words for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from spu_assigner.core.events import Event
from spu_assigner.stream.java import Java
from spu_assigner.stream.settings import Settings
from spu_assigner.stream.sink import TransactionalSink
from support.audits import audit
from support.builders import Events
from support.kafka import Kafka
from support.outboxes import outbox
from support.profiled import SHARDS
from support.programs import running

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

    def begin(
        self, *options: str, environ: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        home = self._folder / f"job-{len(self._logs)}"
        home.mkdir()
        command = [
            *(sys.executable, "-m", "spu_assigner.stream.cli", "run"),
            *("-b", self.settings.bootstrap_servers),
            *("--topic-prefix", self.settings.topic_prefix),
            *("--checkpoint", self.settings.checkpoint),
            *("--shards", str(SHARDS), "--ui-port", "0", "--metrics-port", "off"),
            *("--master", "local[2]"),
            *options,
        ]
        log = home / "output"
        job = self._stack.enter_context(running(command, log, environ, cwd=home))
        self._logs[job.pid] = log
        return job

    def said(self, job: subprocess.Popen[bytes]) -> str:
        """Both outputs."""
        return self._logs[job.pid].read_text(encoding="utf-8", errors="replace")

    def logged(self, job: subprocess.Popen[bytes]) -> str:
        """What Spark has logged."""
        log = self._logs[job.pid].parent / ".spu-assigner/spark.log"
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


def test_a_job_that_kafka_shuts_out_says_one_line_and_librdkafka_none(jobs: Jobs) -> None:
    """Its successor left no note in the checkpoint: an older release, or a copy's job."""
    settings, events = jobs.settings, Events()
    older = jobs.start()
    jobs.send(*events.joins(0, 1, 2), events.create("a", 2))
    jobs.wait_answered(older)
    (line,) = Path(settings.checkpoint, "metadata").read_text().splitlines()
    other = TransactionalSink(settings, shards=SHARDS)
    other.open(json.loads(line)["id"])
    jobs.kafka.send([events.create("b", 2)])
    jobs.wait_shut_out(older)
    other.close()
    assert not any(words in jobs.said(older) for words in LIBRDKAFKAS_WORDS)


def test_a_foreign_checkpoint_is_refused_before_a_jvm_starts_and_shuts_nobody_out(
    jobs: Jobs, tmp_path: Path, java: Java
) -> None:
    """A Java that notes when it is run stands where Spark would find it."""
    settings = jobs.settings
    owner = TransactionalSink(settings, shards=SHARDS)
    owner.open("one")
    owner.bind("one")
    owner._send_once(outbox(b"a"), 0)
    noted, home = tmp_path / "noted", tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    wrapper = home / "bin/java"
    wrapper.write_text(f'#!/bin/sh\ntouch {noted}\nexec {java.executable} "$@"\n')
    wrapper.chmod(0o755)
    job = jobs.begin(environ={"JAVA_HOME": str(home), "PATH": f"{home}/bin:{os.environ['PATH']}"})
    assert job.wait(PATIENCE_SECONDS) == 1
    (line,) = [line for line in jobs.said(job).splitlines() if line.startswith("spu-assigner: ")]
    assert "is of checkpoint one, and this is a new one" in line
    assert not noted.exists()
    owner._send_once(outbox(b"b", first=1), 1)
    owner.close()
