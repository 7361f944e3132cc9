"""What `drain --undo` gives back, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner
from spu_assigner.core.base.limits import REPLICATION_FACTOR_MAX, SPU_ID_MAX
from spu_assigner.schemas.messages.codec import encode_record
from spu_assigner.stream.cli import cli
from spu_assigner.stream.clusters.drain.undoing import CHANGED, GONE, SHORT, UndoPlan, undo_plan
from spu_assigner.stream.clusters.moves.reassigning import PartitionShape
from spu_assigner.stream.clusters.moves.run_record import begun_run
from spu_assigner.stream.clusters.moves.status import new_move
from spu_assigner.stream.clusters.plan.applied_store import PART
from spu_assigner.stream.clusters.plan.model import Wanted
from spu_assigner.stream.kafka.topics import MESSAGE_SIZE_MAX

BEFORE, AFTER = (3, 1), (1, 2)
TAKEN = new_move(("t", 0), "id", BEFORE, AFTER)
Row = tuple[int, ...]


def plan(
    row: Row | None,
    held: Row | None,
    *,
    after: Row = AFTER,
    id_: str = "id",
    short: tuple[int, ...] = (),
) -> UndoPlan:
    """Of one partition that had [3, 1]; None: it has no map, or is not in Kafka."""
    maps = {} if row is None else {"t": Wanted(replicas=(row, (2, 1)), short=frozenset(short))}
    shapes = {}
    if held is not None:
        shape = PartitionShape(topic_id=id_, leader=held[0], replicas=held, in_sync=held)
        shapes["t", 0] = shape
    return undo_plan([new_move(("t", 0), "id", BEFORE, after)], 3, maps, shapes)


BACK = new_move(("t", 0), "id", AFTER, BEFORE)


@pytest.mark.parametrize(
    ("row", "held", "is_mapped", "moves"),
    [
        (AFTER, AFTER, True, [BACK]),
        (None, AFTER, False, [BACK]),
        (BEFORE, AFTER, False, [BACK]),  # the undo was killed once the maps were changed
        (AFTER, BEFORE, True, []),  # the drain was killed before it moved anything
        (BEFORE, BEFORE, False, []),
        (AFTER, (4, 3), True, [new_move(("t", 0), "id", (4, 3), BEFORE)]),  # was not as mapped
        (AFTER, (1, 2, 3), True, [new_move(("t", 0), "id", (1, 2, 3), BEFORE)]),  # under way
    ],
)
def test_a_list_that_the_drain_made_is_as_before(
    row: Row | None, held: Row, is_mapped: bool, moves: list[object]
) -> None:
    """Maps lead; all others of the topic stay."""
    found = plan(row, held)
    assert found.maps == ({"t": (BEFORE, (2, 1))} if is_mapped else {})
    assert (found.moves, found.left) == (moves, [])


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (plan((2, 1), AFTER), CHANGED),
        (plan((1, 3), AFTER), CHANGED),
        (plan((), AFTER), CHANGED),
        (plan(AFTER, (1, 4)), CHANGED),
        (plan(None, (1, 4)), CHANGED),
        (plan(None, (4, 3)), CHANGED),
        (plan(AFTER, None), GONE),
        (plan(None, AFTER, id_="another"), GONE),
        (plan(AFTER, AFTER, short=(1,)), SHORT),
    ],
)
def test_a_list_that_others_have_changed_is_left_alone(found: UndoPlan, why: str) -> None:
    """It is named, and neither its map nor its data are touched."""
    assert found == UndoPlan({}, [], [f"t-0: {why}"])


@pytest.mark.parametrize("after", [(), (1,)], ids=["not known at a kill", "left short"])
def test_a_new_list_that_was_not_whole_may_have_become_any_with_the_others(after: Row) -> None:
    """The job fills it as soon as the SPU is back; one without those that stayed is another."""
    for row in ((1,), (1, 2), (1, 3)):
        assert plan(row, BEFORE, after=after).maps == {"t": (BEFORE, (2, 1))}
    assert plan((2, 4), BEFORE, after=after).left == [f"t-0: {CHANGED}"]


def test_a_part_of_the_record_fits_into_a_message() -> None:
    """With the longest names and lists."""
    row = (SPU_ID_MAX,) * REPLICATION_FACTOR_MAX
    move = new_move(("t" * 249, 2**31 - 1), "i" * 22, row, row)
    run = replace(begun_run("c" * 249), moves=(move,) * PART)
    assert len(encode_record(run)) < MESSAGE_SIZE_MAX


def test_undo_takes_no_topics() -> None:
    """What a drain took is recorded."""
    arguments = ["drain", "3", "--cluster", "c1", "--undo", "--foreign", "x", "-b", "127.0.0.1:1"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 2
    assert "--foreign cannot be given with --undo" in done.output
