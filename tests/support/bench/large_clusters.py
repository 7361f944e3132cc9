"""Large clusters, event by event, for measurements of one event in the core."""

from __future__ import annotations

from typing import Any, Final

from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.events import (
    ClusterRebalance,
    Event,
    Policy,
    SpuJoined,
    TopicAdopted,
    TopicCreate,
)
from spu_assigner.core.base.limits import MOVES_MAX
from spu_assigner.core.base.records import Mode
from spu_assigner.core.decision.machine import step
from spu_assigner.core.decision.ring_changes import revised
from spu_assigner.core.state.cluster_state import ClusterState, evolve

CLUSTER: Final = "c"


class Building:
    """A cluster on its way to the event."""

    def __init__(self) -> None:
        self.state = ClusterState(CLUSTER)
        self._events = 0

    def do(self, kind: type[Any], **fields: Any) -> None:
        self._events += 1
        event = kind(event_id=f"e{self._events}", cluster_id=CLUSTER, **fields)
        step(self.state, event, default_policy=Policy.BALANCED)

    def join(self, count: int, *, first: int = 0, racks: int = 0, capacity: int = 10**6) -> None:
        for spu_id in range(first, first + count):
            rack = f"r{spu_id % racks}" if racks else None
            self.do(SpuJoined, spu_id=spu_id, rack=rack, capacity=capacity)

    def constrain(self, name: str, rules: Constraints) -> None:
        """Rules that bind a topic, without a look at its lists."""
        lists = self.state.topics[name].replicas.lists()
        mode = Mode.CONSTRAINTS
        for record in revised(self.state, name, mode, {name: lists}, constraints=rules):
            evolve(self.state, record)

    def adopt(self, replicas: int) -> None:
        """A topic t0 of 100,000 lists on 10,000 SPUs, each of which holds as many replicas."""
        lists = [[(row + 31 * at) % 10_000 for at in range(replicas)] for row in range(100_000)]
        self.do(TopicAdopted, topic="t0", replicas=lists)

    def create(self, topics: int, partitions: int, replicas: int, **fields: Any) -> None:
        for number in range(topics):
            self.do(
                TopicCreate,
                topic=f"t{number}",
                partitions=partitions,
                replication_factor=replicas,
                **fields,
            )


def asked(kind: type[Any], **fields: Any) -> Event:
    event: Event = kind(event_id="asked", cluster_id=CLUSTER, **fields)
    return event


def rebalanced(max_moves: int = MOVES_MAX) -> Event:
    return asked(ClusterRebalance, max_moves=max_moves)
