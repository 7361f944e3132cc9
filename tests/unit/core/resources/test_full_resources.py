"""SPUs that have used up a resource: what ring events say of it, and that the ring stays."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import LeaveMode, Policy
from spu_assigner.core.base.limits import AMOUNT_MAX
from spu_assigner.core.base.records import (
    RingChange,
    RingEvent,
    Status,
    TopicStatus,
)
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.base.resources import Need, amounts_of
from spu_assigner.core.state.ledger import Ledger
from support.events.one_cluster import OneCluster

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
