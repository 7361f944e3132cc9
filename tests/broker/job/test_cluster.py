"""The job as it is, on Spark clusters: executors in processes of their own, one of them killed, and
`spark-submit` to a standalone master and two workers. All on this machine, on loopback.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest
from spu_assigner.stream.local.jvm.java import Java
from support.job.programs import left_after, running
from support.job.trial import Trial
from support.kafka.shared_broker import SharedBroker

SEED = 7
SPARK = Path(pyspark.__file__).parent
EXECUTOR = "CoarseGrainedExecutorBackend"
SERVER = "spu_assigner.stream.job.shard.server"
IN_FLIGHT = 500  # messages: several batches


@pytest.fixture
def trial(
    kafka: SharedBroker,
    java: Java,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Trial]:
    """With Spark's own settings: where it is, its workers' Python, loopback only."""
    settings = {
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",  # five short-lived JVMs on few cores
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    trial = Trial(kafka, topic_prefix, tmp_path, SEED)
    yield trial
    trial.close()


@pytest.mark.long("a shard server and an executor are killed in mid-stream")
def test_a_killed_shard_server_and_a_killed_executor_lose_and_double_nothing(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors have neither this process's modules nor its class path, only what they are sent.
    What one held is decided again on another; what was sent is not sent again."""
    monkeypatch.setenv("SPU_ASSIGNER_MASTER", "local-cluster[2,1,1024]")
    trial.ensure()
    assert len(trial.processes(EXECUTOR)) == 2
    for name in (SERVER, EXECUTOR):
        trial.send(IN_FLIGHT)
        os.kill(trial.processes(name)[-1], signal.SIGKILL)
        trial.check()


@pytest.mark.long("spark-submit ships the job to a standalone cluster")
def test_spark_submit_runs_it_on_a_standalone_cluster(trial: Trial, tmp_path: Path) -> None:
    """The command that `stream/submit.py` prints; SIGTERM ends it and all that it started."""
    with ExitStack() as stack:
        log = tmp_path / "master.log"
        master = stack.enter_context(running(daemon("master.Master"), log))
        url = await_line(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)", master)
        for number in range(2):
            folder = tmp_path / f"worker-{number}"
            options = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder), url]
            worker = daemon("worker.Worker", *options)
            stack.enter_context(running(worker, tmp_path / f"worker-{number}.log"))
        result = subprocess.run(
            [sys.executable, "-m", "spu_assigner.stream.submit"],
            capture_output=True,
            text=True,
            check=True,
        )
        job = trial.start(
            command=[str(SPARK / "bin" / "spark-submit"), "--master", url, *result.stdout.split()]
        )
        trial.check()
        job.terminate()
        job.wait(90)
        assert left_after(job) == {}
    used = {path.parts[-2] for path in tmp_path.glob("worker-*/app-*/*/stderr")}
    assert used == {"0", "1"}, "both executors were started"
    assert "Traceback" not in trial.log_end(job)


def daemon(name: str, *options: str) -> list[str]:
    """A process of a standalone cluster, on free ports of 127.0.0.1."""
    spark_class = str(SPARK / "bin" / "spark-class")
    place = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    return [spark_class, f"org.apache.spark.deploy.{name}", *place, *options]


def await_line(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    """The pattern's group, once the log has it."""
    deadline = time.monotonic() + 60
    while (found := re.search(pattern, log.read_text())) is None:
        assert process.poll() is None, f"{process.args} ended"
        assert time.monotonic() < deadline, f"{log} has no line like {pattern}"
        time.sleep(0.05)
    return found[1]
