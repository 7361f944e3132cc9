"""A job on a machine that stands still while its input is deleted, recreated and written to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from spu_assigner.stream.kafka.config.settings import Settings
from support.events.builders import Events
from support.job.programs import running
from support.job.streams import SHARDS
from support.kafka.one_topic import OneTopic
from support.kafka.traffic import PATIENCE_SECONDS, Kafka

MASTER = {"SPU_ASSIGNER_MASTER": "local[2]"}


def ended(job: subprocess.Popen[bytes], log: Path) -> str:
    """The line with which a job has ended by itself."""
    assert job.wait(PATIENCE_SECONDS) == 1
    text = log.read_text(encoding="utf-8", errors="replace")
    [line] = [line for line in text.splitlines() if line.startswith("spu-assigner: ")]
    return line


@pytest.mark.long("a whole job runs, stands still, and is started again")
@pytest.mark.parametrize("written", [9, 2], ids=["grown past", "shorter"])
def test_a_job_that_stood_still_while_its_input_was_recreated_answers_nothing_of_it(
    settings: Settings, tmp_path: Path, written: int
) -> None:
    """By offsets it would answer five of nine requests, and the first four never."""
    log = tmp_path / "output"
    command = [
        *(sys.executable, "-m", "spu_assigner.stream.cli", "run"),
        *("-b", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix),
        *("--checkpoint", settings.checkpoint, "--shards", str(SHARDS)),
        *("--ui-port", "0", "--metrics-port", "off"),
    ]
    kafka, events = Kafka(settings), Events()
    topic = OneTopic(settings.bootstrap_servers, f"{settings.topic_prefix}topic-events")
    kafka.send([*events.joins(0, 1), *(events.create(f"t{number}") for number in range(4))])
    with running(command, log, MASTER, cwd=tmp_path) as job:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(kafka.read("topic-status")) < 4:
            assert job.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(job.pid, signal.SIGSTOP)
        try:
            topic.recreate()
            kafka.send([events.create(f"u{number}") for number in range(written)])
        finally:
            os.killpg(job.pid, signal.SIGCONT)
        assert f"{topic.name} was deleted and recreated: its id is" in ended(job, log)
    log.unlink()
    with running(command, log, MASTER, cwd=tmp_path) as job:  # as a supervisor would
        assert f"{topic.name} was deleted and recreated: its id is" in ended(job, log)
    assert len(kafka.read("topic-status")) == 4
