"""What the oracle knows of a cluster: SPUs, topics, ring orders with their indexes, what waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from support.model.plain_placement import alternation_order, diagonal_order

ORDERS = ("id", "diagonal", "alternation", "registration")

Json = dict[str, Any]


class Refusal(Exception):  # noqa: N818 — an answer, no failure
    """The request is not met; its only argument is the code."""


@dataclass
class Spu:
    rack: str | None
    capacity: int
    weights: list[int]
    online: bool = True
    cordoned: bool = False
    count: int = 0

    @property
    def is_full(self) -> bool:
        return self.count >= self.capacity

    @property
    def takes(self) -> bool:
        """Whether it is in the ring, unless it is full."""
        return self.online and not self.cordoned


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
        self.value, self.cycle = cycle * len(new), cycle


@dataclass
class Topic:
    policy: str
    replicas: list[list[int]]
    cores: list[list[int]] | None
    created_by: str
    width: int  # replicas of each list
    ignore_rack: bool
    changed_by: list[str] = field(default_factory=list)
    revision: int = 1


@dataclass
class Cluster:
    """All that is known of one cluster.

    `ring_events` gathers what became of the ring as it happens, `cause` is whose doing that is.
    """

    spus: dict[int, Spu] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    orders: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in ORDERS})
    indexes: dict[str, Index] = field(default_factory=lambda: {name: Index() for name in ORDERS})
    seen: list[str] = field(default_factory=list)
    creates: dict[str, Json] = field(default_factory=dict)  # waiting, by topic, oldest first
    saturated: list[int] = field(default_factory=list)
    ring_events: list[Json] = field(default_factory=list)
    cause: str = ""

    def refresh(self) -> None:
        """Recompute the ring in every order, and re-base the index of each."""
        ring = sorted(i for i, spu in self.spus.items() if spu.takes and not spu.is_full)
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
        saturated = [i for i, spu in self.spus.items() if spu.takes and spu.is_full]
        for spu_id in saturated:
            if spu_id not in self.saturated:
                self.report(spu_id, "saturated")
        for spu_id in self.saturated:
            if spu_id in ring:
                self.report(spu_id, "restored")
        self.saturated = saturated

    def report(self, spu_id: int, change: str, code: str | None = None) -> None:
        line = {"type": "ring_event", "spu_id": spu_id, "change": change, "code": code}
        self.ring_events.append({**line, "cause": self.cause})

    @property
    def ring(self) -> list[int]:
        return self.orders["id"]

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

    def index_shown(self, topic: Topic) -> int | None:
        """The chain index that a map of this topic shows now."""
        if topic.policy == "manual":
            return None
        return self.indexes[self.order_of(topic.policy, ignore_rack=topic.ignore_rack)].value


def resized(weights: list[int], cores: int) -> list[int]:
    """Weights for this number of cores: what is taken away is handed to the least loaded."""
    kept = weights[:cores] + [0] * (cores - len(weights))
    for weight in weights[cores:]:
        kept[kept.index(min(kept))] += weight
    return kept


def take_core(weights: list[int]) -> int:
    """The first core of least weight, a replica heavier."""
    core = weights.index(min(weights))
    weights[core] += 1
    return core


def release_cores(cluster: Cluster, held: list[tuple[int, int]]) -> None:
    """Take replicas off the cores (SPU, core) that a topic no longer holds."""
    for spu_id, core in sorted(set(held)):
        _release(cluster.spus[spu_id].weights, core, held.count((spu_id, core)))


def _release(weights: list[int], core: int, count: int) -> None:
    """Take `count` replicas off this core, or if it does not hold as many, off the most loaded."""
    loads = [weight - (2 if number == 0 else 0) for number, weight in enumerate(weights)]
    is_theirs = core < len(loads) and loads[core] >= count
    for _ in range(count):
        source = core if is_theirs else loads.index(max(loads))
        loads[source] -= 1
        weights[source] -= 1
