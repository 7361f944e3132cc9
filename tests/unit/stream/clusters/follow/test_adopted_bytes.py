"""How large adopted topics are: what is sent as their demand, and when it is sent again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.schemas.messages.wire import Origin
from support.events.plans import Installation

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


@given(st.lists(st.integers(1, 4), min_size=1, max_size=9), st.integers(0, 10**9))
def test_the_sum_over_the_partitions_is_never_understated(leaders: list[int], size: int) -> None:
    """And by less than a byte for each partition too large; where it is not known none is said."""
    world = sized_world()
    for name in ("a", "unknown"):
        world.kafka(name, [[leader] for leader in leaders])
    world.bytes = {"a": size}
    world.adopt()
    ledger = world.assigner.clusters["c1"].ledger
    used = sum(dict(ledger.used(spu)).get(DISK, 0) for spu in world.assigner.clusters["c1"].spus)
    assert size <= used < size + len(leaders)
    assert world.published["unknown"].need is None
    again = world.decide()
    assert (again.events, again.equal) == ((), ("a", "unknown"))


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
    """Also what else a topic needs; one that was made again has its own bytes."""
    world.answer(world.events.create("a", 1, 1, demand={DISK: 1000, "net": 7}))
    lists = [list(row) for row in world.maps()["a"]]
    world.kafka("a", lists)
    world.note(Origin.CREATED, "a")
    world.bytes = {"a": 10}
    assert demands(world) == {}
    less = {"a": {DISK: 10, "net": 7}}
    assert demands(world, overwrite=True) == less
    world.kafka("a", lists, topic_id="another")
    assert demands(world) == less
    world.kafka("a", lists)
    world.bytes = {"a": 2000}
    assert demands(world) == {"a": {DISK: 2000, "net": 7}}
    world.adopt()
    world.bytes = {"a": 10}  # Measured from now on.
    assert demands(world) == less
