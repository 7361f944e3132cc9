"""The planner beside Kafka's own placer in its warm JVM, in the same run, on the same brokers.

Ours is the whole decision: validation, placement, capacity, chain, records, state. Kafka's is the
placement alone, its result left in Java.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from spu_assigner.core.base.events import Policy, SpuJoined, TopicCreate
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState
from support.bench.figures import QUICK, keep, say, spread
from support.placers.kafka_placer import KafkaPlacer, Racks, running_kafka_placer
from support.placers.kraft_placer import running_kraft_placer

SPUS: Final = 1_000
REPLICAS: Final = 3
LARGE: Final = 100_000  # partitions of one topic
TOPICS: Final = 1_000
TOPIC_PARTITIONS: Final = 10
SMALL_RING: Final = 64  # SPUs, as in the job's benches
ROUNDS: Final = 3 if QUICK else 9
WARM_UP: Final = 2 if QUICK else 5
# Rounds of Kafka's placer on each ring; the rates of the first 20 differ tenfold.
JAVA_WARM_UP: Final = 10 if QUICK else 60
# Before all: without racks it doubles once more after some 100.
JAVA_WARM_UP_FIRST: Final = 40 if QUICK else 300
RACKS: Final = 10
NEVER_FULL: Final = 2**31 - 1
GROWING_PARTITIONS: Final = (100, 10_000) if QUICK else (100, 1_000, 10_000, 100_000)
GROWING_SPUS: Final = (10, 1_000) if QUICK else (10, 100, 1_000, 10_000)
GROWING_LARGE: Final = GROWING_PARTITIONS[-1]
ROUND_PARTITIONS_MIN: Final = 10_000  # small requests are repeated until a round has as many


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A ring: the rack and the capacity of its SPUs, turn by turn."""

    racks: tuple[int | None, ...] = (None,)
    capacities: tuple[int, ...] = (NEVER_FULL,)

    def brokers(self, spus: int = SPUS) -> Racks:
        """The rack of each SPU, by id."""
        names = [None if rack is None else f"r{rack}" for rack in self.racks]
        return {spu_id: names[spu_id % len(names)] for spu_id in range(spus)}

    def cluster(self, spus: int = SPUS) -> ClusterState:
        """A cluster whose SPUs never fill up."""
        state = ClusterState("c")
        for spu_id, rack in self.brokers(spus).items():
            capacity = self.capacities[spu_id % len(self.capacities)]
            joined = SpuJoined(
                event_id=f"j{spu_id}", cluster_id="c", spu_id=spu_id, rack=rack, capacity=capacity
            )
            step(state, joined, default_policy=Policy.FLUVIO)
        return state


NO_RACKS: Final = Shape()
EVEN_RACKS: Final = Shape(racks=tuple(range(RACKS)))
KINDS: Final = tuple(1_000_000 * times for times in (1, 2, 4, 8))  # of hardware
MANY_KINDS: Final = tuple(range(10**6, 3 * 10**6, 2_000))
SHAPES: Final = {
    "no racks": NO_RACKS,
    f"{RACKS} racks": EVEN_RACKS,
    "3 racks": Shape(racks=(0, 1, 2)),
    "100 racks": Shape(racks=tuple(range(100))),
    "4 racks, 4:3:2:1": Shape(racks=(0, 0, 0, 0, 1, 1, 1, 2, 2, 3)),
    "10 racks, 5:4:3:3:2:1:1:1:1:1": Shape(
        racks=(0,) * 5 + (1,) * 4 + (2,) * 3 + (3,) * 3 + (4, 4) + tuple(range(5, 10))
    ),
    "4 capacities, no racks": Shape(capacities=KINDS),
    "4 capacities, 9 racks": Shape(racks=tuple(range(9)), capacities=KINDS),
    "1,000 capacities, no racks": Shape(capacities=MANY_KINDS),
    f"1,000 capacities, {RACKS} racks": Shape(racks=tuple(range(RACKS)), capacities=MANY_KINDS),
}
ALL_POLICIES_ON: Final = ("no racks", f"{RACKS} racks")
MEASURED: Final = (*ALL_POLICIES_ON, "1,000 capacities, no racks") if QUICK else tuple(SHAPES)
LEAST: Final = "the least of all rings with racks"


def rate(partitions: int, work: Callable[[int], object], *, warm_up: int = WARM_UP) -> list[float]:
    """Partitions per second of each round, after some that are not counted."""
    return [partitions / seconds(work, number) for number in range(warm_up + ROUNDS)][warm_up:]


def seconds(work: Callable[[Any], object], given: object) -> float:
    """How long it takes."""
    begun = time.perf_counter()
    work(given)
    return time.perf_counter() - begun


def creates(policy: Policy, prefix: str, topics: int, partitions: int) -> list[TopicCreate]:
    """Requests for new topics."""
    names = [f"{prefix}-{topic}" for topic in range(topics)]
    return [
        TopicCreate(
            event_id=name,
            cluster_id="c",
            topic=name,
            partitions=partitions,
            replication_factor=REPLICAS,
            policy=policy,
        )
        for name in names
    ]


