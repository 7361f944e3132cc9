"""Failovers of `balanced`: who comes second in a list, and leads it when its leader fails."""

from __future__ import annotations

from typing import Final

from spu_assigner.core.base.replica_lists import IdMatrix
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.takeovers import COUNTS_MAX

# Without racks only SPUs fail. Each of more is followed by many others in any case, and the time of
# a create would double.
SPUS_MAX_WITHOUT_RACKS: Final = 16


def is_ordered(state: ClusterState, replicas: int, *, ignore_rack: bool) -> bool:
    """Whether the followers of such lists are put in order while the ring lasts."""
    layout = state.ring.layout()
    if replicas < 3 or ignore_rack:
        return False
    if layout.is_one and len(state.spus) > SPUS_MAX_WITHOUT_RACKS:
        return False
    alone = state.online_count - state.racked_count
    return (len(layout.starts) - 1 + alone) * len(state.spus) <= COUNTS_MAX


def order_followers(state: ClusterState, matrix: IdMatrix, *, ignore_rack: bool) -> None:
    """Put one follower of each list behind its leader, so that failovers are even; in the array.

    Counted over all topics, from each rack and, in a small cluster, from each SPU.
    """
    if is_ordered(state, matrix.shape[1], ignore_rack=ignore_rack):
        state.takeovers().order(matrix, by_capacity=state.ring.layout().capacity is None)
