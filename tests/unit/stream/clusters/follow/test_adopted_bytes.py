"""How large adopted topics are: what is sent as their demand, and when it is sent again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.schemas.messages.wire import Origin
from support.events.installation import Installation

DISK = "disk_bytes"


def sized_world() -> Installation:
    """SPUs 1 to 4 have disks."""
    world = Installation()
    joins = (world.events.join(spu, resources={DISK: 10**6, "net": 100}) for spu in range(1, 5))
    world.answer(*joins)
    return world


@pytest.fixture
def world() -> Installation:
    return sized_world()


def demands(world: Installation, **changed: bool) -> dict[str, object]:
    """Of the topics that would be adopted now."""
    return {event.topic: event.demand for event in world.decide(**changed).adopted}


def used(world: Installation) -> dict[int, int]:
    state = world.assigner.clusters["c1"]
    return {int(i): dict(state.ledger.used(i)).get(DISK, 0) for i in state.spus}


def test_a_partition_needs_its_part_of_the_bytes_rounded_up(world: Installation) -> None:
    """Without bytes, or where they are not known, nothing is said."""
    for name in ("large", "empty", "unknown"):
        world.kafka(name, [[1, 2], [2], [3, 1]])
    world.bytes = {"large": 100, "empty": 0}
    world.adopt()
    assert {name: each.need and each.need.demand for name, each in world.published.items()} == {
        "large": ((DISK, 34),),
        "empty": None,
        "unknown": None,
    }
    assert used(world) == {1: 68, 2: 68, 3: 34, 4: 0}
    again = world.decide()
    assert (again.events, again.equal) == ((), ("empty", "large", "unknown"))


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=9),
    st.integers(0, 10**9),
)
def test_the_sum_over_the_partitions_is_never_understated(leaders: list[int], size: int) -> None:
    """And by less than a byte for each partition too large."""
    world = sized_world()
    world.kafka("a", [[leader] for leader in leaders])
    world.bytes = {"a": size}
    world.adopt()
    assert size <= sum(used(world).values()) < size + len(leaders)
    assert world.decide().events == ()


@pytest.mark.parametrize(
    ("size", "is_sent"),
    [(1000, False), (1100, False), (1101, True), (900, False), (899, True), (0, True)],
)
def test_bytes_alone_are_sent_again_when_they_differ_by_more_than_a_tenth(
    world: Installation, size: int, *, is_sent: bool
) -> None:
    """Data trickle in while `adopt` runs: a second run sends nothing."""
    world.kafka("a", [[1]])
    world.bytes = {"a": 1000}
    world.adopt()
    world.bytes = {"a": size}
    decision = world.adopt()
    assert [event.demand for event in decision.adopted] == ([{DISK: size}] if is_sent else [])
    why = "holds other bytes than revision 1 of its map says"
    assert decision.reasons == ({"a": why} if is_sent else {})
    assert decision.equal == (() if is_sent else ("a",))
    assert world.published["a"].revision == (2 if is_sent else 1)
    assert world.decide().events == ()


def test_what_a_request_has_reserved_stays_until_more_is_there(world: Installation) -> None:
    """A topic that was created here, and one that was measured by somebody else.

    One that was made again has its own bytes.
    """
    events = world.events
    world.answer(
        events.create("a", 1, 1, demand={DISK: 1000}),
        events.create("b", 1, 1),
        events.demand("b", demand={DISK: 1000}),
    )
    for name in ("a", "b"):
        world.kafka(name, [list(row) for row in world.maps()[name]])
    world.note(Origin.CREATED, "a")
    world.bytes = {"a": 10, "b": 1050}
    assert demands(world) == {}
    assert demands(world, overwrite=True) == {"a": {DISK: 10}}
    of_a = world.found["a"]
    world.kafka("a", [list(row) for row in of_a.rows], topic_id="another")
    assert demands(world) == {"a": {DISK: 10}}
    world.found["a"] = of_a
    world.bytes = {"a": 2000, "b": 1200}
    assert demands(world) == {"a": {DISK: 2000}, "b": {DISK: 1200}}
    world.adopt()
    world.bytes = {"a": 10, "b": 10}  # Measured from now on.
    assert demands(world) == {"a": {DISK: 10}, "b": {DISK: 10}}


def test_what_else_a_topic_needs_stays(world: Installation) -> None:
    """Only its bytes are measured here; and these are sent with other lists where they differ."""
    world.kafka("a", [[1, 2]])
    world.bytes = {"a": 1000}
    world.adopt()
    world.kafka("a", [[2, 3]])
    assert demands(world) == {"a": None}
    measured = {"demand": {DISK: 1000, "net": 7}, "leader_demand": {"net": 9}}
    world.answer(world.events.demand("a", **measured))
    world.bytes = {"a": 3000}
    world.adopt(overwrite=True)
    need = world.published["a"].need
    assert need is not None
    assert dict(need.demand) == {DISK: 3000, "net": 7}
    assert dict(need.leader_demand) == {"net": 9}
    assert used(world) == {1: 0, 2: 3000, 3: 3000, 4: 0}
