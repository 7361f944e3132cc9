"""SPUs for lists of a living topic that lost some, or are to be longer: by its rules.

Each is the one with which the list scores best, as `list_choice` has it, beside those that stay.
Where `min` of a level demands all replicas that are still to come, the next one goes to a value
that has too few, or nowhere. Who leads is not asked: a list is led by one of its own that is
online.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.resources import Need
from spu_assigner.core.constraints.list_choice import ListChoice, spu_kinds
from spu_assigner.core.constraints.placing import SpuRoom
from spu_assigner.core.constraints.rule_table import bound_table
from spu_assigner.core.constraints.work import TooMuchWorkError, Work
from spu_assigner.core.state.cluster_state import ClusterState


class RuledCandidates:
    """The SPUs that the rules of a topic allow, as replicas are handed out.

    Nothing is handed to an SPU that a replica is to leave: it is offline, or tainted.
    """

    def __init__(
        self,
        state: ClusterState,
        constraints: Constraints,
        need: Need | None,
        *,
        ignore_rack: bool,
        changes: Mapping[int, int] | None = None,
    ) -> None:
        """`changes`: replicas that SPUs hold more or fewer than the state says."""
        self.filled: list[int] = []  # SPUs of the ring that became saturated, in this order
        self._state = state
        self._table, of_topics = bound_table(state, constraints, ignore_rack=ignore_rack)
        mask = self._table.allowed(of_topics)
        self._room = SpuRoom(state, self._table, mask, need)
        for spu_id, change in (changes or {}).items():
            place = self._table.place[spu_id]
            if mask >> place & 1:
                self._room.give(place, change)
        kinds = spu_kinds(self._table, mask, self._room.places, 0)
        self._choice = ListChoice(self._table, kinds, self._room.loads(), 0)
        self._work = Work()
        self._told = 0

    def take_work(self) -> int:
        """What was looked at since the last call."""
        done = self._work.done - self._told
        self._told += done
        return done

    def replace(
        self, row: Sequence[int], _gone: int, leaving: Collection[int], wanted: int
    ) -> int | None:
        """The best SPU in place of one of a list, beside those that are not to leave."""
        return self.fill([spu_id for spu_id in row if spu_id not in leaving], wanted)

    def fill(self, staying: Sequence[int], wanted: int) -> int | None:
        """The best SPU for a list of which these stay; None: no other may have it.

        Where choosing takes too much work, lists that are still to come get nothing.

        `wanted`: how many replicas the list is to have in the end.
        """
        place = self._table.place
        base = [place[i] for i in staying]
        try:
            row = self._choice.best(base, len(base) + 1, self._work)
        except TooMuchWorkError:
            row = None
        if row is None:
            return None
        lacks = self._choice.lacks(row)
        is_short = max(lacks, default=0) > max(wanted - len(row), 0)
        if is_short and sum(lacks) == sum(self._choice.lacks(base)):
            return None
        taken = row[-1]
        self._room.give(taken)
        self._choice.reload([taken], [self._room.load(taken)])
        spu_id = self._table.ids[taken]
        if SpuId(spu_id) in self._state.ring and not self._room.slots(taken):
            self.filled.append(spu_id)
        return spu_id
