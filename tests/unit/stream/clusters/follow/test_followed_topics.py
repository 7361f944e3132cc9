"""What is sent about topics look after look, and which new ones are placed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from spu_assigner.core.base.events import (
    Event,
    LeaveMode,
    Policy,
    TopicAdopted,
    TopicCreate,
    TopicRelease,
)
from spu_assigner.core.base.records import Status
from spu_assigner.stream.clusters.follow.adoption import FoundTopic, PublishedMaps
from spu_assigner.stream.clusters.follow.followed_topics import FollowedTopics, TopicsTurn
from spu_assigner.stream.clusters.plan.model import Rows
from support.events.installation import Installation, rows


class Following:
    """A process that follows topics; the job answers on request."""

    def __init__(self, world: Installation, *, place_new: bool = False) -> None:
        self.world = world
        self.followed = FollowedTopics(world.options, place_new=place_new)
        self.written: set[str] = set()  # topics that hold data
        self.moving: set[str] = set()  # topics that the process is moving
        self.inbox: list[Event] = []
        self.measured: list[list[str]] = []  # topics whose bytes were asked for

    def measure(self, topics: Mapping[str, int]) -> Mapping[str, int]:
        self.measured.append(list(topics))
        return {name: size for name, size in self.world.bytes.items() if name in topics}

    def look(self, *, job_runs: bool = True) -> TopicsTurn:
        memory = self.world.assigner.clusters["c1"].memory.known
        remembered = frozenset(each for each in memory if each is not None)
        turn = self.followed.turn(
            self.world.found,
            PublishedMaps(maps=dict(self.world.published), remembered=remembered),
            self.world.applied,
            spus=[*self.world.assigner.clusters["c1"].spus, 9],
            occurred_at=0,
            untouched=lambda names: {*names} - self.written,
            topic_bytes=self.measure,
            moving=self.moving,
        )
        self.inbox += turn.events
        if job_runs:
            self.world.statuses.clear()
            self.world.answer(*self.inbox)
            self.inbox.clear()
            for status in self.world.statuses:
                if status.status is Status.REJECTED:
                    self.followed.reject(status.cause, str(status.message))
        return turn


@pytest.fixture
def following() -> Following:
    return Following(Installation())


def test_what_others_do_to_topics_is_followed(following: Following) -> None:
    """Made, reassigned, grown, deleted: an event each, and none when nothing happens."""
    world = following.world
    world.kafka("kept", [[4]])
    for lists in ([[1]], [[1, 2]], [[1, 2], [3]]):
        world.kafka("a", lists)
        assert following.look().events
        assert following.look().events == ()
        assert world.maps() == {"a": rows(lists), "kept": ((4,),)}
    del world.found["a"]
    once = following.look()
    assert (once.events, once.is_awaited) == ((), True)
    assert [type(event) for event in following.look().events] == [TopicRelease]
    assert world.maps() == {"kept": ((4,),)}
    world.kafka("a", [[1]])
    following.look()
    assert world.maps() == {"a": ((1,),), "kept": ((4,),)}


def test_nothing_is_sent_again_while_the_job_has_not_answered(following: Following) -> None:
    """It may be down for hours, and a look comes every few seconds."""
    following.world.kafka("a", [[1]])
    assert [len(following.look(job_runs=False).events) for _ in range(3)] == [1, 0, 0]
    following.world.kafka("a", [[2]])
    assert [len(following.look(job_runs=False).events) for _ in range(3)] == [1, 0, 0]
    following.look()
    assert following.world.maps() == {"a": ((2,),)}


def test_what_the_job_rejected_waits_for_a_broker_that_joins(following: Following) -> None:
    """It would be rejected at each look; it is reported until it is accepted."""
    world = following.world
    world.kafka("a", [[1, 9]])  # Announced, and the job knows no such SPU yet.
    assert len(following.look().events) == 1
    for _ in range(2):
        turn = following.look()
        assert (turn.events, [each.topic for each in turn.left]) == ((), ["a"])
    world.answer(world.events.join(9))
    following.followed.retry()
    assert len(following.look().events) == 1
    assert world.maps() == {"a": ((1, 9),)}
    assert following.look().left == ()


def test_topics_that_all_vanish_are_held_and_one_that_shows_again_is_kept(
    following: Following,
) -> None:
    """One look may be wrong, and so may be one that shows next to nothing."""
    world = following.world
    for name in ("a", "b", "c"):
        world.kafka(name, [[1]])
    following.look()
    topic = world.found.pop("a")
    following.look()
    world.found["a"] = topic
    following.look()
    assert set(world.maps()) == {"a", "b", "c"}
    world.found.clear()
    following.look()
    assert following.look().held == ("a", "b", "c")
    assert set(world.maps()) == {"a", "b", "c"}


def test_a_decommission_is_left_to_apply_while_topics_are_followed(following: Following) -> None:
    """Else it would be undone within an interval."""
    world = following.world
    world.kafka("a", [[1, 2]])
    following.look()
    world.answer(world.events.leave(1, mode=LeaveMode.DECOMMISSION))
    planned = world.maps()
    assert following.look().events == ()
    assert world.maps() == planned != {"a": ((1, 2),)}
    world.kafka("a", [list(row) for row in planned["a"]])  # Carried out.
    assert following.look().events == ()


@pytest.fixture
def placing() -> Following:
    """One that has looked at a cluster with a topic in it, which is empty."""
    following = Following(Installation(), place_new=True)
    following.world.kafka("old", [[1, 2]])
    following.look()
    assert following.world.maps() == {"old": ((1, 2),)}
    return following


def targets(turn: TopicsTurn) -> Rows:
    return tuple(move.after for move in turn.moves)


def carry_out(following: Following, turn: TopicsTurn) -> None:
    """As Kafka has the lists afterwards."""
    for topic in {move.topic for move in turn.moves}:
        lists = [list(row) for row in following.world.maps()[topic]]
        following.world.kafka(topic, lists, topic_id=turn.moves[0].topic_id)


def test_a_new_topic_is_placed_by_the_default_policy_and_moved(placing: Following) -> None:
    """As if it had been asked for here: the four SPUs lead one of its partitions each."""
    world = placing.world
    world.kafka("new", [[1, 2]] * 4)
    (event,) = placing.look(job_runs=False).events
    assert isinstance(event, TopicCreate)
    assert (event.partitions, event.replication_factor, event.policy) == (4, 2, None)
    assert placing.look(job_runs=False).events == ()
    placing.look()
    assert world.published["new"].policy is Policy.BALANCED
    assert {row[0] for row in world.maps()["new"]} == {1, 2, 3, 4}
    turn = placing.look()
    assert (turn.events, turn.unplaced) == ((), ())
    assert all(move.before == (1, 2) != move.after for move in turn.moves)
    assert {*targets(turn)} == {*world.maps()["new"]} - {(1, 2)}
    carry_out(placing, turn)
    turn = placing.look()
    assert (turn.events, turn.moves, turn.decision.equal) == ((), (), ("new", "old"))


def test_what_is_being_moved_here_is_not_reported_as_left_alone(placing: Following) -> None:
    """Nobody has to run `adopt`, as the line says of what others move."""
    moved = FoundTopic(rows=((1, 2, 3),), topic_id="id-of-new", reassigned=(0,))
    placing.look()
    placing.world.found["new"] = moved
    assert [each.topic for each in placing.look().left] == ["new"]
    placing.moving.add("new")
    assert placing.look().left == ()


def test_a_later_process_moves_what_was_placed_and_places_nothing_that_it_finds(
    placing: Following,
) -> None:
    """It does not know what was made when; the map says that its topic was to be moved."""
    world = placing.world
    world.kafka("new", [[1, 2]] * 4)
    placing.look()
    world.kafka("found", [[3, 4]])
    later = Following(world, place_new=True)
    turn = later.look()
    assert [type(event) for event in turn.events] == [TopicAdopted]
    assert targets(turn)
    without = Following(world)
    assert [type(event) for event in without.look().events] == [TopicAdopted]
    assert world.maps()["new"] == ((1, 2),) * 4


def test_a_topic_that_holds_data_is_adopted_as_it_is(placing: Following) -> None:
    """Before it is asked for, or before it could be moved."""
    world = placing.world
    placing.written.add("early")
    for name in ("early", "late"):
        world.kafka(name, [[1]] * 3)
    first = placing.look()
    assert {event.topic: type(event) for event in first.events} == {
        "early": TopicAdopted,
        "late": TopicCreate,
    }
    placing.written.add("late")
    turn = placing.look()
    assert ([type(event) for event in turn.events], turn.moves) == ([TopicAdopted], ())
    assert world.maps() == {"early": ((1,),) * 3, "late": ((1,),) * 3, "old": ((1, 2),)}
    assert [each.topic for each in turn.unplaced] == ["early", "late"]
    assert placing.look().events == ()


def test_a_topic_that_the_job_does_not_place_is_adopted_as_it_is(placing: Following) -> None:
    """Three SPUs have left, and a topic in Kafka is a fact."""
    world = placing.world
    world.answer(*(world.events.leave(spu_id) for spu_id in (2, 3, 4)))
    world.kafka("new", [[1, 2]])
    assert [type(event) for event in placing.look().events] == [TopicCreate]
    turn = placing.look()
    assert [type(event) for event in turn.events] == [TopicAdopted]
    assert turn.unplaced[0].reason.startswith("the job does not place it: ")
    assert world.maps()["new"] == ((1, 2),)


def test_a_new_topic_of_which_nothing_is_known_yet_waits(placing: Following) -> None:
    """Its partitions may have no leader in the first second; adopting it would be final."""
    placing.world.kafka("new", [[1, 2]])
    followed, world = placing.followed, placing.world
    published = PublishedMaps(maps=world.published)
    turn = followed.turn(
        world.found,
        published,
        world.applied,
        spus=(1, 2, 3, 4),
        occurred_at=0,
        untouched=lambda _: None,
    )
    assert turn.events == ()
    assert [type(event) for event in placing.look().events] == [TopicCreate]


def test_a_placed_topic_that_is_deleted_in_kafka_is_released(placing: Following) -> None:
    """Else `apply` would make it again."""
    placing.world.kafka("new", [[1, 2]])
    placing.look()
    del placing.world.found["new"]
    placing.look()
    assert [type(event) for event in placing.look().events] == [TopicRelease]
    assert set(placing.world.maps()) == {"old"}


def test_what_is_adopted_says_its_bytes_and_nothing_else_is_asked_for(
    following: Following,
) -> None:
    """A look comes every few seconds, and brokers answer for all their logs."""
    world = following.world
    world.answer(*(world.events.join(spu_id, resources={"disk_bytes": 100}) for spu_id in (1, 2)))
    world.kafka("a", [[1], [2]])
    world.kafka("b", [[1]])
    world.bytes = {"a": 7}
    (of_a, of_b) = following.look().events
    assert isinstance(of_a, TopicAdopted)
    assert isinstance(of_b, TopicAdopted)
    assert (of_a.demand, of_b.demand) == ({"disk_bytes": 4}, None)
    world.bytes = {"a": 70, "b": 5}
    assert following.look().events == ()
    world.kafka("a", [[2], [1]])
    (again,) = following.look().events
    assert isinstance(again, TopicAdopted)
    assert again.demand == {"disk_bytes": 35}
    assert following.measured == [["a", "b"], ["a"]]
