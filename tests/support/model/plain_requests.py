"""Whether the oracle grants a create or a grow, and where the lists go, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from support.model.plain_cluster import Cluster, Json, Refusal, take_core
from support.model.plain_placement import fluvio_list, fluvio_rack_list, kafka_list, kafka_rack_list

PARTITIONS_MAX = 100_000


def place(
    cluster: Cluster, request: Json, policy: str
) -> tuple[list[list[int]], list[list[int]] | None]:
    """Replica lists and cores of an automatic policy; changes the cluster as it goes."""
    ignore_rack = request.get("ignore_rack", False)
    if policy in ("fluvio", "kafka") and not ignore_rack and cluster.rack_mode() == "some":
        raise Refusal("RACKS_INCOMPLETE")
    replicas = request.get("replication_factor", 1)
    online = sum(spu.online for spu in cluster.spus.values())
    if replicas > len(cluster.ring):
        raise Refusal("INSUFFICIENT_CAPACITY" if replicas <= online else "INSUFFICIENT_SPUS")
    partitions = request.get("partitions", 1)
    if policy == "redpanda":
        placed = [_allocate(cluster, replicas) for _ in range(partitions)]
        lists = [[spu_id for spu_id, _ in row] for row in placed]
        return lists, [[core for _, core in row] for row in placed]
    order = cluster.order_of(policy, ignore_rack=ignore_rack)
    rows = _rows_in_turn(cluster, request, policy, order)
    return [next(rows) for _ in range(partitions)], None


def _rows_in_turn(cluster: Cluster, request: Json, policy: str, order: str) -> Iterator[list[int]]:
    """One replica list after the other, each counted before the next is placed."""
    replicas = request.get("replication_factor", 1)
    index = cluster.indexes[order]
    while True:
        ring = cluster.orders[order]
        if replicas > len(ring):
            raise Refusal("INSUFFICIENT_CAPACITY")
        shift, first = divmod(index.value, len(ring))
        if policy == "fluvio" and order == "id":
            chosen = fluvio_list(ring, index=index.value, replicas=replicas)
        elif policy == "fluvio":
            chosen = fluvio_rack_list(ring, index=index.value, replicas=replicas)
        elif order == "id":
            chosen = kafka_list(ring, first=first, shift=shift, replicas=replicas)
        else:
            racks = {spu_id: cluster.spus[spu_id].rack or "" for spu_id in ring}
            chosen = kafka_rack_list(ring, racks, first=first, shift=shift, replicas=replicas)
        index.value += 1
        index.moved = True
        for spu_id in chosen:
            cluster.spus[spu_id].count += 1
        cluster.refresh()  # It re-bases the index, too.
        yield chosen


def _allocate(cluster: Cluster, replicas: int) -> list[tuple[int, int]]:
    """Redpanda: SPU and core for each replica of one partition."""
    chosen: list[tuple[int, int]] = []
    while len(chosen) < replicas:
        used = [spu_id for spu_id, _ in chosen]
        unused = [spu_id for spu_id in cluster.orders["registration"] if spu_id not in used]
        if len(unused) < replicas - len(chosen):
            raise Refusal("INSUFFICIENT_CAPACITY")
        ring, pointer = cluster.orders["registration"], cluster.indexes["registration"]
        spu_id = ring[pointer.value % len(ring)]
        pointer.value += 1
        pointer.moved = True
        if spu_id in used:
            continue
        chosen.append((spu_id, take_core(cluster.spus[spu_id].weights)))
        cluster.spus[spu_id].count += 1
        cluster.refresh()
    return chosen


def place_by_hand(cluster: Cluster, raw: Any) -> list[list[int]]:
    """The well-formed lists of a manual request, judged and counted."""
    lists: list[list[int]] = [entry["replicas"] for entry in raw]
    for chosen in lists:
        if any(spu_id not in cluster.spus for spu_id in chosen):
            raise Refusal("MANUAL_UNKNOWN_SPU")
        if any(cluster.spus[spu_id].cordoned for spu_id in chosen):
            raise Refusal("MANUAL_SPU_CORDONED")
        if any(cluster.spus[spu_id].is_full for spu_id in chosen):
            raise Refusal("MANUAL_SPU_FULL")
        for spu_id in chosen:
            cluster.spus[spu_id].count += 1
        cluster.refresh()
    return lists
