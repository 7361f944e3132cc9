"""Waiting for the job, and reading its state."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import click
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import Event
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.stream.client.pending_answers import Awaited, exchange
from spu_assigner.stream.clusters.plan.sources import PlanRequest
from spu_assigner.stream.job.shard.published import UnsoundError, read_cluster_state
from spu_assigner.stream.kafka.open_transactions import why_unanswered

NOTICE_SECONDS: Final = 15.0  # a job that runs has answered by then


class DrainError(AssignerError):
    """A broker cannot be emptied or filled again, or a cluster not be evened out, now."""


class JobWait:
    """How long the job may take; a line says so once it takes longer than one that runs."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._begun = time.monotonic()
        self._is_said = False

    @property
    def is_over(self) -> bool:
        """Whether the time to wait has passed."""
        return time.monotonic() > self._begun + self.seconds

    def tick(self, what: str) -> None:
        """Say what is waited for, if it is time and was not said before."""
        if not self._is_said and time.monotonic() >= self._begun + NOTICE_SECONDS:
            self._is_said = True
            click.echo(f"waits    for {what}, {self.seconds:.0f} s at most", err=True)


def answers_to(request: PlanRequest, events: Sequence[Event], wait: JobWait) -> Awaited:
    """What the job answers to these events; DrainError if it does not answer all in time."""
    connection = request.connection
    answers = exchange(
        connection, events, seconds=wait.seconds, check=lambda: wait.tick("the answer of the job")
    )
    if answers.unanswered:
        raise DrainError(
            f"the job did not answer within {wait.seconds:g} s; {why_unanswered(connection)} "
            "Run this again; the job does what it was asked also when it starts later"
        )
    return answers


def job_state(request: PlanRequest) -> ClusterState | None:
    """The job's state of the cluster, as far as it is committed; None: it writes all the time."""
    with suppress(UnsoundError):
        return read_cluster_state(request.connection, request.cluster_id)
    return None