def planner_rate(
    state: ClusterState, policy: Policy, partitions: int, topics: int | None = None
) -> list[float]:
    """Partitions per second of topics of that size: requests are there, maps are made of them."""
    topics = topics or -(-ROUND_PARTITIONS_MIN // partitions)

    def work(events: list[TopicCreate]) -> None:
        for event in events:
            assert isinstance(step(state, event, default_policy=policy)[0], ReplicaMap)

    rates = []
    for number in range(WARM_UP + ROUNDS):
        events = creates(policy, f"t{partitions}-{number}", topics, partitions)
        rates.append(topics * partitions / seconds(work, events))
    return rates[WARM_UP:]


def kafka_rate(kafka: KafkaPlacer, brokers: Racks, partitions: int) -> list[float]:
    """The same of Kafka's placer."""
    calls = -(-ROUND_PARTITIONS_MIN // partitions)

    def work(number: int) -> None:
        for call in range(calls):
            kafka.assign_in_java(brokers, partitions, REPLICAS, number + call, 0)

    return rate(calls * partitions, work, warm_up=JAVA_WARM_UP)


@contextmanager
def warm_kafka_placer() -> Iterator[KafkaPlacer]:
    """Kafka's placer, its loops compiled as well as its Java does it."""
    with running_kafka_placer() as kafka:
        for shape in (NO_RACKS, EVEN_RACKS):
            brokers = shape.brokers()
            for number in range(JAVA_WARM_UP_FIRST):
                kafka.assign_in_java(brokers, LARGE, REPLICAS, number, 0)
        yield kafka


def topics_rates(spus: int) -> dict[str, object]:
    """TOPICS small topics on a ring of so many SPUs without racks: all placers' rates."""
    partitions = TOPICS * TOPIC_PARTITIONS
    rates: dict[str, list[float]] = {}
    for name, running in (
        ("kafka's placer", running_kafka_placer),
        ("kraft's placer", running_kraft_placer),
    ):
        with running() as placer:
            place = placer.topics_in_java(
                NO_RACKS.brokers(spus),
                topics=TOPICS,
                partitions=TOPIC_PARTITIONS,
                replicas=REPLICAS,
            )
            rates[name] = rate(partitions, lambda _, p=place: p(), warm_up=JAVA_WARM_UP)  # type: ignore[misc]
    best = max(statistics.median(each) for each in rates.values())
    for policy in (Policy.BALANCED, Policy.FLUVIO, Policy.KAFKA):
        state = NO_RACKS.cluster(spus)
        rates[policy] = planner_rate(state, policy, TOPIC_PARTITIONS, TOPICS)
    suffix = f"1,000 topics, {spus:,} SPUs"
    figures: dict[str, object] = {f"{name}, {suffix}": spread(r) for name, r in rates.items()}
    for policy in (Policy.BALANCED, Policy.FLUVIO, Policy.KAFKA):
        ratio = statistics.median(rates[policy]) / best
        figures[f"{policy}, {suffix}: times kafka's best placer"] = round(ratio, 2)
    return figures


def test_planner_beside_kafkas_placer() -> None:
    """One topic of 100,000 partitions on rings of several shapes, and 1,000 topics of 10."""
    figures: dict[str, object] = {}
    ratios: dict[Policy, list[float]] = {}
    with warm_kafka_placer() as kafka:
        for name in MEASURED:
            shape = SHAPES[name]
            say(f"one topic of {LARGE:,} partitions, {name}")
            theirs = kafka_rate(kafka, shape.brokers(), LARGE)
            figures[f"kafka's placer, one topic, {name}"] = spread(theirs)
            policies = [Policy.BALANCED, Policy.KAFKA]
            if name in ALL_POLICIES_ON:
                policies += [Policy.FLUVIO, Policy.REDPANDA]
            for policy in policies:
                ours = planner_rate(shape.cluster(), policy, LARGE)
                figures[f"{policy}, one topic, {name}"] = spread(ours)
                ratio = statistics.median(ours) / statistics.median(theirs)
                figures[f"{policy}, one topic, {name}: times kafka's placer"] = round(ratio, 2)
                if shape.racks != (None,):
                    ratios.setdefault(policy, []).append(ratio)
    for policy in (Policy.BALANCED, Policy.KAFKA):
        figures[f"{policy}, one topic, {LEAST}: times kafka's placer"] = round(
            min(ratios[policy]), 2
        )
    for spus in (SPUS, SMALL_RING):
        say(f"{TOPICS:,} topics of {TOPIC_PARTITIONS} partitions, {spus:,} SPUs")
        figures |= topics_rates(spus)
    keep(
        "planner",
        sizes={
            "spus": SPUS,
            "replicas": REPLICAS,
            "one_topic_partitions": LARGE,
            "topics": TOPICS,
            "partitions_each": TOPIC_PARTITIONS,
            "unit": "partitions per second",
        },
        figures=figures,
        show=False,
    )


def test_planner_as_requests_and_clusters_grow() -> None:
    """Rates over the partitions of a topic and over the SPUs of a cluster, for a curve."""
    figures: dict[str, object] = {}
    sizes = [(SPUS, partitions) for partitions in GROWING_PARTITIONS]
    sizes += [(spus, GROWING_LARGE) for spus in GROWING_SPUS if spus != SPUS]
    with warm_kafka_placer() as kafka:
        for name, shape in (("no racks", NO_RACKS), (f"{RACKS} racks", EVEN_RACKS)):
            for spus, partitions in sizes:
                size = f"{spus:,} SPUs, {partitions:,} partitions, {name}"
                say(size)
                theirs = kafka_rate(kafka, shape.brokers(spus), partitions)
                figures[f"kafka's placer, {size}"] = spread(theirs)
                for policy in (Policy.BALANCED, Policy.FLUVIO, Policy.KAFKA):
                    ours = planner_rate(shape.cluster(spus), policy, partitions)
                    figures[f"{policy}, {size}"] = spread(ours)
    keep(
        "planner_growth",
        sizes={
            "spus": list(GROWING_SPUS),
            "partitions": list(GROWING_PARTITIONS),
            "replicas": REPLICAS,
            "unit": "partitions per second",
        },
        figures=figures,
        show=False,
    )
