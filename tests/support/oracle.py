"""A slow and obvious model of the whole core, to hold the real one against.

Written from the contract, apart from the core, in plain Python; it imports nothing of the product
(ARCHITECTURE.md names two open points on which it follows the core). Everything
is done the plainest way: one partition after the other, indexes as plain integers that are
re-based at each change of the ring, a deep copy for what may have to be undone. Events and answers
are the JSON objects of `spu-assigner simulate`; messages are always null.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from support.plain_placement import (
    alternation_order,
    diagonal_order,
    fluvio_list,
    fluvio_rack_list,
    kafka_list,
    kafka_rack_list,
)

INDEX_MAX = 2**31 - 1
REMEMBERED = 256
ORDERS = ("id", "diagonal", "alternation", "registration")

Json = dict[str, Any]


class Refusal(Exception):  # noqa: N818 — an answer, no failure
    """The request is not met; its only argument is the code."""


@dataclass
class Spu:
    """What is known of one SPU."""

    rack: str | None
    capacity: int
    weights: list[int]
    online: bool = True
    count: int = 0

    @property
    def is_full(self) -> bool:
        return self.count >= self.capacity

    @property
    def is_saturated(self) -> bool:
        return self.online and self.is_full


@dataclass
class Index:
    """The chain index of one order; `cycle` is only kept while the ring is empty."""

    value: int = 0
    moved: bool = False
    cycle: int = 0

    def rebase(self, old: list[int], new: list[int]) -> None:
        """Make it point at the same SPU, or the first after it that remains."""
        if not self.moved:
            return
        if not old:
            self.value = self.cycle * len(new)
            return
        cycle, position = divmod(self.value, len(old))
        for step in range(len(old)):
            heir = old[(position + step) % len(old)]
            if heir in new:
                if position + step >= len(old):
                    cycle += 1
                self.value = cycle * len(new) + new.index(heir)
                return
        self.value, self.cycle = 0, cycle


@dataclass
class Topic:
    """One living topic."""

    policy: str
    replicas: list[list[int]]
    cores: list[list[int]] | None
    revision: int
    created_by: str


@dataclass
class Cluster:
    """All that is known of one cluster."""

    spus: dict[int, Spu] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    orders: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in ORDERS})
    indexes: dict[str, Index] = field(default_factory=lambda: {name: Index() for name in ORDERS})
    seen: list[str] = field(default_factory=list)

    def refresh(self) -> None:
        """Recompute the ring in every order, and re-base the index of each."""
        ring = sorted(i for i, spu in self.spus.items() if spu.online and not spu.is_full)
        racks = {i: self.spus[i].rack or "" for i in ring}
        registered = [i for i in self.orders["registration"] if i in ring]
        new = {
            "id": ring,
            "diagonal": diagonal_order(racks),
            "alternation": alternation_order(racks),
            "registration": registered + [i for i in ring if i not in registered],
        }
        for name in ORDERS:
            self.indexes[name].rebase(self.orders[name], new[name])
        self.orders = new

    @property
    def ring_size(self) -> int:
        return len(self.orders["id"])

    def rack_mode(self) -> str:
        """Whether "none", "all" or "some" of the online SPUs have a rack."""
        named = [spu.rack is not None for spu in self.spus.values() if spu.online]
        if not any(named):
            return "none"
        return "all" if all(named) else "some"

    def order_of(self, policy: str, *, ignore_rack: bool) -> str:
        """The order that a policy places on; by id while racks are incomplete."""
        if policy == "redpanda":
            return "registration"
        if ignore_rack or self.rack_mode() != "all":
            return "id"
        return {"fluvio": "diagonal", "kafka": "alternation"}[policy]


class Oracle:
    """Answers events as the product should."""

    def __init__(self, default_policy: str = "fluvio") -> None:
        self.default_policy = default_policy
        self.clusters: dict[str, Cluster] = {}

    def apply(self, event: Json) -> list[Json]:
        """The answers to one event, in the contract's order."""
        cluster = self.clusters.setdefault(event["cluster_id"], Cluster())
        if self._is_repeated(cluster, event):
            return []
        cluster.seen = [*cluster.seen, event["event_id"]][-REMEMBERED:]
        handler = getattr(self, f"_{event['type']}")
        answers: list[Json] = handler(event["cluster_id"], event)
        for answer in answers:
            answer["cluster_id"] = event["cluster_id"]
            answer["cause"] = event["event_id"]
            if answer["type"] == "ring_event":
                answer["ring_size"] = self.clusters[event["cluster_id"]].ring_size
        return answers

    def _is_repeated(self, cluster: Cluster, event: Json) -> bool:
        if event["event_id"] in cluster.seen:
            return True
        topic = cluster.topics.get(event.get("topic", ""))
        creates = event["type"] == "topic_create"
        return creates and topic is not None and topic.created_by == event["event_id"]

    def _spu_joined(self, cluster_id: str, event: Json) -> list[Json]:
        cluster = self.clusters[cluster_id]
        spu_id, rack, cores = event["spu_id"], event.get("rack"), event.get("cores", 1)
        capacity = event.get("capacity")
        if capacity is None:
            capacity = cores * 7000 - 2
        code = None
        if not 0 <= spu_id <= 2**31 - 1:
            code = "INVALID_SPU_ID"
        elif rack is not None and len(rack) > 128:
            code = "INVALID_RACK"
        elif not 1 <= cores <= 1024:
            code = "INVALID_CORES"
        elif not 0 <= capacity <= 2**31 - 1:
            code = "INVALID_CAPACITY"
        elif spu_id not in cluster.spus and len(cluster.spus) >= 10_000:
            code = "TOO_MANY_SPUS"
        if code is not None:
            return [_ring_event(spu_id, "ignored", code)]
        before = deepcopy(cluster.spus)
        change = "updated" if spu_id in before and before[spu_id].online else "joined"
        weights = before[spu_id].weights if spu_id in before else [2]
        cluster.spus[spu_id] = Spu(
            rack=rack,
            capacity=capacity,
            weights=_resized(weights, cores),
            count=before[spu_id].count if spu_id in before else 0,
        )
        cluster.refresh()
        return [_ring_event(spu_id, change), *_transitions(before, cluster)]

    def _spu_left(self, cluster_id: str, event: Json) -> list[Json]:
        cluster = self.clusters[cluster_id]
        spu_id = event["spu_id"]
        if event.get("mode", "offline") != "offline":
            return [_ring_event(spu_id, "ignored", "NOT_SUPPORTED")]
        if not 0 <= spu_id <= 2**31 - 1:
            return [_ring_event(spu_id, "ignored", "INVALID_SPU_ID")]
        if spu_id not in cluster.spus:
            return [_ring_event(spu_id, "ignored", "SPU_UNKNOWN")]
        cluster.spus[spu_id].online = False
        cluster.refresh()
        return [_ring_event(spu_id, "left")]

    def _topic_create(self, cluster_id: str, event: Json) -> list[Json]:
        name = event["topic"]
        before = self.clusters[cluster_id]
        after = deepcopy(before)
        try:
            policy = self._policy_of(event)
            _check_fields(event, policy)
            if name in before.topics:
                raise Refusal("TOPIC_EXISTS")
            replicas, cores, order = _place(after, event, policy)
        except Refusal as refusal:
            return [_status(name, "rejected", code=refusal.args[0])]
        if event.get("validate_only", False):
            return [_status(name, "validated", replicas=replicas)]
        topic = Topic(policy, replicas, cores, revision=1, created_by=event["event_id"])
        after.topics[name] = topic
        self.clusters[cluster_id] = after
        index = None if order is None else after.indexes[order].value
        return [
            _replica_map(name, topic, replicas, cores, index),
            _status(name, "assigned"),
            *_transitions(before.spus, after),
        ]

    def _topic_delete(self, cluster_id: str, event: Json) -> list[Json]:
        cluster = self.clusters[cluster_id]
        name = event["topic"]
        if name not in cluster.topics:
            return [_status(name, "rejected", code="TOPIC_UNKNOWN")]
        before = deepcopy(cluster.spus)
        topic = cluster.topics.pop(name)
        for chosen in topic.replicas:
            for spu_id in chosen:
                cluster.spus[spu_id].count -= 1
        if topic.cores is not None:
            pairs = zip(topic.replicas, topic.cores, strict=True)
            held = [pair for ids, cores in pairs for pair in zip(ids, cores, strict=True)]
            for spu_id, core in sorted(set(held)):
                _release(cluster.spus[spu_id].weights, core, held.count((spu_id, core)))
        cluster.refresh()
        index = None
        if topic.policy != "manual":
            index = cluster.indexes[cluster.order_of(topic.policy, ignore_rack=False)].value
        topic.revision += 1
        return [
            _replica_map(name, topic, None, None, index),
            _status(name, "deleted"),
            *_transitions(before, cluster),
        ]

    def _topic_grow(self, _: str, event: Json) -> list[Json]:
        return [_status(event["topic"], "rejected", code="NOT_SUPPORTED")]

    def _cluster_rebalance(self, _: str, __: Json) -> list[Json]:
        return [_status("", "rejected", code="NOT_SUPPORTED")]

    def _policy_of(self, event: Json) -> str:
        policy: str | None = event.get("policy")
        if policy is not None:
            return policy
        return "manual" if event.get("replicas") is not None else self.default_policy


