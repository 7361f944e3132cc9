"""Who leads where an SPU is demoted.

A demoted SPU leads nothing where another can: an online SPU of the list that is not demoted. Of
these the one leads that leads the lowest share of its capacity, lists chosen before counted, then
the one that comes first in the list. It and the demoted SPU change places, so the others keep
theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from spu_assigner.core.base.constraints import Constraints, TaintEffect, has_effect
from spu_assigner.core.base.records import SpuChanged
from spu_assigner.core.base.replica_lists import IdMatrix, ReplicaLists, tally
from spu_assigner.core.state.cluster_state import ClusterState

SHARE_BITS: Final = 32  # of the fraction by which shares of capacity are compared


class LeaderChoice:
    """Chooses list after list, on the counts of the state and of what was chosen before."""

    def __init__(self, state: ClusterState, constraints: Constraints | None = None) -> None:
        """`constraints` are those of the one topic that it is about, which may tolerate taints."""
        demoted = state.demoted
        if constraints is not None and constraints.tolerations and state.barred:
            demoted = {i for i in demoted if _is_demoted(state.spus[i], constraints)}
        self.demoted = sorted(demoted)
        ids = [
            spu_id
            for spu_id in sorted(state.spus)
            if state.spus[spu_id].online and spu_id not in demoted
        ]
        leaders = state.ledger.leaders(np.array(ids, dtype=np.int32)).tolist() if ids else []
        self._leaders: dict[int, int] = dict(zip(ids, leaders, strict=True))
        self._capacities = {int(spu_id): state.spus[spu_id].capacity for spu_id in ids}

    def recount(self, leaders: Iterable[tuple[int, int]]) -> None:
        """Take other numbers of lists led, of some SPUs."""
        self._leaders |= {spu_id: count for spu_id, count in leaders if spu_id in self._leaders}

    def swaps(self, matrix: IdMatrix, *, is_new: bool = False) -> list[tuple[int, int]]:
        """The lists that get another leader, each with that leader's present place.

        `is_new`: the state does not count these lists yet.
        """
        is_barred = np.isin(matrix[:, 0], self.demoted)
        if is_new:
            for spu_id, count in zip(*tally(matrix[~is_barred, 0]), strict=True):
                self._leaders[spu_id] += count
        found = []
        for row in np.flatnonzero(is_barred).tolist():
            place = self.place(matrix[row].tolist())
            if place is not None:
                found.append((row, place))
        return found

    def place(self, row: Sequence[int]) -> int | None:
        """Where in a list that a demoted SPU leads its next leader stands; None: nobody can."""
        able = [
            ((self._leaders[spu_id] << SHARE_BITS) // max(self._capacities[spu_id], 1), place)
            for place, spu_id in enumerate(row)
            if spu_id in self._leaders
        ]
        if not able:
            return None
        _, place = min(able)
        self._leaders[row[place]] += 1
        return place


def _is_demoted(spu: SpuChanged, constraints: Constraints) -> bool:
    """Whether an SPU is to lead nothing of a topic with these constraints."""
    return spu.demoted or has_effect(spu.taints, TaintEffect.NO_LEADERS, constraints.tolerations)


def swap_leaders(matrix: IdMatrix, swaps: Iterable[tuple[int, int]]) -> None:
    """In place: of each of these lists the leader and the member at that place change places."""
    for row, place in swaps:
        matrix[row, [0, place]] = matrix[row, [place, 0]]


def has_demoted(state: ClusterState) -> bool:
    """Whether somebody in the ring is demoted: then who leads depends on who leads how much."""
    return any(spu_id in state.ring for spu_id in state.demoted)


def led_by_others(state: ClusterState, lists: ReplicaLists) -> ReplicaLists:
    """New lists, all of one length, with other leaders where a demoted SPU would lead."""
    if not state.demoted:
        return lists
    swaps = LeaderChoice(state).swaps(lists.matrix, is_new=True)
    if not swaps:
        return lists
    matrix = lists.matrix.copy()
    swap_leaders(matrix, swaps)
    return ReplicaLists(matrix)
