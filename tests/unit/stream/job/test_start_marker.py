"""Which checkpoints are looked at before Spark is started."""

from __future__ import annotations

import pytest
from spu_assigner.stream.job.start_marker import is_early

SITES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT")


@pytest.fixture(autouse=True)
def no_site(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SITES, "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("place", "expected"),
    [("/c", True), ("file:///c", True), ("file:/c", True), ("hdfs://h/c", False)],
)
def test_what_is_on_this_machine_is(place: str, expected: bool) -> None:
    assert is_early(place) is expected


@pytest.mark.parametrize("name", SITES)
def test_a_path_that_a_sites_settings_may_put_elsewhere_is_not(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is not on this machine's disk would pass for a new checkpoint."""
    monkeypatch.setenv(name, "1")
    assert not is_early("/c")
    assert is_early("file:///c")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--conf spark.sql.streaming.pollingDelay=50ms pyspark-shell", True),
        ("--conf spark.hadoop.fs.defaultFS=hdfs://h pyspark-shell", False),
        ("--properties-file site.conf pyspark-shell", False),
        ("--driver-class-path /etc/hadoop pyspark-shell", False),
    ],
)
def test_options_of_spark_count_if_they_can_name_a_file_system(
    options: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", options)
    assert is_early("/c") is expected
