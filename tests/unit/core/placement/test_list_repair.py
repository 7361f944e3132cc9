"""Lists of living topics that replicas leave or come to, on every path."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.base.constraints import Taint
from spu_assigner.core.base.constraints import TaintEffect as Effect
from spu_assigner.core.base.events import LeaveMode, Policy
from support.events.builders import Events
from support.events.one_cluster import OneCluster
from support.project.case_share import share_of

GONE = LeaveMode.DECOMMISSION
EVICTED = Taint("worn", "yes", Effect.EVICT)


@pytest.mark.parametrize("policy", [Policy.BALANCED, Policy.FLUVIO, Policy.MANUAL])
@pytest.mark.parametrize(
    ("racks", "row", "gone", "taken"),
    [
        ("aaabbb", [0, 3, 1, 4], 3, 5),
        ("aabbccc", [0, 2, 4, 1, 3, 5], 5, 6),
        ("aaaabbbb", [4, 0, 5, 1, 6, 2], 6, 7),
    ],
)
def test_a_replacement_keeps_the_list_even_over_racks(
    policy: Policy, racks: str, row: list[int], gone: int, taken: int
) -> None:
    """Also with more replicas than racks, where no rack is free of them."""
    life = OneCluster.on_racks(racks)
    life.adopt("t", row, policy=policy)
    life.leave(gone, GONE)
    assert life.lists("t") == [[*[spu_id for spu_id in row if spu_id != gone], taken]]


def test_what_a_taint_drives_away_and_what_was_short_goes_by_racks_too() -> None:
    life = OneCluster.on_racks("aaabbb")
    life.adopt("t", [0, 3, 1, 4])
    life.join(3, rack="b", taints=(EVICTED,))
    assert life.lists("t") == [[0, 1, 4, 5]]
    life.cordon(2)
    life.leave(5, GONE)
    life.leave(1, GONE)
    assert life.lists("t") == [[0, 4]]
    life.join(6, rack="b")
    life.join(7, rack="a")
    assert life.lists("t") == [[0, 4, 6, 7]]


@pytest.mark.parametrize(("rows", "counts"), [([[0]], {2: 1}), ([[0]] * 4, {2: 4})])
def test_a_list_that_nobody_could_lead_gets_one_that_can(
    rows: list[list[int]], counts: dict[int, int]
) -> None:
    """SPU 1 is demoted and empty, SPU 2 has the load; with SPU 2 in the list 1 may come."""
    life = OneCluster(*Events().joins(0, 1, 2))
    life.adopt("load", *[[2]] * 20)
    life.adopt("t", *rows)
    life.demote(1)
    life.leave(0, GONE)
    assert life.leads("t") == counts
    life.apply(life.build.replication("t", 2))
    assert life.lists("t") == [[2, 1]] * len(rows)


@settings(max_examples=share_of(200), deadline=None)
@given(data=st.data())
def test_each_replica_that_comes_is_on_a_rack_with_fewest_and_each_that_goes_on_one_with_most(
    data: st.DataObject,
) -> None:
    """As the ring's room allowed: no SPU that has room is on a rack where it would be more even."""
    racks = data.draw(st.text("abc", min_size=3, max_size=9))
    capacities = data.draw(st.lists(st.integers(2, 9), min_size=len(racks), max_size=len(racks)))
    life = OneCluster()
    for spu_id, (rack, capacity) in enumerate(zip(racks, capacities, strict=True)):
        life.join(spu_id, rack=rack, capacity=capacity)
    ids = st.lists(st.integers(0, len(racks) - 1), min_size=1, max_size=5, unique=True)
    for name in ("t", "u"):
        life.adopt(name, *data.draw(st.lists(ids, min_size=1, max_size=4)))
    before = {name: life.lists(name) for name in ("t", "u")}
    is_leave = data.draw(st.booleans())
    if is_leave:
        life.leave(data.draw(st.integers(0, len(racks) - 1)), GONE)
    else:
        life.apply(life.build.replication("t", data.draw(st.integers(1, 5))))
    free = life.state.ring.ids.tolist()
    for name in ("t", "u"):
        for was, now in zip(before[name], life.lists(name), strict=True):
            if not life.state.leaving.isdisjoint(now):
                continue
            counts = Counter(racks[spu_id] for spu_id in now)
            for new in set(now) - set(was):
                others = [counts[racks[spu_id]] for spu_id in free if spu_id not in now]
                assert all(counts[racks[new]] - 1 <= count for count in others)
            for gone in set() if is_leave else set(was) - set(now):
                assert all(counts[racks[i]] - 1 <= counts[racks[gone]] for i in now[1:])
