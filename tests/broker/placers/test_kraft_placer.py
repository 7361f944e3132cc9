"""The bridges to Kafka's two placers, called in their jars through Py4J (no broker runs).

What the comparison says of them holds only if it is really Kafka's placers that answer.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.placers.kafka_java import or_skip
from support.placers.kafka_placer import Racks, running_kafka_placer
from support.placers.kraft_placer import KraftPlacer, running_kraft_placer

pytestmark = pytest.mark.kafka_jar

# As many partitions as brokers are asked of it: after that it shuffles racks and brokers.
UNEVEN: Racks = {spu_id: "aaabbc"[spu_id % 6] for spu_id in range(30)}


@pytest.fixture(scope="module")
def kraft_placer() -> Iterator[KraftPlacer]:
    with or_skip(running_kraft_placer()) as placer:
        yield placer


@pytest.mark.smoke
def test_lists_are_striped_over_racks(kraft_placer: KraftPlacer) -> None:
    """Its documented pattern: each partition leads on the next rack, one replica on each rack."""
    lists = kraft_placer.assign(UNEVEN, partitions=30, replicas=3)
    racks = [[UNEVEN[spu_id] for spu_id in replicas] for replicas in lists]
    first = "abc".index(str(racks[0][0]))
    assert racks == [["abc"[(first + p + r) % 3] for r in range(3)] for p in range(30)]


def test_a_seed_gives_the_same_lists_again(kraft_placer: KraftPlacer) -> None:
    """Figures of a comparison can be made again; AdminUtils' generator is private to its class."""
    runs: list[list[object]] = [[], []]
    with or_skip(running_kafka_placer()) as kafka:
        for seed in (1, 1, 2):
            kraft_placer.seed(seed)
            kafka.seed(seed)
            drawn = [kafka.assign_at_random_in_java(UNEVEN, 7, 3) for _ in range(5)]
            runs[0].append([kraft_placer.assign(UNEVEN, partitions=7, replicas=3) for _ in "12345"])
            runs[1].append([kafka.read(each) for each in drawn])
    assert all(first == again != other for first, again, other in runs)
