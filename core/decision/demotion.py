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
from operator import ne
from typing import Final

import numpy as np
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import Mode, Record, RingChange, RingEvent
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.decision.repair import TOPIC_LOOKS
from spu_assigner.core.decision.ring_changes import revised
from spu_assigner.core.placement.list_repair import RepairRun, lead_rank
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.leading import LeaderChoice

SWAP_LOOKS: Final = 20  # by measurement


def frees_leaders(state: ClusterState, records: Sequence[Record]) -> bool:
    """Whether, after these records, lists may be to be put in another order."""
    changes = {record.change for record in records if isinstance(record, RingEvent)}
    if not changes.isdisjoint((RingChange.DEMOTED, RingChange.UNDEMOTED)):
        return True
    if not state.demoted or state.retries is not None:
        return bool(state.demoted)
    demoted = np.array(sorted(state.demoted), dtype=np.int32)
    return RingChange.JOINED in changes and bool(state.ledger.leaders(demoted).any())


def put_in_order(
    state: ClusterState, cause: str, run: RepairRun, records: Sequence[Record]
) -> Iterator[Sequence[Record]]:
    """After these records, the next map of each topic of which a list changes.

    Each must be applied before the next.
    """
    yield from _demoted_last(state, cause, run)
    for record in records:
        if isinstance(record, RingEvent) and record.change is RingChange.UNDEMOTED:
            yield from _taken_back(state, record.spu_id, cause, run)


def _demoted_last(state: ClusterState, cause: str, run: RepairRun) -> Iterator[Sequence[Record]]:
    """By name. Cost: a look at the replicas of all topics, beside what is counted."""
    for name in sorted(state.topics) if state.demoted else ():
        topic = state.topics[name]
        if state.demoted.isdisjoint(topic.replicas.ids()):
            continue
        lists, choice = topic.replicas.lists().tolist(), run.leaders(name)
        settled = [
            row if state.demoted.isdisjoint(row) else choice.settle(row, row) for row in lists
        ]
        changed = sum(map(ne, settled, lists))
        if not changed:  # Where a demoted SPU leads on, it is looked at with each event.
            continue
        if run.looks <= 0:
            run.has_leads_left = True
            run.take_back()
            return
        run.looks -= TOPIC_LOOKS + changed * SWAP_LOOKS + len(topic.data) // topic.width
        yield revised(state, cause, Mode.DEMOTION, {name: ReplicaLists.of_lists(settled)})


def _taken_back(
    state: ClusterState, spu_id: int, cause: str, run: RepairRun
) -> Iterator[Sequence[Record]]:
    taken = _lists_to_lead(state, spu_id, run)
    run.take_back()  # It counts other leaders.
    for name in sorted(taken):
        lists = state.topics[name].replicas.lists().tolist()
        for at in taken[name]:
            lists[at].remove(spu_id)
            lists[at].insert(0, spu_id)
        yield revised(state, cause, Mode.DEMOTION, {name: ReplicaLists.of_lists(lists)})


def _lists_to_lead(state: ClusterState, spu_id: int, run: RepairRun) -> dict[str, list[int]]:
    """The partitions of each topic that an SPU takes back, until it leads its share."""
    choice, taken = LeaderChoice(state), defaultdict[str, list[int]](list)
    if not choice.can_lead(spu_id):
        return taken
    led, partitions = _lists_of_others(state, spu_id, choice, run)

    def order(leader: int, name: str) -> int:
        """The smaller, the sooner a list of this topic is taken from this leader; it only grows."""
        return led[name][spu_id] - led[name][leader]

    topics: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)  # by leader
    for leader, name in partitions:
        topics[leader].append((order(leader, name), name))
    for of_leader in topics.values():
        heapify(of_leader)
    leaders = [(-choice.key_now(leader), leader) for leader in topics]
    heapify(leaders)
    while leaders and run.looks > 0:
        leader = leaders[0][1]
        if choice.key_now(spu_id) >= choice.last(leader):  # SPUs lead evenly by capacity.
            break
        heap = topics[leader]
        while heap:
            known, name = heap[0]
            most = choice.twice_fair_share(spu_id, led[name].total())
            if not partitions[leader, name] or led[name][spu_id] >= most:
                heappop(heap)
            elif known != order(leader, name):
                heapreplace(heap, (order(leader, name), name))
            else:
                break
        else:
            heappop(leaders)
            continue
        run.looks -= SWAP_LOOKS
        led[name].update({spu_id: 1, leader: -1})
        choice.count(spu_id, leader)
        heapreplace(leaders, (-choice.key_now(leader), leader))
        taken[name].append(partitions[leader, name].pop())
    return taken


def _lists_of_others(
    state: ClusterState, spu_id: int, choice: LeaderChoice, run: RepairRun
) -> tuple[dict[str, Counter[int]], dict[tuple[int, str], list[int]]]:
    """By topic the lists that SPUs lead; by leader and topic what an SPU could, last one first."""
    led: dict[str, Counter[int]] = {}
    partitions: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for name in sorted(state.topics):
        topic = state.topics[name]
        is_fixed = topic.policy is Policy.MANUAL or topic.pinned
        if run.looks <= 0 or is_fixed or not topic.replicas.holds(spu_id):
            continue
        run.looks -= TOPIC_LOOKS + len(topic.data) // topic.width
        led[name], rank = Counter(topic.replicas.leaders()), lead_rank(state, name)
        matrix = topic.replicas.matrix()
        for at in np.flatnonzero((matrix[:, 1:] == spu_id).any(axis=1)).tolist()[::-1]:
            leader = int(matrix[at, 0])
            if choice.can_lead(leader) and (rank is None or rank(spu_id) <= rank(leader)):
                partitions[leader, name].append(at)
    return led, partitions
