"""Spark's JVM really starts from the archive of its classes, and a damaged one does no harm."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark import SparkContext
from spu_assigner.stream.job.lifecycle import Job
from spu_assigner.stream.job.run import spark_class_archive as spark_image
from spu_assigner.stream.local.jvm import spark_class_archive as lookup
from spu_assigner.stream.local.jvm.build_cache import cache_home
from spu_assigner.stream.local.jvm.jars import ensure
from spu_assigner.stream.local.jvm.java import Java, ensure_java
from support.kafka.traffic import PATIENCE_SECONDS


def test_the_job_s_jvm_uses_the_archive(run: Callable[..., Job]) -> None:
    """`make setup` has made it; a session of tests without it makes none by itself."""
    java, jars = ensure_java(), ensure("spark-local")
    if not lookup.jvm_options(java, jars):
        assert SparkContext._gateway is None, "JVM has begun without archive: `make setup` makes it"
        spark_image.ensure_spark_image(java, jars)
    option, *_ = lookup.jvm_options(java, jars)
    _, _, archive = option.partition("=")
    job = run()
    pid = job.spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    mapped, rewritten = _kilobytes(pid, archive)
    assert mapped > 50_000
    assert rewritten < mapped / 2  # it lies where it was made for; elsewhere 0.8


def _kilobytes(pid: int, file: str) -> tuple[int, int]:
    """How much of a file a process has mapped, and how much of that is its own by now."""
    counts = {"Size": 0, "Private_Dirty": 0}
    is_wanted = False
    for line in Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if "-" in name.split(" ")[0]:
            is_wanted = line.endswith(file)
        elif is_wanted and name in counts:
            counts[name] += int(value.split()[0])
    return counts["Size"], counts["Private_Dirty"]


@pytest.mark.long("the run that makes the archive has to get as far as its shard servers")
def test_the_run_that_makes_the_archive_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    """Broker, JVM and shard servers: when its time is up, and when set-up is killed."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "jars").symlink_to(cache_home() / "jars")
    environ = {**os.environ, "SPU_ASSIGNER_CACHE": str(cache)}
    program = (
        "from spu_assigner.stream.local.broker.embedded import prepare\n"
        "from spu_assigner.stream.local.jvm.jars import ensure\n"
        "from spu_assigner.stream.job.run.spark_class_archive import ensure_spark_image\n"
        "java, _, _ = prepare()\n"
        "ensure_spark_image(java, ensure('spark-local'))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], env=environ) as set_up:
        _until(
            lambda: any("stream.job.shard.server" in each for each in _processes(cache).values())
        )
        assert any("kafka.Kafka " in each for each in _processes(cache).values())
        set_up.kill()
    _until(lambda: not _processes(cache))


def _processes(cache: Path) -> dict[int, str]:
    """The command lines of living processes that have this cache in their environment."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # It has just ended.
                if f"={cache}\0".encode() in (folder / "environ").read_bytes():
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(folder.name)] = command.decode(errors="replace")
    return found


def _until(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_damaged_archive_is_passed_over_in_silence(java: Java, tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    archive.write_bytes(b"no archive" * 1_000)
    options = [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds*=off"]
    done = subprocess.run(
        [str(java.home / "bin/java"), *options, "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "warning" not in done.stderr
