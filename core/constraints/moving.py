"""Where the replicas of living topics may go when a rebalance moves them.

Rules:
- Only to SPUs that no hard rule excludes, taints included, and only where no group of a hard level
  comes to have more replicas of the list than it takes, or fewer than it is to have. A list that
  breaks a rule now may change so too: it breaks no more by that.
- No soft rule is kept worse than before: no level has more pairs of replicas in one group, the
  weight of what is preferred does not fall, nor does what `leaders` says of who leads.
- Topics that are to be apart may both move. An SPU that neither holds may be taken by one of them:
  by which one depends on the SPU, so that they cannot meet.
- A replica that is alone in its list goes to no SPU that is to lead nothing, even where the topic
  has no rules.
- A replica that another topic is to be together with stays, and that topic goes only to SPUs that
  it is on already, where one that moves is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.constraints import NO_CONSTRAINTS, Constraints
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.replica_lists import IdArray
from spu_assigner.core.constraints.rule_table import (
    TAINT,
    RuleTable,
    binding_constraints,
    bound_table,
    rule_table,
)
from spu_assigner.core.state.cluster_state import ClusterState

Flags = NDArray[np.bool_]
Numbers = NDArray[np.signedinteger[Any]]


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
        self._tables: dict[int, _MoveTable] = {}
        self.opened = self._opened()  # closed by a taint alone, and tolerated by one that may move

    def of(self, name: str, ids: IdArray) -> TopicMoves | None:
        """Those of a topic, on these SPUs; None: it has none."""
        state = self._state
        others = self._wanted_by.get(name, ())
        is_bound = name in state.constrained or name in state.apart_from or bool(others)
        if not is_bound and not self._leads_alone(name):
            return None
        constraints, ignore_rack = self._constraints(name), state.topics[name].ignore_rack
        table, of_topics = bound_table(state, constraints, ignore_rack=ignore_rack)
        known = self._tables.get(id(table))
        if known is None:
            known = self._tables[id(table)] = _move_table(table, ids)
        mask = table.allowed(of_topics)
        is_open = _flags(mask, known.places)
        partners = [other for other in constraints.apart_from if other in self._number]
        if partners:
            count, first = len(self._number), ids.astype(np.int64)
            mine = (self._number[name] - first) % count
            for other in partners:
                is_open &= mine < (self._number[other] - first) % count
        if any(other in self._number for other in constraints.together_with):
            is_open &= np.isin(ids, list(_holders(state, name)))
        stays = np.isin(ids, sorted({spu for other in others for spu in _holders(state, other)}))
        stays |= np.isin(ids, sorted(self.opened)) & _flags(_tainted(table), known.places)
        return TopicMoves(is_open, stays, known)

    def _leads_alone(self, name: str) -> bool:
        """Whether some SPU is to lead nothing, and lists may have nobody else who leads."""
        topic = self._state.topics[name]
        is_single = topic.replication_factor == 1 or topic.wanted_lengths is not None
        return bool(self._state.demoted) and is_single

    def _opened(self) -> set[int]:
        state, found = self._state, set[int]()
        closed = {
            int(spu_id)
            for spu_id, spu in state.spus.items()
            if spu.online and spu.is_closed and not spu.cordoned
        }
        for name in state.constrained if closed else ():
            if name in self._number:
                table = self._table(name)
                allowed = table.allowed(())
                found |= {i for i in closed if allowed >> table.place[SpuId(i)] & 1}
        return found

    def _table(self, name: str) -> RuleTable:
        ignore_rack = self._state.topics[name].ignore_rack
        return rule_table(self._state, self._constraints(name), ignore_rack=ignore_rack)

    def _constraints(self, name: str) -> Constraints:
        given = self._state.topics[name].constraints
        return binding_constraints(self._state, name, given) or NO_CONSTRAINTS


@dataclass(slots=True)
class TopicMoves:
    """Where the replicas of one topic may go; flags are by position among the SPUs in question."""

    is_open: Flags  # as far as rules on single SPUs go
    stays: Flags  # the SPUs that they do not leave
    _table: _MoveTable

    @property
    def allowed(self) -> Flags:
        """The SPUs that rules on single SPUs allow, but for those that name topics."""
        return self._table.allowed

    def takers(self, row: Sequence[int], at: int) -> Flags:
        """The SPUs that may take that replica of a list, its own and other members included."""
        return np.asarray(self._table.takers(row, at) & self.is_open)

    def alike(self, spu_id: int) -> Flags:
        """The SPUs that are in the same group at each level."""
        return self._table.alike(spu_id)

    def leaders(self, row: Sequence[int]) -> list[bool]:
        """Which members may lead a list in place of the one that does, or are it."""
        ranks = [self._table.rank_of(spu_id) for spu_id in row]
        return [rank <= ranks[0] and rank < self._table.last_rank for rank in ranks]


@dataclass(frozen=True, slots=True)
class _MoveTable:
    """A rule table as arrays; the first dimension is the SPUs in question."""

    table: RuleTable
    places: list[int]  # in the table
    cells: Numbers
    maxes: Numbers  # of each group
    mins: Numbers  # likewise
    weights: Numbers
    ranks: Numbers  # as leaders
    allowed: Flags
    found: dict[Any, Flags] = field(default_factory=dict)

    @property
    def last_rank(self) -> int:
        return self.table.last_rank

    def rank_of(self, spu_id: int) -> int:
        """What `leaders` says of an SPU; behind all others: it is not to lead."""
        return _rank(self.table, self.table.place[SpuId(spu_id)])

    def alike(self, spu_id: int) -> Flags:
        cells = self.table.cells[self.table.place[SpuId(spu_id)]]
        return np.asarray((self.cells == np.array(cells, dtype=np.int64)).all(axis=1))

    def takers(self, row: Sequence[int], at: int) -> Flags:
        table = self.table
        places = [table.place[SpuId(spu_id)] for spu_id in row]
        others = sorted(table.cells[place] for number, place in enumerate(places) if number != at)
        own, weight = table.cells[places[at]], table.weights[places[at]]
        rank = _rank(table, places[at])
        is_ranked = at == 0 or rank < _rank(table, places[0])
        key = tuple(others), own, weight, rank if is_ranked else None
        known = self.found.get(key)
        if known is None:
            counts = np.zeros(len(self.maxes), dtype=np.int64)
            for cells in others:
                counts[list(cells)] += 1
            mine = np.array(own, dtype=np.int64)
            known = (counts[self.cells] <= counts[mine]).all(axis=1) & (self.weights >= weight)
            is_same = self.cells == mine
            is_spare = counts[mine] >= self.mins[mine]
            takes = counts[self.cells] < self.maxes[self.cells]
            known &= (is_same | (is_spare & takes)).all(axis=1)
            if is_ranked:
                known &= self.ranks <= rank
            self.found[key] = known
        return known


def _move_table(table: RuleTable, ids: IdArray) -> _MoveTable:
    places = [table.place[SpuId(spu_id)] for spu_id in ids.tolist()]
    shape = len(places), len(table.levels)
    return _MoveTable(
        table=table,
        places=places,
        cells=np.array([table.cells[place] for place in places], dtype=np.int64).reshape(shape),
        maxes=np.array(table.cell_maxes, dtype=np.int64),
        mins=np.array(table.cell_mins, dtype=np.int64),
        weights=np.array([table.weights[place] for place in places], dtype=np.int64),
        ranks=np.array([_rank(table, place) for place in places], dtype=np.int64),
        allowed=_flags(table.allowed(()), places),
    )


def _flags(mask: int, places: Sequence[int]) -> Flags:
    return np.array([mask >> place & 1 for place in places], dtype=np.bool_)


def _tainted(table: RuleTable) -> int:
    mask = 0
    for rule in table.rules:
        if rule.name.startswith(TAINT):
            mask |= rule.excluded
    return mask


def _rank(table: RuleTable, place: int) -> int:
    is_barred = (table.barred_leaders | table.demoted) >> place & 1
    return table.last_rank if is_barred else table.ranks[place]


def _holders(state: ClusterState, name: str) -> set[int]:
    return set(state.topics[name].replicas.lists().flat().tolist())
