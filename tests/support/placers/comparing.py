"""Clusters in which placers are compared, what happens to them, and what is expected of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from support.placers.evenness import Evenness, Host
from support.placers.placers import Cluster

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
