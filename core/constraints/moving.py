"""Where the replicas of living topics may go when a rebalance moves them.

Rules:
- Only to SPUs that no hard rule excludes, taints included, and only where no group of a hard level
  comes to have more replicas of the list than it takes, or fewer than it is to have. A list that
  breaks a rule now may change so too: it breaks no more by that.
- No soft rule is kept worse than before: no level has more pairs of replicas in one group, the
  weight of what is preferred does not fall, nor does the score of the leaders by `leaders`.
- Topics that are to be apart may both move. An SPU that neither holds may be taken by one of them:
  by which one depends on the SPU, so that they cannot meet.
- A replica that is alone in its list goes to no SPU that is to lead nothing, even where the topic
  has no rules.
- A replica that another topic is to be together with stays, and that topic goes only to SPUs that
  it is on already, where one that moves is named.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from spu_assigner.core.base.constraints import NO_CONSTRAINTS
from spu_assigner.core.base.replica_lists import IdArray
from spu_assigner.core.constraints.rule_table import (
    AlikeSpus,
    BoundRules,
    RuleTable,
    binding_constraints,
    bound,
    holders,
    rule_table,
    union,
)
from spu_assigner.core.constraints.spu_labels import Flags
from spu_assigner.core.state.cluster_state import ClusterState


class MovingRules:
    """The rules of the topics of a cluster that a rebalance may move."""

    def __init__(self, state: ClusterState, names: Sequence[str]) -> None:
        """`names` are all the topics that may move."""
        self._state = state
        self._number = {name: number for number, name in enumerate(names)}
        self._wanted_by: dict[str, list[str]] = {}  # of a topic those that are to be with it
        for name in sorted(state.constrained):
            constraints = state.topics[name].constraints
            for other in () if constraints is None else constraints.together_with:
                self._wanted_by.setdefault(other, []).append(name)
        self._tables: dict[Hashable, MoveTable] = {}
        closed = [
            int(spu_id)
            for spu_id, spu in state.spus.items()
            if spu.online and spu.is_closed and not spu.cordoned
        ]
        self.opened: set[int] = set()  # closed by a taint alone, and tolerated by one that may move
        for name in state.constrained.intersection(self._number) if closed else ():
            labels, excluded = (table := self._table(name)).labels, table.excluded
            self.opened.update(i for i in closed if not excluded[labels.place[i]])

    def of(self, name: str, ids: IdArray) -> TopicMoves | None:
        """Those of a topic, on these SPUs; None: it has none."""
        state = self._state
        wanted_by = self._wanted_by.get(name, ())
        is_bound = name in state.constrained or name in state.apart_from or wanted_by
        # Some SPU is to lead nothing, and lists may have no other leader.
        topic = state.topics[name]
        is_single = topic.replication_factor == 1 or topic.wanted_lengths is not None
        if not is_bound and not (state.demoted and is_single):
            return None
        table = self._table(name)
        rules, constraints = bound(state, name, table), table.constraints
        key = table, rules.admitted.tobytes()
        known = self._tables.get(key)
        if known is None:
            known = self._tables[key] = MoveTable(rules, ids)
        is_open = known.flags(rules.allowed)
        count, first = len(self._number), ids.astype(np.int64)
        for other in (*constraints.apart_from, *sorted(state.apart_from.get(name, ()))):
            if other in self._number:
                mine = (self._number[name] - first) % count
                is_open &= mine < (self._number[other] - first) % count
        if any(other in self._number for other in constraints.together_with):
            is_open &= known.flags(holders(state, table.labels, name))
        stays = np.isin(ids, sorted(self.opened))
        stays &= known.flags(union([r for r in table.rules if not r.is_given], table.labels))
        for other in wanted_by:
            stays |= known.flags(holders(state, table.labels, other))
        return TopicMoves(is_open, stays, known)

    def _table(self, name: str) -> RuleTable:
        topic = self._state.topics[name]
        constraints = binding_constraints(self._state, name, topic.constraints) or NO_CONSTRAINTS
        return rule_table(self._state, constraints, ignore_rack=topic.ignore_rack)


class MoveTable:
    """A rule table as arrays; the first dimension is the SPUs in question."""

    def __init__(self, rules: BoundRules, ids: IdArray) -> None:
        table = rules.table
        self._spu = dict(zip(table.labels.id_list, table.spus, strict=True))
        self._places = table.labels.ids.searchsorted(ids)
        self._last_rank = table.last_rank  # of SPUs that are to lead nothing
        self.allowed = self.flags(table.labels.open & ~table.excluded)  # no topics are named there
        self._cells, self._weights, ranks = (each[self._places] for each in table.columns)
        self._ranks = np.minimum(ranks, self._last_rank)
        self._maxes = np.array(table.maxes, dtype=np.int64)
        self._mins = np.array(rules.mins, dtype=np.int64)
        self._found: dict[Hashable, Flags] = {}

    def flags(self, flags: Flags) -> Flags:
        """Of the SPUs in question what is said of all."""
        return np.asarray(flags[self._places])

    def alike(self, spu_id: int) -> Flags:
        """The SPUs that are in the same group at each level."""
        cells = np.array(self._spu[spu_id].cells, dtype=np.int64)
        return np.asarray((self._cells == cells).all(axis=1))

    def leaders(self, row: Sequence[int]) -> list[bool]:
        """Which members may lead a list in place of the one that does, or are it."""
        ranks = [self._rank(self._spu[spu_id]) for spu_id in row]
        return [rank <= ranks[0] and rank < self._last_rank for rank in ranks]

    def takers(self, row: Sequence[int], at: int) -> Flags:
        """The SPUs for which no rule is kept worse than before, rules on single SPUs aside."""
        spus = [self._spu[spu_id] for spu_id in row]
        rank = self._rank(spus[at])
        is_ranked = at == 0 or rank < self._rank(spus[0])
        own = spus.pop(at)
        others = sorted(spu.cells for spu in spus)
        key = tuple(others), own.cells, own.weight, rank if is_ranked else None
        known = self._found.get(key)
        if known is None:
            counts = np.zeros(len(self._maxes), dtype=np.int64)
            for cells in others:
                counts[list(cells)] += 1
            mine, theirs = np.array(own.cells, dtype=np.int64), counts[self._cells]
            is_spare = counts[mine] >= self._mins[mine]
            is_same = self._cells == mine
            keeps = is_same | (is_spare & (theirs < self._maxes[self._cells]))
            known = (keeps & (theirs <= counts[mine])).all(axis=1) & (self._weights >= own.weight)
            if is_ranked:
                known &= self._ranks <= rank
            self._found[key] = known
        return known

    def _rank(self, spu: AlikeSpus) -> int:
        """What `leaders` says of an SPU."""
        return min(spu.rank, self._last_rank)


@dataclass(frozen=True, slots=True)
class TopicMoves:
    """Where the replicas of one topic may go; flags are by position among the SPUs in question."""

    is_open: Flags  # as far as rules on single SPUs go
    stays: Flags  # the SPUs that they do not leave
    table: MoveTable

    def takers(self, row: Sequence[int], at: int) -> Flags:
        """The SPUs that may take that replica of a list, its own and other members included."""
        return np.asarray(self.table.takers(row, at) & self.is_open)
