"""New lists for topics that have no map, when a broker goes: a pure function.

Rule: that of a decommission. Such topics (Kafka's own, the product's) are taken over by the core as
they are, with all others of the Kafka cluster for their load, and the broker is decommissioned
there: only its replicas move, to the rack with the fewest replicas of the list, then to the least
loaded broker.

    __t: [[1, 2], [2, 3]], broker 2 goes, 3 and 4 on one rack:  [[1, 4], [4, 3]] or as loads are
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import LeaveMode, SpuJoined, SpuLeft, TopicAdopted
from spu_assigner.core.base.limits import CAPACITY_MAX
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.stream.clusters.moves.reassigning import Replicas
from spu_assigner.stream.kafka.log_dirs import Partition

LOADS_MAX: Final = 10_000  # partitions of a topic that stands for others
_CLUSTER: Final = "kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptiedLists:
    """What is to be moved of these topics."""

    lists: Mapping[Partition, Replicas] = field(default_factory=dict)  # that change
    stuck: tuple[Partition, ...] = ()  # for which there is no other broker


def emptied_lists(
    rows: Mapping[Partition, Replicas],
    topics: Iterable[str],
    *,
    brokers: Mapping[int, str | None],
    leaving: int,
) -> EmptiedLists:
    """Lists without a broker.

    Args:
        rows: all partitions of the Kafka cluster, for the load of its brokers.
        topics: those that are to be moved.
        brokers: those that are alive, with their racks.
    """
    meant = {*topics}
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(place for place in rows if place[0] in meant):
        by_topic.setdefault(topic, []).append(number)
    # What others hold counts as load alone; what the broker holds of it is moved by their maps.
    loads = [
        tuple(broker for broker in row if broker != leaving)
        for place, row in sorted(rows.items())
        if place[0] not in meant
    ]
    assigner = Assigner(reserved_names=frozenset())
    named = {broker for row in rows.values() for broker in row}
    for broker in sorted({*brokers, *named, leaving}):
        join = SpuJoined(
            event_id=f"join-{broker}",
            cluster_id=_CLUSTER,
            spu_id=broker,
            rack=brokers.get(broker),
            capacity=CAPACITY_MAX,
        )
        assigner.apply(join)
    for broker in sorted(named - {*brokers, leaving}):  # It keeps what it has, and gets no more.
        assigner.apply(SpuLeft(event_id=f"off-{broker}", cluster_id=_CLUSTER, spu_id=broker))
    alias = {topic: f"t{index}" for index, topic in enumerate(by_topic)}
    for topic, numbers in by_topic.items():
        _adopt(assigner, alias[topic], [rows[topic, number] for number in numbers])
    loads = [row for row in loads if row]
    for begin in range(0, len(loads), LOADS_MAX):
        _adopt(assigner, f"loads-{begin}", loads[begin : begin + LOADS_MAX])
    answers = assigner.apply(
        SpuLeft(event_id="leave", cluster_id=_CLUSTER, spu_id=leaving, mode=LeaveMode.DECOMMISSION)
    )
    found = {
        each.topic: [tuple(row) for row in each.replicas.tolist()]
        for each in answers
        if isinstance(each, ReplicaMap) and each.replicas is not None
    }
    lists: dict[Partition, Replicas] = {}
    stuck: list[Partition] = []
    for topic, numbers in by_topic.items():
        for place, row in _placed(topic, numbers, found.get(alias[topic])):
            before = rows[place]
            if leaving not in before:
                continue
            if row is None or leaving in row or len(row) < len(before):
                stuck.append(place)
            else:
                lists[place] = row
    return EmptiedLists(lists=lists, stuck=tuple(stuck))


def _adopt(assigner: Assigner, topic: str, rows: Sequence[Replicas]) -> None:
    assigner.apply(
        TopicAdopted(
            event_id=f"adopt-{topic}", cluster_id=_CLUSTER, topic=topic, replicas=tuple(rows)
        )
    )


def _placed(
    topic: str, numbers: Sequence[int], rows: Sequence[Replicas] | None
) -> Iterable[tuple[Partition, Replicas | None]]:
    """Partitions with their new lists; None: there is none."""
    found = [None] * len(numbers) if rows is None else rows
    return (((topic, number), row) for number, row in zip(numbers, found, strict=True))
