"""Fluvio's placement without racks, as a user writes it after its documentation, in plain Python.

Source: Fluvio 0.11.10 documentation, "Replica Assignment", CRA without rack.
"""

from __future__ import annotations

from typing import Any


def place(ring: list[int], index: int, partitions: int, replicas: int) -> list[list[int]]:
    """The replica lists of partitions index, index + 1, … of one long topic, leader first. `ring`
    is ascending and has at least `replicas` members."""
    size = len(ring)
    gaps = size - replicas + 1
    twice = ring + ring
    lists = []
    for number in range(index, index + partitions):
        turn, leader = divmod(number, size)
        follower = leader + 1 + turn % gaps
        lists.append([twice[leader], *twice[follower : follower + replicas - 1]])
    return lists


def replica_map(event: dict[str, Any], lists: list[list[int]], index: int) -> dict[str, Any]:
    """The fields of the map that answers a create; `index` is the chain index after it."""
    return {
        "cluster_id": event["cluster_id"],
        "topic": event["topic"],
        "revision": 1,
        "policy": "FLUVIO",
        "replicas": lists,
        "chain_index": index,
        "cause": event["event_id"],
        "replication_factor": event["replication_factor"],
        "ignore_rack": False,
        "own_events": [],
        "pinned": False,
    }
