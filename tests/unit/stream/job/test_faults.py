"""Which name an exception gets, where no Spark is needed for it; the rest is in tests/broker."""

from __future__ import annotations

import pytest
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.job.checkpoint.data_loss import DataLossError
from spu_assigner.stream.job.checkpoint.files import (
    CheckpointDamagedError,
    CheckpointError,
    CheckpointFormatError,
)
from spu_assigner.stream.job.faults import (
    Cause,
    CheckpointUnreachableError,
    JobError,
    named,
    other_step,
    store_failure,
)
from spu_assigner.stream.job.marker_check import FencedError

_FROM_A_SERVER = """ShardDamagedError: what it said
Traceback (most recent call last):
  File "shard.py", line 75, in _check
{}
"""


@pytest.mark.parametrize(
    ("line", "kind", "reported"),
    [
        (
            "spu_assigner.stream.job.shard.state_log.ShardDamagedError: segment 3 is gone",
            CheckpointDamagedError,
            "its state cannot be used (segment 3 is gone)",
        ),
        (
            "spu_assigner.stream.job.shard.state_log.ShardFormatError: format 9; "
            "run the release that wrote it",
            CheckpointFormatError,
            "run the release that wrote it, or rebuild one from Kafka with `spu-assigner recover",
        ),
        (
            "spu_assigner.core.base.errors.InvariantError: counts differ",
            JobError,
            "the query stopped: spu_assigner.core.base.errors.InvariantError: counts differ",
        ),
    ],
)
def test_what_a_shard_server_raised_is_reported_by_its_last_line(
    line: str, kind: type[AssignerError], reported: str
) -> None:
    """Spark has it as text only, with the whole way it took."""
    error = named(RuntimeError(_FROM_A_SERVER.format(line)), checkpoint="/c")
    assert type(error) is kind
    assert reported in str(error)


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
    ("text", "reported"),
    [
        ("/c/metadata (Permission denied)", "run the job as the user that owns it"),
        ("No space left on device", "make room and start the job again"),
    ],
)
def test_no_rights_and_no_room_are_no_damage(text: str, reported: str) -> None:
    """Nothing is to be brought back."""
    error = named(OSError(text), checkpoint="/c")
    assert type(error) is CheckpointError
    assert reported in str(error)


@pytest.mark.parametrize(
    ("condition", "source", "is_damage"),
    [
        ("CANNOT_LOAD_STATE_STORE.UNCATEGORIZED", "", True),
        ("CANNOT_LOAD_STATE_STORE.ROCKSDB_STORE_PROVIDER_OUT_OF_MEMORY", "", False),
        ("CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT", "", False),
        ("", "org.apache.spark.sql.execution.streaming.checkpointing.HDFSMetadataLog.get", True),
        ("", "org.apache.spark.sql.execution.streaming.checkpointing.HDFSMetadataLog.add", False),
        ("", "org.apache.spark.sql.execution.streaming.runtime.StreamExecution.runStream", False),
    ],
)
def test_damage_is_recognised_by_sparks_class_of_error_or_by_who_raised_it(
    condition: str, source: str, is_damage: bool
) -> None:
    """Not by sentences: these change from release to release."""
    cause = Cause(kind="x", message="y", condition=condition, parameters={}, source=source)
    assert cause.is_damage is is_damage


@pytest.mark.parametrize(
    ("condition", "is_by_others"),
    [
        ("CONCURRENT_STREAM_LOG_UPDATE", True),  # a batch in the logs that it did not write
        ("CONCURRENT_QUERY", True),
        ("_LEGACY_ERROR_TEMP_2207", True),  # a file that was not there a moment before
        ("STREAM_FAILED", False),
        ("", False),
    ],
)
def test_what_another_process_wrote_is_found_by_sparks_class_of_error(
    condition: str, is_by_others: bool
) -> None:
    """Its sentence speaks of streaming jobs, and names no way out."""
    cause = Cause(kind="x", message="y", condition=condition, parameters={}, source="")
    assert cause.is_by_others is is_by_others


def test_an_unknown_error_is_reported_in_its_own_words() -> None:
    """The line that says most, and no stack trace."""
    error = named(ValueError("first\nsecond"), checkpoint="/c")
    assert type(error) is JobError
    assert str(error) == "the query stopped: first"


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
