"""The bridge to KRaft's own placer, called in its jar through Py4J (no broker runs).

What the comparison says of it holds only if it is really Kafka's placer that answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from spu_assigner.core.base.errors import AssignerError
from support.placers.kafka_placer import Racks, running_kafka_placer
from support.placers.kraft_placer import KraftPlacer, running_kraft_placer

pytestmark = pytest.mark.kafka_jar

# As many partitions as brokers are asked of it: after that it shuffles racks and brokers.
UNEVEN: Racks = {spu_id: "aaabbc"[spu_id % 6] for spu_id in range(30)}


@pytest.fixture(scope="module")
def kraft_placer() -> Iterator[KraftPlacer]:
    with ExitStack() as stack:
        try:
            placer = stack.enter_context(running_kraft_placer())
        except AssignerError as reason:
            if os.environ.get("CI"):
                raise  # Where all must be tested, a missing jar is a failure.
            pytest.skip(f"KRaft's placer cannot be had: {reason}")
        yield placer


@pytest.mark.smoke
def test_lists_are_striped_over_racks(kraft_placer: KraftPlacer) -> None:
    """Its documented pattern: each partition leads on the next rack, one replica on each rack."""
    lists = kraft_placer.assign(UNEVEN, partitions=30, replicas=3)
    racks = [[UNEVEN[spu_id] for spu_id in replicas] for replicas in lists]
    first = "abc".index(str(racks[0][0]))
    assert racks == [["abc"[(first + p + r) % 3] for r in range(3)] for p in range(30)]


def test_brokers_of_a_rack_go_round(kraft_placer: KraftPlacer) -> None:
    """Within a rack each broker is taken once before one is taken again."""
    lists = kraft_placer.assign(UNEVEN, partitions=30, replicas=3)
    for rack, size in {"a": 15, "b": 10, "c": 5}.items():
        taken = [spu_id for ids in lists for spu_id in ids if UNEVEN[spu_id] == rack]
        assert all(len(set(taken[i : i + size])) == size for i in range(0, 30, size))


def test_a_cluster_without_racks_is_placed_too(kraft_placer: KraftPlacer) -> None:
    """Lists are distinct and as long as asked."""
    lists = kraft_placer.assign(dict.fromkeys(range(5)), partitions=20, replicas=3)
    assert [len(set(replicas)) for replicas in lists] == [3] * 20


def test_a_seed_gives_the_same_lists_again(kraft_placer: KraftPlacer) -> None:
    """Figures of a comparison can be made again."""
    runs = []
    for seed in (1, 1, 2):
        kraft_placer.seed(seed)
        runs.append([kraft_placer.assign(UNEVEN, partitions=7, replicas=3) for _ in range(5)])
    assert runs[0] == runs[1] != runs[2]


def test_a_seed_gives_adminutils_lists_again() -> None:
    """Its random generator is a private one of the class, reached by reflection."""
    with ExitStack() as stack:
        try:
            placer = stack.enter_context(running_kafka_placer())
        except AssignerError as reason:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"Kafka's placer cannot be had: {reason}")
        runs = []
        for seed in (1, 1, 2):
            placer.seed(seed)
            runs.append(
                [placer.read(placer.assign_at_random_in_java(UNEVEN, 7, 3)) for _ in range(5)]
            )
        assert runs[0] == runs[1] != runs[2]


def test_the_loop_within_java_places_as_many_topics_as_requested(
    kraft_placer: KraftPlacer,
) -> None:
    """A bench measures it. What is drawn after it shows how much was drawn in it."""
    kraft_placer.seed(1)
    kraft_placer.topics_in_java(UNEVEN, topics=2, partitions=30, replicas=3)()
    after = kraft_placer.assign(UNEVEN, partitions=30, replicas=3)
    kraft_placer.seed(1)
    lists = [kraft_placer.assign(UNEVEN, partitions=30, replicas=3) for _ in range(3)]
    assert after == lists[2]
    assert lists[2] not in lists[:2]
