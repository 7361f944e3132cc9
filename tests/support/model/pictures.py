"""All of a state at once, to compare two of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from spu_assigner.core.base.records import Order
from spu_assigner.core.state.cluster_state import ClusterState


def picture(state: ClusterState) -> dict[str, Any]:
    """Everything that a state holds, as plain comparable values."""
    return {
        "spus": {
            spu_id: (
                (spu.online, spu.leaving, spu.unreachable, spu.rack, spu.cores, spu.capacity),
                (spu.cordoned, spu.demoted),
                (spu.labels, spu.registration, spu.resources),
            )
            for spu_id, spu in sorted(state.spus.items())
        },
        "used": {
            spu_id: dict(sorted(state.ledger.used(spu_id).items())) for spu_id in sorted(state.spus)
        },
        "weights": {spu_id: spu.core_weights for spu_id, spu in sorted(state.spus.items())},
        "counts": [state.ledger.count(spu_id) for spu_id in sorted(state.spus)],
        "leaders": state.ledger.leaders(np.array(sorted(state.spus), dtype=np.int32)).tolist(),
        "leaving": sorted(state.leaving),
        "demoted": sorted(state.demoted),
        "waiting": (dict(sorted(state.waiting.items())), state.waiting_next()),
        "topics": dict(sorted(state.topics.items())),
        "chains": dict(state.chains),
        "indexes": [state.chain_index(order) for order in Order],
        "ring": [state.ring.order(order).tolist() for order in Order],
        "registration_next": state.registration_next,
        "retries": state.retries,
        "seen": ([state.memory.block(block) for block in range(16)], state.memory.count),
        "racks": (state.online_count, state.racked_count),
        "outside": state.ledger.outside_ring(),
    }
