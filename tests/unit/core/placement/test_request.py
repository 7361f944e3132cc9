"""Whole requests: lists by the order of preference, room, leaders, and what a cluster that grew
gives to its new SPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import ReplicaMap, TopicStatus
from spu_assigner.core.placement import choose
from spu_assigner.core.state.cluster_state import ClusterState
from support.events.builders import Events
from support.events.one_cluster import OneCluster
from support.project.case_share import share_of


@pytest.fixture(autouse=True, scope="module", params=[256, 0])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Kinds are scanned one by one, or compared in arrays."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "KINDS_SCANNED_MAX", request.param)
        yield


@dataclass(frozen=True, kw_only=True)
class Case:
    """A cluster and the requests that it gets: racks and capacities of SPUs, partitions and
    replicas of topics."""

    spus: list[tuple[int, int]]
    topics: list[tuple[int, int]]


def cases(*, capacities: st.SearchStrategy[int]) -> st.SearchStrategy[Case]:
    spus = st.lists(st.tuples(st.integers(0, 3), capacities), min_size=1, max_size=9)
    topics = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 5)), min_size=1, max_size=6)
    return st.builds(Case, spus=spus, topics=topics)


def free(state: ClusterState) -> list[int]:
    return [max(spu.capacity - state.ledger.count(spu_id), 0) for spu_id, spu in state.spus.items()]


def joined(case: Case) -> OneCluster:
    life = OneCluster()
    for spu_id, (rack, capacity) in enumerate(case.spus):
        life.join(spu_id, rack=f"r{rack}", capacity=capacity)
    return life


@given(cases(capacities=st.integers(1, 12)))
@settings(max_examples=share_of(150), deadline=None)
def test_what_fits_is_given_and_nothing_else(case: Case) -> None:
    """With N lists to come an SPU can be in as many as it has room for, and in N at most."""
    life = joined(case)
    for number, (partitions, replicas) in enumerate(case.topics):
        rooms = free(life.state)
        fits = sum(min(room, partitions) for room in rooms) >= partitions * replicas
        answers = life.create(f"t{number}", partitions, replicas, policy=Policy.BALANCED)
        assert any(isinstance(each, ReplicaMap) for each in answers) == fits
        assert min(free(life.state)) >= 0


@given(cases(capacities=st.sampled_from([100, 200, 7_000])))
@settings(max_examples=share_of(150), deadline=None)
def test_lists_are_as_even_over_racks_as_their_sizes_allow(case: Case) -> None:
    life = joined(case)
    sizes = Counter(rack for rack, _ in case.spus)
    for number, (partitions, replicas) in enumerate(case.topics):
        if replicas > len(case.spus):
            continue
        life.create(f"t{number}", partitions, replicas, policy=Policy.BALANCED)
        most = next(
            count
            for count in range(1, replicas + 1)
            if sum(min(size, count) for size in sizes.values()) >= replicas
        )
        for row in life.lists(f"t{number}"):
            assert len(set(row)) == replicas
            counts = Counter(case.spus[spu_id][0] for spu_id in row)
            for rack, size in sizes.items():
                assert min(size, most - 1) <= counts[rack] <= min(size, most)


def test_a_topic_is_not_given_whole_to_new_spus() -> None:
    """150 even topics on three SPUs, a fourth joins: of the next 50 topics of 6 lists none has all
    leaders, or a replica of each list, on one SPU before its fair share is doubled."""
    life = OneCluster(*Events().joins(0, 1, 2, capacity=10_000))
    for number in range(150):
        life.create(f"old{number}", 6, 2, policy=Policy.BALANCED)
    life.join(3, capacity=10_000)
    for number in range(50):
        life.create(f"new{number}", 6, 2, policy=Policy.BALANCED)
        rows = life.lists(f"new{number}")
        led = Counter(row[0] for row in rows)
        assert max(led.values()) <= 3  # twice 6 / 4
        assert Counter(spu_id for row in rows for spu_id in row)[3] <= 6  # twice 12 / 4


def test_a_refusal_names_the_partition_that_found_too_little_room() -> None:
    life = joined(Case(spus=[(0, 3), (0, 1), (0, 1)], topics=[]))
    [status] = life.create("t", 3, 2, policy=Policy.BALANCED)
    assert isinstance(status, TopicStatus)
    assert status.code is Code.INSUFFICIENT_CAPACITY
    assert "partition 2 found 1 SPUs with a free slot for 2 replicas" in (status.message or "")
