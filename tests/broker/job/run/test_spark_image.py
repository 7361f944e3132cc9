"""Spark's JVM really starts from the archive of its classes, and a damaged one does no harm."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from pyspark import SparkContext
from spu_assigner.stream.job.lifecycle import Job
from spu_assigner.stream.job.run import spark_class_archive as spark_image
from spu_assigner.stream.local.jvm import spark_class_archive as lookup
from spu_assigner.stream.local.jvm.jars import ensure
from spu_assigner.stream.local.jvm.java import Java, ensure_java


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