def _check_fields(event: Json, policy: str) -> None:
    """Ranges, policy and fields, without a look at the cluster."""
    if policy != "manual":
        if not 1 <= event.get("partitions", 1) <= 100_000:
            raise Refusal("INVALID_PARTITIONS")
        if not 1 <= event.get("replication_factor", 1) <= 32:
            raise Refusal("INVALID_REPLICATION_FACTOR")
    if policy == "balanced" or event.get("on_shortage", "reject") == "wait":
        raise Refusal("NOT_SUPPORTED")
    if (policy == "manual") != (event.get("replicas") is not None):
        raise Refusal("INVALID_REPLICAS")
    start, shift = event.get("start_index"), event.get("shift")
    if start is not None and not (policy in ("fluvio", "kafka") and 0 <= start <= INDEX_MAX):
        raise Refusal("INVALID_START_INDEX")
    if shift is not None and not (
        policy == "kafka" and start is not None and 0 <= shift <= INDEX_MAX
    ):
        raise Refusal("INVALID_SHIFT")


def _place(
    cluster: Cluster, event: Json, policy: str
) -> tuple[list[list[int]], list[list[int]] | None, str | None]:
    """Replica lists, cores and the order that was placed on; changes the cluster as it goes."""
    if policy == "manual":
        return _place_by_hand(cluster, event["replicas"]), None, None
    ignore_rack = event.get("ignore_rack", False)
    if policy != "redpanda" and not ignore_rack and cluster.rack_mode() == "some":
        raise Refusal("RACKS_INCOMPLETE")
    replicas = event.get("replication_factor", 1)
    online = sum(spu.online for spu in cluster.spus.values())
    if replicas > cluster.ring_size:
        raise Refusal("INSUFFICIENT_CAPACITY" if replicas <= online else "INSUFFICIENT_SPUS")
    order = cluster.order_of(policy, ignore_rack=ignore_rack)
    partitions = event.get("partitions", 1)
    if policy == "redpanda":
        placed = [_allocate(cluster, replicas) for _ in range(partitions)]
        lists = [[spu_id for spu_id, _ in row] for row in placed]
        return lists, [[core for _, core in row] for row in placed], order
    rows = _rows_in_turn(cluster, event, policy, order)
    return [next(rows) for _ in range(partitions)], None, order


