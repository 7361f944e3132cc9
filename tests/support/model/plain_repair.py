"""How the oracle repairs the lists of a topic that a decommission hit, replica by replica."""

from __future__ import annotations

from collections import Counter

from support.model.plain_cluster import Cluster, Topic, release_cores, take_core
from support.model.plain_leaders import can_lead, reorder, settle


def repair_topic(cluster: Cluster, topic: Topic, *, only: int | None = None) -> bool:
    """Move the replicas of leaving SPUs (of `only` this one) and fill short lists.

    With `only`, lists that do not hold it stay as they are. Returns whether a list changed.
    """
    before, ring = [list(ids) for ids in topic.replicas], list(cluster.ring)
    released: list[tuple[int, int]] = []
    topic.has_lost = False
    for partition, ids in enumerate(before):
        if only is not None and only not in ids:
            continue
        is_lost = False
        for spu_id in sorted(ids):
            if cluster.spus[spu_id].leaving and only in (None, spu_id):
                is_lost = _is_only_copy(cluster, topic.replicas[partition], spu_id, had=ids)
                if is_lost:
                    break
                released += _replace(cluster, topic, partition, spu_id, ring=ring)
        topic.has_lost |= is_lost
        if is_lost:
            continue
        while only is None and len(topic.replicas[partition]) < topic.widths[partition]:
            taken = best_spu(cluster, topic, topic.replicas, topic.replicas[partition], ring)
            if taken is None:
                break
            _put(cluster, topic, partition, taken)
    release_cores(cluster, released)
    lists, topic.replicas = topic.replicas, before  # Who leads is chosen by the counts before.
    settled = settle(cluster, before, lists)
    topic.replicas = lists
    reorder(topic, settled)
    return topic.replicas != before


def _is_only_copy(cluster: Cluster, ids: list[int], gone: int, *, had: list[int]) -> bool:
    """Whether a list is to leave the only SPU that has its data, from which nothing can be copied.

    `had`: the list before its repair, whose SPUs have the data.
    """
    is_dead = all(cluster.spus[spu_id].is_dead for spu_id in had)
    return is_dead and not ({*ids} - {gone}) & {*had}


def _replace(
    cluster: Cluster, topic: Topic, partition: int, gone: int, *, ring: list[int]
) -> list[tuple[int, int]]:
    """Give one replica of a leaving SPU to another; returns the core (SPU, core) that it held."""
    ids = topic.replicas[partition]
    kept = [spu_id for spu_id in ids if spu_id != gone]
    taken = best_spu(cluster, topic, topic.replicas, ids, ring)
    if taken is None and not any(cluster.spus[spu_id].online for spu_id in kept):
        return []
    place = ids.index(gone)
    cluster.spus[gone].count -= 1
    ids.remove(gone)
    released = []
    if topic.cores is not None:
        released.append((gone, topic.cores[partition].pop(place)))
    if taken is not None:
        _put(cluster, topic, partition, taken)
    return released


def _put(cluster: Cluster, topic: Topic, partition: int, taken: int) -> None:
    """A new replica, which has no data yet: at the end."""
    ids = topic.replicas[partition]
    ids.append(taken)
    if topic.cores is not None:
        topic.cores[partition].append(take_core(cluster.spus[taken].weights))
    cluster.spus[taken].count += 1
    cluster.refresh()


def best_spu(
    cluster: Cluster, topic: Topic, lists: list[list[int]], ids: list[int], ring: list[int]
) -> int | None:
    """Who takes one more replica of a list that has these, by the order of preference.

    The share of an SPU is that of the middle of its next replica: half of it is counted.
    `lists`: all of the topic as they are now; `ring`: as it was when the topic's turn came.
    """
    spus = cluster.spus
    staying = [i for i in ids if not spus[i].leaving]
    racks = {i: "" if topic.ignore_rack else spus[i].rack or "" for i in spus}
    held = Counter(i for each in lists for i in each)
    whole, replicas = sum(spus[i].capacity for i in ring), sum(topic.widths)
    free = [i for i in ring if i not in ids and not spus[i].is_full]
    if not any(can_lead(cluster, i) for i in staying):
        free = [i for i in free if not spus[i].demoted] or free

    def order(spu_id: int) -> tuple[int, bool, int, int, int]:
        on_rack = [racks[i] for i in staying].count(racks[spu_id])
        twice = max(-(-2 * replicas * spus[spu_id].capacity // max(whole, 1)), 1)
        share = ((2 * spus[spu_id].count + 1) << 31) // (2 * spus[spu_id].capacity)
        return on_rack, held[spu_id] >= twice, share, held[spu_id], spu_id

    return min(free, key=order, default=None)


def wanting(cluster: Cluster, topic: Topic) -> list[list[int]]:
    return [
        ids
        for ids, width in zip(topic.replicas, topic.widths, strict=True)
        if len(ids) < width or any(cluster.spus[spu_id].leaving for spu_id in ids)
    ]


def shortage(cluster: Cluster, topic: Topic) -> str | None:
    """The code of a topic that is not whole: whether free slots would do, or SPUs are wanted."""
    lists = wanting(cluster, topic)
    if not lists:
        return None
    leaving = [(ids, i) for ids in lists for i in ids if cluster.spus[i].leaving]
    if topic.has_lost or any(_is_only_copy(cluster, ids, i, had=ids) for ids, i in leaving):
        return "SOURCE_OFFLINE"
    online = [spu_id for spu_id, spu in cluster.spus.items() if spu.online]
    would_do = any(spu_id not in ids for ids in lists for spu_id in online)
    return "INSUFFICIENT_CAPACITY" if would_do else "INSUFFICIENT_SPUS"
