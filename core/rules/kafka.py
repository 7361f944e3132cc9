"""Kafka's rules: followers behind a shift that rises with each turn; over racks if there are any.

Five SPUs 0 … 4 without racks, three replicas, start 0, shift 0: rows 0 … 5 are [0, 1, 2],
[1, 2, 3], [2, 3, 4], [3, 4, 0], [4, 0, 1], [0, 2, 3].

Racks rack1: 0, 5, rack2: 3, 4, rack3: 1, 2: the list that alternates is 0 3 1 5 4 2, and rows
0 … 2 of three replicas are [0, 3, 1], [3, 1, 5], [1, 5, 4] (Kafka's AdminRackAwareTest).

Source: Kafka 4.0.0, AdminUtils.assignReplicasToBrokers and getRackAlternatedBrokerList.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import gcd
from operator import or_

import numpy as np
from spu_assigner.core.base.replica_lists import IdArray, IdMatrix
from spu_assigner.core.rules.turning import ids_by_rack, turn_rows


def shifted(ring: IdArray, *, start: int, shift: int, partitions: int, replicas: int) -> IdMatrix:
    """Place leaders in turn, followers behind a shift that rises by one with each turn of the ring.

    Period: N * (N - 1). Cost: as `round_robin`.
    """
    followers = [(1, shift + follower) for follower in range(replicas - 1)]
    return turn_rows(ring, start, partitions, followers, max(1, len(ring) - 1))


def shifted_over_racks(
    ring: IdArray, *, racks: IdArray, start: int, shift: int, partitions: int, replicas: int
) -> IdMatrix:
    """Place leaders in turn; followers walk on from the leader, over racks not used while any is.

    `ring` is the list that `alternation` gives; `racks` numbers the rack of each from 0. Period:
    N * (N - 1), or a divisor of it. Cost: O(partitions * replicas**2), however uneven the racks.
    """
    size = len(ring)
    if size == 1:
        return np.full((partitions, 1), ring[0], dtype=np.int32)
    rack_count = int(np.count_nonzero(np.bincount(racks)))
    steps = size - 1  # the walk passes every SPU but the leader, then begins again
    rows = min(partitions, size * (steps // gcd(rack_count, steps)))
    turn, position = divmod(start, size)
    turns = -(-(position + rows) // size)
    offset_of_turn = np.array(
        [(shift + turn + later) * rack_count % steps for later in range(turns)], dtype=np.int32
    )
    nearest = _nearest_racks(racks.tolist(), min(replicas, rack_count))
    leaders = np.arange(position, position + rows, dtype=np.int32)
    turns_done = leaders // np.int32(size)
    first = leaders - turns_done * np.int32(size)
    places = _walk(nearest, racks, first, offset_of_turn[turns_done], replicas)
    return np.resize(np.stack([*map(ring.take, places)], axis=1), (partitions, replicas))


def alternation(ids: Sequence[int], racks: Sequence[str]) -> list[int]:
    """Order SPUs by taking one of each rack in turn, racks by name, ids ascending in a rack."""
    placed = [
        (cell, rack, spu_id)
        for rack, row in ids_by_rack(ids, racks).items()
        for cell, spu_id in enumerate(row)
    ]
    return [spu_id for _, _, spu_id in sorted(placed)]


def _walk(
    nearest: list[IdArray], racks: IdArray, first: IdArray, offset: IdArray, replicas: int
) -> list[IdArray]:
    """One replica of all rows at a time: a column of positions for each.

    `first` has where the leader of each row stands, `offset` how far from it its walk begins: from
    first + 1 to first + N - 1 and on from first + 1.
    """
    size, rack_count = np.int32(len(racks)), len(nearest)
    last = first + size - 1
    place = first + offset + np.int32(1)
    places = [first]
    keys = np.tile(racks, 3)  # of each place; no row may have one twice
    used = [keys[first]]
    for replica in range(1, replicas):
        if replica == rack_count:  # All racks are used: from here on SPUs alone must differ.
            keys, used = np.tile(np.arange(size, dtype=np.int32), 3), [*places]
            nearest = [
                np.arange(depth, depth + 2 * size, dtype=np.int32) for depth in range(replicas)
            ]
        found = _seek(nearest, keys, place, used)
        beyond = np.flatnonzero(found > last)
        if beyond.size:  # The rest of the walk has none: on from its beginning.
            used_there = [column[beyond] for column in used]
            found[beyond] = _seek(nearest, keys, first[beyond] + 1, used_there)
        used.append(keys[found])
        places.append(np.where(found < size, found, found - size))
        place = np.where(found == last, first, found) + np.int32(1)
    return places


def _nearest_racks(racks: list[int], depth: int) -> list[IdArray]:
    """At [t][place], t < depth, place < 2N: where the (t + 1)th rack is met on the way on."""
    size = len(racks)
    # Places from one on, each of another rack, the nearest first.
    met = [size + racks.index(rack) for rack in [*dict.fromkeys(racks)][:depth]]
    rows = []
    for place in range(size - 1, -1, -1):
        rack = racks[place]
        met = [place, *[other for other in met if racks[other % size] != rack]][:depth]
        rows.append(met)
    once = np.array(rows[::-1], dtype=np.int32).T
    return list(np.concatenate((once, once + np.int32(size)), axis=1))


def _seek(nearest: list[IdArray], keys: IdArray, place: IdArray, used: list[IdArray]) -> IdArray:
    """The first place from each `place` on with a key not used; it may lie behind the walk."""
    found = place.copy()
    depth, keys_now = 0, keys[found]
    unfit = np.flatnonzero(reduce(or_, (keys_now == column for column in used)))
    while unfit.size:  # Of one key more than are used, one is new.
        depth += 1
        found[unfit] = nearest[depth][place[unfit]]
        keys_now = keys[found[unfit]]
        unfit = unfit[reduce(or_, [keys_now == column[unfit] for column in used])]
    return found
