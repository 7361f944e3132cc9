"""The law of orders: the SPU that was to lead next still leads next when the ring changes.

Each policy that goes on in an order of the ring is in these tests by its row in `RULES`. What it
does is looked at from outside: which SPU leads the next topics, one partition of one replica each.
"""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.events import Policy
from spu_assigner.core.policies.cursor import RULES
from support.events.builders import Events
from support.events.one_cluster import OneCluster

ORDERED: Final = [*dict.fromkeys(rule.policy for rule in RULES.values() if not rule.is_scored)]
RACKS: Final = (None, "a", "b", "c")


def cluster(policy: Policy, racks: dict[int, str | None], partitions: int) -> OneCluster:
    """SPUs that joined in this order, after a topic of so many partitions."""
    build = Events()
    joins = (build.join(spu_id, rack=rack) for spu_id, rack in racks.items())
    life = OneCluster(*joins, default=policy)
    if partitions:
        life.create("before", partitions, min(2, len(racks)), policy=policy)
    return life


def next_leaders(life: OneCluster, policy: Policy, count: int) -> list[int]:
    """The leaders of the next `count` lists, of topics that are created for it and stay."""
    for number in range(count):
        life.create(f"next-{number}", 1, 1, policy=policy)
    return [life.lists(f"next-{number}")[0][0] for number in range(count)]


@st.composite
def spus(draw: st.DrawFn, *, least: int) -> dict[int, str | None]:
    """SPUs in the order in which they join, all with racks or none."""
    ids = draw(st.lists(st.integers(0, 40), min_size=least, max_size=9, unique=True))
    racks = draw(st.sampled_from([RACKS[:1], RACKS[1:]]))
    return {spu_id: draw(st.sampled_from(racks)) for spu_id in ids}


@pytest.mark.parametrize("policy", ORDERED)
@given(data=st.data())
def test_when_the_ring_shrinks_the_first_that_remains_leads_next(
    policy: Policy, data: st.DataObject
) -> None:
    """It is found in the order as it was, once an assignment has begun with it; if the one that was
    to lead next stays, it is that."""
    racks, partitions = data.draw(spus(least=2)), data.draw(st.integers(1, 12))
    order = next_leaders(cluster(policy, racks, partitions), policy, len(racks))
    assert sorted(order) == sorted(racks), "each SPU of the ring leads one of N lists"
    gone = data.draw(st.sampled_from(order))  # Over racks the order is another one without it.
    life = cluster(policy, racks, partitions)
    life.cordon(gone)
    remaining = [spu_id for spu_id in order if spu_id != gone]
    assert next_leaders(life, policy, 1) == remaining[:1]


@pytest.mark.parametrize("policy", ORDERED)
@given(data=st.data())
def test_when_the_ring_grows_the_same_spu_leads_next(policy: Policy, data: st.DataObject) -> None:
    """Wherever in the order the new SPU is, once an assignment has begun with it."""
    racks, partitions = data.draw(spus(least=2)), data.draw(st.integers(1, 12))
    [leader] = next_leaders(cluster(policy, racks, partitions), policy, 1)
    life = cluster(policy, racks, partitions)
    new = data.draw(st.integers(0, 41).filter(lambda spu_id: spu_id not in racks))
    of_racks = [RACKS[0]] if None in racks.values() else [*RACKS[1:], "0", "d"]
    life.apply(life.build.join(new, rack=data.draw(st.sampled_from(of_racks))))
    assert next_leaders(life, policy, 1) == [leader]


@pytest.mark.parametrize("policy", ORDERED)
@given(data=st.data())
def test_spus_that_fill_up_within_a_request_are_passed_as_between_requests(
    policy: Policy, data: st.DataObject
) -> None:
    """One topic of n partitions is led as n topics of one are, however soon SPUs are saturated."""
    racks = data.draw(spus(least=1))
    slots = {spu_id: data.draw(st.integers(1, 4)) for spu_id in racks}
    build = Events()
    joins = [build.join(i, rack=rack, capacity=slots[i]) for i, rack in racks.items()]
    count = data.draw(st.integers(1, sum(slots.values())))
    one, many = OneCluster(*joins, default=policy), OneCluster(*joins, default=policy)
    one.create("t", count, 1, policy=policy)
    assert [row[0] for row in one.lists("t")] == next_leaders(many, policy, count)
