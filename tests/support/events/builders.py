"""Events that take only what matters in a test; ids are e1, e2, … in the order of building."""

from __future__ import annotations

from itertools import count
from typing import Any

from spu_assigner.core.base.constraints import NO_CONSTRAINTS, Constraints
from spu_assigner.core.base.events import (
    ClusterRebalance,
    Event,
    SpuCordon,
    SpuDemote,
    SpuJoined,
    SpuLeft,
    SpuUncordon,
    SpuUndemote,
    TopicAdopted,
    TopicConstraints,
    TopicCreate,
    TopicDelete,
    TopicDemand,
    TopicGrow,
    TopicRelease,
    TopicReplication,
)


class Events:
    """Builds events of one cluster: `Events().join(0, rack="a")`, `.create("t", 3, 2)`."""

    def __init__(self, cluster_id: str = "c1", *, first: int = 1) -> None:
        self._cluster_id = cluster_id
        self._numbers = count(first)

    def join(self, spu_id: int = 0, **given: Any) -> SpuJoined:
        return SpuJoined(**self._common(given), spu_id=spu_id, **given)

    def leave(self, spu_id: int = 0, **given: Any) -> SpuLeft:
        return SpuLeft(**self._common(given), spu_id=spu_id, **given)

    def cordon(self, spu_id: int = 0, **given: Any) -> SpuCordon:
        return SpuCordon(**self._common(given), spu_id=spu_id)

    def uncordon(self, spu_id: int = 0, **given: Any) -> SpuUncordon:
        return SpuUncordon(**self._common(given), spu_id=spu_id)

    def demote(self, spu_id: int = 0, **given: Any) -> SpuDemote:
        return SpuDemote(**self._common(given), spu_id=spu_id)

    def undemote(self, spu_id: int = 0, **given: Any) -> SpuUndemote:
        return SpuUndemote(**self._common(given), spu_id=spu_id)

    def create(
        self, topic: str = "t", partitions: int = 1, replication_factor: int = 1, **given: Any
    ) -> TopicCreate:
        return TopicCreate(
            **self._common(given),
            topic=topic,
            partitions=partitions,
            replication_factor=replication_factor,
            **given,
        )

    def manual(self, topic: str = "t", *lists: list[int], **given: Any) -> TopicCreate:
        replicas = [{"id": i, "replicas": ids} for i, ids in enumerate(lists)]
        return TopicCreate(**self._common(given), topic=topic, replicas=replicas, **given)

    def delete(self, topic: str = "t", **given: Any) -> TopicDelete:
        return TopicDelete(**self._common(given), topic=topic, **given)

    def release(self, topic: str = "t", **given: Any) -> TopicRelease:
        return TopicRelease(**self._common(given), topic=topic, **given)

    def adopt(self, topic: str = "t", *lists: list[int], **given: Any) -> TopicAdopted:
        replicas = tuple(map(tuple, lists))
        return TopicAdopted(**self._common(given), topic=topic, replicas=replicas, **given)

    def grow(self, topic: str = "t", partitions: int = 2, **given: Any) -> TopicGrow:
        return TopicGrow(**self._common(given), topic=topic, partitions=partitions, **given)

    def demand(self, topic: str = "t", **given: Any) -> TopicDemand:
        return TopicDemand(**self._common(given), topic=topic, **given)

    def constraints(
        self, topic: str = "t", constraints: Constraints = NO_CONSTRAINTS, **given: Any
    ) -> TopicConstraints:
        return TopicConstraints(
            **self._common(given), topic=topic, constraints=constraints, **given
        )

    def replication(
        self, topic: str = "t", replication_factor: int = 2, **given: Any
    ) -> TopicReplication:
        return TopicReplication(
            **self._common(given), topic=topic, replication_factor=replication_factor, **given
        )

    def rebalance(self, max_moves: int = 100, **given: Any) -> ClusterRebalance:
        return ClusterRebalance(**self._common(given), max_moves=max_moves, **given)

    def joins(self, *spu_ids: int, **given: Any) -> list[Event]:
        return [self.join(spu_id, **given) for spu_id in spu_ids]

    def racks(self, racks: dict[str, list[int]], **given: Any) -> list[Event]:
        """A join for each SPU, by rack as given."""
        return [self.join(i, rack=rack, **given) for rack, ids in racks.items() for i in ids]

    def _common(self, given: dict[str, Any]) -> dict[str, Any]:
        """Takes the common fields out of what is given."""
        return {
            "event_id": given.pop("event_id", None) or f"e{next(self._numbers)}",
            "cluster_id": given.pop("cluster_id", self._cluster_id),
            "occurred_at": given.pop("occurred_at", None),
        }
