"""What ended the query, by name: Spark's and Java's exceptions as errors that say what to do.

An exception of Spark's is a chain of causes; what says most is somewhere in it. Rules:
- What the sink or a shard server raised is reported as itself.
- Then Spark's own classes of errors (`getCondition`) decide, not sentences; where an exception has
  none, the part of Spark that raised it does: what the code that reads logs and state refuses is
  the checkpoint.
- The input topics are looked at in any case: a gap explains other failures, not the other way.
- An unknown one is a JobError with the line that says most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JError, Py4JNetworkError
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.job.checkpoint.files import (
    RECOVER,
    CheckpointDamagedError,
    CheckpointError,
    CheckpointFormatError,
    SparkFiles,
    absolute,
    is_on_s3,
)
from spu_assigner.stream.job.checkpoint.inputs import check_inputs, read_inputs
from spu_assigner.stream.job.shard.state_log import ShardDamagedError, ShardFormatError
from spu_assigner.stream.kafka.config.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAUSES_MAX: Final = 16  # of one chain; Spark's have up to eight
FRAMES_MAX: Final = 40  # of one cause, until a part of Spark's streaming is found

_DAMAGE: Final = (  # conditions begin with one of these
    "BATCH_METADATA_NOT_FOUND",
    "CANNOT_LOAD_STATE_STORE",
    "CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED",
    "INVALID_LOG_VERSION",
    "MALFORMED_LOG_FILE",
    "STATE_STORE_",
    "STDS_",
    "STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
    "STREAMING_STATEFUL_OPERATOR_",
)
_OTHER_STEP: Final = "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"
_NO_DAMAGE: Final = ("OUT_OF_MEMORY", "UNRELEASED_THREAD_ERROR", "CANNOT_WRITE_STATE_STORE")
_SHARED: Final = (  # what Spark finds in its logs, or beside its query, was not written by it
    "CONCURRENT_STREAM_LOG_UPDATE",
    "CONCURRENT_QUERY",
    "_LEGACY_ERROR_TEMP_2207",
)
_STREAMING: Final = "org.apache.spark.sql.execution.streaming."
_READERS: Final = (  # the parts of it that read and write a checkpoint
    f"{_STREAMING}checkpointing.",
    f"{_STREAMING}state.",
)
_READING_METHODS: Final = ("populateStartOffsets", "getStartOffsetsOfBatch")
_FILE_ERRORS: Final = ("java.io.", "java.nio.file.", "org.apache.hadoop.fs.")
_TASKS: Final = f"{_STREAMING}state.StateStoreRDD"  # is below every task, whatever it does
_WRITING: Final = ("add", "addNewBatchByStream", "createAtomic", "write", "purge")
_REFUSED: Final = ("AccessDeniedException", "AccessControlException")
_STORE: Final = ("software.amazon.awssdk.", "org.apache.hadoop.fs.s3a.")
_ABSENT: Final = ("FileNotFoundException", "EOFException")  # the store answers, and lacks a file
_NO_JARS: Final = "S3AFileSystem not found"
S3_FIX: Final = (
    "check the bucket's name, the credentials and their rights (AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or the machine's role), AWS_REGION, and AWS_ENDPOINT_URL for a server "
    "other than Amazon's"
)
_FULL: Final = "No space left on device"
_OWN_LINE: Final = re.compile(r"spu_assigner\.[\w.]*?(\w+): (.*)")


class CheckpointSharedError(CheckpointError):
    """Another process writes the checkpoint, and did not stop when this one had taken over."""


class CheckpointUnreachableError(CheckpointError):
    """The store that the checkpoint is in does not answer, or refuses."""


class JobError(AssignerError):
    """The query ended by an error that has no better name."""


class SparkGoneError(JobError):
    """The JVM that Spark runs in has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One exception of a chain, Java's or Python's."""

    kind: str  # its class
    message: str
    condition: str = ""  # Spark's class of error
    parameters: dict[str, str]
    source: str = ""  # of Java's: class and method of the first part of Spark's streaming

    @property
    def is_damage(self) -> bool:
        """Whether it says that a checkpoint cannot be used."""
        if any(part in self.condition for part in _NO_DAMAGE):
            return False
        if self.condition.startswith(_DAMAGE) or self.kind.endswith(".fs.ChecksumException"):
            return True
        place, _, method = self.source.rpartition(".")
        is_access = place.startswith(_READERS) and method not in _WRITING
        return method in _READING_METHODS or is_access


def jvm_may_be_gone() -> suppress:
    """Where there is no JVM, nothing is to be stopped."""
    return suppress(Py4JNetworkError, OSError)


def named_end(
    error: BaseException,
    spark: SparkSession,
    settings: Settings,
    *,
    failure: BaseException | None = None,
) -> AssignerError:
    """What Spark raised, as an error that says what to do."""
    place = absolute(settings.checkpoint)

    def look() -> None:
        with suppress(Py4JError, CheckpointError):  # What is wrong with these is said by `error`.
            check_inputs(settings, read_inputs(SparkFiles(spark), place))

    return named(error, checkpoint=place, failure=failure, look=look)


def named(
    error: BaseException,
    *,
    checkpoint: str,
    failure: BaseException | None = None,
    look: Callable[[], None] = lambda: None,
) -> AssignerError:
    """An exception of the query as an error that says what to do.

    `failure` is what the sink raised, if it did: Spark has it as text only. `look` looks at the
    input topics, and raises what is wrong with them.
    """
    if isinstance(failure, AssignerError):
        return failure
    chain = [*causes(error), *(() if failure is None else causes(failure))]
    if is_by_others(chain):
        return CheckpointSharedError(
            f"another process writes checkpoint {checkpoint} as well, and has planned a batch "
            "there; stop all jobs on this checkpoint, then start one: it resumes where they stopped"
        )
    try:
        look()
    except AssignerError as reason:
        return reason
    known = (
        _own(chain, checkpoint)
        or store_failure(chain, checkpoint)
        or other_step(chain, checkpoint)
        or _damaged(chain, checkpoint)
    )
    return known or JobError(f"the query stopped: {innermost_line(chain)}")


def is_by_others(chain: Iterable[Cause]) -> bool:
    """Whether Spark stopped because another process wrote the checkpoint."""
    return any(cause.condition.startswith(_SHARED) for cause in chain)


def causes(error: BaseException) -> Iterator[Cause]:
    """An exception and what caused it, the outermost first."""
    # Java's exception in Py4J's, or in one that PySpark has captured.
    throwable = getattr(error, "java_exception", getattr(error, "_origin", None))
    if throwable is None:
        kind = f"{type(error).__module__}.{type(error).__name__}"
        yield Cause(kind=kind, message=str(error), parameters={})
    for _ in range(CAUSES_MAX):
        if throwable is None:
            return
        yield _cause(throwable)
        throwable = throwable.getCause()


def _cause(throwable: Any) -> Cause:
    from pyspark import SparkContext

    condition = ""
    parameters: dict[str, str] = {}
    gateway = SparkContext._gateway
    if gateway is not None and is_instance_of(
        gateway, throwable, "org.apache.spark.SparkThrowable"
    ):
        condition = throwable.getCondition() or ""
        parameters = {
            str(name): str(each) for name, each in throwable.getMessageParameters().items()
        }
    return Cause(
        kind=throwable.getClass().getName(),
        message=throwable.getMessage() or "",
        condition=condition,
        parameters=parameters,
        source=_source(throwable),
    )


def _source(throwable: Any) -> str:
    for frame in list(throwable.getStackTrace())[:FRAMES_MAX]:
        place = frame.getClassName()
        if place.startswith(_STREAMING):
            return "" if place.startswith(_TASKS) else f"{place}.{frame.getMethodName()}"
    return ""


def _own(chain: list[Cause], checkpoint: str) -> AssignerError | None:
    """An error of this product that a shard server raised: Spark has its traceback as text."""
    lines = (line.strip() for cause in chain for line in reversed(cause.message.splitlines()))
    found = next((match for line in lines if (match := _OWN_LINE.match(line))), None)
    if found is None:
        return None
    if found[1] == ShardDamagedError.__name__:
        return CheckpointDamagedError(checkpoint=checkpoint, what="its state", reason=found[2])
    if found[1] == ShardFormatError.__name__:
        return CheckpointFormatError(f"checkpoint {checkpoint}: {found[2]}, or {RECOVER}")
    return JobError(f"the query stopped: {found[0]}")


def store_failure(chain: list[Cause], checkpoint: str) -> AssignerError | None:
    """A request to the store that failed; None: it did not, or the store lacks what was read."""
    if not is_on_s3(checkpoint) or any(cause.kind.endswith(_ABSENT) for cause in chain):
        return None
    if not any(cause.kind.startswith(_STORE) or _NO_JARS in cause.message for cause in chain):
        return None
    return CheckpointUnreachableError(unreachable(checkpoint, innermost_line(chain)))


def unreachable(checkpoint: str, reason: str) -> str:
    """What a message says where the place of a checkpoint cannot be read or written."""
    if not is_on_s3(checkpoint):
        return (
            f"checkpoint {checkpoint} cannot be read or written: {reason}; a place other than a "
            "local folder needs its file system's jars and keys, by PYSPARK_SUBMIT_ARGS or "
            "spark-submit"
        )
    if _NO_JARS in reason:
        return (
            f"checkpoint {checkpoint} is on S3, and this Spark lacks the jars for it; set "
            "SPU_ASSIGNER_CHECKPOINT before `python -m spu_assigner.stream.submit` prints what to "
            "submit, or give them to Spark with --jars"
        )
    return (
        f"checkpoint {checkpoint} cannot be read or written: {reason}; {S3_FIX}; a job resumes "
        "where it stopped"
    )


def other_step(chain: list[Cause], checkpoint: str) -> AssignerError | None:
    """The state is of a query with another stateful step; Spark's message names both."""
    for cause in chain:
        if cause.condition == _OTHER_STEP:
            found, expected = map(cause.parameters.get, ("OpsInMetadataSeq", "OpsInCurBatchSeq"))
            return CheckpointFormatError(
                f"checkpoint {checkpoint} has the state of another stateful step, {found}; "
                f"expected {expected}, as releases from 1.0 on write it. Start the release that "
                f"wrote it, or {RECOVER}"
            )
    return None


