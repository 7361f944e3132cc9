"""How many replicas each SPU gets: held to a look at all keys."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.balanced.quotas import Takers, even_shares
from support.model import plain_dealing as plain
from support.project.case_share import share_of


@st.composite
def divisions(draw: st.DrawFn) -> tuple[list[plain.Spu], list[int], list[int], int]:
    """SPUs in groups whose bounds admit a total."""
    capacities = st.one_of(st.integers(1, 9), st.sampled_from([7_000, 2**30, 2**31 - 1]))
    spus = []
    groups = draw(st.integers(1, 4))
    for group in range(groups):
        for _ in range(draw(st.integers(1, 6))):
            capacity = draw(capacities)
            held = draw(st.integers(0, min(capacity - 1, draw(st.sampled_from([0, 5, 10**6])))))
            limit = draw(st.integers(0, min(9, capacity - held)))
            spus.append(plain.Spu(group=group, capacity=capacity, held=held, limit=limit))
    slots = [sum(spu.limit for spu in spus if spu.group == group) for group in range(groups)]
    upper = [draw(st.integers(0, room)) for room in slots]
    lower = [draw(st.integers(0, most)) for most in upper]
    return spus, lower, upper, draw(st.integers(sum(lower), sum(upper)))


@given(divisions())
@settings(max_examples=share_of(150), deadline=None)
def test_shares_are_those_of_a_look_at_all_keys(
    division: tuple[list[plain.Spu], list[int], list[int], int],
) -> None:
    """Wherever the search for the last key begins."""
    spus, lower, upper, total = division
    groups = np.array([spu.group for spu in spus])
    found = even_shares(
        Takers(
            capacities=np.array([spu.capacity for spu in spus]),
            held=np.array([spu.held for spu in spus]),
            limits=np.array([spu.limit for spu in spus]),
            groups=groups,
            starts=np.searchsorted(groups, np.arange(len(lower))),
            lower=np.array(lower),
            upper=np.array(upper),
            total=total,
        )
    )
    expected = plain.shares(spus, lower, upper, total)
    assert list(zip(found.sure.tolist(), found.tied.tolist(), strict=True)) == expected
