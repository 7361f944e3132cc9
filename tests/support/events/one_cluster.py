"""A cluster whose life is given event by event: each call gives the answers to its event."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Event, LeaveMode, OnShortage, Policy
from spu_assigner.core.base.records import ReplicaMap, RingChange, RingEvent, Status, TopicStatus
from spu_assigner.core.decision.answers import answers
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState
from support.events.builders import Events

Answer = ReplicaMap | TopicStatus | RingEvent


class OneCluster:
    """The cluster c1, from its first events on."""

    def __init__(self, *first: Event) -> None:
        self.state = ClusterState("c1")
        self.build = Events(first=1000)
        for event in first:
            self.apply(event)

    def apply(self, event: Event) -> list[Answer]:
        return list(answers(step(self.state, event, default_policy=Policy.FLUVIO)))

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

    def rebalance(self, max_moves: int = 10_000, **given: Any) -> TopicStatus:
        """Ask for a rebalance, and give its answer."""
        found = self.apply(self.build.rebalance(max_moves, **given))
        return next(each for each in found if isinstance(each, TopicStatus))

    def lists(self, topic: str) -> list[list[int]]:
        return self.state.topics[topic].replicas.lists().tolist()

    def held(self, spu_id: int) -> int:
        """Replicas on an SPU."""
        return self.state.ledger.count(spu_id)


def ring_changes(found: Iterable[object]) -> list[tuple[int, RingChange, int]]:
    """SPU, change and the ring's size after it."""
    return [
        (each.spu_id, each.change, each.ring_size) for each in found if isinstance(each, RingEvent)
    ]


def statuses(found: Iterable[object]) -> list[tuple[str, Status, Code | None, str]]:
    """Topic, answer, code and cause."""
    return [
        (each.topic, each.status, each.code, each.cause)
        for each in found
        if isinstance(each, TopicStatus)
    ]
