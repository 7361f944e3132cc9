"""The numbers of a cluster that metrics show, made when they are asked for."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from operator import add, sub

from spu_assigner.core.state.cluster_state import ClusterState


@dataclass(frozen=True, slots=True)
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
        return Figures(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: Figures) -> Figures:
        return Figures(*map(sub, astuple(self), astuple(other)))

    @property
    def share(self) -> float:
        """How much of the online SPUs' capacity is used; 0 where there is none."""
        return self.used / self.capacity if self.capacity else 0.0


def figures_of(state: ClusterState) -> Figures:
    """The cluster's numbers now. O(SPUs), besides counting the maps whose count was put off."""
    capacity, used, replicas, partitions = state.ledger.totals()
    return Figures(
        ring=state.ring.size,
        saturated=state.saturated_count,
        offline=len(state.spus) - state.online_count,
        capacity=capacity,
        used=used,
        replicas=replicas,
        partitions=partitions,
        topics=len(state.topics),
        waiting=len(state.waiting),
        cordoned=state.closed_count,
        demoted=len(state.demoted),
    )
