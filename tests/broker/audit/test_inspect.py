"""`inspect` on a real job's checkpoint: while it runs, for earlier batches, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spu_assigner.stream.job import checkpoint_reading as reader
from spu_assigner.stream.job.checkpoint_reading import (
    BatchNotKeptError,
    NoCheckpointError,
    OtherProgramError,
    inspect_checkpoint,
)
from spu_assigner.stream.job.lifecycle import Job, start
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.local.jvm.java import Java
from support.events.builders import Events
from support.job.streams import SHARDS
from support.kafka.shared_broker import SharedBroker
from support.kafka.traffic import PATIENCE_SECONDS, Kafka, process_all

COMMAND = [sys.executable, "-m", "spu_assigner.stream.cli", "inspect"]
PREFIX = "inspected."
COMMAND_SECONDS_MAX = 180.0  # a JVM of its own, on a machine with other work


def files(folder: str) -> dict[str, int]:
    """Every file with the time of its last change."""
    return {
        str(path): path.stat().st_mtime_ns for path in Path(folder).rglob("*") if path.is_file()
    }


def newest(folder: str) -> int:
    """The last committed batch."""
    return max(int(path.name) for path in Path(folder, "commits").glob("[0-9]*"))


@pytest.fixture(scope="module")
def settings(kafka: SharedBroker, java: Java, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Of the one job that all tests here look at."""
    create_topics({"bootstrap.servers": kafka.bootstrap_servers}, prefix=PREFIX)
    return Settings.load(
        flags={
            "bootstrap_servers": kafka.bootstrap_servers,
            "topic_prefix": PREFIX,
            "checkpoint": str(tmp_path_factory.mktemp("inspected") / "checkpoint"),
            "shards": SHARDS,
            "ui_port": 0,
            "master": "local[2]",
        },
        environ={},
    )


@pytest.fixture(scope="module")
def job(settings: Settings) -> Iterator[Job]:
    """A running, idle job; topics a, b and c were made in batches of their own."""
    kafka, events = Kafka(settings), Events()
    kafka.send([*events.racks({"r": [0, 1], "s": [2]}, capacity=10)])
    with start(settings) as job:
        for count, name in enumerate("abc", start=1):
            kafka.send([events.create(name, 3, 2)])
            kafka.wait("topic-status", count, job)
            process_all(job.query)
        yield job


@pytest.fixture
def copied(settings: Settings, job: Job, tmp_path: Path) -> str:
    """The job's checkpoint as it is now, to be changed."""
    return str(shutil.copytree(settings.checkpoint, tmp_path / "checkpoint"))


@pytest.mark.smoke
def test_a_running_job_is_inspected_and_not_touched(settings: Settings, job: Job) -> None:
    """The command in a process of its own; not one file of the checkpoint is made or changed."""
    before = files(settings.checkpoint)
    done = subprocess.run(
        [*COMMAND, "--checkpoint", settings.checkpoint, "-o", "json"],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert files(settings.checkpoint) == before
    report = json.loads(done.stdout)
    assert report["batch"] == newest(settings.checkpoint)
    assert report["query_id"] == str(job.query.id)
    assert report["shards"] == SHARDS
    assert set(report["input_offsets"]) == {
        settings.topic_prefix + name for name in ("spu-events", "topic-events")
    }
    [cluster] = report["clusters"]
    assert (cluster["cluster_id"], cluster["topics"], cluster["replicas"]) == ("c1", 3, 18)
    assert cluster["spus"]["online"] == 3
    assert job.query.isActive


def test_an_earlier_batch_shows_the_state_of_then(settings: Settings, job: Job) -> None:
    """What was known before something happened is what one looks for after it."""
    seen: dict[int, list[str]] = {}
    for batch in range(newest(settings.checkpoint) + 1):
        found = inspect_checkpoint(settings.checkpoint, batch=batch, spark=job.spark)
        seen[batch] = sorted(found.clusters["c1"].topics) if "c1" in found.clusters else []
        assert found.batch == batch
    assert list(map("".join, seen.values()))[-3:] == ["a", "ab", "abc"]
    assert seen == dict(sorted(seen.items(), key=lambda pair: len(pair[1])))


def test_a_batch_that_is_not_committed_is_not_read(copied: str, job: Job) -> None:
    """Its state may be there in part; after a crash it is made again."""
    last = newest(copied)
    Path(copied, "commits", str(last)).unlink()
    found = inspect_checkpoint(copied, spark=job.spark)
    assert found.batch == last - 1
    assert sorted(found.clusters["c1"].topics) == ["a", "b"]
    words = rf"batch {last} is not in .*; it keeps 0,.* {last - 1};"
    with pytest.raises(BatchNotKeptError, match=words) as caught:
        inspect_checkpoint(copied, batch=last, spark=job.spark)
    assert caught.value.kept == tuple(range(last))


def test_a_batch_that_is_dropped_while_it_is_read_gives_way_to_a_later_one(
    copied: str, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy job keeps twenty batches, which may be a few seconds."""
    last, read = newest(copied), reader._rows

    def late(spark: SparkSession, place: str, batch: int) -> Any:
        if batch == last:
            Path(place, "commits", str(batch)).unlink(missing_ok=True)
            raise PySparkException("the file is gone")
        return read(spark, place, batch)

    monkeypatch.setattr(reader, "_rows", late)
    found = inspect_checkpoint(copied, spark=job.spark)
    assert found.batch == last - 1


def test_a_checkpoint_of_another_program_is_reported(job: Job, tmp_path: Path) -> None:
    """Its state is not this job's."""
    source = job.spark.readStream.format("rate").option("rowsPerSecond", "10").load()
    writer = source.groupBy("value").count().writeStream.outputMode("complete")
    place = str(tmp_path / "other")
    query = writer.format("noop").option("checkpointLocation", place).start()
    # Not `processAllAvailable`: a source that has something new each second may never be done.
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not list(Path(place, "commits").glob("[0-9]*")):
        assert not query.awaitTermination(0.1)
        assert time.monotonic() < deadline, "no batch is committed"
    query.stop()
    with pytest.raises(OtherProgramError, match="another program: its query has the state of "):
        inspect_checkpoint(place, spark=job.spark)


def test_a_checkpoint_before_its_first_batch_is_reported(job: Job, tmp_path: Path) -> None:
    """A job without input so far is no fault."""
    place = tmp_path / "new"
    (place / "offsets").mkdir(parents=True)
    (place / "metadata").write_text('{"id":"x"}')
    with pytest.raises(NoCheckpointError, match="no committed batch yet"):
        inspect_checkpoint(str(place), spark=job.spark)


@pytest.mark.long("a command starts Spark and fails in it")
def test_a_place_that_spark_cannot_reach_is_reported() -> None:
    """A URL needs jars that are not here; one line says so."""
    done = subprocess.run(
        [*COMMAND, "--checkpoint", "nosuch://bucket/checkpoint"],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        env=os.environ,
        check=False,
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert 'No FileSystem for scheme "nosuch"' in line
    assert "PYSPARK_SUBMIT_ARGS" in line
