"""How the oracle gives a living topic other lists: adopted ones, or longer and shorter ones."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import replace

from support.model.plain_cluster import Cluster, Refusal, Spu, Topic, release_cores, take_core
from support.model.plain_leaders import settle
from support.model.plain_repair import best_spu

Lists = list[list[int]]


def change_lists(cluster: Cluster, topic: Topic, lists: Lists, *, policy: str) -> bool:
    """Put other lists in place of the topic's, all at once; whether some SPU holds fewer now."""
    old = Counter(spu_id for ids in topic.replicas for spu_id in ids)
    new = Counter(spu_id for ids in lists for spu_id in ids)
    _change_cores(cluster, topic, lists, policy=policy)
    for spu_id in old | new:
        cluster.spus[spu_id].count += new[spu_id] - old[spu_id]
    topic.replicas = lists
    cluster.refresh()
    return bool(old - new)


def _change_cores(cluster: Cluster, topic: Topic, lists: Lists, *, policy: str) -> None:
    """A replica that stays keeps its core; of `redpanda` alone replicas have one."""
    before = topic.cores or []
    known = [dict(zip(*pair, strict=True)) for pair in zip(topic.replicas, before, strict=False)]
    cores = None
    if policy == "redpanda":
        weights = {spu_id: list(spu.weights) for spu_id, spu in cluster.spus.items()}
        known += [{} for _ in lists[len(known) :]]
        cores = [
            [of[i] if i in of else take_core(weights[i]) for i in ids]
            for ids, of in zip(lists, known, strict=False)
        ]
    old = Counter(pair for each in known for pair in each.items())
    if not before:
        old.clear()
    pairs = zip(lists, cores or [[0] * len(ids) for ids in lists], strict=True)
    held = Counter(pair for ids, of in pairs for pair in zip(ids, of, strict=True))
    new = held if cores is not None else Counter[tuple[int, int]]()
    release_cores(cluster, list((old - new).elements()))
    for spu_id, core in (new - old).elements():
        cluster.spus[spu_id].weights[core] += 1
    topic.cores = cores


def resized_lists(cluster: Cluster, topic: Topic, factor: int) -> Lists:
    """The topic's lists with so many replicas each; first all that go, then all that come."""
    lists = deepcopy(topic.replicas)
    spus = deepcopy(cluster.spus)
    for ids in lists:
        while len(ids) > factor:
            _drop(spus, ids, ignore_rack=topic.ignore_rack)
    trial = replace(cluster, spus=spus)
    resized = replace(topic, widths=[factor] * len(lists))
    ring = sorted(i for i, spu in spus.items() if _is_in_ring(spu))
    for ids in lists:
        while len(ids) < factor:
            taken = best_spu(trial, resized, lists, ids, ring)
            if taken is None:
                others = [i for i, spu in spus.items() if spu.online and i not in ids]
                is_full = factor - len(ids) <= len(others)
                raise Refusal("INSUFFICIENT_CAPACITY" if is_full else "INSUFFICIENT_SPUS")
            spus[taken].count += 1
            ids.append(taken)
    return settle(cluster, topic.replicas, lists)


def _is_in_ring(spu: Spu) -> bool:
    return spu.online and not spu.cordoned and not spu.is_full


def _drop(spus: dict[int, Spu], ids: list[int], *, ignore_rack: bool) -> None:
    online = [i for i in ids if spus[i].online]
    alive = [i for i in ids if not spus[i].is_dead]
    racks = ["" if ignore_rack else spus[i].rack or "" for i in ids]

    def place(spu_id: int) -> tuple[bool, bool, bool, int, int, int]:
        spu, is_follower = spus[spu_id], spu_id != ids[0]
        share = (spu.count << 32) // max(spu.capacity, 1)
        on_rack = racks[ids.index(spu_id)]
        return (
            not spu.leaving,
            spu.online,
            spu.online or is_follower,
            -racks.count(on_rack),
            -share,
            spu_id,
        )

    stay = online if len(online) == 1 else alive if len(alive) == 1 else []
    if spus[ids[0]].online or not (alive or spus[ids[0]].leaving):
        stay = [*stay, ids[0]]
    may_go = [i for i in ids if i not in stay]
    gone = min(may_go, key=place)
    spus[gone].count -= 1
    ids.remove(gone)
