"""Rings as maps record them, and replica lists as they are held."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.limits import CAPACITY_MAX, RING_SIZE_MAX, SPU_ID_MAX, SPUS_MAX
from spu_assigner.core.base.records import Order, RecordedRing, ReplicaMap
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.state.ring import ids_of_text, members_text, ranges_text, ring_of_text
from support.events.builders import Events
from support.events.one_cluster import OneCluster

IDS = st.lists(st.integers(0, 30) | st.integers(0, SPU_ID_MAX), unique=True, max_size=40)


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([], ""),
        ([0, 1, 2, 3, 4, 7], "0-4,7"),
        ([0, 2, 4, 6, 7, 8], "0-6/2,7,8"),
        ([3, 2, 1, 0], "3,2,1,0"),
        ([5, 6, 7, 0, 1, 2], "5-7,0-2"),
        (range(10_000), "0-9999"),
    ],
)
def test_ids_are_ranges_in_their_order(ids: list[int], text: str) -> None:
    assert ranges_text(ids) == text
    assert ids_of_text(text) == list(ids)


@given(IDS, st.data())
def test_a_ring_is_read_back_with_its_order_racks_and_capacities(
    ids: list[int], data: st.DataObject
) -> None:
    """`explain` has nothing else."""
    assert ids_of_text(ranges_text(ids)) == ids
    assert ring_of_text(ranges_text(ids)).order(Order.REGISTRATION).tolist() == ids
    ids.sort()
    few = st.lists(st.integers(0, 3), min_size=len(ids), max_size=len(ids))
    racks, weights = (np.array(data.draw(few), dtype=np.int32) for _ in range(2))
    ring = ring_of_text(members_text(np.array(ids, dtype=np.int32), racks, weights))
    assert ring.ids.tolist() == ids
    assert ring.weights.tolist() == weights.tolist()
    assert [*ring.racks_of_members().values()] == [f"{rack:05}" for rack in racks.tolist()]


@pytest.mark.parametrize(
    ("policy", "members"),
    [
        (Policy.BALANCED, "0-5"),
        (Policy.FLUVIO, "0-4/2;1-5/2"),
        (Policy.KAFKA, "0-4/2;1-5/2"),
        (Policy.KRAFT, "0-4/2;1-5/2"),
        (Policy.REDPANDA, "1-3,5,0,4"),
        (Policy.RENDEZVOUS, "0-4/2*9;1-5/2*9"),
    ],
)
def test_a_map_records_the_ring_as_its_policy_reads_it(policy: Policy, members: str) -> None:
    """With racks for the rules over racks, by registration, or with capacities."""
    events = Events()
    joins = [events.join(i, rack="ab"[i % 2], capacity=9) for i in range(6)]
    offline = [events.join(8, rack="c", capacity=9), events.leave(8)]
    again = [events.leave(i) for i in (0, 4)] + [
        events.join(i, rack="a", capacity=9) for i in (0, 4)
    ]
    life = OneCluster(*joins, *offline, events.cordon(6), *again)
    [created] = [
        each for each in life.create("t", 1, 2, policy=policy) if isinstance(each, ReplicaMap)
    ]
    assert created.reason is not None
    fenced = ";;8" if policy is Policy.KRAFT else ""
    assert created.reason.ring == RecordedRing(members=members, offline="8", fenced=fenced)


def test_a_ring_in_no_order_fits_beside_the_largest_map() -> None:
    """Each SPU has a capacity of its own, as `rendezvous` reads it, and one step fills all."""
    ids = np.arange(SPU_ID_MAX, SPU_ID_MAX - 3 * SPUS_MAX, -3, dtype=np.int32)
    weights = np.arange(CAPACITY_MAX, CAPACITY_MAX - SPUS_MAX, -1, dtype=np.int64)
    size = len(members_text(ids, None, weights)) + len(ranges_text(ids.tolist()))
    assert size < RING_SIZE_MAX


# Replica lists.


LISTS = st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=5), min_size=1, max_size=9)


@given(LISTS)
def test_lists_come_back_as_they_were_given(lists: list[list[int]]) -> None:
    """A short list is data: padding that leaks would be an SPU -1."""
    replicas = ReplicaLists.of_lists(lists)
    assert replicas.tolist() == lists
    assert replicas.lengths() == [len(each) for each in lists]
    assert replicas.flat().tolist() == [spu_id for each in lists for spu_id in each]
    assert len(replicas) == len(lists)
    assert replicas.ragged == (len({len(each) for each in lists}) > 1)
    assert repr(replicas) == f"ReplicaLists({lists!r})"


@given(LISTS, LISTS, st.integers(0, 3))
def test_lists_are_equal_whatever_their_padding(
    lists: list[list[int]], others: list[list[int]], extra: int
) -> None:
    """A repaired map is compared with one read back, whose array may be narrower."""
    replicas = ReplicaLists.of_lists(lists)
    padded = np.pad(replicas.matrix, ((0, 0), (0, extra)), constant_values=-1)
    wider = ReplicaLists(padded, ragged=True)
    assert wider == replicas
    assert hash(wider) == hash(replicas)
    assert wider.ragged == replicas.ragged
    assert (ReplicaLists.of_lists(others) == replicas) == (lists == others)
