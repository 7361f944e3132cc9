"""A cluster whose life is given event by event: each call gives the answers to its event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Event, LeaveMode, OnShortage, Policy
from spu_assigner.core.base.records import (
    Order,
    ReplicaMap,
    RingChange,
    RingEvent,
    Status,
    TopicStatus,
)
from spu_assigner.core.decision.answers import answers
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState
from support.events.builders import Events

Answer = ReplicaMap | TopicStatus | RingEvent


class OneCluster:
    def __init__(self, *first: Event, default: Policy = Policy.FLUVIO) -> None:
        self.state = ClusterState("c1")
        self.build = Events(first=1000)
        self.default = default
        for event in first:
            self.apply(event)

    @classmethod
    def on_racks(cls, racks: str, *lists: list[int], **given: Any) -> Self:
        """SPUs 0, 1, … on these racks, a letter each, and a topic."""
        life = cls()
        for spu_id, rack in enumerate(racks):
            life.join(spu_id, rack=rack, **given)
        if lists:
            life.adopt("t", *lists)
        return life

    def apply(self, event: Event) -> list[Answer]:
        return list(answers(step(self.state, event, default_policy=self.default)))

    def join(self, *spu_ids: int, **given: Any) -> list[Answer]:
        return [each for i in spu_ids for each in self.apply(self.build.join(i, **given))]

    def leave(self, spu_id: int, mode: LeaveMode = LeaveMode.OFFLINE) -> list[Answer]:
        return self.apply(self.build.leave(spu_id, mode=mode))

    def cordon(self, spu_id: int) -> list[Answer]:
        return self.apply(self.build.cordon(spu_id))

    def uncordon(self, spu_id: int) -> list[Answer]:
        return self.apply(self.build.uncordon(spu_id))

    def demote(self, spu_id: int) -> list[Answer]:
        return self.apply(self.build.demote(spu_id))

    def undemote(self, spu_id: int) -> list[Answer]:
        return self.apply(self.build.undemote(spu_id))

    def create(self, topic: str, partitions: int, replicas: int, **given: Any) -> list[Answer]:
        return self.apply(self.build.create(topic, partitions, replicas, **given))

    def wait(self, topic: str, partitions: int, replicas: int, **given: Any) -> list[Answer]:
        return self.create(topic, partitions, replicas, on_shortage=OnShortage.WAIT, **given)

    def manual(self, topic: str, *lists: list[int]) -> list[Answer]:
        return self.apply(self.build.manual(topic, *lists))

    def adopt(
        self, topic: str, *lists: list[int], rules: Constraints | None = None, **given: Any
    ) -> list[Answer]:
        """As `balanced` would have placed it, then its rules."""
        found = self.apply(self.build.adopt(topic, *lists, **{"policy": Policy.BALANCED, **given}))
        if rules is not None:
            found += self.apply(self.build.constraints(topic, rules))
        return found

    def rebalance(self, max_moves: int = 10_000, **given: Any) -> TopicStatus:
        """Ask for a rebalance, and give its answer."""
        return the_status(self.apply(self.build.rebalance(max_moves, **given)))

    def kept(self) -> dict[str, Any]:
        """The state but for the events that it remembers, to compare two of them."""
        return picture(self.state) | {"seen": None}

    def lists(self, topic: str) -> list[list[int]]:
        return self.state.topics[topic].replicas.lists().tolist()

    def spus(self, topic: str) -> Counter[int]:
        return Counter(spu_id for row in self.lists(topic) for spu_id in row)

    def leads(self, topic: str) -> Counter[int]:
        return Counter(row[0] for row in self.lists(topic))

    def held(self, spu_id: int) -> int:
        return self.state.ledger.count(spu_id)


def the_status(found: Iterable[object]) -> TopicStatus:
    return next(each for each in found if isinstance(each, TopicStatus))


def the_map(found: Iterable[object]) -> ReplicaMap:
    [one] = [each for each in found if isinstance(each, ReplicaMap)]
    return one


def ring_changes(found: Iterable[object]) -> list[tuple[int, RingChange, int]]:
    """SPU, change and the ring's size after it."""
    return [
        (each.spu_id, each.change, each.ring_size) for each in found if isinstance(each, RingEvent)
    ]


def statuses(found: Iterable[object]) -> list[tuple[str, Status, Code | None, str]]:
    return [
        (each.topic, each.status, each.code, each.cause)
        for each in found
        if isinstance(each, TopicStatus)
    ]


def picture(state: ClusterState) -> dict[str, Any]:
    """Everything that a state holds, as plain comparable values."""
    return {
        "spus": {
            spu_id: (
                (spu.online, spu.leaving, spu.unreachable, spu.rack, spu.cores, spu.capacity),
                (spu.cordoned, spu.demoted),
                (spu.labels, spu.registration, spu.resources),
            )
            for spu_id, spu in sorted(state.spus.items())
        },
        "used": {
            spu_id: dict(sorted(state.ledger.used(spu_id).items())) for spu_id in sorted(state.spus)
        },
        "weights": {spu_id: spu.core_weights for spu_id, spu in sorted(state.spus.items())},
        "counts": [state.ledger.count(spu_id) for spu_id in sorted(state.spus)],
        "leaders": state.ledger.leaders(np.array(sorted(state.spus), dtype=np.int32)).tolist(),
        "leaving": sorted(state.leaving),
        "demoted": sorted(state.demoted),
        "waiting": (dict(sorted(state.waiting.items())), state.waiting_next()),
        "topics": dict(sorted(state.topics.items())),
        "chains": dict(state.chains),
        "indexes": [state.chain_index(order) for order in Order],
        "ring": [state.ring.order(order).tolist() for order in Order],
        "registration_next": state.registration_next,
        "retries": state.retries,
        "seen": ([state.memory.block(block) for block in range(16)], state.memory.count),
        "racks": (state.online_count, state.racked_count),
        "outside": state.ledger.outside_ring(),
    }
