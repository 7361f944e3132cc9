"""What SPUs hold of what they can: slots, and the resources that a topic's demand is weighed by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.resources import Need, dominant_share
from spu_assigner.core.state.cluster_state import ClusterState

NAMED_MAX: Final = 10  # SPUs in a line


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountHeld:
    """What is used of a resource on an SPU."""

    resource: str
    """Its name."""
    used: int
    """By the replicas that are there."""
    capacity: int
    """What the SPU has of it."""
    needed: int
    """By the replica of the list on this SPU; else by one that does not lead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What an SPU holds of what it can."""

    spu_id: int
    count: int
    """Replicas."""
    capacity: int
    """Replica slots."""
    amounts: tuple[AmountHeld, ...] = ()
    """Each resource that there is, where the topic has a demand."""

    def dominant(self, *, replicas: int = 0) -> tuple[float, AmountHeld | None]:
        """The dominant share, with so many more of these replicas, and of what; None: of slots."""
        used = [(x.resource, x.used + replicas * x.needed, x.capacity) for x in self.amounts]
        share, name = dominant_share([(None, self.count + replicas, self.capacity), *used])
        return share, next((each for each in self.amounts if each.resource == name), None)


def load_of(state: ClusterState, spu_id: int, need: Need | None, *, leads: bool) -> Load:
    """What an SPU holds in the state, and what a replica of such a topic needs of it."""
    spu = state.spus[SpuId(spu_id)]
    amounts: tuple[AmountHeld, ...] = ()
    if need is not None:
        needed = {name: each[leads] for name, *each in need.by_name()}
        has, used = dict(spu.resources), state.resource_use.of(spu_id)
        amounts = tuple(
            AmountHeld(
                resource=name,
                used=used.get(name, 0),
                capacity=has.get(name, 0),
                needed=needed.get(name, 0),
            )
            for name in sorted({*has, *used, *needed})
        )
    count = state.ledger.count(SpuId(spu_id))
    return Load(spu_id=spu_id, count=count, capacity=spu.capacity, amounts=amounts)


def describe_room(state: ClusterState, need: Need) -> Iterator[str]:
    """Which SPUs of the ring have too little left for a follower of a topic, by resource."""
    ids = state.ring.ids
    for name, follower, _ in need.by_name():
        (used,) = state.resource_use.of_each(ids, (name,))
        has = [dict(state.spus[SpuId(each)].resources).get(name, 0) for each in ids.tolist()]
        short = ids[np.array(has) - used < follower].tolist()
        if short:
            more = ", …" if len(short) > NAMED_MAX else ""
            yield f"demand of {name}: excludes SPU {', '.join(map(str, short[:NAMED_MAX]))}{more}"
