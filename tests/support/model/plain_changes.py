"""How the oracle gives a living topic other lists: adopted ones, or longer and shorter ones.

Imports nothing of the product, which is held against it.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy

from support.model.plain_cluster import Cluster, Refusal, Spu, Topic, release_cores, take_core
from support.model.plain_requests import PARTITIONS_MAX

Lists = list[list[int]]


def judge_adopted(cluster: Cluster, lists: Lists) -> None:
    """Refuse lists that are none; what the SPUs can hold does not matter."""
    if not 1 <= len(lists) <= PARTITIONS_MAX:
        raise Refusal("INVALID_PARTITIONS")
    for ids in lists:
        if not ids:
            raise Refusal("MANUAL_EMPTY_LIST")
        if len(ids) > 32:
            raise Refusal("INVALID_REPLICATION_FACTOR")
        if len(set(ids)) < len(ids):
            raise Refusal("MANUAL_DUPLICATE_SPU")
        if not all(0 <= spu_id <= 2**31 - 1 for spu_id in ids):
            raise Refusal("MANUAL_INVALID_SPU")
    if any(spu_id not in cluster.spus for ids in lists for spu_id in ids):
        raise Refusal("MANUAL_UNKNOWN_SPU")


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
            _drop(spus, ids)
    ring = sorted(i for i, spu in spus.items() if _is_in_ring(spu))
    given: dict[int, list[int]] = {spu_id: [] for spu_id in ring}  # to which lists, as it was given
    for number, ids in enumerate(lists):
        while len(ids) < factor:
            taken = _taker(spus, ids)
            if taken is None:
                taken = _exchange(spus, lists, given, number)
            if taken is None:
                others = [i for i, spu in spus.items() if spu.online and i not in ids]
                is_full = factor - len(ids) <= len(others)
                raise Refusal("INSUFFICIENT_CAPACITY" if is_full else "INSUFFICIENT_SPUS")
            leads = not any(spus[i].online for i in ids)
            ids.insert(0 if leads else len(ids), taken)
            given[taken].append(number)
    changed = [ids for ids, old in zip(lists, topic.replicas, strict=True) if ids != old]
    cluster.relead(changed, None, cluster.leaders())
    return lists


def _is_in_ring(spu: Spu) -> bool:
    return spu.online and not spu.cordoned and not spu.is_full


def _taker(spus: dict[int, Spu], ids: list[int]) -> int | None:
    """Who takes a replica of a list, as in a repair."""
    free = [i for i, spu in spus.items() if _is_in_ring(spu) and i not in ids]
    racks = [spus[i].rack or "" for i in ids]
    elsewhere = [i for i in free if (spus[i].rack or "") not in racks]
    shares = {i: (spus[i].count << 32) // spus[i].capacity for i in free}
    taken = min(elsewhere or free, key=lambda i: (shares[i], i), default=None)
    if taken is not None:
        spus[taken].count += 1
    return taken


def _exchange(
    spus: dict[int, Spu], lists: Lists, given: dict[int, list[int]], number: int
) -> int | None:
    """What a list can take once others have exchanged SPUs; the shortest way is gone."""
    ways = [[spu_id] for spu_id in given if spu_id not in lists[number]]
    seen = {way[0] for way in ways}
    while ways:
        way = ways.pop(0)  # SPU, list, SPU, list, … SPU: each list gives up the SPU before it
        if not spus[way[-1]].is_full:
            spus[way[-1]].count += 1
            for at in range(len(way) - 2, 0, -2):
                old, holder, new = way[at - 1 : at + 2]
                lists[holder][lists[holder].index(old)] = new
                given[old].remove(holder)
                given[new].append(holder)
            return way[0]
        for holder in given[way[-1]]:
            for other in given:
                if other not in seen and other not in lists[holder]:
                    seen.add(other)
                    ways.append([*way, holder, other])
    return None


def _drop(spus: dict[int, Spu], ids: list[int]) -> None:
    online = [i for i in ids if spus[i].online]
    racks = [spus[i].rack or "" for i in ids]

    def place(spu_id: int) -> tuple[bool, bool, bool, int, int]:
        """The less, the earlier it goes."""
        spu = spus[spu_id]
        is_alone = racks.count(spu.rack or "") == 1
        share = (spu.count << 32) // max(spu.capacity, 1)
        return not spu.leaving, spu.online, is_alone, -share, spu_id

    may_go = [i for i in ids[1:] if not (spus[i].online and len(online) == 1)]
    gone = min(may_go, key=place) if may_go else ids[0]
    spus[gone].count -= 1
    was_leader = ids[0] == gone
    ids.remove(gone)
    heirs = [i for i in ids if spus[i].online]
    if was_leader and heirs:
        ids.remove(heirs[0])
        ids.insert(0, heirs[0])
