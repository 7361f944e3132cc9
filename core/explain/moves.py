"""What a repair, a rebalance or another factor moved: from which SPU to which, and which other SPUs
could have been chosen.

These are named only where the state before the decision is at hand: the chooser of the decision is
asked again, move by move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Final

from spu_assigner.core.base.limits import MOVES_REPORTED_MAX
from spu_assigner.core.base.records import Mode, Move, ReplicaMap
from spu_assigner.core.decision.answers import Rejection
from spu_assigner.core.decision.repair import repair
from spu_assigner.core.decision.replication import resize
from spu_assigner.core.decision.ring_changes import ring_after
from spu_assigner.core.explain.loads import load_of
from spu_assigner.core.explain.placement_decision import MoveStep
from spu_assigner.core.placement.choose import topic_chooser
from spu_assigner.core.state.cluster_state import ClusterState

BEST_MAX: Final = 8  # candidates that are named


def is_changed_so(state: ClusterState, replica_map: ReplicaMap, mode: Mode) -> bool:
    """Whether a repair, or a change of the factor, decided again gives the lists of the map."""
    name, lists = replica_map.topic, replica_map.replicas
    rows = [] if lists is None else lists.tolist()
    if mode is Mode.REPLICATION:
        try:
            again, _ = resize(state, name, replica_map.replication_factor)
        except Rejection:
            return False
        return again == rows
    return any(
        isinstance(record, ReplicaMap)
        and record.replicas is not None
        and record.replicas.tolist() == rows
        for record in repair(state, name, cause="")
    )


def move_steps(
    replica_map: ReplicaMap,
    state: ClusterState,
    lists_before: Sequence[list[int]] | None,
    partitions: Container[int],
    *,
    is_before: bool,
) -> dict[int, list[MoveStep]]:
    """The moves of these partitions, in order.

    Args:
        replica_map: with a reason.
        state: of its cluster.
        lists_before: of the revision before; None: not retained.
        partitions: whose moves are wanted.
        is_before: the state is the one that was decided on; else it is that of now.
    """
    reason, lists = replica_map.reason, replica_map.replicas
    if reason is None or lists is None:
        return {}
    moves, mode = reason.moves, reason.mode
    racks = {int(spu_id): spu.rack or "" for spu_id, spu in state.spus.items()}
    rows = (lists.tolist() if lists_before is None else list(lists_before)).copy()
    candidates = None
    is_named = mode in (Mode.REPAIR, Mode.REPLICATION) and len(moves) < MOVES_REPORTED_MAX
    if is_before and is_named and lists_before is not None:
        freed = moves if mode is Mode.REPLICATION else ()  # Such a change takes off first.
        candidates = _Candidates(state, replica_map, freed)
    steps: dict[int, list[MoveStep]] = {}
    for move in moves:
        row = rows[move.partition]
        others = [spu_id for spu_id in row if spu_id not in (move.gone, move.taken)]
        if move.partition in partitions:
            step = _step(move, mode, others, racks)
            if candidates is not None and (move.taken is not None or mode is Mode.REPAIR):
                step = candidates.beside(step, others, racks)
            steps.setdefault(move.partition, []).append(step)
        if lists_before is not None:
            rows[move.partition] = [*others, *([] if move.taken is None else [move.taken])]
        if candidates is not None and move.taken is not None:
            candidates.chooser.give(move.taken)
        if candidates is not None and move.gone is not None and mode is Mode.REPAIR:
            candidates.chooser.release(move.gone)
            if lists_before is not None and move.gone == lists_before[move.partition][0]:
                candidates.chooser.pass_lead(move.gone, lists.tolist()[move.partition][0])
    return steps


def _step(move: Move, mode: Mode, others: list[int], racks: Mapping[int, str]) -> MoveStep:
    on_new_rack = None
    if move.taken is not None and racks.keys() >= {move.taken, *others}:
        on_new_rack = racks[move.taken] not in {racks[spu_id] for spu_id in others}
    return MoveStep(
        gone=move.gone,
        is_leaving=mode is Mode.REPAIR and move.gone is not None,
        is_resize=mode is Mode.REPLICATION,
        taken=move.taken,
        on_new_rack=on_new_rack,
    )


class _Candidates:
    """The SPUs that may take replicas of a topic, as its moves go on."""

    def __init__(self, state: ClusterState, replica_map: ReplicaMap, moves: Sequence[Move]) -> None:
        self._state, self._need = state, replica_map.need
        name, topic = replica_map.topic, state.topics[replica_map.topic]
        freed = [move.gone for move in moves if move.gone is not None]
        changes = Counter({spu_id: -count for spu_id, count in Counter(freed).items()})
        ring = ring_after(state, changes).ring if freed else None
        self.chooser = topic_chooser(state, name, ring=ring)
        for spu_id in freed:
            self.chooser.release(spu_id)
        if freed:
            held = Counter(topic.replicas.lists().flat().tolist())
            held.subtract(freed)
            total = replica_map.replication_factor * len(topic.replicas.lists())
            self.chooser.bind(held, total)

    def beside(self, step: MoveStep, others: list[int], racks: Mapping[int, str]) -> MoveStep:
        """The move with the SPUs that could have been chosen."""
        used, passed = {racks[spu_id] for spu_id in others}, [*others]
        passed += [] if step.gone is None else [step.gone]
        best: list[int] = []
        while len(best) < BEST_MAX:
            spu_id = self.chooser.best(others, without=[*passed, *best])
            if spu_id is None:
                break
            best.append(spu_id)
        has_room = self.chooser.has_room
        found = [i for i in self.chooser.field.id_list if i not in passed and has_room(i)]
        return replace(
            step,
            candidates=len(found),
            on_new_racks=sum(racks[i] not in used for i in found) if any(racks.values()) else None,
            best=tuple(load_of(self._state, i, self._need, leads=False) for i in best),
        )
