"""`kraft`: whole requests placed by Kafka's stripes, on SPUs that may fill up on the way.

Beside the ring those SPUs are asked that are offline and could take replicas again: Kafka's fenced
brokers. The chain is that of the alternation over racks; its index is part of the seed.

Kafka knows no capacity. Where an SPU becomes saturated, the partitions after it are placed as Kafka
places those of a request of its own, without that SPU; what is drawn goes on.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from spu_assigner.core.base.limits import LOOKS_EACH, PLACING_LOOKS_MAX
from spu_assigner.core.base.replica_lists import IdMatrix
from spu_assigner.core.policies.cursor import ShortRingError, too_many_looks
from spu_assigner.core.rules.kraft import SeededDraws, Stripes
from spu_assigner.core.rules.rendezvous import text_hash
from spu_assigner.core.state.cluster_state import ClusterState


def offline_spus(state: ClusterState, *, ignore_rack: bool) -> dict[int, str]:
    """The SPUs that are offline, neither leaving nor closed nor full, each with its rack."""
    return {
        int(spu_id): "" if ignore_rack else spu.rack or ""
        for spu_id, spu in sorted(state.spus.items())
        if not (spu.online or spu.leaving or spu.is_closed)
        and state.ledger.count(spu_id) < spu.capacity
    }


def free_slots(state: ClusterState, offline: dict[int, str], partitions: int) -> dict[int, int]:
    """The free slots of each SPU that so many partitions may saturate."""
    ids = [*offline]
    if state.ledger.free_floor(partitions) <= partitions:
        ids += state.ring.ids.tolist()
    free: list[int] = state.ledger.free(np.array(ids, dtype=np.int32)).tolist()
    return dict(zip(ids, free, strict=True))


def stripes_seed(cluster_id: str, topic: str, index: int) -> int:
    """What the draws of a request begin with: 64 bits, the same for ever and everywhere."""
    return text_hash(f"{cluster_id}/{topic}/{index}")


def place_striped(
    online: Mapping[int, str],
    offline: Mapping[int, str],
    *,
    seed: int,
    partitions: int,
    replicas: int,
    free: Mapping[int, int],
) -> tuple[IdMatrix, list[int]]:
    """Place a request on SPUs, each given with its rack.

    `free` has the free slots of each SPU that may become saturated.

    Returns:
        The lists, and the SPUs that became saturated, offline ones too, ascending.

    Cost: O(partitions * replicas), and O(SPUs) for each SPU that becomes saturated and each of
    Kafka's shuffles.

    Raises:
        ShortRingError: too few SPUs, or none that is online, at first or on the way.
        Rejection: too many SPUs become saturated, or few of many are online.
    """
    leaders, others, left = dict(online), dict(offline), dict(free)
    draws = SeededDraws(seed)
    stripes: Stripes | None = None
    rows: list[list[int]] = []
    looks = looks_of_row = 0
    while len(rows) < partitions:
        if looks > PLACING_LOOKS_MAX:
            raise too_many_looks(done=len(rows), partitions=partitions)
        if stripes is None:
            found = len(leaders) + len(others) if leaders else 0
            if found < replicas:
                raise ShortRingError(partition=len(rows), needed=replicas, found=found)
            stripes = Stripes(leaders, others, draws)
            looks += found * LOOKS_EACH
            looks_of_row = found * LOOKS_EACH // len(leaders)
        looks += looks_of_row
        row = stripes.next(replicas)
        rows.append(row)
        for spu_id in row:
            if spu_id in left:
                left[spu_id] -= 1
        full = sorted(spu_id for spu_id in row if left.get(spu_id) == 0)
        if full:
            leaders = {spu_id: rack for spu_id, rack in leaders.items() if spu_id not in full}
            others = {spu_id: rack for spu_id, rack in others.items() if spu_id not in full}
            stripes = None
    filled = sorted(spu_id for spu_id, slots in left.items() if slots == 0)
    return np.array(rows, dtype=np.int32), filled
