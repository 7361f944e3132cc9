"""How many moves of a rebalance a limit of bytes permits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import ClusterRebalance, TopicAdopted
from spu_assigner.core.base.limits import MOVES_MAX
from spu_assigner.stream.clusters.drain.move_limit import MoveLimit, move_limit
from spu_assigner.stream.clusters.plan.model import Rows
from support.events.builders import Events

SIZE = 100
ROWS: Rows = ((1, 2), (2, 1)) * 5
EVENT = ClusterRebalance(event_id="r", cluster_id="c1", max_moves=MOVES_MAX)


def uneven() -> Assigner:
    """Two SPUs hold ten replicas each, a third none: five moves make it even enough."""
    events, assigner = Events(), Assigner()
    for spu_id in (1, 2, 3):
        assigner.apply(events.join(spu_id))
    assigner.apply(TopicAdopted(event_id="a", cluster_id="c1", topic="t", replicas=ROWS))
    return assigner


def limit(assigner: Assigner, bytes_max: int, rows: Rows = ROWS) -> MoveLimit:
    sizes = {("t", number): SIZE * (1 + number) for number in range(len(ROWS))}
    return move_limit(assigner.clusters["c1"], {"t": rows}, sizes, EVENT, bytes_max=bytes_max)


def copied(assigner: Assigner, rows: Rows) -> int:
    lists = assigner.clusters["c1"].topics["t"].replicas.lists().tolist()
    pairs = enumerate(zip(rows, lists, strict=True))
    return sum(SIZE * (1 + n) * len({*new} - {*old}) for n, (old, new) in pairs)


@pytest.mark.parametrize("bytes_max", [*range(0, 4_000, 150), 10_000])
def test_no_more_is_copied_and_one_move_more_would_copy_more(bytes_max: int) -> None:
    """The largest limit that the bytes permit, for the job that then makes the moves."""
    assigner = uneven()
    found = limit(assigner, bytes_max)
    assigner.apply(replace(EVENT, max_moves=found.moves))
    assert copied(assigner, ROWS) <= bytes_max
    if found.moves < found.wanted:
        more = uneven()
        more.apply(replace(EVENT, max_moves=found.moves + 1))
        assert copied(more, ROWS) > bytes_max


@pytest.mark.parametrize(
    ("moves_max", "bytes_max", "moves"), [(2, None, 2), (2, 10_000, 2), (99, None, 6), (2, 150, 1)]
)
def test_moves_are_limited_by_their_number_too(
    moves_max: int, bytes_max: int | None, moves: int
) -> None:
    """What is left is counted, whichever limit leaves it."""
    sizes = {("t", number): SIZE for number in range(len(ROWS))}
    found = move_limit(
        uneven().clusters["c1"], {"t": ROWS}, sizes, EVENT, moves_max=moves_max, bytes_max=bytes_max
    )
    assert found == MoveLimit(moves=moves, wanted=6)
    assert found.left == 6 - moves


def test_what_is_mapped_and_not_moved_yet_counts() -> None:
    """A run that was killed after the job's answer does not get the limit a second time."""
    assigner = uneven()
    whole = limit(assigner, 10_000)
    assert whole.moves == whole.wanted > 0
    assigner.apply(replace(EVENT, max_moves=whole.moves - 1))
    pending = copied(assigner, ROWS)
    assert limit(assigner, pending).moves == 0
    assert limit(assigner, 10_000) == MoveLimit(moves=1, wanted=1)


def test_a_topic_that_is_not_in_kafka_copies_nothing() -> None:
    """It is created as it is mapped then."""
    found = limit(uneven(), 0, rows=())
    assert found.moves == found.wanted > 0


@pytest.mark.parametrize("band_percent", [0, 100])
def test_by_resources_the_limits_of_the_event_hold_too(band_percent: int) -> None:
    """The job cuts off by the sizes that topics say; here they say three times what there is."""
    events, assigner = Events(), Assigner()
    for spu_id in (1, 2, 3):
        assigner.apply(events.join(spu_id, resources={"disk_bytes": 100 * SIZE}))
    for number, row in enumerate(ROWS):
        name, demand = f"t{number}", {"disk_bytes": 3 * SIZE}
        assigner.apply(
            TopicAdopted(event_id=name, cluster_id="c1", topic=name, replicas=(row,), demand=demand)
        )
    state = assigner.clusters["c1"]
    topics: dict[str, Rows] = {f"t{number}": (row,) for number, row in enumerate(ROWS)}
    sizes = {(name, 0): SIZE for name in topics}
    event = replace(EVENT, band_percent=band_percent)
    whole = move_limit(state, topics, sizes, event, bytes_max=10 * SIZE)
    assert whole.moves == whole.wanted == (6 if band_percent == 0 else 0)
    limited = replace(event, max_bytes=7 * SIZE)
    found = move_limit(state, topics, sizes, limited, bytes_max=7 * SIZE)
    assert found == MoveLimit(moves=min(2, whole.wanted), wanted=whole.wanted)
