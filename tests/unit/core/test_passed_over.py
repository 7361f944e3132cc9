"""How many SPUs Kafka's walk over racks passes over: counted at once as step by step."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.chains import Order
from spu_assigner.core.base.records import SpuChanged
from spu_assigner.core.policies.cursor import PlacementRule
from spu_assigner.core.policies.planner import Demand, place
from spu_assigner.core.rules import kafka
from spu_assigner.core.state.ring import Ring
from support.events.builders import Events


def ring_of(racks: list[str]) -> Ring:
    spus = {}
    for join in [Events().join(spu_id, rack=rack) for spu_id, rack in enumerate(racks)]:
        spus[join.spu_id] = SpuChanged(
            cluster_id="c1",
            spu_id=join.spu_id,
            online=True,
            rack=join.rack,
            cores=1,
            capacity=100,
            labels=(),
            registration=join.spu_id,
            core_weights=(2,),
        )
    return Ring(np.arange(len(racks), dtype=np.int32), spus)  # type: ignore[arg-type]  # SpuId


def walked(
    order: list[int], racks: list[str], *, index: int, shift: int, replicas: int
) -> tuple[list[int], int, int]:
    """One list by Kafka's own loop, and whom it passed over for rack and for list."""
    size, count = len(order), len({racks[spu_id] for spu_id in order})
    first = index % size
    row, same_rack, in_list = [order[first]], 0, 0
    step = (shift + index // size) * count
    while len(row) < replicas:
        candidate = order[(first + 1 + step % (size - 1)) % size]
        step += 1
        used = {racks[spu_id] for spu_id in row}
        if candidate in row:
            in_list += 1
        elif racks[candidate] in used and len(used) < count:
            same_rack += 1
        else:
            row.append(candidate)
    return row, same_rack, in_list


RACKS = st.lists(st.sampled_from("abcd"), min_size=2, max_size=9)


@given(
    RACKS,
    st.tuples(st.integers(0, 90), st.integers(0, 9)),
    st.integers(1, 9),
    st.integers(1, 120),
    st.sampled_from([1, 13, kafka.ROWS_AT_ONCE]),
)
def test_the_walk_over_racks_counts_whom_it_passes_over(
    racks: list[str], begin: tuple[int, int], replicas: int, partitions: int, at_once: int
) -> None:
    """Both ways to walk, few rows and many, say what the plain loop says; also many in pieces."""
    (start, shift), replicas = begin, min(replicas, len(racks))
    ring = ring_of(racks)
    order = np.array(kafka.alternation(range(len(racks)), racks), dtype=np.int32)
    given_to = {"start": start, "shift": shift, "replicas": replicas}
    with mock.patch.object(kafka, "ROWS_AT_ONCE", at_once):
        rows, passed = kafka.shifted_over_racks(
            order, ring.rack_numbers(order), partitions=partitions, **given_to
        )
    expected = [
        walked(order.tolist(), racks, index=start + row, shift=shift, replicas=replicas)
        for row in range(partitions)
    ]
    assert rows.tolist() == [row for row, _, _ in expected]
    assert passed.tolist() == [[same_rack, in_list] for _, same_rack, in_list in expected]


@pytest.mark.parametrize("partitions", [1, 30, kafka.ROWS_BY_HAND_MAX + 5])
def test_a_plan_sums_them_whether_somebody_may_fill_or_not(partitions: int) -> None:
    """Then the request is placed in blocks."""
    index, ring = 7, ring_of(list("aaabbc"))
    demand = Demand(
        rule=PlacementRule.SHIFTED_OVER_RACKS,
        partitions=partitions,
        replicas=4,
        start=None,
        shift=None,
    )
    order = ring.order(Order.ALTERNATION).tolist()
    lists = [
        walked(order, list("aaabbc"), index=row, shift=0, replicas=4)
        for row in range(index, index + partitions)
    ]
    for free in (None, np.full(6, 10_000)):
        plan = place(ring, demand, index, free)
        assert plan.replicas.tolist() == [row for row, _, _ in lists]
        assert plan.same_rack == sum(row[1] for row in lists)
        assert plan.in_list == sum(row[2] for row in lists)


def test_the_pointer_never_comes_back_within_a_list() -> None:
    """Who fills leaves the ring, and behind the pointer stand only those that are in the list."""
    ring = ring_of(["a"] * 3)
    demand = Demand(rule=PlacementRule.POINTER, partitions=1, replicas=3, start=None, shift=None)
    plan = place(ring, demand, 1, np.array([1, 1, 9]))
    assert plan.replicas.tolist() == [[1, 2, 0]]
    assert (plan.same_rack, plan.in_list) == (0, 0)
