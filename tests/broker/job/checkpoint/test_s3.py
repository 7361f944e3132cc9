"""A checkpoint on S3: the job dies and is resumed there as on a disk, and the commands read it.

One broker, one S3 server and one stream serve the tests that kill the job; each finds it as the one
before left it, as in `test_crash.py`, of which these are the part that a checkpoint has to do with.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from spu_assigner.stream.local.jvm.jars import ensure
from spu_assigner.stream.local.jvm.java import Java
from support.failpoints import Failpoint
from support.job import object_files, short_transactions
from support.job.judge import audit
from support.job.s3_server import BUCKET, KEYS, S3Server, s3_server
from support.job.streams import SHARDS
from support.job.trial import BROKER_SETTINGS, IN_A_BATCH, JOB, Trial

PREFIX = "s3."
SEED = 6
SHORT = (sys.executable, short_transactions.__file__)
CLI = [sys.executable, "-m", "spu_assigner.stream.cli"]
COMMAND_SECONDS_MAX = 180.0
STILL_SECONDS = 8.0  # longer than any request to the server takes


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    ensure("spark-s3")  # What cannot be fetched is a failure, and not a skip.
    with s3_server(tmp_path_factory.mktemp("store")) as server:
        yield server


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
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
    broker: EmbeddedBroker, java: Java, store: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Trial]:
    trial = Trial(broker, PREFIX, tmp_path_factory.mktemp("crash"), SEED, store=store)
    yield trial
    trial.close()


def call(store: S3Server, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A command as a user calls it."""
    return subprocess.run(
        [*CLI, *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        env={**os.environ, **store.environ, **environ},
        check=False,
    )


@pytest.mark.long("commands start Spark to look at a checkpoint")
def test_doctor_looks_at_it(trial: Trial, broker: EmbeddedBroker, store: S3Server) -> None:
    """Nothing is wrong."""
    trial.ensure(command=SHORT)
    trial.kill()
    options = ["-b", broker.bootstrap_servers, "--topic-prefix", PREFIX]
    options += ["--checkpoint", trial.checkpoint]
    ports = {"SPU_ASSIGNER_UI_PORT": "0", "SPU_ASSIGNER_METRICS_PORT": "off"}
    wait = ("--timeout", str(COMMAND_SECONDS_MAX))
    done = call(store, "doctor", *options, "--output=json", *wait, **ports)
    found = {each["check"]: each for each in json.loads(done.stdout)["checks"]}
    assert [found[name]["state"] for name in ("jars", "checkpoint", "marker", "input")] == [
        "ok"
    ] * 4
    summary = rf"{trial.checkpoint}, batch \d+ in {SHARDS} shards?"
    assert re.fullmatch(summary, found["checkpoint"]["found"])


@pytest.mark.long("a checkpoint is made out of the outputs, and its job starts")
def test_a_checkpoint_is_recovered_to_s3(
    trial: Trial, broker: EmbeddedBroker, store: S3Server
) -> None:
    """It is written there, and a job begins from it; what is taken is not written to."""
    trial.ensure(command=SHORT)
    trial.kill()
    options = ["-b", broker.bootstrap_servers, "--topic-prefix", PREFIX]
    taken = call(store, "recover", "--yes", *options, "--checkpoint", trial.checkpoint)
    assert (taken.returncode, "is there already and holds" in taken.stderr) == (1, True), (
        taken.stderr
    )
    place = f"s3a://{BUCKET}/recovered/checkpoint"
    done = call(store, "recover", "--yes", *options, "--checkpoint", place)
    assert done.returncode == 0, done.stderr
    assert {"metadata", "recovery/recovery.json", "recovery/state.parquet"} <= {*store.keys(place)}
    trial.move(place)
    trial.start(command=SHORT)
    trial.check()


@pytest.mark.long("a driver is killed, and a second one starts Spark again")
@pytest.mark.parametrize("failpoint", IN_A_BATCH)
def test_a_driver_killed_in_a_batch_is_resumed_from_s3(
    trial: Trial, broker: EmbeddedBroker, failpoint: Failpoint
) -> None:
    """As with a checkpoint on a disk, at the same points."""
    trial.ensure(failpoint)
    assert trial.die() == -signal.SIGKILL
    is_sent = failpoint in (Failpoint.AFTER_COMMIT, Failpoint.BEFORE_SPARK_COMMIT)
    assert trial.sent_and_not_noted(at_least=is_sent) == is_sent
    trial.start(None, SHORT)
    trial.check()
    status, report = audit(broker.bootstrap_servers, PREFIX, "--strict")
    assert (status, report["findings"]) == (0, [])


@pytest.mark.long("a job waits for its store, which stands still for seconds")
def test_a_store_that_stands_still_is_waited_for(trial: Trial, store: S3Server) -> None:
    job = trial.ensure(command=SHORT)
    os.kill(store.process, signal.SIGSTOP)
    try:
        trial.send(20)
        time.sleep(STILL_SECONDS)
    finally:
        os.kill(store.process, signal.SIGCONT)
    trial.check()
    assert job.poll() is None


@pytest.mark.long("two whole jobs run on one checkpoint")
def test_the_older_of_two_drivers_on_s3_is_shut_out_by_name(trial: Trial) -> None:
    older = trial.ensure(command=SHORT)
    trial.start()
    while older.poll() is None:
        trial.send(5)
        trial.judge.look()
    assert older.returncode == 1
    assert "another process has taken over query 'spu-assigner'" in trial.log_end(older)
    trial.check()


@pytest.mark.long("a job starts Spark")
def test_a_store_that_refuses_is_named_and_no_secret_is(
    trial: Trial, broker: EmbeddedBroker, store: S3Server, java: Java
) -> None:
    """The message says what the store said and what to check; the keys are in no output."""
    place = "s3a://no-such-bucket/checkpoint"
    environ = {
        "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "SPU_ASSIGNER_TOPIC_PREFIX": PREFIX,
        "SPU_ASSIGNER_CHECKPOINT": place,
        "SPU_ASSIGNER_UI_PORT": "0",
    }
    started = subprocess.run(
        JOB,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        env={**os.environ, **store.environ, **environ},
        check=False,
    )
    assert started.returncode == 1
    line = started.stderr.splitlines()[-1]
    assert f"checkpoint {place} cannot be read or written: " in line, line
    assert "check the bucket's name, the credentials" in line
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in started.stdout + started.stderr


def test_of_two_who_write_one_note_one_succeeds(store: S3Server, java: Java) -> None:
    """Spark's notes are put on the condition that there is none; a put that is repeated is no
    other process's; what is cancelled is not there."""
    command = [sys.executable, object_files.__file__, f"s3a://{BUCKET}/notes"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        env={**os.environ, **store.environ},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "before the end": False,
        "first": "written",
        "second": "FileAlreadyExistsException",
        "first again": "written",
        "content": "one",
        "cancelled is there": False,
        "replaced": "later",
    }