def _damaged(chain: list[Cause], checkpoint: str) -> AssignerError | None:
    text = " ".join(cause.message for cause in chain)
    line = innermost_line(chain)
    if any(cause.kind.endswith(_REFUSED) for cause in chain) or "Permission denied" in text:
        return CheckpointError(
            f"checkpoint {checkpoint} may not be read or written by this user ({line}); run the "
            "job as the user that owns it"
        )
    if _FULL in text:
        return CheckpointError(
            f"checkpoint {checkpoint} has no room left ({line}); make room and start the job "
            "again, it resumes where it stopped"
        )
    files = [_file(cause, checkpoint) for cause in chain]
    if not any(
        cause.is_damage or (cause.kind.startswith(_FILE_ERRORS) and file)
        for cause, file in zip(chain, files, strict=True)
    ):
        return None
    in_state = any(".state." in cause.source or "STATE" in cause.condition for cause in chain)
    part = "its state" if in_state else "its log of offsets or commits"
    what = next((file for file in files if file), part)
    return CheckpointDamagedError(checkpoint=checkpoint, what=what, reason=line)


def _file(cause: Cause, checkpoint: str) -> str | None:
    """The file of the checkpoint that is spoken of."""
    folder = re.escape(checkpoint.removeprefix("file:"))
    text = "\n".join((*cause.parameters.values(), cause.message))
    found = re.search(rf"{folder}/([\w./-]*\w)", text)
    return None if found is None else found[1]


def innermost_line(chain: Sequence[Cause]) -> str:
    """The line that says most: the first of the innermost cause which says anything."""
    lines = (line.strip() for cause in reversed(chain) for line in cause.message.splitlines())
    return next(filter(None, lines), chain[-1].kind)
