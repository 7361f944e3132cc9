"""Notes of who owns a checkpoint, by way of Spark's file systems."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spu_assigner.stream.job.checkpoint.files import LocalFiles, SparkFiles
from spu_assigner.stream.job.marker_check import FencedError
from spu_assigner.stream.job.ownership import FOLDER, LOOK_SECONDS, Ownership, files_of


@pytest.fixture(scope="module")
def spark(spark_jvm: None) -> Iterator[SparkSession]:
    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    )
    yield spark
    spark.stop()


@pytest.mark.smoke
def test_a_later_process_shuts_the_earlier_one_out_where_only_spark_can_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As in a checkpoint on `hdfs://` or `s3a://`; each look is a request there."""
    place = tmp_path.as_uri()
    earlier, later = (Ownership(SparkFiles(spark), place, query="q") for _ in range(2))
    assert earlier.look_seconds > LOOK_SECONDS
    earlier.take(lambda: None)
    earlier.check()
    later.take(lambda: None)
    later.check()
    with pytest.raises(FencedError, match=r"taken over query 'q' \(process \d+ on "):
        earlier.check()
    notes = [path.name for path in (tmp_path / FOLDER).iterdir() if path.suffix != ".crc"]
    assert len(notes) == 1


@pytest.mark.smoke
def test_a_checkpoint_on_this_machine_is_looked_at_without_the_jvm(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Unless the site's settings put paths without a scheme elsewhere."""
    assert isinstance(files_of(spark, str(tmp_path)), LocalFiles)
    assert isinstance(files_of(spark, tmp_path.as_uri()), LocalFiles)
    assert isinstance(files_of(spark, "hdfs://nowhere/checkpoint"), SparkFiles)
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    default = settings.get("fs.defaultFS")
    settings.set("fs.defaultFS", "viewfs:///")
    settings.set("fs.viewfs.mounttable.default.link./data", tmp_path.as_uri())
    try:
        assert isinstance(files_of(spark, str(tmp_path)), SparkFiles)
    finally:
        settings.set("fs.defaultFS", default)
