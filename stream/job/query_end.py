"""How a query ended, by name, and how often it is started again in the same process."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.checkpoint.data_loss import check_inputs
from spu_assigner.stream.checkpoint.files import CheckpointError, absolute
from spu_assigner.stream.checkpoint.inputs import read_inputs
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.job.faults import JobError, named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In a row, without a batch of its own between them. A process that was shut out plans one batch at
# most before it notices, so each costs one.
RESTARTS_MAX: Final = 5


class SparkGoneError(JobError):
    """The JVM that Spark runs in has ended."""


class Restarts:
    """Those of a query that found its checkpoint written by a process that was shut out: one that
    stood still, and planned a batch before it noticed.
    """

    def __init__(self) -> None:
        self.count = 0
        self._in_a_row = 0
        self._batch_before = -1  # the last one that was sent before the last restart

    def may_follow(self, sent: int) -> bool:
        """Count one more, unless there were too many.

        Args:
            sent: the last batch that the query has sent; -1: none.
        """
        if sent > self._batch_before:
            self._in_a_row, self._batch_before = 0, sent
        if self._in_a_row >= RESTARTS_MAX:
            return False
        self._in_a_row += 1
        self.count += 1
        return True


def jvm_may_be_gone() -> suppress:
    """Where there is no JVM, nothing is to be stopped."""
    from py4j.protocol import Py4JNetworkError

    return suppress(Py4JNetworkError, OSError)


def named_end(
    error: BaseException,
    spark: SparkSession,
    settings: Settings,
    *,
    failure: BaseException | None = None,
) -> AssignerError:
    """What Spark raised, as an error that says what to do."""
    from py4j.protocol import Py4JError

    place = absolute(settings.checkpoint)

    def look() -> None:
        with suppress(Py4JError, CheckpointError):  # What is wrong with these is said by `error`.
            check_inputs(settings, read_inputs(spark, place))

    return named(error, checkpoint=place, failure=failure, look=look)
