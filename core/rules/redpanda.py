"""Redpanda's rules: one pointer over the SPUs in order of registration, the least loaded core.

Three SPUs 0 … 2, two replicas: rows 0 … 2 are [0, 1], [2, 0], [1, 2]. An SPU of three cores starts
with the weights 2, 0, 0, so its first eight replicas take the cores 1, 2, 1, 2, 0, 1, 2, 0.

Source: Redpanda's RFC 20191020_partition_allocator, allocation_node::allocate, core0_extra_weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace

import numpy as np
from spu_assigner.core.base.limits import REDPANDA_CORE0_WEIGHT
from spu_assigner.core.base.replica_lists import IdArray, IdMatrix


def pointed(ring: IdArray, *, start: int, partitions: int, replicas: int) -> IdMatrix:
    """Place replica after replica on the next SPU; `start` counts replicas, not partitions.

    Period: N replicas. Cost: O(partitions * replicas).
    """
    first = start % len(ring)
    at = np.arange(first, first + partitions * replicas) % len(ring)
    return ring[at].reshape(partitions, replicas)


def initial_weights(cores: int) -> list[int]:
    """Weights of the cores of an SPU that holds nothing yet."""
    return [REDPANDA_CORE0_WEIGHT] + [0] * (cores - 1)


def take_cores(weights: Sequence[int], count: int) -> list[int]:
    """Cores for `count` replicas in order: each time the first core of least weight, plus one."""
    heap = [(weight, core) for core, weight in enumerate(weights)]
    heapify(heap)
    taken: list[int] = []
    for _ in range(count):
        weight, core = heap[0]
        taken.append(core)
        heapreplace(heap, (weight + 1, core))
    return taken


def shrink_weights(weights: Sequence[int], cores: int) -> list[int]:
    """Weights after the number of cores changed: new ones start at 0, and each that is gone, in
    order, hands its whole weight to the least loaded that remains, the lowest on a tie."""
    kept = [*weights[:cores], *[0] * (cores - len(weights))]
    for weight in weights[cores:]:
        kept[kept.index(min(kept))] += weight
    return kept
