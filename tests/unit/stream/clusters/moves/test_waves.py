"""Waves of moves: what goes together, in which order, within which limits."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.clusters.moves import waves as waves_module
from spu_assigner.stream.clusters.moves.waves import (
    adding,
    busy,
    copied_bytes,
    first_within,
    in_order,
    wave_bytes,
    waves,
)
from support.kafka.memory_cluster import move

MB, MIB = 1_000_000, 1024 * 1024


@st.composite
def all_moves(draw: st.DrawFn) -> list[MovedPartition]:
    rows = st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True).map(tuple)
    pairs = draw(st.lists(st.tuples(rows, rows, st.integers(0, 5)), max_size=30))
    return [move(number, *pair) for number, pair in enumerate(pairs)]


@pytest.mark.parametrize(
    ("count", "size", "rate", "sizes"),
    [
        (528, 126 * MIB, 2 * MB, [180, 180, 168]),  # the rate makes it longer, not smaller
        (528, 126 * MIB, None, [180, 180, 168]),
        (528, 126 * MIB, 1_000 * MB, [500, 28]),  # 60 GB are a minute of it
        (501, 0, 2 * MB, [500, 1]),  # small ones go at once, as many as a record holds
        (4, 20_000 * MB, 2 * MB, [2, 2]),  # a large one goes alone
    ],
)
def test_a_wave_is_bounded_by_bytes_and_by_its_record_alone(
    count: int, size: int, rate: int | None, sizes: list[int]
) -> None:
    """Between two pairs of brokers: a run at a low rate took 264 waves of 2."""
    pairs = [((1,), (2,)), ((3,), (4,))]
    many = [move(number, *pairs[number % 2], size) for number in range(count)]
    assert [len(wave) for wave in waves(many, bytes_max=wave_bytes(rate))] == sizes


@given(all_moves(), st.integers(1, 12), st.integers(1, 12))
def test_every_move_goes_once_the_smallest_first_and_no_broker_has_too_much(
    moves: list[MovedPartition], bytes_max: int, moves_max: int
) -> None:
    """Only a full wave or a broker without room keeps a move back; one alone is never too large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waves_module, "MOVES_MAX", moves_max)
        found = waves(moves, bytes_max=bytes_max)
        assert found == waves(reversed(moves), bytes_max=bytes_max)
    assert sorted(each.partition for wave in found for each in wave) == [*range(len(moves))]
    for number, wave in enumerate(found):
        assert 0 < len(wave) <= moves_max
        load: Counter[int] = Counter()
        for each in wave:
            load.update(dict.fromkeys(busy(each), each.size_bytes))
        for broker, size in load.items():
            largest = max(each.size_bytes for each in wave if broker in busy(each))
            assert size <= max(bytes_max, largest)
        for each in () if len(wave) == moves_max else chain(*found[number + 1 :]):
            assert adding(each)
            assert any(load[broker] + each.size_bytes > bytes_max for broker in busy(each))


@given(all_moves(), st.integers(0, 60))
def test_a_limit_of_bytes_takes_the_first_moves(
    moves: list[MovedPartition], bytes_max: int
) -> None:
    """As many as fit together, in order; what copies nothing always fits."""
    ordered = in_order(moves)
    taken = first_within(ordered, bytes_max)
    assert taken == ordered[: len(taken)]
    assert sum(map(copied_bytes, taken)) <= bytes_max
    assert sum(map(copied_bytes, ordered[: len(taken) + 1])) > bytes_max or taken == ordered
