"""What one looks at of a cluster from outside: a few numbers, made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import add, sub

from spu_assigner.core.state.cluster_state import ClusterState


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The numbers of one cluster, or of several together."""

    ring: int = 0  # SPUs that may take new replicas
    saturated: int = 0  # online SPUs without a free slot that are not cordoned
    offline: int = 0  # SPUs that are known and not online; leaving ones too
    capacity: int = 0  # replica slots of the online SPUs
    used: int = 0  # replicas on the online SPUs
    replicas: int = 0  # on all SPUs
    partitions: int = 0  # that have a replica list
    topics: int = 0
    waiting: int = 0  # creates and repairs for which there is no room yet
    cordoned: int = 0  # online SPUs that take no new replicas until they are uncordoned
    demoted: int = 0  # SPUs that lead nothing where another can

    def __add__(self, other: Figures) -> Figures:
        return self._with(other, add)

    def __sub__(self, other: Figures) -> Figures:
        return self._with(other, sub)

    def _with(self, other: Figures, combined: Callable[[int, int], int]) -> Figures:
        return Figures(
            **{name: combined(getattr(self, name), getattr(other, name)) for name in self.__slots__}
        )

    @property
    def share(self) -> float:
        """How much of the online SPUs' capacity is used; 0 where there is none."""
        return self.used / self.capacity if self.capacity else 0.0


def figures_of(state: ClusterState) -> Figures:
    """The cluster's numbers now. O(SPUs), besides counting the maps whose count was put off."""
    total = state.ledger.totals()
    return Figures(
        ring=total.online - total.cordoned - total.saturated,
        saturated=total.saturated,
        offline=len(state.spus) - total.online,
        capacity=total.capacity,
        used=total.used,
        replicas=total.replicas,
        partitions=total.leaders,
        topics=len(state.topics),
        waiting=len(state.waiting),
        cordoned=total.cordoned,
        demoted=len(state.demoted),
    )
