"""What a rebalance repairs before it evens out: broken rules, and lists uneven over racks.

Rules:
- A list is repaired while a move makes it better: fewer of its replicas break a hard rule of the
  topic; or as many, and they are more even over the racks. So a replica leaves a rack for one that
  has at least two fewer of the list.
- An SPU that is online and not closed gives, by the order of preference (`placement`) another
  takes. Of the moves that make a list as good the one is made that leaves the SPU with the largest
  share of its capacity; a follower goes before the leader.
- Of a topic with rules a replica goes where a rebalance may move it (`constraints.moving`); only
  where that repairs nothing soft rules give way to hard ones.
- Each list is repaired whole or, where the limits of moves and bytes end, in part. What is left is
  counted: lists that would be better after one move more. Of many lists (`LISTS_MAX`, `LEFT_MAX`)
  those count that break a rule or are uneven, whether or not a move makes them better.

Example: racks a: 0, b: 1 and 2, c: 3; the list `[0, 2, 1]`, 1 holds the most → `[0, 2, 3]`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.replica_lists import PADDING, IdMatrix
from spu_assigner.core.constraints.kept_rules import kept_rules
from spu_assigner.core.constraints.moving import MovingRules, TopicMoves
from spu_assigner.core.constraints.rule_table import BoundRules
from spu_assigner.core.placement.choose import Chooser, bind_topic, binding_rules, topic_chooser
from spu_assigner.core.rebalance.planning import ListMove
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.loads import Loads

SHARE_BITS: Final = 32  # of the fraction by which shares of capacity are compared
LOOKS_MAX: Final = 300_000  # at SPUs, for lists whose best SPU may not take the replica; some 2 s
LISTS_MAX: Final = 60_000  # searched for a move, and moves found; some 2 s
LEFT_MAX: Final = 10_000  # likewise beyond the limits; then all count that break a rule

Cost = tuple[int, int]  # broken rules, unevenness over racks


@dataclass(slots=True, kw_only=True)
class Repairs:
    """The lists that are repaired, and what that changes."""

    matrices: dict[int, IdMatrix] = field(default_factory=dict)  # by topic index, where one differs
    moves: list[ListMove] = field(default_factory=list)
    was_leader: list[bool] = field(default_factory=list)  # of each move
    size: int = 0  # bytes
    left: int = 0  # lists that are not repaired, because of the limits


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

    `matrices` has their lists, `sizes` the bytes of a replica of each; `loads` are the SPUs that
    take part. The matrices are only read.
    """
    return _Repairing(state, moving, loads, max_moves, max_bytes).run(names, matrices, sizes)


class _RepairedTopic(NamedTuple):
    number: int
    name: str
    size: int  # bytes of a replica
    breaks: BoundRules | None


