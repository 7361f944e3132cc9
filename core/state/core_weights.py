"""Core weights, `redpanda`'s: how many replicas of its topics each core of an SPU holds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.limits import REDPANDA_CORE0_WEIGHT
from spu_assigner.core.base.replica_lists import PADDING, IdMatrix, tally

HeldByCores = dict[tuple[SpuId, int], int]  # replicas of one topic, by (SPU, core)


def held_by_cores(replicas: IdMatrix, cores: IdMatrix) -> HeldByCores:
    """How many replicas of a map each core holds, in ascending order; both padded alike."""
    there = replicas != PADDING
    width = int(cores.max(initial=0)) + 1
    keys, counts = tally(replicas[there].astype(np.int64) * width + cores[there])
    return {
        (SpuId(key // width), key % width): count for key, count in zip(keys, counts, strict=True)
    }


def weights_after(
    weights: Mapping[SpuId, list[int]],
    before: HeldByCores,
    after: HeldByCores,
) -> dict[SpuId, list[int]]:
    """The core weights of the SPUs for which the replicas held by cores change.

    A replica on a core that was taken away is taken off the core with the most weight above its
    base.
    """
    changed: dict[SpuId, list[int]] = {}
    for (spu_id, core), count in before.items():
        less = count - after.get((spu_id, core), 0)
        if less <= 0:
            continue
        of_host = changed.setdefault(spu_id, list(weights[spu_id]))
        if core < len(of_host) and of_host[core] - less >= _base_weight(core):
            of_host[core] -= less
            continue
        for _ in range(less):
            above = [weight - _base_weight(number) for number, weight in enumerate(of_host)]
            of_host[above.index(max(above))] -= 1
    for (spu_id, core), count in after.items():
        more = count - before.get((spu_id, core), 0)
        if more > 0:
            changed.setdefault(spu_id, list(weights[spu_id]))[core] += more
    return changed


def _base_weight(core: int) -> int:
    return REDPANDA_CORE0_WEIGHT if core == 0 else 0