def _rows_in_turn(cluster: Cluster, event: Json, policy: str, order: str) -> Iterator[list[int]]:
    """One replica list after the other, each counted before the next is placed."""
    replicas = event.get("replication_factor", 1)
    start = event.get("start_index")
    ring = cluster.orders[order]
    index = cluster.indexes[order] if start is None else Index(moved=True)
    shift = 0
    if start is not None and policy == "fluvio":
        index.value = start
    elif start is not None:
        ring = ring[start % len(ring) :] + ring[: start % len(ring)]
        shift = start if event.get("shift") is None else event["shift"]
    while True:
        if replicas > len(ring):
            raise Refusal("INSUFFICIENT_CAPACITY")
        turn, first = divmod(index.value, len(ring))
        if policy == "fluvio" and order == "id":
            chosen = fluvio_list(ring, index=index.value, replicas=replicas)
        elif policy == "fluvio":
            chosen = fluvio_rack_list(ring, index=index.value, replicas=replicas)
        elif order == "id":
            chosen = kafka_list(ring, first=first, shift=shift + turn, replicas=replicas)
        else:
            racks = {spu_id: cluster.spus[spu_id].rack or "" for spu_id in ring}
            chosen = kafka_rack_list(
                ring, racks, first=first, shift=shift + turn, replicas=replicas
            )
        index.value += 1
        index.moved = True
        for spu_id in chosen:
            cluster.spus[spu_id].count += 1
        cluster.refresh()
        if start is None:
            ring = cluster.orders[order]  # its index is re-based already
        else:
            old, ring = ring, cluster.orders[order]
            if policy == "kafka":
                ring = _headed_alike(old, ring)
            index.rebase(old, ring)
        yield chosen


