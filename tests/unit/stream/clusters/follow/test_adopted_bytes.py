"""How large adopted topics are: what is sent as their demand, and when it is sent again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.events import TopicAdopted
from spu_assigner.core.base.records import Status
from spu_assigner.schemas.messages.wire import Origin
from support.events.installation import Installation

DISK = "disk_bytes"


@pytest.fixture
def world() -> Installation:
    return sized_world()


def sized_world() -> Installation:
    """SPUs 1 to 4 have disks."""
    world = Installation()
    world.answer(*(world.events.join(spu_id, resources={DISK: 10**6}) for spu_id in range(1, 5)))
    return world


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
    assert decision.resized == ({"a"} if is_sent else set())
    assert world.published["a"].revision == (2 if is_sent else 1)
    assert world.decide().events == ()


def test_a_run_that_was_killed_sends_the_same_id_though_data_came(world: Installation) -> None:
    """The second copy changes nothing, whichever is answered."""
    world.kafka("a", [[1]])
    world.bytes = {"a": 1000}
    (first,) = world.decide().adopted
    world.bytes = {"a": 5000}
    (second,) = world.decide().adopted
    assert (first.event_id, second.demand) == (second.event_id, {DISK: 5000})


def test_what_a_request_has_reserved_stays_until_more_is_there(world: Installation) -> None:
    """A topic that was created here, and one that was measured by somebody else."""
    events = world.events
    world.answer(
        events.create("a", 1, 1, demand={DISK: 1000}),
        events.create("b", 1, 1),
        events.demand("b", demand={DISK: 1000}),
    )
    for name in ("a", "b"):
        world.kafka(name, [list(row) for row in world.maps()[name]])
    world.bytes = {"a": 10, "b": 1050}
    assert demands(world) == {}
    assert demands(world, overwrite=True) == {"a": {DISK: 10}}
    world.bytes = {"a": 2000, "b": 1200}
    assert demands(world) == {"a": {DISK: 2000}, "b": {DISK: 1200}}
    world.adopt()
    world.bytes = {"a": 10, "b": 10}  # Measured from now on.
    assert demands(world) == {"a": {DISK: 10}, "b": {DISK: 10}}


def test_what_else_a_topic_needs_stays(world: Installation) -> None:
    """Only its bytes are measured here."""
    join = world.events.join(1, resources={DISK: 10**6, "net": 100})
    world.kafka("a", [[1, 2]])
    world.bytes = {"a": 1000}
    world.answer(join)
    world.adopt()
    measured = {"demand": {DISK: 1000, "net": 7}, "leader_demand": {"net": 9}}
    world.answer(world.events.demand("a", **measured))
    world.kafka("a", [[2, 1]])
    world.bytes = {"a": 3000}
    assert demands(world) == {}  # The demand came after a change that Kafka may not have yet.
    world.adopt(overwrite=True)
    need = world.published["a"].need
    assert need is not None
    assert dict(need.demand) == {DISK: 3000, "net": 7}
    assert dict(need.leader_demand) == {"net": 9}
    assert [each.status for each in world.statuses] == [Status.ADOPTED]


def test_a_topic_that_was_made_again_has_its_own_bytes(world: Installation) -> None:
    """Also where the first one was created here, and larger."""
    world.answer(world.events.create("a", 1, 1, demand={DISK: 1000}))
    world.kafka("a", [list(row) for row in world.maps()["a"]])
    world.note(Origin.CREATED, "a")
    world.bytes = {"a": 10}
    assert demands(world) == {}
    world.kafka("a", [list(row) for row in world.maps()["a"]], topic_id="another")
    assert demands(world) == {"a": {DISK: 10}}


def test_a_topic_that_moves_is_not_measured(world: Installation) -> None:
    """Its lists in Kafka are not those of its map; and what waits for `apply` is for `apply`."""
    world.kafka("a", [[1, 2]])
    world.bytes = {"a": 1000}
    world.adopt()
    world.answer(world.events.replication("a", 3))
    world.bytes = {"a": 9000}
    decision = world.decide()
    assert [each.topic for each in decision.pending] == ["a"]
    assert decision.events == ()


def test_other_lists_bring_the_bytes_where_these_differ(world: Installation) -> None:
    """Else the demand stays as it is known."""
    world.kafka("a", [[1]])
    world.bytes = {"a": 1000}
    world.adopt()
    world.kafka("a", [[2]])
    assert demands(world) == {"a": None}
    world.bytes = {"a": 2000}
    (event,) = world.adopt().adopted
    assert isinstance(event, TopicAdopted)
    assert event.demand == {DISK: 2000}
    assert used(world) == {1: 0, 2: 2000, 3: 0, 4: 0}
