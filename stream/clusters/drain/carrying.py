"""The one way of `drain` and `rebalance`: an event for the job, then the moves that follow.

1. ask: look whether partitions could be moved now, and whether the event may be sent; send it, and
   wait until the job's maps have followed it
2. move, in waves, what is not as mapped
3. look in Kafka whether it is so, and report: a line for each thing that is not

Rules: nothing is sent while nothing could be moved. What is done already is seen to be done, so a
run that was killed is repeated.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final

import click
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.clusters.moves.options import MoveOptions
from spu_assigner.stream.clusters.moves.reassigning import Reassigner
from spu_assigner.stream.clusters.moves.session import moving
from spu_assigner.stream.clusters.moves.status import MovesReport
from spu_assigner.stream.clusters.plan.sources import PlanRequest
from spu_assigner.stream.job.shard.published import UnsoundError, read_published

NOTICE_SECONDS: Final = 15.0  # a job that runs has answered by then
READS_MAX: Final = 3  # of the job's state, which it may be writing just then


class JobWait:
    """How long the job may take; a line says so once it takes longer than one that runs."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._begun = time.monotonic()
        self._is_said = False

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._begun + self.seconds

    def tick(self, what: str) -> None:
        """Say what is waited for, if it is time and was not said before."""
        if not self._is_said and time.monotonic() >= self._begun + NOTICE_SECONDS:
            self._is_said = True
            click.echo(f"waits    for {what}, {self.seconds:.0f} s at most", err=True)


class MapChange(ABC):
    """A change of the maps that Kafka is to follow.

    Args:
        request: whose maps, and where the topics are.
    """

    name: ClassVar[str]
    bytes_max: int | None = None  # to be copied; None: no limit

    def __init__(self, request: PlanRequest, options: MoveOptions) -> None:
        self.request = request
        self.options = options

    @abstractmethod
    def ask(self, kafka: Reassigner, wait: JobWait) -> None:
        """Have the job change its maps, unless that is done, and wait until they are.

        Raises:
            UnhealthyError, SeatTakenError: nothing could be moved now; the job was not asked.
            AssignerError: the job may not be asked, or has not answered in time.
        """

    @abstractmethod
    def moves(self, kafka: Reassigner) -> Sequence[MovedPartition]:
        """What is to be moved now."""

    @abstractmethod
    def left(self, kafka: Reassigner, report: MovesReport) -> list[str]:
        """A line for each thing that is not as it should be after the moves, as Kafka shows it."""

    @abstractmethod
    def end(self) -> int:
        """Say that all is done, or how much a limit has left; the exit status."""

    def state(self) -> ClusterState | None:
        """The job's state, as far as it is committed; None: it writes all the time."""
        for _ in range(READS_MAX):
            try:
                return read_published(self.request.connection).restored(self.request.cluster_id)
            except UnsoundError:
                pass
        return None


def carry_out(change: MapChange, *, wait_seconds: float) -> int:
    """Change the maps, and have Kafka follow; the exit status.

    Raises:
        AssignerError: it cannot be done now; what was done stays done.
    """
    connection = change.request.ledger_connection()
    with Reassigner(connection) as kafka:
        change.ask(kafka, JobWait(wait_seconds))
        with moving(connection, change.options, cluster_id=change.request.cluster_id) as machine:
            report = machine.carry_out(change.moves(kafka), bytes_max=change.bytes_max)
        left = change.left(kafka, report)
    for line in left:
        click.echo(f"{change.name}: {line}", err=True)
    return 1 if left else change.end()
