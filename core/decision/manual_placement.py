"""The policy `manual`: lists as they were given, if the cluster has the SPUs and the slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy, SpuId, TopicCreate
from spu_assigner.core.base.records import Mode, Reason
from spu_assigner.core.base.replica_lists import IdMatrix
from spu_assigner.core.decision.answers import Refusal
from spu_assigner.core.decision.assignment import Assignment, departed_one_by_one
from spu_assigner.core.policies.manual_lists import ManualFault, is_spu_id, read_lists
from spu_assigner.core.state.cluster_state import ClusterState


def place_manual(state: ClusterState, event: TopicCreate) -> Assignment | Refusal:
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
    return Assignment(
        policy=Policy.MANUAL,
        replicas=lists,
        departed=departed_one_by_one(lists.matrix, full),
        reason=Reason(mode=Mode.LISTS),
    )


def _refuse_spus(state: ClusterState, matrix: IdMatrix) -> Refusal | None:
    """The first fault of a manual map with an SPU that is not there, or has no slot left."""
    ids, counts = np.unique(matrix, return_counts=True)
    known = np.array([SpuId(spu_id) in state.spus for spu_id in ids.tolist()])
    leaving = state.leaving.intersection(ids.tolist()) if state.leaving else ()
    barred = any(state.spus[SpuId(i)].is_closed for i in ids[known].tolist()) or leaving
    if known.all() and not barred and (counts <= state.ledger.free(ids)).all():
        return None
    lists = ((partition, list(enumerate(row))) for partition, row in enumerate(matrix.tolist()))
    fault = next(spu_faults(state, lists), None)
    return None if fault is None else Refusal(fault.code, fault.message)


def unknown_spus(state: ClusterState, lists: Sequence[Sequence[int]]) -> Iterator[ManualFault]:
    """Every SPU of these lists that the cluster does not have; its path is partition and place."""
    for partition, row in enumerate(lists):
        for place, spu_id in enumerate(row):
            if SpuId(spu_id) not in state.spus and is_spu_id(spu_id):
                yield _unknown_spu(state, partition, spu_id, (partition, place))


def _unknown_spu(
    state: ClusterState, partition: int, spu_id: int, path: tuple[int | str, ...]
) -> ManualFault:
    return ManualFault(
        code=Code.MANUAL_UNKNOWN_SPU,
        message=f"partition {partition} names SPU {spu_id}, "
        f"which is not in cluster {state.cluster_id!r}",
        path=path,
    )


def spu_faults(
    state: ClusterState, lists: Iterable[tuple[int, list[tuple[int, int]]]]
) -> Iterator[ManualFault]:
    """Every SPU that cannot take its replica; a list is its partition and its (place, SPU id)."""
    left: dict[int, int] = {}  # free slots of the SPUs that were met
    for partition, replicas in lists:
        path = (partition, "replicas")
        known = [(place, spu_id) for place, spu_id in replicas if SpuId(spu_id) in state.spus]
        for place, spu_id in replicas:
            if SpuId(spu_id) not in state.spus:
                yield _unknown_spu(state, partition, spu_id, (*path, place))
        for place, spu_id in known:
            if spu_id in state.leaving:
                yield ManualFault(
                    code=Code.MANUAL_SPU_LEAVING,
                    message=f"partition {partition} names SPU {spu_id}, "
                    "which is being decommissioned",
                    path=(*path, place),
                )
        for place, spu_id in known:
            spu = state.spus[SpuId(spu_id)]
            if spu.is_closed:
                why, fix = (
                    ("cordoned", "uncordon it") if spu.cordoned else ("tainted", "untaint it")
                )
                yield ManualFault(
                    code=Code.MANUAL_SPU_CORDONED,
                    message=f"partition {partition} names SPU {spu_id}, which is {why}; "
                    f"{fix} first, or name another",
                    path=(*path, place),
                )
        for place, spu_id in known:
            spu = state.spus[SpuId(spu_id)]
            if spu_id not in left:
                left[spu_id] = spu.capacity - state.ledger.count(spu_id)
            if left[spu_id] <= 0:
                yield ManualFault(
                    code=Code.MANUAL_SPU_FULL,
                    message=f"partition {partition} names SPU {spu_id}, "
                    f"which has no free slot left of its {spu.capacity}",
                    path=(*path, place),
                )
            left[spu_id] -= 1
