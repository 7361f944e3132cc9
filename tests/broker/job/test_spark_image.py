"""Spark's JVM really starts from the archive of its classes, and a damaged one does no harm."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from spu_assigner.stream.job.lifecycle import Job
from spu_assigner.stream.jvm import spark_class_archive as lookup
from spu_assigner.stream.jvm.jars import ensure
from spu_assigner.stream.jvm.java import Java, ensure_java
from spu_assigner.stream.run import spark_class_archive as spark_image


def test_the_job_s_jvm_uses_the_archive(run: Callable[..., Job]) -> None:
    """`make setup` has made it; a session of tests without it makes none by itself."""
    java, jars = ensure_java(), ensure("spark-local")
    spark_image.ensure_spark_image(java, jars)
    option, *_ = lookup.jvm_options(java, jars)
    _, _, archive = option.partition("=")
    job = run()
    pid = job.spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    assert archive in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")


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