def _headed_alike(old: list[int], new: list[int]) -> list[int]:
    """The new order, turned so that the first of the old one that remains heads it."""
    head = next((spu_id for spu_id in old if spu_id in new), None)
    if head is None:
        return []
    return new[new.index(head) :] + new[: new.index(head)]


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
        spu = cluster.spus[spu_id]
        core = spu.weights.index(min(spu.weights))
        spu.weights[core] += 1
        spu.count += 1
        chosen.append((spu_id, core))
        cluster.refresh()
    return chosen


def _place_by_hand(cluster: Cluster, raw: Any) -> list[list[int]]:
    """The lists of a manual request, judged and counted."""
    lists = _read_lists(raw)
    for chosen in lists:
        if any(spu_id not in cluster.spus for spu_id in chosen):
            raise Refusal("MANUAL_UNKNOWN_SPU")
        if any(cluster.spus[spu_id].is_full for spu_id in chosen):
            raise Refusal("MANUAL_SPU_FULL")
        for spu_id in chosen:
            cluster.spus[spu_id].count += 1
        cluster.refresh()
    return lists


def _read_lists(raw: Any) -> list[list[int]]:
    entries = raw["partitions"] if isinstance(raw, dict) and list(raw) == ["partitions"] else raw
    if not isinstance(entries, list):
        raise Refusal("MANUAL_MALFORMED")
    if not 1 <= len(entries) <= 100_000:
        raise Refusal("INVALID_PARTITIONS")
    lists: list[list[int]] = []
    for partition, entry in enumerate(entries):
        if not isinstance(entry, dict) or set(entry) != {"id", "replicas"}:
            raise Refusal("MANUAL_MALFORMED")
        if type(entry["id"]) is not int or entry["id"] != partition:
            raise Refusal("MANUAL_PARTITION_IDS")
        chosen = entry["replicas"]
        if type(chosen) is not list:
            raise Refusal("MANUAL_MALFORMED")
        if not chosen:
            raise Refusal("MANUAL_EMPTY_LIST")
        if len(chosen) > 32:
            raise Refusal("INVALID_REPLICATION_FACTOR")
        if lists and len(chosen) != len(lists[0]):
            raise Refusal("MANUAL_UNEVEN_LISTS")
        ids = [value for value in chosen if type(value) is int]
        if any(ids.count(value) > 1 for value in ids):
            raise Refusal("MANUAL_DUPLICATE_SPU")
        if len(ids) < len(chosen) or not all(0 <= value <= 2**31 - 1 for value in ids):
            raise Refusal("MANUAL_INVALID_SPU")
        lists.append(chosen)
    return lists


def _resized(weights: list[int], cores: int) -> list[int]:
    """Weights for this number of cores: what is taken away is handed to the least loaded."""
    kept = weights[:cores] + [0] * (cores - len(weights))
    for weight in weights[cores:]:
        kept[kept.index(min(kept))] += weight
    return kept


def _release(weights: list[int], core: int, count: int) -> None:
    """Take `count` replicas off this core, or if it does not hold as many, off the most loaded."""
    loads = [weight - (2 if number == 0 else 0) for number, weight in enumerate(weights)]
    is_theirs = core < len(loads) and loads[core] >= count
    for _ in range(count):
        source = core if is_theirs else loads.index(max(loads))
        loads[source] -= 1
        weights[source] -= 1


def _transitions(before: dict[int, Spu], cluster: Cluster) -> list[Json]:
    """Who became saturated, and who came back from it, by id."""
    events = []
    for spu_id, spu in sorted(cluster.spus.items()):
        was_saturated = spu_id in before and before[spu_id].is_saturated
        if spu.is_saturated and not was_saturated:
            events.append(_ring_event(spu_id, "saturated"))
        elif was_saturated and spu.online and not spu.is_full:
            events.append(_ring_event(spu_id, "restored"))
    return events


def _ring_event(spu_id: int, change: str, code: str | None = None) -> Json:
    return {"type": "ring_event", "spu_id": spu_id, "change": change, "code": code}


def _status(
    topic: str, status: str, *, code: str | None = None, replicas: list[list[int]] | None = None
) -> Json:
    return {
        "type": "topic_status",
        "topic": topic,
        "status": status,
        "code": code,
        "message": None,
        "replicas": replicas,
    }


def _replica_map(
    name: str,
    topic: Topic,
    replicas: list[list[int]] | None,
    cores: list[list[int]] | None,
    chain_index: int | None,
) -> Json:
    return {
        "type": "replica_map",
        "topic": name,
        "revision": topic.revision,
        "policy": topic.policy,
        "replicas": replicas,
        "cores": cores,
        "chain_index": chain_index,
    }
