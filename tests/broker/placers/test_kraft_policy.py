"""The policy `kraft` beside Kafka's own class, called in its jar with the same seed.

Racks have names of one letter: Java's hash map, in whose order Kafka lets racks draw, has these in
the order of the alphabet, as the policy has all names.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import ReplicaMap, TopicStatus
from spu_assigner.core.policies.striped import stripes_seed
from support.events.builders import Events
from support.placers.kafka_java import or_skip
from support.placers.kraft_placer import KraftPlacer, running_kraft_placer

pytestmark = pytest.mark.kafka_jar

CLUSTERS: Final = 3_000
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
    for number in range(CLUSTERS):
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
    assert fenced_lists > CLUSTERS


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
