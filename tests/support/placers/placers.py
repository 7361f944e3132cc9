"""Clusters whose lists are ours or Kafka's, all given the same events."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.events import Event, LeaveMode, Policy
from spu_assigner.core.base.records import ReplicaMap, Status, TopicStatus
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState
from support.events.builders import Events
from support.placers.evenness import Host, Hosts

if TYPE_CHECKING:  # They need Py4J and PySpark, which ours are tested without.
    from support.placers.kafka_placer import KafkaPlacer, Racks
    from support.placers.kraft_placer import KraftPlacer

Lists = list[list[int]]


class Cluster(ABC):
    def __init__(self) -> None:
        self.hosts: dict[int, Host] = {}
        self.topics: dict[str, Lists] = {}
        self.seconds = 0.0  # that placing took
        self.held = 0  # replicas by the SPUs that were decommissioned
        self.moved = 0  # replicas that came to an SPU other than by a create

    @abstractmethod
    def join(self, spu_id: int, host: Host) -> None: ...

    @abstractmethod
    def decommission(self, spu_ids: Sequence[int]) -> None: ...

    @abstractmethod
    def create(self, topic: str, *, partitions: int, replicas: int) -> None: ...

    @abstractmethod
    def delete(self, topic: str) -> None: ...


class OurCluster(Cluster):
    def __init__(self, policy: Policy, hosts: Hosts) -> None:
        super().__init__()
        self.policy = policy
        self._state = ClusterState("c1")
        self._events = Events()
        for spu_id, host in hosts.items():
            self.join(spu_id, host)

    def join(self, spu_id: int, host: Host) -> None:
        self.hosts[spu_id] = host
        self._apply(self._events.join(spu_id, rack=host.rack, capacity=host.capacity))

    def decommission(self, spu_ids: Sequence[int]) -> None:
        """First all stop taking replicas, so that none moves twice; then all are emptied."""
        self.held += _held(self.topics, spu_ids)
        for mode in LeaveMode.OFFLINE, LeaveMode.DECOMMISSION:
            for spu_id in spu_ids:
                self._apply(self._events.leave(spu_id, mode=mode))
        for spu_id in spu_ids:
            del self.hosts[spu_id]

    def create(self, topic: str, *, partitions: int, replicas: int) -> None:
        event = self._events.create(topic, partitions, replicas)
        begun = time.perf_counter()
        records = step(self._state, event, default_policy=self.policy)
        self.seconds += time.perf_counter() - begun
        self._keep(records)

    def delete(self, topic: str) -> None:
        self._apply(self._events.delete(topic))

    def rebalance(self) -> None:
        """With as many moves as it takes."""
        self._apply(self._events.rebalance(2**31 - 1))

    def _apply(self, event: Event) -> None:
        self._keep(step(self._state, event, default_policy=self.policy))

    def _keep(self, records: Iterable[object]) -> None:
        for record in records:
            match record:
                case TopicStatus(status=Status.REJECTED | Status.WAITING, message=message):
                    raise InvariantError(f"the scenario is to have room for all; found: {message}")
                case ReplicaMap(topic=topic, replicas=None):
                    del self.topics[topic]
                case ReplicaMap(topic=topic, replicas=replicas) if replicas is not None:
                    lists = replicas.tolist()
                    self.moved += _moved(self.topics.get(topic, lists), lists)
                    self.topics[topic] = lists
                case _:
                    pass


class TheirCluster(Cluster):
    """A placer of Kafka's. It looks at one topic at a time and knows no capacity.

    When SPUs are decommissioned, each topic that one of them holds is placed again as a whole: that
    is all that a placer offers.
    """

    def __init__(
        self,
        hosts: Hosts,
        *,
        place: Callable[[Racks, int, int], Any],
        read: Callable[[Any], Lists],
        seed: Callable[[], None],
    ) -> None:
        super().__init__()
        self.hosts = dict(hosts)
        self._place = place
        self._read = read
        self._racks = {spu_id: host.rack for spu_id, host in hosts.items()}
        place(self._racks, 1, 1)  # Brings the brokers over to Java, which is no part of placing.
        seed()

    @classmethod
    def of_admin_utils(cls, hosts: Hosts, *, placer: KafkaPlacer, seed: int) -> TheirCluster:

        def read(assigned: Any) -> Lists:
            return [ids for _, ids in sorted(placer.read(assigned).items())]

        place = placer.assign_at_random_in_java
        return cls(hosts, place=place, read=read, seed=lambda: placer.seed(seed))

    @classmethod
    def of_kraft(cls, hosts: Hosts, *, placer: KraftPlacer, seed: int) -> TheirCluster:
        place, read = placer.assign_in_java, placer.read
        return cls(hosts, place=place, read=read, seed=lambda: placer.seed(seed))

    def join(self, spu_id: int, host: Host) -> None:
        self.hosts[spu_id] = host
        self._racks[spu_id] = host.rack

    def decommission(self, spu_ids: Sequence[int]) -> None:
        self.held += _held(self.topics, spu_ids)
        for spu_id in spu_ids:
            del self.hosts[spu_id], self._racks[spu_id]
        for topic, before in self.topics.items():
            if any(spu_id not in self.hosts for ids in before for spu_id in ids):
                after = self._read(self._place(self._racks, len(before), len(before[0])))
                self.moved += _moved(before, after)
                self.topics[topic] = after

    def create(self, topic: str, *, partitions: int, replicas: int) -> None:
        begun = time.perf_counter()
        assigned = self._place(self._racks, partitions, replicas)
        self.seconds += time.perf_counter() - begun
        self.topics[topic] = self._read(assigned)

    def delete(self, topic: str) -> None:
        del self.topics[topic]


def _held(topics: Mapping[str, Lists], spu_ids: Sequence[int]) -> int:
    gone = frozenset(spu_ids)
    return sum(len(gone.intersection(ids)) for lists in topics.values() for ids in lists)


def _moved(before: Lists, after: Lists) -> int:
    """Replicas on an SPU that did not hold their partition before."""
    return sum(len(set(new) - set(old)) for old, new in zip(before, after, strict=True))
