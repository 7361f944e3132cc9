"""Where Spark's own log is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from spu_assigner.stream.job.run.command import _spark_log_folder

HOME = Path("home")


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_it_is_beside_a_checkpoint_that_is_named(tmp_path: Path, scheme: str) -> None:
    """Jobs that are started in one folder do not share a log."""
    assert _spark_log_folder(f"{scheme}{tmp_path}/new/checkpoint", HOME) == tmp_path / "new"


@pytest.mark.parametrize(
    "checkpoint", [".spu-assigner/checkpoint", "s3a://bucket/checkpoint", "hdfs://host/checkpoint"]
)
def test_otherwise_it_is_where_the_job_keeps_all_else(checkpoint: str) -> None:
    """Also of a checkpoint on S3, beside which no process can add to a file."""
    assert _spark_log_folder(checkpoint, HOME) == HOME


def test_a_checkpoint_on_a_volume_of_its_own_has_no_log_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is around a mounted volume may be read only, and the job is to start."""
    monkeypatch.setattr("os.access", lambda *_: False)
    assert _spark_log_folder(f"{tmp_path}/checkpoint", HOME) == HOME
