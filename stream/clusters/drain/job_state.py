"""The job's state of one cluster, as it has published it."""

from __future__ import annotations

from typing import Final

from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.stream.job.shard.published import UnsoundError, read_published
from spu_assigner.stream.kafka.config.connection import Connection

READS_MAX: Final = 3  # the job may be writing just then


def read_state(connection: Connection, cluster_id: str) -> ClusterState:
    """What is committed now of a cluster that is known.

    Raises:
        ClientError, PublishedError: it cannot be read.
    """
    for _ in range(READS_MAX - 1):
        try:
            return read_published(connection).restored(cluster_id)
        except UnsoundError:
            pass
    return read_published(connection).restored(cluster_id)
