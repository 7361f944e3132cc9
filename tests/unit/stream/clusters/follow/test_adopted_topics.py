"""Which topics are adopted: topics, maps and records in, events out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.events import Event, LeaveMode, Policy, TopicRelease
from spu_assigner.core.base.records import Status
from spu_assigner.schemas.messages.wire import Origin
from spu_assigner.stream.clusters.follow.topic_facts import FoundTopic
from spu_assigner.stream.clusters.follow.topics import TopicsDecision
from spu_assigner.stream.clusters.plan.applied import adopted
from spu_assigner.stream.clusters.plan.model import (
    UNDO_MARK,
    ChangeKind,
    Rows,
    TopicChange,
    TopicsPlan,
)
from support.events.plans import Installation, Lists, record, recorded, rows

DISK = "disk_bytes"
DISKS = {DISK: 10**6, "net": 100}
NOT_FOLLOWED = "its map was changed by a {}, and Kafka has not followed yet"


def sent(decision: TopicsDecision) -> dict[str, Rows]:
    return {event.topic: event.replicas for event in decision.adopted}


def pending(decision: TopicsDecision) -> list[str]:
    assert decision.events == ()
    return [each.reason for each in decision.pending]


@pytest.fixture
def world() -> Installation:
    return Installation()


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "c", "d"]),
        st.lists(
            st.lists(st.integers(1, 4), min_size=1, max_size=4, unique=True), min_size=1, max_size=5
        ),
    )
)
def test_whatever_kafka_has_is_adopted_in_one_run(topics: dict[str, Lists]) -> None:
    """After it every map is as Kafka has it, and nothing is sent again."""
    world = Installation()
    for name, lists in topics.items():
        world.kafka(name, lists)
    world.adopt()
    assert world.maps() == {name: rows(lists) for name, lists in topics.items()}
    assert {each.status for each in world.statuses} <= {Status.ADOPTED}
    again = world.decide()
    assert (again.events, again.equal) == ((), tuple(sorted(topics)))


def test_a_run_that_was_killed_is_repeated_and_changes_nothing_twice(world: Installation) -> None:
    """The job has not answered yet, and gets both."""
    world.kafka("a", [[1]])
    world.kafka("b", [[2]])
    first, second = world.decide().events, world.decide().events
    world.answer(*first, *second)
    assert {each.status for each in world.statuses} == {Status.ADOPTED}
    assert {name: each.revision for name, each in world.published.items()} == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("globs", "excluded", "meant"),
    [
        (("*",), (), ["other", "team-a", "team-b"]),
        (("team-*",), (), ["team-a", "team-b"]),
        (("*",), ("team-*",), ["other"]),
        (("team-*", "other"), ("*-b",), ["other", "team-a"]),
    ],
)
def test_globs_say_which_topics_are_meant(
    world: Installation, globs: tuple[str, ...], excluded: tuple[str, ...], meant: list[str]
) -> None:
    """Of those that are neither Kafka's own nor the product's."""
    for name in ("team-a", "team-b", "other", "__consumer_offsets", "spu-events"):
        world.kafka(name, [[1]])
    decision = world.decide(globs=(*globs, "__c*"), excluded=excluded)
    assert (list(sent(decision)), decision.left) == (meant, ())


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"rows": ((3, 1, 2),), "reassigned": (0,)}, "Kafka is reassigning its partitions 0;"),
        ({"rows": ((1, 9),)}, "its lists name brokers 9, which are neither alive nor SPUs"),
    ],
)
def test_a_topic_whose_lists_say_nothing_yet_is_left(
    world: Installation, found: Any, reason: str
) -> None:
    """While it is moved they name where it comes from and where it goes to."""
    world.found["a"] = FoundTopic(topic_id="i", **found)
    decision = world.decide()
    assert decision.events == ()
    assert reason in decision.left[0].reason
    world.kafka("a", [[3, 1]])
    assert sent(world.decide()) == {"a": ((3, 1),)}


def repaired(world: Installation) -> Event:
    return world.events.leave(1, mode=LeaveMode.DECOMMISSION)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda w: [repaired(w)], NOT_FOLLOWED.format("repair")),
        (lambda w: [w.events.demote(1)], NOT_FOLLOWED.format("demotion")),
        (lambda w: [w.events.replication("a", 3)], NOT_FOLLOWED.format("replication")),
        (  # It is an adoption, but not of Kafka's lists.
            lambda w: [w.events.adopt("a", [2, 1], [3, 2], event_id=f"{UNDO_MARK}/1")],
            NOT_FOLLOWED.replace("a {}", "`drain --undo`"),
        ),
        (lambda w: [w.events.grow("a", 4)], "its map has grown to 4 partitions, and Kafka has 2"),
        (  # Kafka takes no partition away: what has fewer than its map has not followed.
            lambda w: [w.events.demote(1), w.events.grow("a", 4)],
            "its map has grown to 4 partitions, and Kafka has 2",
        ),
        (  # It changes no list, and hides what did;
            lambda w: [repaired(w), w.events.demand("a", demand={"net": 1})],
            NOT_FOLLOWED.format("demand"),
        ),
        (  # likewise.
            lambda w: [repaired(w), w.events.constraints("a", Constraints(leaders=("spu_id=1",)))],
            NOT_FOLLOWED.format("constraints"),
        ),
        (lambda w: [w.events.delete("a")], "its map was deleted or released"),
        (lambda w: [w.events.release("a")], "its map was deleted or released"),
    ],
)
def test_what_was_changed_here_is_for_apply_to_carry_out(
    world: Installation, change: Any, reason: str
) -> None:
    """To adopt Kafka's lists would take it back, unless that is asked for.

    Data that come meanwhile do not change that, and what was made again is another topic.
    """
    world.answer(*(world.events.join(spu_id, resources=DISKS) for spu_id in range(1, 5)))
    world.announced = {1}  # Also after the job has forgotten it.
    lists = [[1, 2], [2, 3]]
    world.kafka("a", lists)
    world.bytes = {"a": 1000}
    world.adopt()
    world.note(Origin.FOUND, "a")
    world.answer(*change(world))
    assert world.maps() != {"a": rows(lists)}
    world.bytes = {"a": 9000}
    assert pending(world.decide()) == [reason]
    assert sent(world.decide(overwrite=True)) == {"a": rows(lists)}
    world.kafka("a", [[4, 3]], topic_id="another")
    assert sent(world.decide()) == {"a": ((4, 3),)}


def test_a_repair_is_not_taken_back_when_the_topic_has_grown_since(world: Installation) -> None:
    """`apply` without --moves adds the partitions, and the map shows the growth alone.

    Nor in between, while some partitions have been moved.
    """
    world.kafka("a", [[1, 2], [2, 3], [1, 3]])
    world.adopt()
    world.note(Origin.FOUND, "a")
    world.answer(repaired(world), world.events.grow("a", 5))
    mapped = world.maps()["a"]
    change = TopicChange(
        topic="a",
        kind=ChangeKind.CHANGE,
        before=world.found["a"].rows,
        after=mapped,
        topic_id="id-of-a",
    )
    plan = TopicsPlan(cluster_id="c1", kafka_id="k", brokers=(1, 2, 3, 4), changes=(change,))
    world.applied = recorded(*adopted(plan, world.applied))
    for moved in range(3):
        lists = [*mapped[:moved], *change.before[moved:], *mapped[3:]]
        world.kafka("a", [list(row) for row in lists])
        assert pending(world.decide()) == [
            "its map was changed before it grew, and Kafka has not followed yet"
        ]
    world.kafka("a", [[4, 3], *map(list, mapped[1:])])
    assert sent(world.decide())["a"][0] == (4, 3)  # That was somebody else.


def test_partitions_that_others_added_are_adopted(world: Installation) -> None:
    """Whatever the map has grown to."""
    world.kafka("a", [[1, 2], [2, 3]])
    world.adopt()
    world.answer(world.events.grow("a", 4))
    world.kafka("a", [[1, 2], [2, 3], [3, 1], [1, 2], [2, 1]])
    assert list(sent(world.decide())) == ["a"]


def test_a_topic_that_is_gone_is_released_on_request(world: Installation) -> None:
    """Of one that apply made, `plan` speaks. The longest name has an id that the job takes."""
    name = "n" * 249
    world.kafka("mine", [[1, 2]])
    world.kafka(name, [[1, 2]], topic_id="22-letters-of-base-64_")
    world.adopt()
    world.applied = recorded(record("mine", Origin.CREATED, topic_id="id-of-mine"))
    world.found.clear()
    assert world.decide().gone == (name,)
    assert world.decide().events == ()
    decision = world.adopt(forget_gone=True)
    assert [type(event) for event in decision.events] == [TopicRelease]
    assert list(world.maps()) == ["mine"]
    assert world.decide(forget_gone=True).events == ()


def test_pinned_and_policy_are_kept_unless_they_are_given(world: Installation) -> None:
    """A second run without the options does not undo the first."""
    world.kafka("a", [[1, 2]])
    world.adopt(pinned=True, policy=Policy.KAFKA)
    assert world.decide().events == ()
    assert world.decide(pinned=True, policy=Policy.KAFKA).events == ()
    world.kafka("a", [[2, 1]])
    (event,) = world.adopt().adopted
    assert event.pinned
    assert (world.published["a"].policy, world.published["a"].pinned) == (Policy.KAFKA, True)
    world.adopt(pinned=False)
    assert not world.published["a"].pinned
