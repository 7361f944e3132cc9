"""Leaders after an SPU is demoted or undemoted; no data moves.

- Demoted SPUs stand last in their lists and lead nothing that another can (`leading`). Lists are
  put in this order when an SPU is demoted, when one that could lead what a demoted SPU leads joins
  or is undemoted, and with what earlier events have left. Manual topics are no exception.
- An SPU that is undemoted takes back lists that it is in, until it leads its share: from the SPU
  that leads most of its capacity, of the topic in which that leads the most more. Lists that were
  placed by hand or are pinned stay, and so do those whose leader the topic's rules prefer.

What one event leaves to be put in order, the cluster's next events do.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final

import numpy as np
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import Mode, Record, RingChange, RingEvent
from spu_assigner.core.base.replica_lists import PADDING, IdMatrix, ReplicaLists
from spu_assigner.core.decision.repair import TOPIC_LOOKS, revised
from spu_assigner.core.placement.list_repair import RepairRun, lead_rank
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.leading import LeaderChoice, LeaderRank

SWAP_LOOKS: Final = 20  # by measurement


def undemoted_spus(records: Sequence[Record]) -> list[int]:
    """The SPUs that these records undemote."""
    return [
        record.spu_id
        for record in records
        if isinstance(record, RingEvent) and record.change is RingChange.UNDEMOTED
    ]


def frees_leaders(state: ClusterState, records: Sequence[Record]) -> bool:
    """Whether, after these records, lists may be to be put in another order."""
    changes = {record.change for record in records if isinstance(record, RingEvent)}
    if RingChange.UNDEMOTED in changes:
        return True
    if not state.demoted:
        return False
    demoted = np.array(sorted(state.demoted), dtype=np.int32)
    if RingChange.DEMOTED in changes or state.retries is not None:
        return bool(state.ledger.counts(demoted).any())
    return RingChange.JOINED in changes and bool(state.ledger.leaders(demoted).any())


def put_in_order(
    state: ClusterState, cause: str, run: RepairRun, undemoted: Sequence[int]
) -> Iterator[Sequence[Record]]:
    """The next map of each topic of which a list changes; each must be applied before the next."""
    yield from _demoted_last(state, cause, run)
    for spu_id in undemoted:
        if run.looks > 0 and spu_id not in state.demoted and spu_id in state.spus:
            yield from _taken_back(state, spu_id, cause, run)


def _demoted_last(state: ClusterState, cause: str, run: RepairRun) -> Iterator[Sequence[Record]]:
    """By name. Cost: a look at the replicas of all topics, beside what is counted."""
    for name in sorted(state.topics) if state.demoted else ():
        topic = state.topics[name]
        if state.demoted.isdisjoint(topic.replicas.ids()):
            continue
        matrix = topic.replicas.matrix()
        is_demoted = np.isin(matrix, sorted(state.demoted))
        behind = np.logical_or.accumulate(is_demoted, axis=1) & ~is_demoted & (matrix != PADDING)
        rows = np.flatnonzero(is_demoted[:, 0] | behind.any(axis=1)).tolist()
        if not rows:
            continue
        if run.looks <= 0:
            run.has_leads_left = True
            return
        changed, choice = 0, run.leaders(name)
        for at in rows:
            row = [spu_id for spu_id in matrix[at].tolist() if spu_id != PADDING]
            settled = choice.settle(row, row)
            matrix[at, : len(row)] = settled
            changed += settled != row
        if changed:  # Where a demoted SPU leads on, it is looked at with each event.
            run.looks -= TOPIC_LOOKS + changed * SWAP_LOOKS + matrix.size
            lists = ReplicaLists(matrix, ragged=topic.replicas.ragged)
            yield [revised(state, name, cause=cause, replicas=lists, mode=Mode.DEMOTION)]


def _taken_back(
    state: ClusterState, spu_id: int, cause: str, run: RepairRun
) -> Iterator[Sequence[Record]]:
    choice = LeaderChoice(state)
    if not choice.can_lead(spu_id):
        return
    lists = _OtherLists(state, spu_id, choice, run)
    taken: dict[str, list[int]] = {}
    while run.looks > 0 and (found := lists.take()) is not None:
        taken.setdefault(found[0], []).append(found[1])
        run.looks -= SWAP_LOOKS
    run.take_back()  # It counts other leaders.
    for name in sorted(taken):
        replicas = state.topics[name].replicas
        matrix = replicas.matrix()
        for at in taken[name]:
            row: list[int] = matrix[at].tolist()
            row.remove(spu_id)
            matrix[at] = [spu_id, *row]
        changed = ReplicaLists(matrix, ragged=replicas.ragged)
        yield [revised(state, name, cause=cause, replicas=changed, mode=Mode.DEMOTION)]


class _OtherLists:
    """The lists that an SPU is in and others lead."""

    def __init__(
        self, state: ClusterState, spu_id: int, choice: LeaderChoice, run: RepairRun
    ) -> None:
        self._spu_id, self._choice = spu_id, choice
        self._led: dict[str, Counter[int]] = {}  # of each topic
        # Partitions by leader and topic, the last one first.
        self._partitions: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        for name in sorted(state.topics):
            topic = state.topics[name]
            is_fixed = topic.policy is Policy.MANUAL or topic.pinned
            if run.looks > 0 and not is_fixed and topic.replicas.holds(spu_id):
                self._led[name] = Counter(topic.replicas.leaders())
                self._note(name, topic.replicas.matrix(), lead_rank(state, name))
                run.looks -= TOPIC_LOOKS + len(topic.data) // topic.width
        self._topics: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)  # by leader
        for leader, name in sorted(self._partitions):
            self._topics[leader].append((self._order(leader, name), name))
        for topics in self._topics.values():
            heapify(topics)
        self._leaders = [(-choice.share(leader), leader) for leader in self._topics]
        heapify(self._leaders)

    def _note(self, name: str, matrix: IdMatrix, rank: LeaderRank | None) -> None:
        spu_id = self._spu_id
        for at in np.flatnonzero((matrix[:, 1:] == spu_id).any(axis=1)).tolist()[::-1]:
            leader = int(matrix[at, 0])
            if self._choice.can_lead(leader) and (rank is None or rank(spu_id) <= rank(leader)):
                self._partitions[leader, name].append(at)

    def _order(self, leader: int, name: str) -> int:
        """The smaller, the sooner a list of this topic is taken from this leader; it only grows."""
        return self._led[name][self._spu_id] - self._led[name][leader]

    def take(self) -> tuple[str, int] | None:
        """The topic and partition of the list that the SPU is best to lead next; None: it leads
        its share."""
        spu_id, choice = self._spu_id, self._choice
        while self._leaders:
            _, leader = self._leaders[0]
            if not choice.evens(spu_id, leader):
                return None
            name = self._next_topic(leader)
            if name is None:
                heappop(self._leaders)
                continue
            self._led[name].update({spu_id: 1, leader: -1})
            choice.count(spu_id, leader)
            heapreplace(self._leaders, (-choice.share(leader), leader))
            return name, self._partitions[leader, name].pop()
        return None

    def _next_topic(self, leader: int) -> str | None:
        """The topic of which the next list is taken from a leader; None: it gives none."""
        topics = self._topics[leader]
        while topics:
            order, name = topics[0]
            led = self._led[name]
            most = self._choice.twice_fair_share(self._spu_id, led.total())
            if not self._partitions[leader, name] or led[self._spu_id] >= most:
                heappop(topics)
            elif order != self._order(leader, name):
                heapreplace(topics, (self._order(leader, name), name))
            else:
                return name
        return None
