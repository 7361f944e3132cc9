"""Waiting for the job, and reading its state."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

import click
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.stream.clusters.plan.sources import PlanRequest
from spu_assigner.stream.job.shard.published import UnsoundError, read_cluster_state

NOTICE_SECONDS: Final = 15.0  # a job that runs has answered by then


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


def job_state(request: PlanRequest) -> ClusterState | None:
    """The job's state of the cluster, as far as it is committed; None: it writes all the time."""
    with suppress(UnsoundError):
        return read_cluster_state(request.connection, request.cluster_id)
    return None
