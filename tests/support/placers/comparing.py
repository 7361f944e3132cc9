"""Clusters whose lists are ours or Kafka's, what happens to them, and how even their lists are."""

from __future__ import annotations

import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.events import Event, LeaveMode, Policy
from spu_assigner.core.base.records import ReplicaMap, Status, TopicStatus
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState
from support.events.builders import Events

PARTITIONS: Final = 10
REPLICAS: Final = 3
PLENTY: Final = 10_000  # slots; nobody fills up


@dataclass(frozen=True, kw_only=True)
class Scenario:
    name: str
    racks: Mapping[str, int]  # SPUs of each; none: SPUs without a rack
    capacities: Sequence[int] = (PLENTY,)  # dealt out in turn within each rack
    lives: bool = False  # whether a life is shown, too

    def hosts(self, *, first: int = 0, divided_by: int = 1) -> dict[int, Host]:
        """SPUs whose ids say nothing of their racks; the same in every run."""
        slots = [
            (rack or None, self.capacities[number % len(self.capacities)])
            for rack, size in self.racks.items()
            for number in range(size // divided_by)
        ]
        Random("comparison").shuffle(slots)
        return {
            first + number: Host(rack=rack, capacity=capacity)
            for number, (rack, capacity) in enumerate(slots)
        }


SCENARIOS: Final = (
    Scenario(
        name="3 uneven racks (500, 300, 200), equal capacities",
        racks={"a": 500, "b": 300, "c": 200},
        lives=True,
    ),
    Scenario(
        name="3 uneven racks (500, 300, 200), capacities 100, 200, 400",
        racks={"a": 500, "b": 300, "c": 200},
        capacities=(100, 200, 400),
        lives=True,
    ),
    Scenario(
        name="4 uneven racks (400, 300, 200, 100), more than replicas",
        racks={"a": 400, "b": 300, "c": 200, "d": 100},
    ),
    Scenario(name="2 racks (700, 300), fewer than replicas", racks={"a": 700, "b": 300}),
    Scenario(name="no racks", racks={"": 1_000}),
)


@dataclass(frozen=True, kw_only=True)
class Life:
    """What happens to a cluster: how many topics and SPUs of each."""

    topics: int
    joining: int
    leaving: int
    deleted: int  # and as many created after

    def live(self, cluster: Cluster, scenario: Scenario) -> None:
        """SPUs join when half of the topics are there; then SPUs go, topics go, new ones come."""
        rng = Random("a life")
        size = len(cluster.hosts)
        half = self.topics // 2
        fill(cluster, topics=half)
        divided_by = sum(scenario.racks.values()) // self.joining
        for spu_id, host in scenario.hosts(first=size, divided_by=divided_by).items():
            cluster.join(spu_id, host)
        fill(cluster, topics=self.topics - half, first=half)
        cluster.decommission(sorted(rng.sample(range(size), self.leaving)))
        for number in sorted(rng.sample(range(self.topics), self.deleted)):
            cluster.delete(f"t{number}")
        fill(cluster, topics=self.deleted, first=self.topics)


def fill(cluster: Cluster, *, topics: int, first: int = 0) -> None:
    for number in range(first, first + topics):
        cluster.create(f"t{number}", partitions=PARTITIONS, replicas=REPLICAS)


def goals_missed(found: Evenness) -> list[str]:
    """What `balanced` is to hold of a cluster that was only ever filled, and does not."""
    missed = []
    if found.diverse_percent not in {None, 100}:
        missed.append(f"{found.diverse_percent} % of lists are rack-diverse; expected all")
    for what, off in {"leaders": found.leaders_off, "replicas": found.replicas_off}.items():
        if off > 1:
            missed.append(f"an SPU is {off} {what} off its fair share; expected 1 at most")
    for what, spread in {
        "leaders": found.alike_leaders_spread,
        "replicas": found.alike_replicas_spread,
    }.items():
        if spread > 1:
            missed.append(f"SPUs of one rack and capacity differ by {spread} {what}; expected 1")
    return missed


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
HALVINGS = 100  # of an interval: more than a float has bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    rack: str | None
    capacity: int


Hosts = Mapping[int, Host]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evenness:
    """Figures of all lists of a cluster."""

    leaders_min: int  # on an SPU
    leaders_max: int
    replicas_min: int
    replicas_max: int
    alike_leaders_spread: int  # most less least of SPUs of one rack and capacity, where it is worst
    alike_replicas_spread: int
    leaders_off: float  # furthest that an SPU is from its fair share, in replicas
    replicas_off: float
    fullest_percent: float  # of its capacity that the fullest SPU holds
    diverse_percent: float | None  # lists on as many racks as can be; None: there are no racks
    peers_min: int  # different followers in the lists that one SPU leads
    peers_median: float


def evenness(hosts: Hosts, lists: Iterable[list[int]]) -> Evenness:
    """Measure lists that all have the same length; each SPU in them is one of the hosts."""
    ids = np.array(sorted(hosts))
    rows = np.searchsorted(ids, np.array(list(lists)))
    names = [hosts[spu_id].rack or "" for spu_id in ids.tolist()]
    racks = np.unique(names, return_inverse=True)[1]
    rack_count = int(racks.max()) + 1
    capacities = np.array([hosts[spu_id].capacity for spu_id in ids.tolist()], dtype=np.float64)
    alike = np.unique(np.stack((racks, capacities)), axis=1, return_inverse=True)[1].ravel()
    leaders = np.bincount(rows[:, 0], minlength=len(ids))
    replicas = np.bincount(rows.ravel(), minlength=len(ids))
    fair = fair_replicas(capacities, racks, lists=len(rows), replicas=rows.shape[1])
    fair_leaders = poured(capacities, fair, float(len(rows)))
    of_rows = np.sort(racks[rows], axis=1)
    different = 1 + (np.diff(of_rows, axis=1) != 0).sum(axis=1)
    diverse = 100 * float((different == min(rows.shape[1], rack_count)).mean())
    led: list[set[int]] = [set() for _ in hosts]
    for leader, *followers in rows.tolist():
        led[leader].update(followers)
    peers = [len(each) for each in led]
    return Evenness(
        leaders_min=int(leaders.min()),
        leaders_max=int(leaders.max()),
        replicas_min=int(replicas.min()),
        replicas_max=int(replicas.max()),
        alike_leaders_spread=_worst_spread(leaders, alike),
        alike_replicas_spread=_worst_spread(replicas, alike),
        leaders_off=round(float(np.abs(leaders - fair_leaders).max()), 2),
        replicas_off=round(float(np.abs(replicas - fair).max()), 2),
        fullest_percent=round(100 * float((replicas / capacities).max()), 1),
        diverse_percent=None if rack_count == 1 else round(diverse, 2),
        peers_min=min(peers),
        peers_median=statistics.median(peers),
    )


def _worst_spread(counts: Integers, kinds: Integers) -> int:
    return max(int(np.ptp(counts[kinds == kind])) for kind in range(int(kinds.max()) + 1))


def fair_replicas(capacities: Floats, racks: Integers, *, lists: int, replicas: int) -> Floats:
    """Replicas for each SPU by its capacity, as far as lists as even over racks as can be allow it.

    Not whole numbers: one level for all SPUs, as a share of capacity, but for racks of which each
    list must hold more than that, or cannot hold as much, a level of their own. No SPU holds more
    replicas than there are lists.
    """
    sizes = np.bincount(racks)
    at_most = 1
    while len(sizes) > 1 and int(np.minimum(sizes, at_most).sum()) < replicas:
        at_most += 1
    single = len(sizes) == 1
    least = np.zeros(1) if single else np.minimum(sizes, at_most - 1) * float(lists)
    most = np.array([np.inf]) if single else np.minimum(sizes, at_most) * float(lists)
    limits = np.full(len(capacities), float(lists))

    def of_racks(level: float) -> Floats:
        wanted = np.bincount(racks, weights=np.minimum(capacities * level, limits))
        return np.clip(wanted, least, most)

    low, high = 0.0, lists / float(capacities.min())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if of_racks(middle).sum() >= lists * replicas else (middle, high)
    shares = np.empty(len(capacities))
    for rack, total in enumerate(of_racks(high).tolist()):
        here = racks == rack
        shares[here] = poured(capacities[here], limits[here], total)
    return shares


def poured(capacities: Floats, limits: Floats, total: float) -> Floats:
    """A total over SPUs by capacity, none above its limit; the limits must have room for it."""
    low, high = 0.0, float((limits / capacities).max())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = np.minimum(capacities * middle, limits).sum() >= total
        low, high = (low, middle) if enough else (middle, high)
    shares: Floats = np.minimum(capacities * high, limits)
    return shares


if TYPE_CHECKING:  # They need Py4J and PySpark, which ours are tested without.
    from support.placers.kafka_java import KafkaPlacer, KraftPlacer, Racks

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
