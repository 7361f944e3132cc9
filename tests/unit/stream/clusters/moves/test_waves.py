"""Waves of moves: what goes together, in which order, within which limits."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.clusters.moves.waves import (
    CONCURRENCY,
    FETCH_SIZE,
    QUOTA_SECONDS,
    adding,
    busy,
    concurrency_under,
    copied_bytes,
    first_within,
    in_order,
    next_wave,
    removing,
    waves,
)
from support.kafka.memory_cluster import move

MB = 1_000_000


@st.composite
def all_moves(draw: st.DrawFn) -> list[MovedPartition]:
    rows = st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True).map(tuple)
    pairs = draw(st.lists(st.tuples(rows, rows, st.integers(0, 5)), max_size=30))
    return [move(number, *pair) for number, pair in enumerate(pairs)]


def test_the_example_of_the_module() -> None:
    """A new order first, then the smallest; broker 3 takes one at a time."""
    found = waves(
        [
            move(1, (2, 1), (3, 1), 20 * MB),
            move(2, (1, 2), (2, 1), 90 * MB),
            move(0, (1, 2), (3, 2), 10 * MB),
        ],
        concurrency=1,
    )
    assert [[each.partition for each in wave] for wave in found] == [[2], [0], [1]]


@given(rate=st.integers(1, 10**10))
def test_what_is_fetched_at_once_exceeds_a_throttle_by_a_tenth_at_most(rate: int) -> None:
    """One move goes on however low the rate is; none is kept back without need."""
    found = concurrency_under(rate)
    limit = rate * QUOTA_SECONDS / 10
    assert 1 <= found <= CONCURRENCY == concurrency_under(None)
    assert found == 1 or found * FETCH_SIZE <= limit
    assert found == CONCURRENCY or (found + 1) * FETCH_SIZE > limit


def test_a_limit_of_bytes_takes_the_first_moves_alone() -> None:
    """One that is too large ends it, though a later one would have room."""
    moves = [move(0, (1,), (1,)), move(1, (1,), (2,), 3), move(2, (1,), (2,), 5)]
    taken = [[each.partition for each in first_within(moves, most)] for most in (0, 3, 7, 8)]
    assert taken == [[0], [0, 1], [0, 1], [0, 1, 2]]


def test_a_move_copies_to_each_broker_that_receives_a_replica() -> None:
    """Two new replicas are twice the bytes."""
    found = move(0, (1, 2, 3), (4, 5, 1), MB)
    assert (adding(found), removing(found)) == ((4, 5), (2, 3))
    assert copied_bytes(found) == 2 * MB
    assert busy(found) == {1, 2, 3, 4, 5}
    for after in ((2, 1, 3), (1, 2), (3,)):  # what copies nothing keeps none busy
        assert busy(move(0, (1, 2, 3), after)) == set()


@given(all_moves(), st.integers(1, 3))
def test_every_move_is_in_one_wave_and_no_wave_exceeds_its_limit(
    moves: list[MovedPartition], concurrency: int
) -> None:
    """None is lost, none is made twice, and each broker has so many at once."""
    found = [*waves(moves, concurrency=concurrency)]
    assert sorted((each for wave in found for each in wave), key=lambda each: each.partition) == (
        moves
    )
    for wave in found:
        load = Counter(broker for each in wave for broker in busy(each))
        assert not load or max(load.values()) <= concurrency
        assert len({bool(adding(each)) for each in wave}) == 1


@given(all_moves(), st.integers(1, 3))
def test_a_wave_has_no_room_for_a_smaller_move_of_a_later_one(
    moves: list[MovedPartition], concurrency: int
) -> None:
    """The smallest go first: only a broker that is busy keeps one back."""
    left = in_order(moves)
    wave = next_wave(left, concurrency=concurrency)
    if not wave or not adding(wave[0]):
        return
    load: Counter[int] = Counter()
    for each in left:
        if each in wave:
            load.update(busy(each))
        else:
            assert any(load[broker] >= concurrency for broker in busy(each))


@given(all_moves())
def test_the_order_does_not_depend_on_how_moves_are_given(moves: list[MovedPartition]) -> None:
    """The same plan gives the same waves."""
    assert in_order(moves) == in_order(reversed(moves))
    sizes = [copied_bytes(each) for each in in_order(moves) if adding(each)]
    assert sizes == sorted(sizes)
