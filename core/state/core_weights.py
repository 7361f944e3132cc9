"""Core weights, `redpanda`'s: how many replicas of its topics each core of an SPU holds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.replica_lists import PADDING, IdMatrix, ReplicaLists, tally
from spu_assigner.core.rules import redpanda

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
    weights: Mapping[SpuId, list[int]], before: HeldByCores, after: HeldByCores
) -> dict[SpuId, list[int]]:
    """The core weights of the SPUs for which the replicas held by cores change.

    One on a core that is gone goes off the core with the most weight above its base.
    """
    changed: dict[SpuId, list[int]] = {}
    for (spu_id, core), count in before.items():
        less = count - after.get((spu_id, core), 0)
        if less <= 0:
            continue
        of_host = changed.setdefault(spu_id, list(weights[spu_id]))
        base = redpanda.initial_weights(len(of_host))
        if core < len(of_host) and of_host[core] - less >= base[core]:
            of_host[core] -= less
            continue
        for _ in range(less):
            above = [weight - least for weight, least in zip(of_host, base, strict=True)]
            of_host[above.index(max(above))] -= 1
    for (spu_id, core), count in after.items():
        more = count - before.get((spu_id, core), 0)
        if more > 0:
            changed.setdefault(spu_id, list(weights[spu_id]))[core] += more
    return changed


def first_cores(core_weights: Mapping[SpuId, list[int]], replicas: ReplicaLists) -> ReplicaLists:
    """On each SPU the first core of least weight, replica after replica."""
    hosts, counts = tally(replicas.matrix)
    weights = [core_weights[SpuId(spu_id)] for spu_id in hosts]
    if max(map(len, weights), default=1) == 1:
        return ReplicaLists(np.zeros_like(replicas.matrix))
    cores = map(iter, map(redpanda.take_cores, weights, counts))
    taken = dict(zip(hosts, cores, strict=True))
    rows = [[next(taken[spu_id]) for spu_id in row] for row in replicas.tolist()]
    return ReplicaLists.of_lists(rows)


def first_core(
    weights: Mapping[SpuId, list[int]], scratch: dict[SpuId, list[int]], spu_id: SpuId
) -> int:
    """The first core of least weight of an SPU; it is counted in `scratch`, a copy of its own."""
    of_host = scratch.setdefault(spu_id, list(weights[spu_id]))
    core = of_host.index(min(of_host))
    of_host[core] += 1
    return core
