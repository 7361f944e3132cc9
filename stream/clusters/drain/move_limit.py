"""How many replicas a rebalance may move within a limit of them, or of bytes: a pure function.

Rule: the moves of a rebalance have an order, and a limit on them cuts it off. So the core is asked,
on a copy of the job's state, what it would do with a limit, and the largest limit is looked for
whose lists, against those in Kafka, copy no more. What is mapped and not moved yet counts, too.

    t-0 10 GB moves first, then t-1 30 GB; at most 25 GB:  1 of 2 moves
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from spu_assigner.core.base.events import ClusterRebalance
from spu_assigner.core.base.records import ReplicaMap, TopicStatus
from spu_assigner.core.decision.rebalance import rebalance
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.stream.clusters.plan.model import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLimit:
    """What a rebalance is asked for."""

    moves: int  # at most
    wanted: int  # that a rebalance without a limit makes

    @property
    def left(self) -> int:
        """Moves that are for later."""
        return self.wanted - self.moves


def move_limit(
    state: ClusterState,
    topics: Mapping[str, Rows],
    sizes: Mapping[tuple[str, int], int],
    event: ClusterRebalance,
    *,
    moves_max: int | None = None,
    bytes_max: int | None = None,
) -> MoveLimit:
    """The most moves that copy no more than `bytes_max` together with what is mapped already.

    Args:
        topics: lists as Kafka has them.
        event: what the job is to be sent, without a limit of moves.
        sizes: bytes of a replica of each partition.
        moves_max: no more moves than these; None: no limit, as for `bytes_max`.

    Cost: a rebalance, and with `bytes_max` one for each halving of the number of moves.
    """

    def copied(topic: str, lists: Iterable[Sequence[int]]) -> int:
        pairs = enumerate(zip(topics.get(topic, ()), lists, strict=False))
        return sum(sizes.get((topic, n), 0) * len({*new} - {*old}) for n, (old, new) in pairs)

    pending = {
        name: copied(name, each.replicas.lists().tolist()) for name, each in state.topics.items()
    }
    total = sum(pending.values())

    def made_by(event: ClusterRebalance) -> tuple[int, int]:
        """How many moves are made, and what is copied then."""
        made, size = 0, total
        for record in rebalance(state, event):
            if isinstance(record, ReplicaMap) and record.replicas is not None:
                size += copied(record.topic, record.replicas.tolist()) - pending[record.topic]
            elif isinstance(record, TopicStatus):
                made = record.moves or 0
        return made, size

    most, size = made_by(event)
    wanted = most if event.max_bytes is None else made_by(replace(event, max_bytes=None))[0]
    if moves_max is not None and most > moves_max:
        most, size = made_by(replace(event, max_moves=moves_max))
    if bytes_max is None or size <= bytes_max:
        return MoveLimit(moves=most, wanted=wanted)
    fits, beyond = 0, most
    while beyond - fits > 1:
        middle = (fits + beyond) // 2
        if made_by(replace(event, max_moves=middle))[1] <= bytes_max:
            fits = middle
        else:
            beyond = middle
    return MoveLimit(moves=fits, wanted=wanted)
