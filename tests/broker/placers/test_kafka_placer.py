"""Ours against Kafka's own placer, called in its jar through Py4J (no broker runs).

Kafka's `AdminUtils.assignReplicasToBrokers` with a fixed start index is what `kafka` promises to
equal; without one Kafka draws at random, and ours goes on as one long topic with start 0 would.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from random import Random

import pytest
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import ReplicaMap, TopicStatus
from spu_assigner.core.decision.machine import step
from spu_assigner.core.rules import kafka
from spu_assigner.core.state.cluster_state import ClusterState
from support.events.builders import Events
from support.placers.kafka_java import or_skip
from support.placers.kafka_placer import KafkaPlacer, Racks, running_kafka_placer

pytestmark = pytest.mark.kafka_jar

CLUSTERS = 40  # of each kind; with the numbers below 4,200 inputs in all
REQUESTS = 25  # of each cluster, with a start index
TOPICS = 10  # of each cluster, chained


@dataclass(frozen=True, kw_only=True)
class Request:
    partitions: int
    replicas: int
    start: int

    @classmethod
    def draw(cls, rng: Random, size: int) -> Request:
        return cls(
            partitions=rng.choice([rng.randint(1, 9), rng.randint(10, 150)]),
            replicas=rng.randint(1, min(size, 8)),
            start=rng.choice([0, rng.randrange(size), rng.randrange(10_000)]),
        )


@pytest.fixture(scope="module")
def kafka_placer() -> Iterator[KafkaPlacer]:
    with or_skip(running_kafka_placer()) as placer:
        yield placer


def clusters(kind: str) -> Iterator[tuple[Random, Racks]]:
    """Random brokers with no racks, even racks or uneven ones; the same in every run."""
    rng = Random(f"kafka placer, {kind}")
    for _ in range(CLUSTERS):
        rack_count = rng.randint(1, 6)
        names = rng.sample([f"rack {number}" for number in range(20)], rack_count)
        size = rack_count * rng.randint(1, 5) if kind == "even" else rng.randint(1, 30)
        ids = sorted(rng.sample(range(100), size))
        shuffled = rng.sample(range(size), size)
        racks: Racks
        if kind == "none":
            racks = dict.fromkeys(ids)
        elif kind == "even":
            racks = {ids[i]: names[n % rack_count] for n, i in enumerate(shuffled)}
        else:
            weights = [2.0**n for n in range(rack_count)]
            racks = dict(zip(ids, rng.choices(names, weights, k=size), strict=True))
        yield rng, racks


def joined(racks: Racks) -> tuple[ClusterState, Events]:
    state, events = ClusterState("c1"), Events()
    for spu_id, rack in racks.items():
        step(state, events.join(spu_id, rack=rack), default_policy=Policy.KAFKA)
    return state, events


each_kind = pytest.mark.parametrize("kind", ["none", "even", "uneven"])


@pytest.mark.smoke
@each_kind
def test_a_start_index_gives_what_kafkas_fixed_start_gives(
    kafka_placer: KafkaPlacer, kind: str
) -> None:
    """1,000 inputs of each kind, through the whole core."""
    for rng, racks in clusters(kind):
        state, events = joined(racks)
        for _ in range(REQUESTS):
            request = Request.draw(rng, len(racks))
            event = events.create(
                "t",
                request.partitions,
                request.replicas,
                start_index=request.start,
                validate_only=True,
            )
            (status, *_) = step(state, event, default_policy=Policy.KAFKA)
            assert isinstance(status, TopicStatus)
            assert status.replicas is not None, status
            assert status.replicas.tolist() == kafka_placer.assign(racks, **asdict(request)), (
                racks,
                request,
            )


@each_kind
def test_chained_topics_are_one_long_topic_of_kafkas(kafka_placer: KafkaPlacer, kind: str) -> None:
    """400 topics of each kind: from the chain index on, each is what Kafka gives those partitions.

    Kafka is asked for the partitions before, too, since only then its shift has risen as far.
    """
    for rng, racks in clusters(kind):
        state, events = joined(racks)
        index = 0
        for number in range(TOPICS):
            request = Request.draw(rng, len(racks))
            event = events.create(f"t{number}", request.partitions, request.replicas)
            (found, *_) = step(state, event, default_policy=Policy.KAFKA)
            assert isinstance(found, ReplicaMap)
            assert found.replicas is not None
            whole = Request(
                partitions=index + request.partitions, replicas=request.replicas, start=0
            )
            expected = kafka_placer.assign(racks, **asdict(whole))[index:]
            assert found.replicas.tolist() == expected, (racks, index, request)
            index += request.partitions
            assert found.chain_index == index


@pytest.mark.smoke
@pytest.mark.parametrize("kind", ["even", "uneven"])
def test_the_alternation_over_racks_is_kafkas(kafka_placer: KafkaPlacer, kind: str) -> None:
    for _, racks in clusters(kind):
        names = [rack or "" for rack in racks.values()]
        assert kafka.alternation(list(racks), names) == kafka_placer.alternated(racks), racks
