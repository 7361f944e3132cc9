"""New lists for topics that have no map, when a broker goes: a pure function.

Rule: that of a decommission. Such topics (Kafka's own, the product's) are taken over by the core as
they are, with all others of the Kafka cluster for their load, and the broker is decommissioned
there: only its replicas move, to the rack with the fewest replicas of the list, then to the least
loaded broker.

    __t: [[1, 2], [2, 3]], broker 2 goes, 3 and 4 on one rack:  [[1, 4], [4, 3]] or as loads are
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import Event, LeaveMode, SpuJoined, SpuLeft, TopicAdopted
from spu_assigner.core.base.limits import CAPACITY_MAX
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.stream.clusters.moves.reassigning import Replicas
from spu_assigner.stream.kafka.log_dirs import Partition

LOADS_MAX: Final = 10_000  # partitions of a topic that stands for others
_CLUSTER: Final = "kafka"


def emptied_lists(
    rows: Mapping[Partition, Replicas],
    topics: Iterable[str],
    *,
    brokers: Mapping[int, str | None],
    leaving: int,
) -> tuple[dict[Partition, Replicas], list[Partition]]:
    """Lists without a broker that change, and partitions for which there is no other broker."""
    meant, places, loads = {*topics}, dict[str, list[Partition]](), list[Replicas]()
    for place, row in sorted(rows.items()):
        if place[0] in meant:
            places.setdefault(place[0], []).append(place)
        # What others hold counts as load alone; the broker's part of it is moved by their maps.
        elif others := tuple(broker for broker in row if broker != leaving):
            loads.append(others)
    named = {broker for row in rows.values() for broker in row}
    events: list[Event] = [
        SpuJoined(
            event_id=f"join-{broker}",
            cluster_id=_CLUSTER,
            spu_id=broker,
            rack=brokers.get(broker),
            capacity=CAPACITY_MAX,
        )
        for broker in sorted({*brokers, *named, leaving})
    ]
    events += [  # They keep what they have, and get no more.
        SpuLeft(event_id=f"off-{broker}", cluster_id=_CLUSTER, spu_id=broker)
        for broker in sorted(named - {*brokers, leaving})
    ]
    lists = [[rows[place] for place in each] for each in places.values()]
    lists += [loads[begin : begin + LOADS_MAX] for begin in range(0, len(loads), LOADS_MAX)]
    events += [
        TopicAdopted(event_id=f"t{n}", cluster_id=_CLUSTER, topic=f"t{n}", replicas=tuple(each))
        for n, each in enumerate(lists)
    ]
    assigner = Assigner(reserved_names=frozenset())
    for event in events:
        assigner.apply(event)
    answers = assigner.apply(
        SpuLeft(event_id="leave", cluster_id=_CLUSTER, spu_id=leaving, mode=LeaveMode.DECOMMISSION)
    )
    changed = {
        each.topic: each.replicas.tolist()
        for each in answers
        if isinstance(each, ReplicaMap) and each.replicas is not None
    }
    found: dict[Partition, Replicas] = {}
    stuck: list[Partition] = []
    for n, each in enumerate(places.values()):
        for place, new in zip(each, changed.get(f"t{n}", lists[n]), strict=True):
            if leaving not in rows[place]:
                continue
            if leaving in new or len(new) < len(rows[place]):
                stuck.append(place)
            else:
                found[place] = tuple(new)
    return found, stuck
