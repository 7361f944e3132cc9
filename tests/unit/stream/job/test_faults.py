"""Which name an exception gets, where no Spark is needed for it; the rest is in tests/broker."""

from __future__ import annotations

import pytest
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.job.checkpoint.files import (
    CheckpointDamagedError,
    CheckpointError,
    CheckpointFormatError,
)
from spu_assigner.stream.job.checkpoint.inputs import DataLossError
from spu_assigner.stream.job.faults import (
    Cause,
    CheckpointUnreachableError,
    JobError,
    is_by_others,
    named,
    other_step,
    store_failure,
)
from spu_assigner.stream.job.marker_check import FencedError

_FROM_A_SERVER = """ShardDamagedError: what it said
Traceback (most recent call last):
  File "shard.py", line 75, in _check
spu_assigner.{}
"""


@pytest.mark.parametrize(
    ("error", "kind", "reported"),
    [
        (
            _FROM_A_SERVER.format("x.ShardDamagedError: segment 3 is gone"),
            CheckpointDamagedError,
            "its state cannot be used (segment 3 is gone)",
        ),
        (
            _FROM_A_SERVER.format("x.ShardFormatError: format 9; run the release that wrote it"),
            CheckpointFormatError,
            "run the release that wrote it, or rebuild one from Kafka with `spu-assigner recover",
        ),
        (
            _FROM_A_SERVER.format("x.InvariantError: counts differ"),
            JobError,
            "the query stopped: spu_assigner.x.InvariantError: counts differ",
        ),
        ("/c/metadata (Permission denied)", CheckpointError, "as the user that owns it"),
        ("No space left on device", CheckpointError, "make room and start the job again"),
        ("first\nsecond", JobError, "the query stopped: first"),
    ],
)
def test_an_error_is_named_by_the_line_that_says_most(
    error: str, kind: type[AssignerError], reported: str
) -> None:
    """Of a shard server Spark has the traceback as text; no rights and no room are no damage."""
    found = named(OSError(error), checkpoint="/c")
    assert type(found) is kind
    assert reported in str(found)
    assert "second" not in str(found)


@pytest.mark.parametrize("name", ["transformWithStateInPandasExec", "dedupe"])
def test_the_state_of_another_step_is_called_a_form_and_no_damage(name: str) -> None:
    """Releases before 1.0 had another one; the files are as they were written."""
    condition = "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"
    ops = {"OpsInMetadataSeq": f"OperatorName: {name}", "OpsInCurBatchSeq": "OperatorName: x"}
    cause = Cause(kind="x", message="y", condition=condition, parameters=ops)
    error = other_step([cause], "/c")
    assert type(error) is CheckpointFormatError
    assert "as releases from 1.0 on write it" in str(error)
    assert name in str(error)


def test_what_the_sink_raised_is_reported_as_itself() -> None:
    """It knows more than what Spark makes of it."""
    failure = FencedError("shut out")
    assert named(RuntimeError("text"), checkpoint="/c", failure=failure) is failure


def test_a_gap_in_the_input_goes_before_what_follows_from_it() -> None:
    """Whatever Spark failed with, it could not have gone on."""
    lost = DataLossError(topic="t", partition=1, following=5, earliest=8)

    def look() -> None:
        raise lost

    assert named(RuntimeError("text"), checkpoint="/c", look=look) is lost


@pytest.mark.parametrize(
    ("condition", "source", "is_damage", "by_others"),
    [
        ("CANNOT_LOAD_STATE_STORE.UNCATEGORIZED", "", True, False),
        ("CANNOT_LOAD_STATE_STORE.ROCKSDB_STORE_PROVIDER_OUT_OF_MEMORY", "", False, False),
        ("CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT", "", False, False),
        ("", "checkpointing.HDFSMetadataLog.get", True, False),
        ("", "checkpointing.HDFSMetadataLog.add", False, False),
        ("", "runtime.StreamExecution.runStream", False, False),
        ("CONCURRENT_STREAM_LOG_UPDATE", "", False, True),  # a batch that it did not write
        ("CONCURRENT_QUERY", "", False, True),
        ("_LEGACY_ERROR_TEMP_2207", "", False, True),  # a file that was not there a moment before
        ("STREAM_FAILED", "", False, False),
    ],
)
def test_damage_and_others_are_recognised_by_sparks_class_of_error_or_by_who_raised_it(
    condition: str, source: str, is_damage: bool, by_others: bool
) -> None:
    """Not by sentences: these change from release to release."""
    place = f"org.apache.spark.sql.execution.streaming.{source}" if source else ""
    cause = Cause(kind="x", message="y", condition=condition, parameters={}, source=place)
    assert (cause.is_damage, is_by_others([cause])) == (is_damage, by_others)


_SDK = "software.amazon.awssdk.services.s3.model.S3Exception"
_READER = "org.apache.spark.sql.execution.streaming.checkpointing.HDFSMetadataLog.get"


def cause(kind: str, message: str, source: str = "") -> Cause:
    return Cause(kind=kind, message=message, source=source, parameters={})


def test_a_request_to_s3_that_failed_is_no_damage() -> None:
    """It failed while Spark read its log, and the log is right."""
    chain = [
        cause("org.apache.hadoop.fs.s3a.AWSClientIOException", "open", source=_READER),
        cause("software.amazon.awssdk.core.exception.SdkClientException", "Connection refused"),
    ]
    assert chain[0].is_damage
    error = store_failure(chain, "s3a://bucket/c")
    assert type(error) is CheckpointUnreachableError
    assert str(error).startswith(
        "checkpoint s3a://bucket/c cannot be read or written: Connection refused; check the "
        "bucket's name, the credentials"
    )
    assert store_failure(chain, "/c") is None


def test_an_object_that_is_not_there_is_damage() -> None:
    """The store has answered."""
    chain = [
        cause("java.io.FileNotFoundException", "No such file: s3a://bucket/c/offsets/1"),
        cause(_SDK, "(Service: S3, Status Code: 404)"),
    ]
    assert store_failure(chain, "s3a://bucket/c") is None


def test_a_spark_without_the_jars_for_s3_is_named() -> None:
    """As one under spark-submit, which was not given them."""
    missing = "Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"
    error = store_failure([cause("java.lang.RuntimeException", missing)], "s3a://bucket/c")
    assert type(error) is CheckpointUnreachableError
    assert "`python -m spu_assigner.stream.submit` prints what to submit" in str(error)
