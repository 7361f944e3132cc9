"""What is sent about topics look after look, and which new ones are placed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from spu_assigner.core.base.events import Policy, TopicAdopted, TopicCreate, TopicRelease
from spu_assigner.stream.clusters.follow.topic_facts import FoundTopic, TopicMemory
from spu_assigner.stream.clusters.follow.topics import TopicsDecision
from support.events.plans import ADOPT, Installation, rows

FOLLOW = replace(ADOPT, is_adopt=False)


@pytest.fixture
def world() -> Installation:
    return Installation(FOLLOW)


def kinds(decision: TopicsDecision) -> dict[str, type]:
    return {event.topic: type(event) for event in decision.events}


def test_what_others_do_to_topics_is_followed(world: Installation) -> None:
    """Made, reassigned, grown, deleted: an event each, and none when nothing happens."""
    world.kafka("kept", [[4]])
    for lists in ([[1]], [[1, 2]], [[1]], [[1, 2], [3]]):
        world.kafka("a", lists)
        assert world.look().events
        assert world.look().events == ()
        assert world.maps() == {"a": rows(lists), "kept": ((4,),)}
    del world.found["a"]
    once = world.look()
    assert (once.events, once.is_awaited) == ((), True)
    assert kinds(world.look()) == {"a": TopicRelease}
    assert world.maps() == {"kept": ((4,),)}
    world.kafka("a", [[1]])
    world.look()
    assert world.maps() == {"a": ((1,),), "kept": ((4,),)}


def test_nothing_is_sent_again_while_the_job_has_not_answered(world: Installation) -> None:
    """It may be down for hours, and a look comes every few seconds."""
    for lists in ([[1]], [[2]]):
        world.kafka("a", lists)
        assert [len(world.look(job_runs=False).events) for _ in range(3)] == [1, 0, 0]
    world.look()
    assert world.maps() == {"a": ((2,),)}


def test_what_the_job_rejected_waits_for_a_broker_that_joins(world: Installation) -> None:
    """It would be rejected at each look; it is reported until it is accepted."""
    world.announced = {9}  # The job knows no such SPU yet.
    world.kafka("a", [[1, 9]])
    assert len(world.look().events) == 1
    for _ in range(2):
        decision = world.look()
        assert (decision.events, [each.topic for each in decision.left]) == ((), ["a"])
    world.answer(world.events.join(9))
    world.memory.retry()
    assert len(world.look().events) == 1
    assert world.maps() == {"a": ((1, 9),)}
    assert world.look().left == ()


def test_topics_that_all_vanish_are_held_and_one_that_shows_again_is_kept(
    world: Installation,
) -> None:
    """One look may be wrong, and so may be one that shows next to nothing."""
    for name in ("a", "b", "c"):
        world.kafka(name, [[1]])
    world.look()
    topic = world.found.pop("a")
    world.look()
    world.found["a"] = topic
    world.look()
    world.found.clear()
    world.look()
    assert world.look().held == ("a", "b", "c")
    assert set(world.maps()) == {"a", "b", "c"}


def test_what_is_adopted_says_its_bytes_which_alone_send_nothing(world: Installation) -> None:
    """A look comes every few seconds, and brokers answer for all their logs."""
    world.answer(*(world.events.join(spu_id, resources={"disk_bytes": 100}) for spu_id in (1, 2)))
    world.kafka("a", [[1], [2]])
    world.kafka("b", [[1]])
    world.bytes = {"a": 7}
    sent = world.look().adopted
    assert [event.demand for event in sent] == [{"disk_bytes": 4}, None]
    world.bytes = {"a": 70, "b": 5}
    assert world.look().events == ()
    world.kafka("a", [[2], [1]])
    assert [event.demand for event in world.look().adopted] == [{"disk_bytes": 35}]


@pytest.fixture
def placing() -> Installation:
    """A process that has looked at a cluster with a topic in it, which is empty."""
    world = Installation(replace(FOLLOW, place_new=True))
    world.kafka("old", [[1, 2]])
    world.look()
    assert world.maps() == {"old": ((1, 2),)}
    return world


def test_a_new_topic_is_placed_by_the_default_policy_and_moved(placing: Installation) -> None:
    """As if it had been asked for here: the four SPUs lead one of its partitions each."""
    placing.kafka("new", [[1, 2]] * 4)
    placing.written = None  # Its partitions may have no leader in the first second.
    assert placing.look().events == ()
    placing.written = set()
    (event,) = placing.look(job_runs=False).events
    assert isinstance(event, TopicCreate)
    assert (event.partitions, event.replication_factor, event.policy) == (4, 2, None)
    assert placing.look(job_runs=False).events == ()
    placing.memory.retry()  # A broker joins before the job answers: it is the same request.
    assert [each.event_id for each in placing.look().events] == [event.event_id]
    assert placing.published["new"].policy is Policy.BALANCED
    placed = placing.maps()["new"]
    assert {row[0] for row in placed} == {1, 2, 3, 4}
    decision = placing.look()
    assert (decision.events, decision.unplaced) == ((), ())
    moves = {("new", at): row for at, row in enumerate(placed) if row != (1, 2)}
    assert decision.moves == moves
    placing.found["new"] = FoundTopic(rows=((1, 2, 3),), topic_id="id-of-new", reassigned=(0,))
    assert placing.look().left == ()  # Nobody has to run `adopt`, as of what others move.
    placing.kafka("new", [list(row) for row in placed])
    decision = placing.look()
    assert (decision.events, decision.moves, decision.equal) == ((), {}, ("new", "old"))
    assert decision.moved == ("new",)
    assert placing.look().moved == ()


def test_a_later_process_moves_what_was_placed_and_places_nothing_that_it_finds(
    placing: Installation,
) -> None:
    """It does not know what was made when; the map says that its topic was to be moved."""
    placing.kafka("new", [[1, 2]] * 4)
    placing.look()
    placing.kafka("found", [[3, 4]])
    placing.memory = TopicMemory()
    decision = placing.look()
    assert kinds(decision) == {"found": TopicAdopted}
    assert decision.moves
    placing.memory, placing.options = TopicMemory(), FOLLOW
    assert kinds(placing.look()) == {"new": TopicAdopted}
    assert placing.maps()["new"] == ((1, 2),) * 4


def test_a_topic_that_holds_data_is_adopted_as_it_is(placing: Installation) -> None:
    """Before it is asked for, or before it could be moved."""
    placing.written = {"early"}
    for name in ("early", "late"):
        placing.kafka(name, [[1]] * 3)
    assert kinds(placing.look()) == {"early": TopicAdopted, "late": TopicCreate}
    placing.written.add("late")
    decision = placing.look()
    assert (kinds(decision), decision.moves) == ({"late": TopicAdopted}, {})
    assert placing.maps() == {"early": ((1,),) * 3, "late": ((1,),) * 3, "old": ((1, 2),)}
    assert [each.topic for each in decision.unplaced] == ["early", "late"]
    assert placing.look().events == ()


def test_a_topic_that_the_job_does_not_place_is_adopted_as_it_is(placing: Installation) -> None:
    """Three SPUs have left, and a topic in Kafka is a fact."""
    placing.answer(*(placing.events.leave(spu_id) for spu_id in (2, 3, 4)))
    placing.kafka("new", [[1, 2]])
    assert kinds(placing.look()) == {"new": TopicCreate}
    decision = placing.look()
    assert kinds(decision) == {"new": TopicAdopted}
    assert decision.unplaced[0].reason.startswith("the job does not place it: ")
    assert placing.maps()["new"] == ((1, 2),)
    placing.memory.retry()
    assert placing.look().events == ()


def test_a_placed_topic_that_is_deleted_in_kafka_is_released(placing: Installation) -> None:
    """Else `apply` would make it again."""
    placing.kafka("new", [[1, 2]])
    placing.look()
    del placing.found["new"]
    placing.look()
    assert kinds(placing.look()) == {"new": TopicRelease}
    assert set(placing.maps()) == {"old"}
