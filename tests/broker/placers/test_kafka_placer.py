"""Ours against Kafka's own placers, called in their jars through Py4J (no broker runs).

`kafka` equals `AdminUtils` with a fixed start; without one Kafka draws at random, and ours goes on
as one long topic with start 0 would. `kraft` is held to the controller's class with the same seed;
racks have names of one letter, since Java's hash map has these in the order of the alphabet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Final

import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import ReplicaMap, TopicStatus
from spu_assigner.core.decision.machine import step
from spu_assigner.core.policies.striped import stripes_seed
from spu_assigner.core.rules import kafka
from spu_assigner.core.state.cluster_state import ClusterState
from support.events.builders import Events
from support.placers.kafka_java import (
    KafkaPlacer,
    KraftPlacer,
    Racks,
    or_skip,
    running_kafka_placer,
    running_kraft_placer,
)

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


# The placer of Kafka's KRaft controller.


KRAFT_CLUSTERS: Final = 3_000
SEED_BITS: Final = 2**48 - 1  # as many as java.util.Random reads


@pytest.fixture(scope="module")
def kraft_placer() -> Iterator[KraftPlacer]:
    with or_skip(running_kraft_placer()) as placer:
        yield placer


def test_random_clusters_are_placed_as_kafkas_own_class_places_them(
    kraft_placer: KraftPlacer,
) -> None:
    """With offline SPUs as fenced brokers, up to three topics each, past the shuffle and not."""
    random = Random(4)
    fenced_lists = 0
    for number in range(KRAFT_CLUSTERS):
        events, assigner, cluster_id = Events(f"c{number}"), Assigner(Policy.KRAFT), f"c{number}"
        names = random.choice([[None], ["a", "b", "c"], [None, "a", "b"], list("abcdefghijklmno")])
        racks = {i: random.choice(names) for i in random.sample(range(40), random.randint(1, 12))}
        for spu_id, rack in racks.items():
            assigner.apply(events.join(spu_id, rack=rack))
        fenced = {i for i in racks if random.random() < random.choice([0.0, 0.3])}
        fenced.discard(random.choice(sorted(racks)))
        for spu_id in fenced:
            assigner.apply(events.leave(spu_id))
        index = 0
        for topic in "abc"[: random.randint(1, 3)]:
            partitions, replicas = random.randint(1, 30), random.randint(1, len(racks))
            [found, _] = assigner.apply(events.create(topic, partitions, replicas))
            assert isinstance(found, ReplicaMap)
            assert found.replicas is not None
            kraft_placer.seed(stripes_seed(cluster_id, topic, index) & SEED_BITS)
            expected = kraft_placer.assign(
                racks, partitions=partitions, replicas=replicas, fenced=fenced
            )
            assert found.replicas.tolist() == expected, (number, racks, fenced, topic)
            assert not fenced.intersection(row[0] for row in expected)
            fenced_lists += sum(not fenced.isdisjoint(row) for row in expected)
            index += partitions
    assert fenced_lists > KRAFT_CLUSTERS


@pytest.mark.parametrize(("fenced", "replicas"), [({0, 1, 2}, 1), ({2}, 4), (set(), 4)])
def test_what_kafka_refuses_is_refused(
    kraft_placer: KraftPlacer, fenced: set[int], replicas: int
) -> None:
    """All fenced, or fewer brokers than replicas: Kafka's InvalidReplicationFactorException."""
    events, assigner = Events(), Assigner(Policy.KRAFT)
    for event in (*events.joins(0, 1, 2), *map(events.leave, sorted(fenced))):
        assigner.apply(event)
    [status] = assigner.apply(events.create("t", 1, replicas))
    assert isinstance(status, TopicStatus)
    assert status.code == "INSUFFICIENT_SPUS"
    racks: dict[int, Any] = dict.fromkeys(range(3))
    with pytest.raises(Exception, match="InvalidReplicationFactorException"):
        kraft_placer.assign(racks, partitions=1, replicas=replicas, fenced=fenced)
