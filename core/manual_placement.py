"""The policy `manual`: lists as they were given, if the cluster has the SPUs and the slots."""

from __future__ import annotations

import numpy as np
from spu_assigner.core.answers import Refusal
from spu_assigner.core.errors import Code
from spu_assigner.core.events import Policy, SpuId, TopicCreate
from spu_assigner.core.grants import Grant, departed_one_by_one
from spu_assigner.core.manual import ManualFault, read_lists
from spu_assigner.core.records import Mode, Order, Reason
from spu_assigner.core.replicas import IdMatrix
from spu_assigner.core.state import ClusterState


def place_manual(state: ClusterState, event: TopicCreate) -> Grant | Refusal:
    """The lists of a request as they are, or why they cannot be had."""
    lists = read_lists(event.replicas)
    if isinstance(lists, ManualFault):
        return Refusal(lists.code, lists.message)
    refusal = _refuse_spus(state, lists.matrix)
    if refusal is not None:
        return refusal
    ids, counts = np.unique(lists.matrix, return_counts=True)
    free = state.ledger.free(ids)
    full = tuple(
        spu_id for spu_id in ids[counts == free].tolist() if state.spus[SpuId(spu_id)].online
    )
    ring = state.ring
    return Grant(
        policy=Policy.MANUAL,
        replicas=lists,
        departed=departed_one_by_one(lists.matrix, full),
        reason=Reason(
            mode=Mode.LISTS,
            ring_size=ring.size,
            ring_fingerprint=ring.fingerprint(Order.ID),
        ),
    )


def _refuse_spus(state: ClusterState, matrix: IdMatrix) -> Refusal | None:
    """The first partition of a manual map with an SPU that is not there, or has no slot left."""
    ids, counts = np.unique(matrix, return_counts=True)
    known = np.array([SpuId(spu_id) in state.spus for spu_id in ids.tolist()])
    free = np.zeros(len(ids), dtype=np.int64)
    free[known] = state.ledger.free(ids[known])
    leaving = state.leaving.intersection(ids.tolist()) if state.leaving else ()
    if known.all() and not leaving and (counts <= free).all():
        return None
    left = dict(zip(ids.tolist(), free.tolist(), strict=True))
    for partition, row in enumerate(matrix.tolist()):
        for spu_id in row:
            if SpuId(spu_id) not in state.spus:
                return Refusal(
                    Code.MANUAL_UNKNOWN_SPU,
                    f"partition {partition} names SPU {spu_id}, "
                    f"which is not in cluster {state.cluster_id!r}",
                )
        for spu_id in row:
            if spu_id in state.leaving:
                return Refusal(
                    Code.MANUAL_SPU_LEAVING,
                    f"partition {partition} names SPU {spu_id}, which is being decommissioned",
                )
        for spu_id in row:
            if left[spu_id] <= 0:
                capacity = state.spus[SpuId(spu_id)].capacity
                return Refusal(
                    Code.MANUAL_SPU_FULL,
                    f"partition {partition} names SPU {spu_id}, "
                    f"which has no free slot left of its {capacity}",
                )
            left[spu_id] -= 1
    return None
