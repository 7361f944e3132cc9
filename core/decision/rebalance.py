"""`ClusterRebalance`: the plan of `rebalance` as records, with what follows for ring and chains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from spu_assigner.core.base.bounded_repr import bounded_repr
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import ClusterRebalance, Policy, SpuId
from spu_assigner.core.base.limits import MOVES_MAX
from spu_assigner.core.base.records import (
    Chain,
    Mode,
    Move,
    Order,
    Record,
    Status,
)
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.decision.answers import (
    CLUSTER_TOPIC,
    Refusal,
    rejected,
    status,
)
from spu_assigner.core.decision.repair import moved_cores, revised
from spu_assigner.core.decision.requests import shown_index
from spu_assigner.core.decision.ring_changes import ring_after
from spu_assigner.core.rebalance.planning import ListMove, Rebalance, plan_rebalance
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.core_weights import held_by_cores, weights_after
from spu_assigner.core.state.leading import LeaderChoice
from spu_assigner.core.state.loads import Loads
from spu_assigner.core.state.ring import Ring
from spu_assigner.core.state.topic import Topic

NOTHING_TO_DO: Final = Rebalance(changed={}, moves=(), reorders=0)


def rebalance(state: ClusterState, event: ClusterRebalance) -> list[Record]:
    """The maps that change, ring events, and one status with the number of moves.

    Its message also counts the topics that do not move: manual and pinned ones, and those that need
    resources, whose moves are not planned yet.
    """
    if not 0 <= event.max_moves <= MOVES_MAX:
        refusal = Refusal(
            Code.INVALID_MAX_MOVES,
            f"max_moves is {bounded_repr(event.max_moves)}; expected 0 to {MOVES_MAX}",
        )
        return [rejected(state, CLUSTER_TOPIC, refusal, event.event_id)]
    names = [name for name in sorted(state.topics) if _may_move(state.topics[name])]
    open_ids = [
        i for i in sorted(state.spus) if state.spus[i].online and not state.spus[i].cordoned
    ]
    plan = NOTHING_TO_DO
    if names and open_ids:
        loads = state.loads(np.array(open_ids, dtype=np.int32))
        plan = plan_rebalance(
            [state.topics[name].replicas.matrix() for name in names],
            loads,
            racks=_other_racks(state, loads),
            max_moves=event.max_moves,
            choice=LeaderChoice(state) if state.demoted else None,
        )
    moves_of: dict[int, list[ListMove]] = {}
    for move in plan.moves:
        moves_of.setdefault(move.topic, []).append(move)
    changed = {
        names[index]: (ReplicaLists(matrix, ragged=bool((matrix < 0).any())), moves_of.get(index))
        for index, matrix in plan.changed.items()
    }
    message = _said_of(plan) + _left_alone(state, len(state.topics) - len(names))
    answer = status(state, CLUSTER_TOPIC, Status.ASSIGNED, event.event_id, moves=len(plan.moves))
    return [
        *_records(state, changed, cause=event.event_id),
        replace(answer, message=message),
    ]


def _may_move(topic: Topic) -> bool:
    return topic.policy is not Policy.MANUAL and not topic.pinned and topic.need is None


def _said_of(plan: Rebalance) -> str:
    moves = "1 replica moves" if len(plan.moves) == 1 else f"{len(plan.moves)} replicas move"
    if plan.reorders == 1:
        return f"{moves}, 1 list gets another leader from among its replicas"
    return f"{moves}, {plan.reorders} lists get another leader from among their replicas"


def _left_alone(state: ClusterState, count: int) -> str:
    """What is said of so many topics that do not move."""
    if count == 0:
        return ""
    pinned = sum(topic.pinned for topic in state.topics.values())
    needing = sum(
        topic.need is not None and not topic.pinned and topic.policy is not Policy.MANUAL
        for topic in state.topics.values()
    )
    kinds = ["manual"] if count > pinned + needing else []
    kinds += ["pinned"] if pinned else []
    kinds += ["resource-bound"] if needing else []
    return f"; {count} {' or '.join(kinds)} topic{'' if count == 1 else 's'} left alone"


def _other_racks(state: ClusterState, loads: Loads) -> dict[int, int]:
    """Rack numbers of the SPUs that `loads` does not have, counted on from those that it has."""
    number_of: dict[str, int] = {}
    for spu_id, number in zip(loads.ids.tolist(), loads.racks.tolist(), strict=True):
        number_of[state.spus[SpuId(spu_id)].rack or ""] = number
    others: dict[int, int] = {}
    weighed = set(loads.ids.tolist())
    for spu_id in sorted(state.spus):
        if spu_id not in weighed:
            rack = state.spus[spu_id].rack or ""
            others[spu_id] = number_of.setdefault(rack, len(number_of))
    return others


Changed = Mapping[str, tuple[ReplicaLists, list[ListMove] | None]]


def _records(state: ClusterState, changed: Changed, *, cause: str) -> list[Record]:
    """The SPUs that come back into the ring first, then maps, ring events and chains."""
    changes: dict[int, int] = {}  # of counts, by SPU
    for _, moves in changed.values():
        for move in moves or ():
            changes[move.gone] = changes.get(move.gone, 0) - 1
            changes[move.taken] = changes.get(move.taken, 0) + 1
    after = ring_after(state, changes)
    return [
        *after.described.values(),
        *_maps(state, changed, after.ring, after.chains, cause=cause),
        *after.records(state, cause),
    ]


def _maps(
    state: ClusterState,
    changed: Changed,
    ring: Ring,
    chains: Mapping[Order, Chain],
    *,
    cause: str,
) -> list[Record]:
    weights: dict[SpuId, list[int]] = dict(state.core_weights)
    records: list[Record] = []
    for name, (replicas, moves) in changed.items():
        topic = state.topics[name]
        cores = moved_cores(weights, topic, replicas)
        if cores is not None:
            after = held_by_cores(replicas.matrix, cores.matrix)
            weights.update(weights_after(weights, topic.held_by_cores(), after))
        records.append(
            revised(
                state,
                name,
                cause=cause,
                replicas=replicas,
                cores=cores,
                chain_index=shown_index(
                    state, topic.policy, ring, chains, ignore_rack=topic.ignore_rack
                ),
                mode=Mode.REBALANCE,
                moves=[
                    Move(partition=move.partition, gone=move.gone, taken=move.taken)
                    for move in moves or ()
                ],
            )
        )
    return records
