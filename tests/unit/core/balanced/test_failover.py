"""Who follows first: failovers of `balanced` are even, counted over all topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from random import Random
from unittest import mock

import pytest
from spu_assigner.core.balanced import failover, policy
from spu_assigner.core.balanced.failover import order_followers
from spu_assigner.core.base.events import Policy, SpuId
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.decision import requests
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state import cluster_state, takeovers
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.takeovers import Takeovers
from support.events.builders import Events

DOCUMENTS = "abbccc"


class Cluster:
    """A cluster with these racks, and the lists of all its topics."""

    def __init__(
        self, racks: str, capacities: Sequence[int] = (10**6,), disk: int | None = None
    ) -> None:
        """Capacities: of SPU 0, 1 …, then from the first one again. `disk`: of each SPU."""
        self.racks = racks
        self.capacities = [capacities[at % len(capacities)] for at in range(len(racks))]
        self.state, self.build = ClusterState("c1"), Events()
        self.lists: list[list[int]] = []
        for spu_id, (rack, capacity) in enumerate(zip(racks, self.capacities, strict=True)):
            joined = self.build.join(
                spu_id,
                rack=None if rack == "-" else rack,
                capacity=capacity,
                resources={} if disk is None else {"disk_bytes": disk},
            )
            step(self.state, joined, default_policy=Policy.BALANCED)

    def create(self, topic: str, partitions: int, replicas: int = 3, disk: int = 0) -> None:
        """`disk`: what a replica needs."""
        demand = {"disk_bytes": disk} if disk else None
        event = self.build.create(topic, partitions, replicas, demand=demand)
        for record in step(self.state, event, default_policy=Policy.BALANCED):
            if isinstance(record, ReplicaMap) and record.replicas is not None:
                self.lists += record.replicas.tolist()

    def beyond_fair(self, failed: set[int]) -> float:
        """The most that one SPU on another rack takes over, less its fair share by capacity."""
        racks = {self.racks[spu_id] for spu_id in failed} - {"-"}
        others = [
            spu_id
            for spu_id, rack in enumerate(self.racks)
            if spu_id not in failed and rack not in racks
        ]
        heirs = Counter(
            next(spu_id for spu_id in row if spu_id not in failed)
            for row in self.lists
            if row[0] in failed
        )
        all_parts = sum(self.capacities[spu_id] for spu_id in others)
        return max(
            heirs[spu_id] - heirs.total() * self.capacities[spu_id] / all_parts for spu_id in others
        )


@pytest.mark.parametrize(
    ("racks", "most"),
    [(DOCUMENTS, 1), ("abc" * 3, 2), ("abc" * 7, 2), ("abcde" * 4, 2), ("-" * 6, 1)],
)
def test_over_many_topics_each_failure_is_taken_over_evenly(racks: str, most: int) -> None:
    """Whatever the sizes of topics are. As lists are dealt, without heirs, one SPU takes over 75
    more than its share on the first."""
    cluster, random = Cluster(racks), Random(7)
    for number in range(100):
        cluster.create(f"t{number}", random.choice([6, 6, random.randint(1, 12)]))
    for failed in failures(racks):
        assert cluster.beyond_fair(failed) <= most


@pytest.mark.parametrize(("spus_a_rack", "most"), [(7, 2.5), (4, 5)])
def test_spus_of_different_capacity_take_over_by_capacity(spus_a_rack: int, most: float) -> None:
    """A third of them are four times as large as the smallest: if all took over as much, some would
    be 12 leaders beyond that. On few SPUs the same ones come together again and again."""
    cluster = Cluster("abc" * spus_a_rack, [10**6] * 3 + [2 * 10**6] * 3 + [4 * 10**6] * 3)
    for number in range(150):
        cluster.create(f"t{number}", 8)
    assert max(map(cluster.beyond_fair, failures(cluster.racks))) <= most


@pytest.mark.parametrize(
    ("racks", "kinds", "replicas", "most"),
    [
        (DOCUMENTS, 1, 3, 1),
        ("abc" * 21, 1, 3, 2),
        ("abc" * 21, 3, 3, 2),
        ("a" * 50 + "b" * 30 + "c" * 20, 1, 3, 2),
        ("abcdef" * 10, 1, 3, 3),
        ("abcd" * 10, 1, 4, 2),
        ("ab" * 10, 1, 2, 1),
        ("-" * 64, 1, 3, 1),
        ("-" * 30, 1, 5, 2),
        ("-" * 4, 1, 3, 1),
    ],
)
@pytest.mark.parametrize("partitions", [1_000, 5_000])
def test_of_one_large_topic_each_failure_is_taken_over_evenly(
    racks: str, kinds: int, replicas: int, most: int, partitions: int
) -> None:
    """Dealt list by list, one SPU takes over 623 more than its share on the first, 18 on the
    second."""
    cluster = Cluster(racks, [10**6 * 2**kind for kind in range(kinds) for _ in "abc"])
    cluster.create("t", partitions, replicas)
    assert max(map(cluster.beyond_fair, failures(racks))) <= most


@pytest.mark.thorough
@pytest.mark.parametrize(("racks", "most"), [("-" * 20, 2), ("-" * 64, 2), ("abc" * 21, 8)])
def test_large_topics_go_on_where_others_have_ended(racks: str, most: int) -> None:
    """Without racks as exactly as in one topic."""
    cluster = Cluster(racks)
    for number in range(20):
        cluster.create(f"t{number}", 400 + 100 * (number % 7))
    assert max(map(cluster.beyond_fair, failures(racks))) <= most


@pytest.mark.parametrize("racks", [DOCUMENTS, "abc" * 7, "abcdef" * 3, "-" * 20, "-" * 5, "-" * 3])
@pytest.mark.parametrize("kinds", [1, 2])
def test_a_large_topic_has_the_numbers_that_it_has_list_by_list(racks: str, kinds: int) -> None:
    """How often an SPU is in its lists and which it leads, on clusters that hold something; where
    lists have all SPUs, nobody can change places."""
    by_leader = Cluster(racks, [10**6 * 2**kind for kind in range(kinds)])
    by_leader.create("a", 7)
    by_list = deepcopy(by_leader)
    by_leader.create("t", 1_001)
    with mock.patch.object(policy, "rows_by_leader", return_value=None):
        by_list.create("t", 1_001)
    found, plain = by_leader.lists[7:], by_list.lists[7:]
    assert [row[0] for row in found] == [row[0] for row in plain]
    assert Counter(spu_id for row in found for spu_id in row) == Counter(
        spu_id for row in plain for spu_id in row
    )
    for row in found:
        assert len({*row}) == 3
        assert "-" in racks or len({racks[spu_id] for spu_id in row}) == 3


@pytest.mark.parametrize("replicas", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "racks", [DOCUMENTS, "abc" * 7, "abcde" * 4, "aabbb", "-" * 6, "aabb-c", "aab--cc-"]
)
def test_exchanges_break_no_rule(racks: str, replicas: int) -> None:
    """An SPU is as often in the lists of a request, and on as many racks in each, as without."""
    replicas = min(replicas, len(racks))
    with_exchange, without = Cluster(racks), Cluster(racks)
    for number in range(40):
        partitions = 1 + number * 7 % 19
        with_exchange.create(f"t{number}", partitions, replicas)
        with mock.patch.object(failover, "NEARBY", 0):
            without.create(f"t{number}", partitions, replicas)
        found, plain = with_exchange.lists[-partitions:], without.lists[-partitions:]
        assert Counter(spu_id for row in found for spu_id in row) == Counter(
            spu_id for row in plain for spu_id in row
        )
        assert [row[0] for row in found] == [row[0] for row in plain]
        for row, other in zip(found, plain, strict=True):
            assert len({*row}) == replicas
            assert len({racks[spu_id] for spu_id in row}) == len(
                {racks[spu_id] for spu_id in other}
            )
    assert (with_exchange.lists != without.lists) is (replicas < len(racks))


def test_where_spus_fill_lists_keep_their_followers() -> None:
    """The rule about racks is for the ring as it is at each list; who leaves it, when, stays."""
    cluster = Cluster(DOCUMENTS, [6])
    with mock.patch.object(failover, "NEARBY", 10**6):
        cluster.create("a", 6)
    plain = Cluster(DOCUMENTS, [6])
    with mock.patch.object(requests, "order_followers"):
        plain.create("a", 6)
    assert [{*row} for row in cluster.lists] == [{*row} for row in plain.lists]


def test_topics_with_a_demand_are_taken_over_evenly() -> None:
    """Without exchanges one SPU takes over 4 more than its share."""
    cluster, random = Cluster(DOCUMENTS, disk=10**12), Random(5)
    for number in range(100):
        cluster.create(f"t{number}", 6, disk=int(10**5 * random.paretovariate(1.2)))
    cluster.create("large", 2_000, disk=10**5)
    assert max(map(cluster.beyond_fair, failures(DOCUMENTS))) <= 2


def test_where_a_resource_is_used_up_lists_keep_their_followers() -> None:
    """The fifth of 5 partitions would not find room on an SPU that had all those before."""
    roomy, tight = Cluster(DOCUMENTS, disk=51), Cluster(DOCUMENTS, disk=50)
    with mock.patch.object(
        failover, "_find_heirs", side_effect=lambda *given: reaches.append(given[2].reach)
    ):
        reaches: list[int] = []
        for cluster in (roomy, tight):
            cluster.create("a", 5, disk=10)
    assert reaches == [failover.NEARBY * 2, 0]


def failures(racks: str) -> list[set[int]]:
    """Of each SPU and of each rack."""
    of_racks = [
        {spu_id for spu_id, own in enumerate(racks) if own == rack} for rack in {*racks} - {"-"}
    ]
    return [{spu_id} for spu_id in range(len(racks))] + of_racks


def counts_of(counted: Takeovers) -> tuple[dict, ...]:
    """By id of the SPU, without zeros."""
    counted.settle()
    id_of = dict(enumerate(counted.ids))
    names = {number: name for name, number in counted._rack_numbers.items()}
    totals = {names[rack]: total for rack, total in enumerate(counted.rack_totals) if total}
    return totals, *(
        {
            (known[giver], id_of[heir]): count
            for giver, own in enumerate(counts or ())
            for heir, count in enumerate(own)
            if count not in (0, takeovers.NEVER)
        }
        for counts, known in ((counted.from_racks, names), (counted.from_spus, id_of))
    )


@pytest.mark.parametrize("one_by_one", [takeovers.ONE_BY_ONE, 4])
def test_the_counts_are_those_of_the_lists_that_there_are(
    one_by_one: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restarted process then places as one that ran on: also after topics went, SPUs came or
    changed their racks, and leaders were demoted."""
    monkeypatch.setattr(takeovers, "ONE_BY_ONE", one_by_one)
    monkeypatch.setattr(takeovers, "LATER_MIN", one_by_one)
    monkeypatch.setattr(takeovers, "LATER_CELLS_MAX", 60)
    cluster, random = Cluster("aabbcc-"), Random(1)
    state, build = cluster.state, cluster.build
    for number in range(60):
        cluster.create(f"t{number}", random.randint(1, 9), random.randint(1, 4))
        if number % 4 == 3:
            step(state, build.delete(f"t{number - 2}"), default_policy=Policy.BALANCED)
        if number in {20, 40}:
            joined = build.join(7 if number == 20 else 3, rack="d", capacity=10**6)
            step(state, joined, default_policy=Policy.BALANCED)
        if number == 50:
            step(state, build.demote(SpuId(2)), default_policy=Policy.BALANCED)
        kept, state._takeovers = state.takeovers(), None
        assert counts_of(kept) == counts_of(state.takeovers())
        state._takeovers = kept


def test_a_map_that_was_ordered_and_not_granted_does_not_count() -> None:
    cluster = Cluster("abc")
    lists = ReplicaLists.of_lists([[0, 1, 2], [0, 1, 2]])
    order_followers(cluster.state, lists.matrix, ignore_rack=False, may_exchange=True)
    assert lists.tolist() == [[0, 1, 2], [0, 2, 1]]
    counted = cluster.state.takeovers()
    counted.count(ReplicaLists.of_lists([[0, 1, 2]]))
    assert counts_of(counted)[1] == {("a", 1): 1}
    assert counted.rack_totals == [1, 0, 0]


def test_counts_for_too_many_racks_and_spus_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the memory that they take has a limit, also where a cluster grows later."""
    cluster = Cluster("------")
    cluster.create("t", 4)
    monkeypatch.setattr(cluster_state, "COUNTS_MAX", 48)
    assert cluster.state._takeovers is not None
    for spu_id in (6, 7):
        joined = cluster.build.join(spu_id, rack="d", capacity=10**6)
        step(cluster.state, joined, default_policy=Policy.BALANCED)
    assert cluster.state._takeovers is None
