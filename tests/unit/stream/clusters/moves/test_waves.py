"""Waves of moves: what goes together, in which order, within which limits."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.clusters.moves.waves import (
    MOVES_MAX,
    adding,
    busy,
    copied_bytes,
    first_within,
    in_order,
    wave_bytes,
    waves,
)
from support.kafka.memory_cluster import move

MB = 1_000_000


@st.composite
def all_moves(draw: st.DrawFn) -> list[MovedPartition]:
    rows = st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True).map(tuple)
    pairs = draw(st.lists(st.tuples(rows, rows, st.integers(0, 5)), max_size=30))
    return [move(number, *pair) for number, pair in enumerate(pairs)]


def test_a_wave_takes_about_a_minute_and_fits_in_its_record() -> None:
    """Thousands of empty partitions are no reason to wait, and a record is one message."""
    assert wave_bytes(50 * MB) == 3_000 * MB
    many = [move(number, (1,), (2,), 0) for number in range(MOVES_MAX + 1)]
    assert [len(wave) for wave in waves(many, bytes_max=wave_bytes(None))] == [MOVES_MAX, 1]


@given(all_moves(), st.integers(1, 12))
def test_every_move_goes_once_the_smallest_first_and_no_broker_has_too_much(
    moves: list[MovedPartition], bytes_max: int
) -> None:
    """Only a broker without room keeps a move back; one alone is never too large."""
    found = waves(moves, bytes_max=bytes_max)
    assert sorted(each.partition for wave in found for each in wave) == [*range(len(moves))]
    assert found == waves(reversed(moves), bytes_max=bytes_max)
    for number, wave in enumerate(found):
        load: Counter[int] = Counter()
        for each in wave:
            load.update(dict.fromkeys(busy(each), each.size_bytes))
        for broker, size in load.items():
            largest = max(each.size_bytes for each in wave if broker in busy(each))
            assert size <= max(bytes_max, largest)
        for each in chain(*found[number + 1 :]):
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
