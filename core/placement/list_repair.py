"""Lists of living topics on their way to being whole: replicas leave some SPUs, others come.

A replica goes to the best SPU by the order of preference (`preference`), beside the replicas that
stay; where none of these may lead, to the best one that may. Racks a: 0, 1, 2 and b: 3, 4, 5:

    [0, 3, 1, 4], 3 leaves          → [0, 1, 4, 5]
    [0, 3], to have four replicas   → [0, 3, 1, 4]
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.limits import RETRY_LOOKS_MAX
from spu_assigner.core.base.records import Move
from spu_assigner.core.constraints.rule_table import rule_table
from spu_assigner.core.placement.choose import Chooser, bind_topic, binding_rules, topic_chooser
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.leading import LeaderChoice, LeaderRank

# What is counted as looks, by measurement.
SHARED_LOOKS: Final = 10  # at each SPU, for candidates or for what keeps lists open
RULED_LOOKS: Final = 40  # likewise, where there are rules
LEADER_LOOKS: Final = 10  # at each SPU, for a leader


class RepairRun:
    """Repairs of one topic after the other, each applied before the next.

    Topics that need no resources and have no constraints share their chooser: what the repair of
    one hands out is what the next finds. All that follows from one event shares its looks.
    """

    def __init__(self, state: ClusterState) -> None:
        self.looks = RETRY_LOOKS_MAX  # that are left
        self.is_cut = False  # some repairs are left to the next events,
        self.has_leads_left = False  # or some lists that demoted SPUs lead
        self._state = state
        self._shared: Chooser | None = None
        self._ignores_rack = False  # the shared one
        self._leaders: LeaderChoice | None = None

    def chooser(self, name: str) -> Chooser:
        """Who may get replicas of a topic."""
        topic, shared = self._state.topics[name], self._shared
        is_plain = topic.need is None and binding_rules(self._state, name) is None
        # Once an SPU is full, the ring is another one.
        is_same = is_plain and self._ignores_rack is topic.ignore_rack
        if shared is not None and is_same and not shared.filled:
            bind_topic(shared, self._state, name)
            return shared
        chooser = topic_chooser(self._state, name)
        self.looks -= len(self._state.spus) * (SHARED_LOOKS if is_plain else RULED_LOOKS)
        # What is handed out now the one before would not know of.
        self._shared, self._ignores_rack = chooser if is_plain else None, topic.ignore_rack
        return chooser

    def take_back(self) -> None:
        """What was handed out last is not applied."""
        self._shared = self._leaders = None

    def leaders(self, name: str) -> LeaderChoice:
        """Who may come to lead lists of a topic."""
        topic, choice = self._state.topics[name], self._leaders
        is_own = bool(self._state.barred and topic.constraints and topic.constraints.tolerations)
        if choice is None or is_own:
            choice = LeaderChoice(self._state, topic.constraints)
            self.looks -= LEADER_LOOKS * len(self._state.spus)
            self._leaders = None if is_own else choice
        choice.begin(topic.replicas.leaders(), lead_rank(self._state, name))
        return choice


def lead_rank(state: ClusterState, name: str) -> LeaderRank | None:
    """What the rules of a living topic say of an SPU as a leader; None: nothing."""
    topic = state.topics[name]
    if topic.constraints is None or not topic.constraints.leaders:
        return None
    table = rule_table(state, topic.constraints, ignore_rack=topic.ignore_rack)
    return lambda spu_id: int(table.ranks[table.labels.place[spu_id]])


@dataclass(slots=True)
class ListRepair:
    """Takes and moves replicas of the lists of one topic."""

    state: ClusterState
    leaving: Collection[int]  # SPUs
    chooser: Chooser
    choice: LeaderChoice  # of SPUs that may lead

    def take(self, row: Sequence[int], wanted: int) -> int | None:
        """The best SPU for a list that is to have so many replicas; None: there is none."""
        staying = [spu_id for spu_id in row if spu_id not in self.leaving]
        if not any(map(self.choice.can_lead, staying)):
            without = {*row, *self.choice.demoted}
            taken = self.chooser.take(staying, without=without, wanted=wanted)
            if taken is not None:
                return taken
        return self.chooser.take(staying, without=row, wanted=wanted)

    def fill(
        self, partition: int, row: list[int], wanted: int
    ) -> tuple[list[int], list[Move], int | None]:
        """A list with as many replicas as can be had, none on SPUs that it is to leave: in the
        order in which they came, with its moves; and the SPU that it is to leave, where that has
        the only copy."""
        state, had, moves = self.state, row, list[Move]()
        has_source = not all(is_dead(state, spu_id) for spu_id in row)
        for gone in sorted(spu_id for spu_id in row if spu_id in self.leaving):
            survivors = [spu_id for spu_id in row if spu_id != gone]
            if not has_source and not any(spu_id in had for spu_id in survivors):
                return row, moves, gone
            taken = self.take(row, wanted)
            serves = any(state.spus[SpuId(spu_id)].online for spu_id in survivors)
            if taken is None and (not serves or SpuId(gone) not in state.leaving):
                continue  # It keeps its place: no other SPU could serve, or would hold, the list.
            self.chooser.release(gone)
            row = survivors if taken is None else [*survivors, taken]
            moves.append(Move(partition=partition, gone=gone, taken=taken))
        while len(row) < wanted and (taken := self.take(row, wanted)) is not None:
            row = [*row, taken]
            moves.append(Move(partition=partition, gone=None, taken=taken))
        return row, moves, None


def is_dead(state: ClusterState, spu_id: int) -> bool:
    """Whether nothing can be copied from an SPU; one that is decommissioned may be there."""
    spu = state.spus[SpuId(spu_id)]
    return not spu.online and (spu.unreachable or not spu.leaving)
