"""The cover of the least size, beside all ways to choose."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.rebalance import covering
from spu_assigner.core.rebalance.covering import Item, least_cover

ITEMS = st.lists(
    st.builds(Item, st.integers(1, 9), st.integers(0, 30), st.integers(1, 3)), max_size=5
)


def size_of(items: list[Item], counts: list[int]) -> int:
    return sum(item.size * count for item, count in zip(items, counts, strict=True))


def covers(items: list[Item], counts: list[int], amount: int) -> bool:
    return sum(item.amount * n for item, n in zip(items, counts, strict=True)) >= amount


@given(ITEMS, st.integers(1, 60))
def test_no_other_choice_covers_as_much_with_less(items: list[Item], amount: int) -> None:
    ways = [list(way) for way in product(*[range(item.copies + 1) for item in items])]
    sizes = [size_of(items, way) for way in ways if covers(items, way, amount)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(covering, "SUMS_MAX", 1_000)
        found = least_cover(items, amount)
    assert (None if found is None else size_of(items, found)) == min(sizes, default=None)


@given(ITEMS, st.integers(1, 60))
def test_a_front_that_is_thinned_out_still_gives_a_cover(items: list[Item], amount: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(covering, "SUMS_MAX", 2)
        found = least_cover(items, amount)
    if found is None:
        assert sum(item.amount * item.copies for item in items) < amount
    else:
        assert covers(items, found, amount)
        assert all(0 <= n <= item.copies for item, n in zip(items, found, strict=True))
