"""Replica lists as arrays: short lists are padded inside, and nobody sees it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.replica_lists import ReplicaLists

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
