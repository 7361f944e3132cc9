"""What a rebalance repairs before it evens out: broken rules, and lists uneven over racks.

Rules:
- A list is repaired while a move makes it better: fewer of its replicas break a hard rule of the
  topic; or as many, and they are more even over the racks.
- An SPU that is online and not closed gives, by the order of preference (`placement`) another
  takes. Of moves that are as good, that is made which leaves the SPU with the largest share of its
  capacity; a follower goes before the leader.
- Of a topic with rules a replica goes where a rebalance may move it (`constraints.moving`); only
  where that repairs less soft rules give way to hard ones.
- Lists that the limits leave unrepaired are counted. Beyond `LISTS_MAX` all count that break a rule
  or are uneven, whether or not a move makes them better.

Example: racks a: 0, b: 1 and 2, c: 3; the list `[0, 2, 1]`, 1 holds the most → `[0, 2, 3]`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.replica_lists import PADDING, IdMatrix
from spu_assigner.core.constraints.kept_rules import kept_rules
from spu_assigner.core.constraints.moving import MovingRules, TopicMoves
from spu_assigner.core.constraints.rule_table import BoundRules
from spu_assigner.core.placement.choose import Chooser, bind_topic, binding_rules, topic_chooser
from spu_assigner.core.rebalance.lists import ListMove
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ledger import CountArray, Loads

SHARE_BITS: Final = 32  # of the fraction by which shares of capacity are compared
LISTS_MAX: Final = 40_000  # searched for a move, and moves found; some 1 s
LOOKS_A_LIST: Final = 128  # at kinds of SPUs: so many count as another list,
SPUS_A_LIST: Final = 16  # and so many SPUs that are taken apart by a topic's rules

Cost = tuple[int, int]  # broken rules, unevenness over racks


def repair_lists(
    state: ClusterState,
    names: Sequence[str],
    matrices: Sequence[IdMatrix],
    moving: MovingRules,
    loads: Loads,
    *,
    sizes: Sequence[int],
    max_moves: int,
    max_bytes: int | None,
) -> Repairs:
    """Repair lists of the topics that may move, within limits.

    `matrices` has their lists, which are only read, `sizes` the bytes of a replica of each; `loads`
    are the SPUs that take part.
    """
    repairs = Repairs(state, loads, max_moves, inf if max_bytes is None else max_bytes)
    closed = {i for i in loads.ids.tolist() if state.spus[SpuId(i)].is_closed}
    names_of = {int(spu_id): spu.rack or "" for spu_id, spu in sorted(state.spus.items())}
    ids, racks = np.array([*names_of]), np.unique([*names_of.values()], return_inverse=True)[1]
    open_ids = [*state.ring.ids.tolist(), *moving.opened]
    open_racks = np.unique(racks[np.isin(ids, open_ids)]).tolist()
    for index, (name, matrix) in enumerate(zip(names, matrices, strict=True)):
        is_racked, breaks = not state.topics[name].ignore_rack, kept_rules(state, name)
        rows = _uneven(matrix, racks, ids, open_racks) if is_racked else set()
        if breaks is not None:
            rows.update(
                at for at, row in enumerate(matrix.tolist()) if breaks.broken(_members(row))
            )
        if rows:
            rules = moving.of(name, loads.ids)
            stays = closed if rules is None else {*loads.ids[rules.stays].tolist()}
            of_topic = names_of if is_racked else {}
            topic = _RepairedTopic(index, name, sizes[index], breaks, rules, stays, of_topic)
            repairs.repair(topic, matrix, sorted(rows))
    return repairs


def _members(row: Sequence[int]) -> list[int]:
    return [spu_id for spu_id in row if spu_id != PADDING]


@dataclass(slots=True)
class _RepairedTopic:
    index: int
    name: str
    size: int  # bytes of a replica
    breaks: BoundRules | None
    rules: TopicMoves | None
    stays: set[int]  # SPUs that its replicas do not leave
    racks: dict[int, str]  # of each SPU; empty: it ignores them

    def cost(self, members: list[int]) -> Cost:
        """What is to become less."""
        broken = 0 if self.breaks is None else sum(self.breaks.broken(members).values())
        counts = Counter(map(self.racks.get, members))
        return broken, sum(count * count for count in counts.values())


class Repairs:
    """The lists that are repaired, and what that changes."""

    def __init__(self, state: ClusterState, loads: Loads, max_moves: int, max_bytes: float) -> None:
        self.matrices: dict[int, IdMatrix] = {}  # by topic index, where one differs
        self.moves: list[ListMove] = []
        # Of what SPUs hold, by resource; None: of slots.
        self.changes: defaultdict[str | None, Counter[int]] = defaultdict(Counter)
        self.leads = Counter[int]()  # how many lists more SPUs lead
        self.size = 0  # bytes
        self.left = 0  # lists that are not repaired, because of the limits
        self._state, self._ids = state, loads.ids
        self._max_moves, self._max_bytes = max_moves, max_bytes
        self._lists = 0
        ids = loads.ids.tolist()
        self._held = dict(zip(ids, loads.replicas.tolist(), strict=True))
        self._slots = dict(zip(ids, np.maximum(loads.capacities, 1).tolist(), strict=True))
        self._plain: Chooser | None = None  # of the topics without rules and demands

    def repair(self, topic: _RepairedTopic, matrix: IdMatrix, rows: Sequence[int]) -> None:
        """Repair these lists of a topic."""
        chooser = self._chooser(topic.name)
        for number, row in enumerate(rows):
            if self._lists >= LISTS_MAX:
                self.left += len(rows) - number
                return
            members = _members(matrix[row].tolist())
            while (move := self._best_move(topic, members, chooser)) is not None:
                if len(self.moves) == self._max_moves or self.size + topic.size > self._max_bytes:
                    self.left += 1
                    break
                at, taken = move
                gone, members[at] = members[at], taken
                self._count(topic, chooser, gone, taken, leads=at == 0)
                if topic.index not in self.matrices:
                    self.matrices[topic.index] = matrix.copy()
                self.matrices[topic.index][row, at] = taken
                self.moves.append(
                    ListMove(topic=topic.index, partition=row, gone=gone, taken=taken)
                )

    def _count(
        self, topic: _RepairedTopic, chooser: Chooser, gone: int, taken: int, *, leads: bool
    ) -> None:
        chooser.release(gone)
        chooser.give(taken)
        if leads:
            chooser.pass_lead(gone, taken)
        if chooser is not self._plain:
            self._plain = None  # It does not know of this.
        need = self._state.topics[topic.name].need
        for spu_id, more in ((gone, -1), (taken, 1)):
            self.changes[None][spu_id] += more
            self.leads[spu_id] += more * leads
            self._held[spu_id] += more
            for name, follower, leader in () if need is None else need.by_name():
                self.changes[name][spu_id] += more * (leader if leads else follower)
        self._lists += 1
        self.size += topic.size

    def _best_move(
        self, topic: _RepairedTopic, members: list[int], chooser: Chooser
    ) -> tuple[int, int] | None:
        """Which place of a list goes to which SPU; None: no move makes the list better."""
        self._lists += 1
        now, ways = topic.cost(members), []
        counts = Counter(map(topic.racks.get, members))
        for at, spu_id in enumerate(members):
            is_alone = counts[topic.racks.get(spu_id)] < 2
            if spu_id not in self._held or spu_id in topic.stays or (is_alone and not now[0]):
                continue
            share = (self._held[spu_id] << SHARE_BITS) // self._slots[spu_id]
            for number, taken in enumerate(self._takers(topic, members, at, chooser)):
                cost = topic.cost([*members[:at], taken, *members[at + 1 :]])
                if cost < now:
                    ways.append((cost, at == 0, -share, at, number, taken))
        self._lists += chooser.take_looks() // LOOKS_A_LIST
        return (best[3], best[5]) if ways and (best := min(ways)) else None

    def _takers(
        self, topic: _RepairedTopic, members: list[int], at: int, chooser: Chooser
    ) -> Iterator[int]:
        """The SPUs that may take a place: the best that keeps soft rules, too; then the best."""
        others, rules = members[:at] + members[at + 1 :], topic.rules
        taken = chooser.best(others, without=members)
        if taken is None or taken not in self._held:
            return
        place = int(np.searchsorted(self._ids, taken))
        if rules is None or (allowed := rules.takers(members, at))[place]:
            yield taken
            return
        self._lists += len(self._ids) // SPUS_A_LIST
        second = chooser.best(others, without={*members, *self._ids[~allowed].tolist()})
        if second is not None and second in self._held:
            yield second
        if rules.is_open[place] and topic.cost(members)[0]:
            yield taken

    def _chooser(self, name: str) -> Chooser:
        """That of a topic; all without rules and demands share one."""
        topic = self._state.topics[name]
        if topic.need is not None or topic.ignore_rack or binding_rules(self._state, name):
            return topic_chooser(self._state, name, changes=self.changes)
        if self._plain is None:
            self._plain = topic_chooser(self._state, name, changes=self.changes)
        bind_topic(self._plain, self._state, name)
        return self._plain


def _uneven(
    matrix: IdMatrix, racks: CountArray, ids: CountArray, open_racks: list[int]
) -> set[int]:
    """The lists that have two more on a rack than on another that may take one; `racks` are those
    of all SPUs, which have these ids."""
    at = np.minimum(np.searchsorted(ids, matrix), len(ids) - 1)
    found = np.where(matrix == PADDING, PADDING, racks[at])
    least = most = np.zeros(len(matrix), dtype=np.int64)
    if len(open_racks) <= matrix.shape[1]:
        counts = [(found == rack).sum(axis=1) for rack in open_racks]
        least = np.min(counts, axis=0, initial=matrix.shape[1])
    for column in found.T:
        here = (found == column[:, None]).sum(axis=1)
        most = np.maximum(most, np.where(column == PADDING, 0, here))
    return set(np.flatnonzero(most >= least + 2).tolist())
