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
    RingChange,
    SpuChanged,
    Status,
)
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.decision.answers import (
    CLUSTER_TOPIC,
    Refusal,
    chains_changed,
    entered,
    rejected,
    ring_event,
    ring_with,
    ring_without,
    status,
)
from spu_assigner.core.decision.repair import moved_cores, revised
from spu_assigner.core.decision.requests import shown_index
from spu_assigner.core.rebalance.planning import ListMove, Rebalance, plan_rebalance
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.core_weights import held_by_cores, weights_after
from spu_assigner.core.state.loads import Loads
from spu_assigner.core.state.ring import Ring
from spu_assigner.core.state.topic import Topic

NOTHING_TO_DO: Final = Rebalance(changed={}, moves=(), reorders=0)


def rebalance(state: ClusterState, event: ClusterRebalance) -> list[Record]:
    """The maps that change, ring events, and one status with the number of moves.

    Its message also counts the manual topics, which never move.
    """
    if not 0 <= event.max_moves <= MOVES_MAX:
        refusal = Refusal(
            Code.INVALID_MAX_MOVES,
            f"max_moves is {bounded_repr(event.max_moves)}; expected 0 to {MOVES_MAX}",
        )
        return [rejected(state, CLUSTER_TOPIC, refusal, event.event_id)]
    names = [name for name in sorted(state.topics) if _may_move(state.topics[name])]
    online = [spu_id for spu_id in sorted(state.spus) if state.spus[spu_id].online]
    plan = NOTHING_TO_DO
    if names and online:
        loads = state.loads(np.array(online, dtype=np.int32))
        plan = plan_rebalance(
            [state.topics[name].replicas.matrix() for name in names],
            loads,
            racks=_other_racks(state, loads),
            max_moves=event.max_moves,
        )
    moves_of: dict[int, list[ListMove]] = {}
    for move in plan.moves:
        moves_of.setdefault(move.topic, []).append(move)
    changed = {
        names[index]: (ReplicaLists(matrix, ragged=bool((matrix < 0).any())), moves_of.get(index))
        for index, matrix in plan.changed.items()
    }
    message = (
        f"{len(plan.moves)} replicas move, {plan.reorders} lists get another leader "
        "from among their replicas"
    )
    manual = len(state.topics) - len(names)
    if manual:
        message += f"; {manual} manual topic{'' if manual == 1 else 's'} left alone"
    answer = status(state, CLUSTER_TOPIC, Status.ASSIGNED, event.event_id, moves=len(plan.moves))
    return [
        *_records(state, changed, cause=event.event_id),
        replace(answer, message=message),
    ]


def _may_move(topic: Topic) -> bool:
    return topic.policy is not Policy.MANUAL


def _other_racks(state: ClusterState, loads: Loads) -> dict[int, int]:
    """Rack numbers of the SPUs that are not online, counted on from those that are."""
    number_of: dict[str, int] = {}
    for spu_id, number in zip(loads.ids.tolist(), loads.racks.tolist(), strict=True):
        number_of[state.spus[SpuId(spu_id)].rack or ""] = number
    others: dict[int, int] = {}
    for spu_id in sorted(state.spus):
        if not state.spus[spu_id].online:
            rack = state.spus[spu_id].rack or ""
            others[spu_id] = number_of.setdefault(rack, len(number_of))
    return others


Changed = Mapping[str, tuple[ReplicaLists, list[ListMove] | None]]


def _records(state: ClusterState, changed: Changed, *, cause: str) -> list[Record]:
    """The SPUs that come back into the ring first, then maps, ring events and chains."""
    before, after = _counts(state, changed)
    ring, chains = state.ring, dict(state.chains)
    filled = tuple(
        spu_id
        for spu_id, count in after.items()
        if spu_id in ring and count >= state.spus[spu_id].capacity
    )
    restored = tuple(
        spu_id
        for spu_id, count in after.items()
        if state.spus[spu_id].online and before[spu_id] >= state.spus[spu_id].capacity > count
    )
    if filled:
        ring, chains = ring_without(ring, chains, filled)
    described: dict[SpuId, SpuChanged] = {}
    registration = state.registration_next
    for spu_id in restored:
        weights = tuple(state.core_weights[spu_id])
        described[spu_id] = replace(
            state.spus[spu_id], registration=registration, core_weights=weights
        )
        registration += 1
    ring = ring_with(state, described, restored, ring)
    chains = entered(ring, chains)
    changes = [(spu_id, RingChange.SATURATED) for spu_id in filled]
    changes += [(spu_id, RingChange.RESTORED) for spu_id in restored]
    return [
        *described.values(),
        *_maps(state, changed, ring, chains, cause=cause),
        *[ring_event(state, spu_id, change, ring.size, cause) for spu_id, change in changes],
        *chains_changed(state, chains, registration),
    ]


def _counts(state: ClusterState, changed: Changed) -> tuple[dict[SpuId, int], dict[SpuId, int]]:
    """Replicas before and after, of the SPUs that hold more or less, by id."""
    differences: dict[int, int] = {}
    for _, moves in changed.values():
        for move in moves or ():
            differences[move.gone] = differences.get(move.gone, 0) - 1
            differences[move.taken] = differences.get(move.taken, 0) + 1
    moved = [SpuId(spu_id) for spu_id, count in sorted(differences.items()) if count]
    before = {spu_id: state.ledger.count(spu_id) for spu_id in moved}
    return before, {spu_id: before[spu_id] + differences[spu_id] for spu_id in moved}


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
                chain_index=shown_index(state, topic, ring, chains),
                mode=Mode.REBALANCE,
                moves=[
                    Move(partition=move.partition, gone=move.gone, taken=move.taken)
                    for move in moves or ()
                ],
            )
        )
    return records
