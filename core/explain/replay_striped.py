"""A placement of the policy `kraft`, computed again: Kafka's stripes with the same draws.

Offline SPUs draw too, so who was offline then must be known. The state before the step says it, or
the ring events, where they name all that were not in the ring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from spu_assigner.core.base.records import ReplicaMap, RingChange
from spu_assigner.core.explain.replay_placement import (
    Taken,
    filled_before,
    leaders_passed,
    led_by_another,
    recorded,
    should_not_be,
)
from spu_assigner.core.explain.ring_history import Passed, RingGroup
from spu_assigner.core.policies.planner import ShortRingError
from spu_assigner.core.policies.striped import place_striped, stripes_seed
from spu_assigner.core.state.ring import Ring


@dataclass(frozen=True, slots=True, kw_only=True)
class StripeStep:
    """With which draws a list was found, and on what ring."""

    ring_size: int
    """Of the ring when this partition's turn came."""
    index: int
    """Of the chain, at the step's first partition: part of the seed."""
    filled: tuple[Passed, ...] = ()
    """SPUs that left the ring earlier in the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StripedStep:
    """A step that was placed again, with the recorded lists."""

    index: int
    ring: Mapping[int, str]  # its members with their racks
    offline: Mapping[int, str]  # likewise those that were offline
    leaves: Mapping[int, int]  # who became saturated, with the list that took the last slot
    swaps: Mapping[int, int]  # lists that a demoted SPU would lead, and its place in them


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineThen:
    """What is known of the SPUs that were offline before a step."""

    racks: Mapping[int, str]
    free: Mapping[int, int] | None  # the free slots of all SPUs; None: not known


def replay_striped(
    replica_map: ReplicaMap,
    ring: Ring,
    group: RingGroup | None,
    *,
    offline: OfflineThen | None,
    demoted: Set[int],
) -> StripedStep | str:
    """Place the step of a `kraft` map again, or say why the recorded lists did not come out.

    Args:
        replica_map: with a reason whose mode is `STRIPED`.
        ring: before the step.
        group: the ring events of the same event; None: it had none, or they are not retained.
        offline: before the step; None: not known.
        demoted: who was perhaps demoted then.
    """
    if offline is None:
        return "which SPUs were offline then is not known, and the draws depend on it"
    reason, rows = recorded(replica_map)
    events = () if group is None else group.events
    filled = {
        event.spu_id
        for event in events
        if event.change is RingChange.SATURATED and event.cause == replica_map.cause
    }
    free = offline.free
    if free is None:
        free = {i: count for i, count in Counter(rows.ravel().tolist()).items() if i in filled}
    index = reason.start_index or 0
    members = ring.racks_of_members(ignore_rack=replica_map.ignore_rack)
    try:
        plan = place_striped(
            members,
            offline.racks,
            seed=stripes_seed(replica_map.cluster_id, replica_map.topic, index),
            partitions=len(rows),
            replicas=rows.shape[1],
            free=free,
        )
    except ShortRingError:
        swaps = None
    else:
        swaps = leaders_passed(plan.matrix, rows, demoted)
    if swaps is None and offline.free is not None:
        return should_not_be(reason, rows)
    if swaps is None:
        return (
            "placed again on the ring of then, other lists come out than the recorded: SPUs may "
            "have become saturated on the way, or offline ones were full or cordoned"
        )
    return StripedStep(
        index=index,
        ring=members,
        offline=offline.racks,
        leaves={spu_id: int(np.flatnonzero((rows == spu_id).any(axis=1))[-1]) for spu_id in filled},
        swaps=swaps,
    )


def explain_striped(
    step: StripedStep, partition: int, row: Sequence[int]
) -> tuple[StripeStep, tuple[Taken, ...]]:
    """One list of a step; `partition` counts from 0 at the step's first."""
    gone = sorted(spu_id for spu_id, last in step.leaves.items() if last < partition)
    swap = step.swaps.get(partition, 0)
    placed = list(row)
    placed[0], placed[swap] = placed[swap], placed[0]
    has_racks = any(step.ring.values()) or any(step.offline.values())
    racks = {**step.ring, **step.offline}
    taken = [
        Taken(
            spu_id=spu_id,
            rack=racks[spu_id] if has_racks else None,
            is_offline=spu_id in step.offline,
        )
        for spu_id in placed
    ]
    found = StripeStep(
        ring_size=len(step.ring) - len(gone), index=step.index, filled=filled_before(gone)
    )
    return found, led_by_another(taken, swap)
