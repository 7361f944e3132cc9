"""The planner beside Kafka's own placer in its warm JVM, in the same run, on the same brokers.

Ours is the whole decision: validation, placement, capacity, chain, records, state. Kafka's is the
placement alone, its result left in Java.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Final

from spu_assigner.core.events import Policy, SpuJoined, TopicCreate
from spu_assigner.core.machine import step
from spu_assigner.core.records import ReplicaMap
from spu_assigner.core.state import ClusterState
from support.figures import keep, spread
from support.kafka_placer import Racks, running_kafka_placer

SPUS: Final = 1_000
REPLICAS: Final = 3
LARGE: Final = 100_000  # partitions of one topic
TOPICS: Final = 1_000
TOPIC_PARTITIONS: Final = 10
ROUNDS: Final = 9
WARM_UP: Final = 5
JAVA_WARM_UP: Final = (
    60  # rounds until its compiler has settled; the rates of the first 20 differ tenfold
)
RACKS: Final = 10


def rate(partitions: int, work: Callable[[int], object], *, warm_up: int = WARM_UP) -> list[float]:
    """Partitions per second of each round, after some that are not counted."""
    rates = []
    for number in range(warm_up + ROUNDS):
        begun = time.perf_counter()
        work(number)
        rates.append(partitions / (time.perf_counter() - begun))
    return rates[warm_up:]


def cluster(racks: Racks) -> ClusterState:
    """A cluster whose SPUs never fill up."""
    state = ClusterState("c")
    for spu_id, rack in racks.items():
        joined = SpuJoined(
            event_id=f"j{spu_id}", cluster_id="c", spu_id=spu_id, rack=rack, capacity=2**31 - 1
        )
        step(state, joined, default_policy=Policy.FLUVIO)
    return state


def create(state: ClusterState, policy: Policy, name: str, partitions: int) -> None:
    """One topic through the whole core."""
    event = TopicCreate(
        event_id=name,
        cluster_id="c",
        topic=name,
        partitions=partitions,
        replication_factor=REPLICAS,
        policy=policy,
    )
    assert isinstance(step(state, event, default_policy=policy)[0], ReplicaMap)


def many(state: ClusterState, policy: Policy, number: int) -> None:
    """TOPICS topics."""
    for topic in range(TOPICS):
        create(state, policy, f"t{number}-{topic}", TOPIC_PARTITIONS)


def test_planner_beside_kafkas_placer() -> None:
    """One topic of 100,000 partitions, and 1,000 topics of 10."""
    figures: dict[str, object] = {}
    with running_kafka_placer() as kafka:
        for name, racks in {
            "no racks": dict.fromkeys(range(SPUS)),
            f"{RACKS} racks": {spu_id: f"r{spu_id % RACKS}" for spu_id in range(SPUS)},
        }.items():
            theirs = rate(
                LARGE,
                lambda n, r=racks: kafka.assign_in_java(r, LARGE, REPLICAS, n, 0),
                warm_up=JAVA_WARM_UP,
            )  # type: ignore[misc]
            figures[f"kafka's placer, one topic, {name}"] = spread(theirs)
            for policy in (Policy.BALANCED, Policy.FLUVIO, Policy.KAFKA, Policy.REDPANDA):
                state = cluster(racks)
                ours = rate(LARGE, lambda n, s=state, p=policy: create(s, p, f"t{n}", LARGE))  # type: ignore[misc]
                figures[f"{policy}, one topic, {name}"] = spread(ours)
                ratio = statistics.median(ours) / statistics.median(theirs)
                figures[f"{policy}, one topic, {name}: times kafka's placer"] = round(ratio, 2)
        racks = dict.fromkeys(range(SPUS))
        for policy in (Policy.BALANCED, Policy.FLUVIO, Policy.KAFKA):
            state = cluster(racks)
            ours = rate(TOPICS * TOPIC_PARTITIONS, lambda n, s=state, p=policy: many(s, p, n))  # type: ignore[misc]
            figures[f"{policy}, 1,000 topics"] = spread(ours)
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
    )
