"""Lists that a demoted SPU leads get another leader as soon as one of them can lead.

That is when the SPU is demoted, when an SPU of the list joins, and when one is undemoted; nothing
moves, and nothing comes back to an SPU that is undemoted. Manual topics are no exception. What one
event leaves to be done, the cluster's next events do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from spu_assigner.core.base.records import Mode, Record, RingChange, RingEvent
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.decision.repair import TOPIC_LOOKS, RepairRun, moved_cores, revised
from spu_assigner.core.decision.requests import shown_index
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.leading import LeaderChoice, swap_leaders

_LET_LEAD: Final = (RingChange.JOINED, RingChange.DEMOTED, RingChange.UNDEMOTED)
SWAP_LOOKS: Final = 20  # by measurement


def frees_leaders(state: ClusterState, records: Sequence[Record]) -> bool:
    """Whether, after these records, another SPU may be able to lead what a demoted one leads."""
    if not state.demoted or not (
        state.retries is not None
        or any(isinstance(record, RingEvent) and record.change in _LET_LEAD for record in records)
    ):
        return False
    demoted = np.array(sorted(state.demoted), dtype=np.int32)
    return bool(state.ledger.leaders(demoted).any())


def give_leads_away(state: ClusterState, cause: str, run: RepairRun) -> Iterator[Sequence[Record]]:
    """The next map of each topic with such lists, by name; each must be applied before the next.

    Cost: a look through the leaders of all topics, beside what is counted.
    """
    choice = LeaderChoice(state)
    for name in sorted(state.topics):
        topic = state.topics[name]
        if state.demoted.isdisjoint(topic.replicas.leaders()):
            continue
        matrix = topic.replicas.matrix()
        is_tolerant = topic.constraints is not None and topic.constraints.tolerations
        own = LeaderChoice(state, topic.constraints) if is_tolerant else choice
        swaps = own.swaps(matrix)
        if not swaps:
            continue
        if run.looks <= 0:
            run.has_leads_left = True
            return
        run.looks -= TOPIC_LOOKS + len(swaps) * SWAP_LOOKS + matrix.size
        swap_leaders(matrix, swaps)
        replicas = ReplicaLists(matrix, ragged=topic.replicas.ragged)
        yield [
            revised(
                state,
                name,
                cause=cause,
                replicas=replicas,
                cores=moved_cores(state.core_weights, topic, replicas),
                chain_index=shown_index(
                    state, topic.policy, state.ring, state.chains, ignore_rack=topic.ignore_rack
                ),
                mode=Mode.DEMOTION,
                moves=(),
            )
        ]
