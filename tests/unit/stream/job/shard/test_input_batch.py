"""The order of a batch: by broker time between partitions, by offset within one."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.stream.job.shard.input_batch import Batch
from support.shard.stores import batch_bytes

Row = tuple[int, int, int, int]  # source, partition, offset, time


def merged(rows: list[Row]) -> list[Row]:
    batch = Batch.of_rows([(*row, None, None) for row in rows])
    return [row[:4] for row in batch.ordered()]


def merged_by_hand(rows: list[Row]) -> list[Row]:
    """The definition: always take the head whose (time so far, source, partition) is least."""
    queues: dict[tuple[int, int], list[Row]] = {}
    for row in sorted(rows):
        queues.setdefault(row[:2], []).append(row)
    latest = dict.fromkeys(queues, 0)
    order = []
    while queues:
        place = min(queues, key=lambda place: (max(latest[place], queues[place][0][3]), place))
        row = queues[place].pop(0)
        latest[place] = max(latest[place], row[3])
        order.append(row)
        if not queues[place]:
            del queues[place]
    return order


@st.composite
def batches(draw: st.DrawFn) -> list[Row]:
    places = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), min_size=1, max_size=5))
    rows = [
        (source, partition, offset, draw(st.integers(0, 8)))
        for source, partition in set(places)
        for offset in draw(st.lists(st.integers(0, 50), min_size=1, max_size=8, unique=True))
    ]
    return draw(st.permutations(rows))


@given(batches())
def test_it_is_the_merge_of_the_partitions(rows: list[Row]) -> None:
    """Whatever the arrival order, broker clocks that step back included."""
    assert merged(rows) == merged_by_hand(rows)


def test_an_spu_event_comes_first_at_the_same_time() -> None:
    """A join and a create of one millisecond: the create sees the join."""
    assert merged([(1, 0, 0, 5), (0, 3, 0, 5)]) == [(0, 3, 0, 5), (1, 0, 0, 5)]


def test_offset_order_is_kept_when_the_clock_steps_back() -> None:
    """Order within a partition is never broken; the late time counts as its predecessor's."""
    rows = [(1, 0, 0, 9), (1, 0, 1, 2), (1, 1, 0, 5)]
    assert merged(rows) == [(1, 1, 0, 5), (1, 0, 0, 9), (1, 0, 1, 2)]


_BYTES = st.none() | st.binary(max_size=9)
_MESSAGES = st.lists(
    st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 4, _BYTES, _BYTES), min_size=1, max_size=9
)


@given(st.lists(_MESSAGES, min_size=1, max_size=3))
def test_a_batch_comes_back_from_its_bytes_in_any_number_of_pieces(pieces: list[Any]) -> None:
    """No key is another thing than an empty one."""
    found = Batch.of_bytes([batch_bytes(Batch.of_rows(piece)) for piece in pieces])
    assert Counter(found.rows) == Counter(row for piece in pieces for row in piece)
