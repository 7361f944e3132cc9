"""Topics that name what they need of resources, against every way to place them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, combinations_with_replacement
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import LeaveMode, OnShortage, Policy
from spu_assigner.core.base.limits import AMOUNT_MAX
from spu_assigner.core.base.records import (
    Mode,
    ReplicaMap,
    RingChange,
    RingEvent,
    Status,
    TopicStatus,
)
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.base.resources import Need, amounts_of
from spu_assigner.core.state.ledger import Ledger
from support.events.one_cluster import OneCluster, the_map, the_status

Amounts = Mapping[str, int]
Lists = Sequence[Sequence[int]]
CASES = 600


class Small(OneCluster):
    def __init__(self) -> None:
        super().__init__(default=Policy.BALANCED)
        self.racks: dict[int, str | None] = {}
        self.has: dict[tuple[int, str], int] = {}
        self.used: dict[tuple[int, str], int] = {}

    def add(self, spu_id: int, resources: Amounts, rack: str | None = None) -> None:
        self.join(spu_id, resources=resources, rack=rack, capacity=100)
        self.racks[spu_id] = rack
        self.has |= {(spu_id, name): n for name, n in {"slots": 100, **resources}.items()}

    def ask(self, topic: str, *size: int, **given: Any) -> TopicStatus:
        answers = self.create(topic, *size, **given)
        if topic in self.state.topics:
            self.used = self.after(self.lists(topic), given.get("demand") or {})
        return the_status(answers)

    def after(self, lists: Lists, demand: Amounts) -> dict[tuple[int, str], int]:
        used = dict(self.used)
        for spu_id in (spu_id for row in lists for spu_id in row):
            for name, amount in {"slots": 1, **demand}.items():
                used[spu_id, name] = used.get((spu_id, name), 0) + amount
        return used

    def largest(self, used: Mapping[tuple[int, str], int]) -> Fraction | None:
        """The largest dominant share; None: more is used than there is."""
        if any(amount > self.has.get(place, 0) for place, amount in used.items()):
            return None
        shares = (Fraction(n, self.has[place]) for place, n in used.items() if n)
        return max(shares, default=Fraction(0))

    def best(self, partitions: int, replicas: int, demand: Amounts) -> Fraction | None:
        rows = [row for row in combinations(self.racks, replicas) if self._is_apart(row)]
        found = (
            self.largest(self.after(lists, demand))
            for lists in combinations_with_replacement(rows, partitions)
        )
        return min((share for share in found if share is not None), default=None)

    def _is_apart(self, row: Sequence[int]) -> bool:
        racks = set(self.racks.values())
        if racks == {None} or len(racks) < len(row):
            return True
        return len({self.racks[spu_id] for spu_id in row}) == len(row)


def random_clusters(count: int, *, racks: int) -> Iterator[tuple[int, Random, Small]]:
    """With racks there is room on each; without, some SPUs have little, or none of a resource."""
    for seed in range(count):
        random, small = Random(seed), Small()
        for spu_id in range(random.randint(racks or 2, 5)):
            least, most, kinds = (200, 900, 2) if racks else (5, 30, random.randint(1, 2))
            resources = {name: random.randint(least, most) for name in ("disk", "net")[:kinds]}
            small.add(spu_id, resources, "abc"[spu_id % racks] if racks else None)
        yield seed, random, small


@pytest.mark.thorough
@pytest.mark.parametrize("racks", [0, 2, 3])
def test_no_other_way_to_place_has_a_largest_share_smaller_by_more_than_a_replica(
    racks: int,
) -> None:
    """And without racks, what is possible is granted, however little room there is.

    List by list, the smallest share first, and no more than twice the fair share of a topic on one
    SPU: so it may be one replica more than where all lists are known.
    """
    granted = refused = exact = 0
    for seed, random, small in random_clusters(CASES if racks == 0 else CASES // 3, racks=racks):
        known = sorted({name for _, name in small.has} - {"slots"})
        for number in range(3):
            demand = {name: random.randint(0, 9) for name in known}
            size = random.randint(1, 3), random.randint(1, min(len(small.racks), racks or 3, 3))
            best = small.best(*size, demand)
            status = small.ask(f"t{number}", *size, demand=demand)
            if status.status is Status.REJECTED:
                refused += 1
                assert best is None, (seed, number, status.message)
                assert status.code is Code.INSUFFICIENT_CAPACITY
                continue
            granted += 1
            largest = small.largest(small.used)
            assert best is not None
            assert largest is not None
            replica = max(
                Fraction(demand.get(name, int(name == "slots")), has)
                for (_, name), has in small.has.items()
            )
            assert largest <= best + replica, (seed, number)
            exact += largest == best
    assert granted > CASES // 2
    assert exact > 0.9 * granted
    assert refused > CASES // 5 or racks


@pytest.mark.parametrize(
    ("policy", "disks", "size", "said"),
    [
        (Policy.FLUVIO, (100, 10, 100), (3, 2), "SPU 1 has 10 of disk free, and the lists take 12"),
        (Policy.REDPANDA, (100, 10, 100), (3, 2), "SPU 1 has 10 of disk free, and the lists take"),
    ],
)
def test_a_refusal_names_the_resource_and_where_it_is_short(
    policy: Policy, disks: Sequence[int], size: tuple[int, int], said: str
) -> None:
    small = Small()
    for spu_id, disk in enumerate(disks):
        small.add(spu_id, {"disk": disk})
    status = small.ask("t", *size, demand={"disk": 6}, policy=policy)
    assert (status.status, status.code) == (Status.REJECTED, Code.INSUFFICIENT_CAPACITY)
    assert said in (status.message or "")


def test_a_create_waits_for_a_resource_and_is_served_when_an_spu_brings_it() -> None:
    small = Small()
    small.add(0, {"disk": 10})
    small.ask("t", 1, 2, demand={"disk": 4}, on_shortage=OnShortage.WAIT)
    small.join(1)
    assert small.state.waiting.keys() == {"t"}
    served = the_map(small.join(1, resources={"disk": 4}))
    assert sorted(small.lists("t")[0]) == [0, 1]
    assert served.need is not None
    assert served.need.demand == (("disk", 4),)


def test_what_is_measured_changes_no_list_and_counts_from_then_on() -> None:
    small = Small()
    small.join(0, 1, 2, resources={"disk": 100})
    small.create("t", 1, 2, demand={"disk": 5})
    before, event = small.lists("t"), small.build.demand("t", demand={"disk": 90})
    measured, status = small.apply(event)
    assert isinstance(measured, ReplicaMap)
    assert measured.reason is not None
    assert (measured.revision, measured.reason.mode, small.lists("t")) == (2, Mode.DEMAND, before)
    assert the_status([status]).status is Status.ASSIGNED
    refused = the_status(small.create("u", 1, 2, demand={"disk": 20}))
    assert "2 have less than 20 of disk free" in str(refused.message)
    again = small.apply(small.build.demand("t", demand={"disk": 90}))
    assert [type(each) for each in again] == [TopicStatus]  # nothing new
    small.apply(small.build.demand("t", demand={}))
    assert small.state.topics["t"].need is None


def test_a_smaller_factor_of_one_list_leaves_room_for_its_next_leader() -> None:
    """SPU 1 comes to lead the longer list, so the shorter one goes to SPU 4, which is full then."""
    life = OneCluster()
    for spu_id, disk in enumerate((50, 19, 6, 50)):
        life.join(spu_id, resources={"disk": disk})
    life.join(4, resources={"disk": 50}, capacity=1)
    life.adopt("load", [2])
    life.adopt("t", [3, 1, 2], [0])
    life.apply(life.build.demand("t", demand={"disk": 6}, leader_demand={"disk": 10}))
    life.leave(3)
    life.apply(life.build.replication("t", 2))
    assert life.lists("t") == [[1, 2], [0, 4]]


def test_a_replica_that_comes_to_lead_takes_what_a_leader_needs() -> None:
    """The only one of its list; SPU 1 has room for two such."""
    life = OneCluster()
    life.join(0, resources={"disk": 30})
    life.create("t", 3, 1, policy=Policy.BALANCED, demand={"disk": 1}, leader_demand={"disk": 10})
    life.join(1, resources={"disk": 25})
    life.leave(0, LeaveMode.DECOMMISSION)
    assert life.lists("t") == [[1], [1], [0]]


BAD: list[tuple[Any, str]] = [
    ({"disk": -1}, "disk is -1; expected 0 to 9007199254740991"),
    ({"disk": 2**53}, "disk is 9007199254740992; expected 0 to 9007199254740991"),
    ({f"r{number}": 1 for number in range(9)}, "names 9 resources; expected at most 8"),
    ({"a b": 1}, "names 'a b'; expected 1 to 64 of [a-zA-Z0-9._-]"),
]


@pytest.mark.parametrize(("amounts", "said"), BAD)
def test_amounts_that_are_none_are_refused_with_what_was_expected(amounts: Any, said: str) -> None:
    life = OneCluster()
    life.join(0, resources={"disk": 10})
    for answers in (
        life.create("t", 1, 1, demand=amounts),
        life.create("t", 1, 1, leader_demand=amounts),
        life.apply(life.build.adopt("t", [0], demand=amounts)),
        life.join(0, resources=amounts),
    ):
        [answer] = answers
        assert isinstance(answer, TopicStatus | RingEvent)
        is_join = isinstance(answer, RingEvent)
        assert answer.code is (Code.INVALID_RESOURCES if is_join else Code.INVALID_DEMAND)
        assert said in str(answer.message)
    assert life.state.topics == {}


def test_a_resource_that_no_spu_has_is_named_with_those_that_there_are() -> None:
    life = OneCluster()
    life.join(0, resources={"disk": 10})
    life.join(1, resources={"net": 10})
    life.create("t", 1, 1, demand={"tape": 0})  # 0 of it is no need
    said = "demand names 'tape', which no SPU of cluster 'c1' has; they have disk, net"
    for event in (
        life.build.create("u", 1, 1, demand={"tape": 1}),
        life.build.adopt("u", [0], demand={"tape": 1}),
        life.build.demand("t", demand={"tape": 1}),
    ):
        refused = the_status(life.apply(event))
        assert refused.code is Code.UNKNOWN_RESOURCE
        assert said in str(refused.message)
    unknown = the_status(life.apply(life.build.demand("no", demand={"disk": 1})))
    assert unknown.code is Code.TOPIC_UNKNOWN


# Resources that are used up.


DISK = {"disk": 30}


@pytest.fixture
def cluster() -> OneCluster:
    """SPUs 0 and 1 with 30 of disk each."""
    made = OneCluster()
    made.join(0, 1, resources=DISK)
    return made


def test_an_spu_that_uses_up_a_resource_is_saturated_of_it_and_stays_in_the_ring(
    cluster: OneCluster,
) -> None:
    """Topics that need nothing of it can still go there."""
    found = cluster.create("t", 3, 2, demand={"disk": 10})
    full = [each for each in found if isinstance(each, RingEvent)]
    assert [(each.spu_id, each.change, each.resource) for each in full] == [
        (spu_id, RingChange.SATURATED, "disk") for spu_id in (0, 1)
    ]
    assert cluster.state.ring.ids.tolist() == [0, 1]
    [_, status] = cluster.create("slots", 1, 2)
    assert isinstance(status, TopicStatus)
    assert status.status is Status.ASSIGNED


@pytest.mark.parametrize(
    ("given", "lacks"),
    [
        ({"demand": {"disk": 1}}, "2 have less than 1 of disk free"),
        (
            {"demand": {"net": 1}, "leader_demand": {"net": 4}},
            "2 have less than 4 of net free, for a leader",
        ),
        (
            {"demand": {"disk": 1}, "constraints": Constraints(require=("rack=a",))},
            "the rules allow 1 (1 has less than 1 of disk free)",
        ),
    ],
)
def test_a_refusal_names_the_resource_that_is_short(given: dict[str, Any], lacks: str) -> None:
    cluster = OneCluster()
    cluster.join(0, resources={"disk": 10, "net": 3}, rack="a")
    cluster.join(1, resources={"disk": 10, "net": 3}, rack="b")
    cluster.create("t", 1, 2, demand={"disk": 10})
    [status] = cluster.create("more", 1, 1, policy=Policy.BALANCED, **given)
    assert isinstance(status, TopicStatus)
    assert status.code is Code.INSUFFICIENT_CAPACITY
    assert lacks in (status.message or "")


def test_what_a_longer_list_and_a_repair_lack_is_named(cluster: OneCluster) -> None:
    cluster.join(2, resources={"disk": 5})
    cluster.create("t", 2, 2, policy=Policy.BALANCED, demand={"disk": 10})
    lacks = "(1 has less than 10 of disk free)"
    [refused] = cluster.apply(cluster.build.replication("t", 3))
    assert isinstance(refused, TopicStatus)
    assert f"no other SPU can take one {lacks}; add SPUs" in (refused.message or "")
    found = cluster.leave(0, LeaveMode.DECOMMISSION)
    [waiting] = [each for each in found if isinstance(each, TopicStatus)]
    assert waiting.status is Status.WAITING
    assert f"no other SPU can take the replicas {lacks}; tried again" in (waiting.message or "")


NAMES = ("cores", "disk", "net")
AMOUNTS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([1, 7, 2**32, AMOUNT_MAX]))
LISTS = st.lists(
    st.permutations([0, 3, 4, 500]).map(lambda ids: ids[:2]), min_size=1, max_size=3
).map(ReplicaLists.of_lists)
TOPICS = st.tuples(LISTS, AMOUNTS.filter(bool), AMOUNTS, st.booleans())


@given(st.lists(TOPICS, max_size=12))
def test_what_topics_need_is_added_and_taken_out_again_exactly(topics: list[tuple]) -> None:
    """As a plain dictionary counts it, beyond what 64 bits hold too."""
    use, plain = Ledger(), Counter[tuple[int, str]]()
    for lists, demand, leader_demand, is_gone in topics:
        need = Need(amounts_of(demand), amounts_of(leader_demand))
        use.enter(lists.flat())
        use.add(lists, need)
        if is_gone:
            use.subtract(lists, need)
            continue
        for row in lists.tolist():
            for place, spu_id in enumerate(row):
                for name, amount in ({**demand, **leader_demand} if not place else demand).items():
                    plain[spu_id, name] += amount
    names = ("disk", "none", "net", "cores")
    of_each = use.used_of_each(np.array([0, 2, 3, 500, 501], dtype=np.int32), names)
    for at, spu_id in enumerate([0, 2, 3, 500, 501]):
        expected = {name: plain[spu_id, name] for name in names if plain[spu_id, name]}
        assert dict(use.used(spu_id)) == expected
        assert of_each[:, at].tolist() == [float(expected.get(name, 0)) for name in names]
