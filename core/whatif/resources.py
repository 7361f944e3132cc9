"""What SPUs have of resources beside replica slots, and what a failure makes of it.

A failover moves no replica, but who leads may need more than who follows: the new leaders take
that much more of their SPUs. If the failure lasts, what the failed SPUs held is needed elsewhere.

Amounts are whole numbers in floating point: exact below 2**53, which is more than any SPU has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.replica_lists import IdArray
from spu_assigner.core.base.resources import Amounts, Need

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLayout:
    """What there is and what topics need; the first axis is that of the names."""

    names: tuple[str, ...]
    """Of the resources."""
    capacities: FloatArray
    """What each SPU has."""
    follower: FloatArray
    """What a replica of each topic needs that does not lead."""
    lead: FloatArray
    """What its leader needs beyond that; below 0 where it needs less."""
    topic_of: IdArray
    """The topic of each row of `ClusterLayout.live`."""

    @property
    def usual(self) -> tuple[float, ...]:
        """What most SPUs have, of each name; the larger of equally frequent kinds."""
        kinds, counts = np.unique(self.capacities.T, axis=0, return_counts=True)
        return tuple(kinds[np.flatnonzero(counts == counts.max())[-1]].tolist())

    def add(self, used: FloatArray, amounts: FloatArray, rows: IdArray, spus: IdArray) -> None:
        """Add to what SPUs use, for each row what its topic has of the amounts."""
        for row, of_topics in enumerate(amounts):
            if of_topics.any():
                weights = of_topics[self.topic_of[rows]]
                used[row] += np.bincount(spus, weights=weights, minlength=used.shape[1])

    def over(self, before: FloatArray, after: FloatArray) -> NDArray[np.bool_]:
        """Of which names SPUs use more than they have, and more than before."""
        return np.asarray(after > np.maximum(self.capacities, before))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceOutcome:
    """What a failure makes of resources; by name."""

    used: FloatArray
    """What each SPU uses after the failover; of failed ones what it was."""
    over: NDArray[np.bool_]
    """Of each other SPU whether the failover puts it over its capacity."""
    needed: FloatArray
    """What it takes to re-create what failed, and to relieve SPUs that are over."""
    free: FloatArray
    """What the SPUs that take new replicas have left."""

    @property
    def over_capacity(self) -> int:
        """How many SPUs the failover puts over capacity."""
        return int(self.over.any(axis=0).sum())


def resource_layout(
    spus: Sequence[Amounts], needs: Sequence[Need | None], sizes: Sequence[int]
) -> ResourceLayout | None:
    """Of what each SPU has, and of what topics with so many partitions need.

    None: no topic needs anything.
    """
    by_name = [() if need is None else need.by_name() for need in needs]
    names = tuple(sorted({name for each in by_name for name, *_ in each}))
    if not names:
        return None
    number_of = {name: number for number, name in enumerate(names)}
    follower, lead = np.zeros((2, len(names), len(needs)))
    for topic, each in enumerate(by_name):
        for name, as_follower, as_leader in each:
            follower[number_of[name], topic] = as_follower
            lead[number_of[name], topic] = as_leader - as_follower
    capacities = np.zeros((len(names), len(spus)))
    for number, amounts in enumerate(spus):
        for name, amount in amounts:
            if name in number_of:
                capacities[number_of[name], number] = amount
    return ResourceLayout(
        names=names,
        capacities=capacities,
        follower=follower,
        lead=lead,
        topic_of=np.repeat(np.arange(len(needs), dtype=np.int32), sizes),
    )
