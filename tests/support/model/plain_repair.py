"""How the oracle repairs the lists of a topic that a decommission hit, replica by replica.

Imports nothing of the product, which is held against it.
"""

from __future__ import annotations

from support.model.plain_cluster import Cluster, Topic, release_cores, take_core


def repair_topic(cluster: Cluster, topic: Topic, *, only: int | None = None) -> bool:
    """Move the replicas of leaving SPUs (of `only` this one) and fill short lists.

    With `only`, lists that do not hold it stay as they are. Returns whether a list changed.
    """
    before, led = [list(ids) for ids in topic.replicas], cluster.leaders()
    released: list[tuple[int, int]] = []
    for partition, ids in enumerate(before):
        if only is not None and only not in ids:
            continue
        for spu_id in sorted(ids):
            if cluster.spus[spu_id].leaving and only in (None, spu_id):
                released += _replace(cluster, topic, partition, spu_id, had=ids)
        if _is_lost(cluster, topic.replicas[partition]):
            continue
        while only is None and len(topic.replicas[partition]) < topic.widths[partition]:
            kept = topic.replicas[partition]
            taken = _candidate(cluster, kept, racks_to_avoid=_racks(cluster, kept))
            if taken is None:
                break
            _put(cluster, topic, partition, taken)
    release_cores(cluster, released)
    changed = [number for number, ids in enumerate(before) if topic.replicas[number] != ids]
    cores = None if topic.cores is None else [topic.cores[number] for number in changed]
    cluster.relead([topic.replicas[number] for number in changed], cores, led)
    return topic.replicas != before


def _is_lost(cluster: Cluster, ids: list[int]) -> bool:
    """Whether nothing of a list that is to leave can be copied."""
    spus = [cluster.spus[spu_id] for spu_id in ids]
    return any(spu.leaving for spu in spus) and all(spu.is_dead for spu in spus)


def _replace(
    cluster: Cluster, topic: Topic, partition: int, gone: int, *, had: list[int]
) -> list[tuple[int, int]]:
    """Give one replica of a leaving SPU to another; returns the core (SPU, core) that it held.

    `had`: the list before its repair, whose SPUs have the data.
    """
    ids = topic.replicas[partition]
    kept = [spu_id for spu_id in ids if spu_id != gone]
    if all(cluster.spus[spu_id].is_dead for spu_id in had) and not set(kept) & set(had):
        return []
    racks = _racks(cluster, kept)
    was_alone_on_its_rack = (cluster.spus[gone].rack or "") not in racks
    taken = _candidate(cluster, ids, racks_to_avoid=racks if was_alone_on_its_rack else [])
    if taken is None and not any(cluster.spus[spu_id].online for spu_id in kept):
        return []
    place = ids.index(gone)
    cluster.spus[gone].count -= 1
    ids.remove(gone)
    released = []
    if topic.cores is not None:
        released.append((gone, topic.cores[partition].pop(place)))
    if place == 0:
        for heir in [i for i in kept if cluster.spus[i].online and i in had][:1]:
            _to_the_front(topic, partition, ids.index(heir))
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


def _to_the_front(topic: Topic, partition: int, place: int) -> None:
    for lists in (topic.replicas, topic.cores):
        if lists is not None:
            row = lists[partition]
            row.insert(0, row.pop(place))


def _candidate(cluster: Cluster, ids: list[int], *, racks_to_avoid: list[str]) -> int | None:
    """Who takes a replica of a list: on another rack if there is such, then least used, then id."""
    free = [spu_id for spu_id in cluster.ring if spu_id not in ids]
    elsewhere = [i for i in free if (cluster.spus[i].rack or "") not in racks_to_avoid]
    shares = {i: (cluster.spus[i].count << 32) // cluster.spus[i].capacity for i in free}
    return min(elsewhere or free, key=lambda i: (shares[i], i), default=None)


def _racks(cluster: Cluster, ids: list[int]) -> list[str]:
    return [cluster.spus[spu_id].rack or "" for spu_id in ids]


def wanting(cluster: Cluster, topic: Topic) -> list[list[int]]:
    """The lists that are short or hold a leaving SPU."""
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
    if any(_is_lost(cluster, ids) for ids in lists):
        return "SOURCE_OFFLINE"
    online = [spu_id for spu_id, spu in cluster.spus.items() if spu.online]
    would_do = any(spu_id not in ids for ids in lists for spu_id in online)
    return "INSUFFICIENT_CAPACITY" if would_do else "INSUFFICIENT_SPUS"
