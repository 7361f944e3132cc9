"""Core weights, `redpanda`'s: how many replicas of its topics each core of an SPU holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.records import ReplicaMap, SpuChanged
from spu_assigner.core.base.replica_lists import PADDING, IdMatrix, ReplicaLists, tally
from spu_assigner.core.rules import redpanda
from spu_assigner.core.state.topic import Topic

HeldByCores = dict[tuple[SpuId, int], int]  # replicas of one topic, by (SPU, core)


def held_by_cores(topic: Topic | None) -> HeldByCores:
    """How many replicas of a topic each core holds; nothing but for `redpanda`."""
    if topic is None or topic.cores is None:
        return {}
    return _held(topic.replicas.matrix(), topic.cores.matrix())


def _held(replicas: IdMatrix, cores: IdMatrix) -> HeldByCores:
    """In ascending order; both are padded alike."""
    there = replicas != PADDING
    width = int(cores.max(initial=0)) + 1
    keys, counts = tally(replicas[there].astype(np.int64) * width + cores[there])
    return {
        (SpuId(key // width), key % width): count for key, count in zip(keys, counts, strict=True)
    }


def weights_after(
    spus: Mapping[SpuId, SpuChanged], gone: Topic | None, given: ReplicaMap
) -> dict[SpuId, SpuChanged]:
    """The SPUs whose core weights change when a map follows on a topic, as they are then.

    A replica on a core that is gone goes off the core with the most weight above its base.
    """
    before, after = held_by_cores(gone), {}
    if given.replicas is not None and given.cores is not None:
        after = _held(given.replicas.matrix, given.cores.matrix)
    changed: dict[SpuId, list[int]] = {}
    for (spu_id, core), count in before.items():
        less = count - after.get((spu_id, core), 0)
        if less <= 0:
            continue
        of_host = changed.setdefault(spu_id, list(spus[spu_id].core_weights))
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
            changed.setdefault(spu_id, list(spus[spu_id].core_weights))[core] += more
    return {i: replace(spus[i], core_weights=tuple(weights)) for i, weights in changed.items()}


def cores_of(
    spus: Mapping[SpuId, SpuChanged], topic: Topic | None, replicas: ReplicaLists
) -> ReplicaLists:
    """The cores of the next lists of a topic: a replica that stays keeps its core, a new one takes
    the first of least weight, replica after replica."""
    hosts, _ = tally(replicas.flat())
    if topic is None and max(spus[SpuId(spu_id)].cores for spu_id in hosts) == 1:
        return ReplicaLists(np.minimum(replicas.matrix, 0), ragged=replicas.ragged)
    rows = replicas.tolist()
    known: list[dict[int, int]] = []
    if topic is not None and topic.cores is not None:
        pairs = zip(topic.replicas.lists(), topic.cores.lists(), strict=True)
        known = [dict(zip(row, cores, strict=True)) for row, cores in pairs]
    known += [{}] * (len(rows) - len(known))
    both = [*zip(rows, known, strict=False)]
    new = Counter(spu_id for row, before in both for spu_id in row if spu_id not in before)
    taken = {
        i: iter(redpanda.take_cores(spus[SpuId(i)].core_weights, count)) for i, count in new.items()
    }
    return ReplicaLists.of_lists(
        [[before[i] if i in before else next(taken[i]) for i in row] for row, before in both]
    )
