"""What a checkpoint's own files say before a query starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from spu_assigner.stream.job.checkpoint.files import (
    SHUFFLE_PARTITIONS,
    Checkpoint,
    CheckpointFormatError,
    LocalFiles,
    read_checkpoint,
)
from spu_assigner.stream.job.session import session_options
from spu_assigner.stream.kafka.config.settings import Settings

# Written by Spark 4.2.0, in its format 1 of the state and in format 2.
FORMAT_1 = 'v1\n{"nextBatchWatermarkMs":0}'
FORMAT_2 = (
    'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":'
    '{"0":[["0407717b-48cd-4f7d-9d3c-a5f838aed341"]]}}'
)


def checkpoint(folder: Path, commits: list[str]) -> str:
    """One of batches 0 and following, the last of them in the log of offsets alone."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir()
    (folder / "metadata").write_text(json.dumps({"id": "one"}))
    settings = json.dumps({"conf": {SHUFFLE_PARTITIONS: "2"}})
    for batch, commit in enumerate(commits):
        (folder / f"commits/{batch}").write_text(commit)
    for batch in range(len(commits) + 1):
        (folder / f"offsets/{batch}").write_text(f"v1\n{settings}\n{{}}\n{{}}")
    return str(folder)


@pytest.mark.parametrize("commits", [[], [FORMAT_1], [FORMAT_1, FORMAT_1]])
def test_state_of_format_1_is_read(tmp_path: Path, commits: list[str]) -> None:
    """As each release writes it; before the first batch has ended, too."""
    place = checkpoint(tmp_path, commits)
    assert read_checkpoint(LocalFiles(), place) == Checkpoint(id="one", shards=2)


def test_state_of_format_2_is_rejected_by_name(tmp_path: Path) -> None:
    """Spark would look for files that are named by version alone, and report damage."""
    place = checkpoint(tmp_path, [FORMAT_2, FORMAT_2])
    with pytest.raises(
        CheckpointFormatError, match=r"format 2 \(commits/1\), expected format 1.*assigner recover"
    ):
        read_checkpoint(LocalFiles(), place)


def test_the_job_writes_the_format_that_it_reads() -> None:
    """Whatever the default of Spark is, or what `spark-defaults.conf` says."""
    options = session_options(Settings.load(environ={}))
    assert options["spark.sql.streaming.stateStore.checkpointFormatVersion"] == "1"