class _Repairing:
    def __init__(
        self,
        state: ClusterState,
        moving: MovingRules,
        loads: Loads,
        max_moves: int,
        max_bytes: int | None,
    ) -> None:
        self._state, self._moving, self._loads = state, moving, loads
        self._moves_left, self._bytes_left = max_moves, max_bytes
        self._found = Repairs()
        self._looks = self._lists = 0
        self._place = {spu_id: at for at, spu_id in enumerate(loads.ids.tolist())}
        self._held: list[int] = loads.replicas.tolist()
        self._capacities: list[int] = np.maximum(loads.capacities, 1).tolist()
        self._changes: defaultdict[str | None, Counter[int]] = defaultdict(Counter)
        self._rack = {int(spu_id): spu.rack or "" for spu_id, spu in state.spus.items()}
        numbers = {rack: at for at, rack in enumerate(sorted({*self._rack.values()}))}
        self._ids = np.array(sorted(self._rack), dtype=np.int64)
        racks = [numbers[self._rack[spu_id]] for spu_id in self._ids.tolist()]
        self._rack_numbers = np.array(racks, dtype=np.int64)
        open_ids = [*state.ring.ids.tolist(), *sorted(moving.opened)]
        self._open_racks = sorted({numbers[self._rack[spu_id]] for spu_id in open_ids})
        self._plain: Chooser | None = None  # of the topics without rules and demands

    def run(
        self, names: Sequence[str], matrices: Sequence[IdMatrix], sizes: Sequence[int]
    ) -> Repairs:
        for index, (name, matrix) in enumerate(zip(names, matrices, strict=True)):
            breaks = kept_rules(self._state, name)
            rows = set(self._uneven(name, matrix))
            if breaks is not None:
                rows.update(
                    at
                    for at, row in enumerate(matrix.tolist())
                    if breaks.broken([spu_id for spu_id in row if spu_id != PADDING])
                )
            if rows:
                repaired = _RepairedTopic(index, name, sizes[index], breaks)
                self._repair_topic(repaired, matrix, sorted(rows))
        return self._found

    def _uneven(self, name: str, matrix: IdMatrix) -> list[int]:
        """The lists that have two more on a rack than on another that may take one."""
        if not self._open_racks or self._state.topics[name].ignore_rack:
            return []
        at = np.minimum(np.searchsorted(self._ids, matrix), len(self._ids) - 1)
        racks = np.where(matrix == PADDING, PADDING, self._rack_numbers[at])
        least = np.zeros(len(matrix), dtype=np.int64)
        if len(self._open_racks) <= matrix.shape[1]:
            counts = [(racks == rack).sum(axis=1) for rack in self._open_racks]
            least = np.min(counts, axis=0)
        most = np.zeros(len(matrix), dtype=np.int64)
        for column in racks.T:
            here = (racks == column[:, None]).sum(axis=1)
            most = np.maximum(most, np.where(column == PADDING, 0, here))
        found: list[int] = np.flatnonzero(most >= least + 2).tolist()
        return found

    def _repair_topic(self, topic: _RepairedTopic, matrix: IdMatrix, rows: Sequence[int]) -> None:
        index, name, size, breaks = topic
        chooser = self._chooser(name)
        rules = self._moving.of(name, self._loads.ids)
        for number, row in enumerate(rows):
            if self._lists >= (LEFT_MAX if self._found.left else LISTS_MAX):
                self._found.left += len(rows) - number
                return
            members = [spu_id for spu_id in matrix[row].tolist() if spu_id != PADDING]
            while (move := self._best_move(name, members, chooser, rules, breaks)) is not None:
                if self._moves_left == 0 or (
                    self._bytes_left is not None and size > self._bytes_left
                ):
                    self._lists = 0 if self._found.left == 0 else self._lists
                    self._found.left += 1
                    break
                at, taken = move
                gone, members[at] = members[at], taken
                self._lists += 1
                self._count(topic, chooser, gone, taken, leads=at == 0)
                lists = self._found.matrices.setdefault(index, matrix.copy())
                lists[row, at] = taken
                self._found.moves.append(
                    ListMove(topic=index, partition=row, gone=gone, taken=taken)
                )
                self._found.was_leader.append(at == 0)

    def _count(
        self, topic: _RepairedTopic, chooser: Chooser, gone: int, taken: int, *, leads: bool
    ) -> None:
        for each in (chooser,) if chooser is self._plain else (chooser, self._plain):
            if each is not None:
                each.release(gone)
                each.give(taken)
                if leads:
                    each.pass_lead(gone, taken)
        need = self._state.topics[topic.name].need
        for spu_id, more in ((gone, -1), (taken, 1)):
            self._changes[None][spu_id] += more
            self._held[self._place[spu_id]] += more
            for name, follower, leader in () if need is None else need.by_name():
                self._changes[name][spu_id] += more * (leader if leads else follower)
        self._moves_left -= 1
        self._found.size += topic.size
        if self._bytes_left is not None:
            self._bytes_left -= topic.size

    def _best_move(
        self,
        name: str,
        members: list[int],
        chooser: Chooser,
        rules: TopicMoves | None,
        breaks: BoundRules | None,
    ) -> tuple[int, int] | None:
        """Which place of a list goes to which SPU; None: no move makes the list better."""
        ignores_racks = self._state.topics[name].ignore_rack
        self._lists += 1
        now = self._cost(members, breaks, ignores_racks=ignores_racks)
        counts = Counter(self._rack[spu_id] for spu_id in members)
        best: tuple[Cost, bool, int, int] | None = None
        found: tuple[int, int] | None = None
        for at, spu_id in enumerate(members):
            if not self._may_give(spu_id, rules) or (counts[self._rack[spu_id]] < 2 and not now[0]):
                continue
            others = members[:at] + members[at + 1 :]
            for taken in self._takers(members, at, others, chooser, rules, is_broken=now[0] > 0):
                after = [*members[:at], taken, *members[at + 1 :]]
                cost = self._cost(after, breaks, ignores_racks=ignores_racks)
                place = self._place[spu_id]
                share = (self._held[place] << SHARE_BITS) // self._capacities[place]
                key = cost, at == 0, -share, at
                if cost < now and (best is None or key < best):
                    best, found = key, (at, taken)
        return found

    def _may_give(self, spu_id: int, rules: TopicMoves | None) -> bool:
        place = self._place.get(spu_id)
        if place is None:
            return False
        if rules is None:
            return not self._state.spus[SpuId(spu_id)].is_closed
        return not rules.stays[place]

    def _takers(
        self,
        members: list[int],
        at: int,
        others: list[int],
        chooser: Chooser,
        rules: TopicMoves | None,
        *,
        is_broken: bool,
    ) -> Iterator[int]:
        """The SPUs that may take a place: the best that keeps soft rules, too; then the best."""
        taken = chooser.best(others, without=members)
        if taken is None or taken not in self._place:
            return
        if rules is None:
            yield taken
            return
        allowed = rules.takers(members, at)
        if allowed[self._place[taken]]:
            yield taken
            return
        if is_broken and rules.is_open[self._place[taken]]:
            yield taken
        if self._looks > LOOKS_MAX:
            return
        scores = []
        for place in np.flatnonzero(allowed).tolist():
            self._looks += 1
            spu_id = int(self._loads.ids[place])
            score = None if spu_id in members else chooser.score(others, spu_id)
            if score is not None:
                scores.append((score, spu_id))
        if scores:
            yield min(scores)[1]

    def _cost(self, members: list[int], breaks: BoundRules | None, *, ignores_racks: bool) -> Cost:
        broken = 0 if breaks is None else sum(breaks.broken(members).values())
        if ignores_racks:
            return broken, 0
        counts = Counter(self._rack[spu_id] for spu_id in members)
        return broken, sum(count * count for count in counts.values())

    def _chooser(self, name: str) -> Chooser:
        """That of a topic; all without rules and demands share one."""
        topic = self._state.topics[name]
        if topic.need is not None or topic.ignore_rack or binding_rules(self._state, name):
            return topic_chooser(self._state, name, changes=self._changes)
        if self._plain is None:
            self._plain = topic_chooser(self._state, name, changes=self._changes)
        bind_topic(self._plain, self._state, name)
        return self._plain
