"""Which topics are adopted: topics, maps and records in, events out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import (
    Event,
    LeaveMode,
    Policy,
    TopicAdopted,
    TopicRelease,
)
from spu_assigner.core.base.records import ReplicaMap, Status, TopicStatus
from spu_assigner.core.state.cluster_state import new_event_hash
from spu_assigner.schemas.messages.wire import Origin
from spu_assigner.stream.follow.adoption import (
    AdoptionDecision,
    AdoptionOptions,
    FollowedTopics,
    FoundTopic,
    PublishedMaps,
    TopicsTurn,
    decide_adoptions,
    rows_of,
)
from spu_assigner.stream.plan.applied import AppliedRecords
from spu_assigner.stream.plan.model import Rows
from support.events.builders import Events
from support.job.plans import record, recorded

OPTIONS = AdoptionOptions(cluster_id="c1", own=frozenset({"spu-events"}))
Lists = list[list[int]]


def rows(lists: Lists) -> Rows:
    return tuple(map(tuple, lists))


class Installation:
    """A Kafka cluster, a job without Kafka, and the records; SPUs 1 to 4 have joined."""

    def __init__(self, options: AdoptionOptions = OPTIONS) -> None:
        self.options = options
        self.events = Events()
        self.found: dict[str, FoundTopic] = {}
        self.applied = AppliedRecords()
        self.assigner = Assigner()
        self.published: dict[str, ReplicaMap] = {}
        self.statuses: list[TopicStatus] = []
        self.answer(*self.events.joins(1, 2, 3, 4))

    def answer(self, *events: Event) -> None:
        """What the job makes of these."""
        for event in events:
            for answer in self.assigner.apply(event):
                if isinstance(answer, TopicStatus):
                    self.statuses.append(answer)
                elif isinstance(answer, ReplicaMap) and answer.replicas is None:
                    self.published.pop(answer.topic)
                elif isinstance(answer, ReplicaMap):
                    self.published[answer.topic] = answer

    def kafka(self, topic: str, lists: Lists, *, topic_id: str | None = None) -> None:
        """A topic is made or changed by others."""
        self.found[topic] = FoundTopic(rows=rows(lists), topic_id=topic_id or f"id-of-{topic}")

    def decide(self, **changed: Any) -> AdoptionDecision:
        memory = self.assigner.clusters["c1"].memory.known
        remembered = frozenset(each for each in memory if each is not None)
        return decide_adoptions(
            self.found,
            PublishedMaps(maps=self.published, remembered=remembered),
            self.applied,
            replace(self.options, **changed),
            spus=self.assigner.clusters["c1"].spus.keys(),
            occurred_at=0,
        )

    def adopt(self, **changed: Any) -> AdoptionDecision:
        """Decide, and have the job answer."""
        decision = self.decide(**changed)
        self.statuses.clear()
        self.answer(*decision.events)
        return decision

    def maps(self) -> dict[str, Rows]:
        return {name: rows_of(each) for name, each in self.published.items()}

    def note(self, origin: Origin, *topics: str) -> None:
        """As `apply` or `adopt` records it."""
        made = (record(each, origin, topic_id=self.found[each].topic_id) for each in topics)
        self.applied = recorded(*made)


def sent(decision: AdoptionDecision) -> Mapping[str, Rows]:
    return {event.topic: event.replicas for event in decision.adopted}


@pytest.fixture
def world() -> Installation:
    return Installation()


def test_topics_without_a_map_are_adopted_as_they_are_and_once(world: Installation) -> None:
    """Any lengths, any order; the second look sends nothing."""
    world.kafka("a", [[2, 1, 3], [1]])
    world.kafka("b", [[3]])
    world.adopt()
    assert world.maps() == {"a": ((2, 1, 3), (1,)), "b": ((3,),)}
    assert [each.status for each in world.statuses] == [Status.ADOPTED] * 2
    again = world.decide()
    assert (again.events, again.equal) == ((), ("a", "b"))


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "c", "d"]),
        st.lists(
            st.lists(st.integers(1, 4), min_size=1, max_size=4, unique=True),
            min_size=1,
            max_size=5,
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
    assert world.decide().events == ()


def test_what_others_changed_is_adopted_again(world: Installation) -> None:
    """Also back to what it was: the job would pass over an id that it remembers."""
    for lists in ([[1, 2]], [[2, 3]], [[1, 2]], [[1, 2], [3, 4]], [[2, 3]]):
        world.kafka("a", lists)
        world.adopt()
        assert world.maps() == {"a": rows(lists)}
    assert world.published["a"].revision == 5


def test_an_event_that_was_refused_can_be_sent_again(world: Installation) -> None:
    """Its id is remembered: without another one nobody would answer."""
    world.kafka("a", [[1, 9]])
    first = world.decide()
    assert [each.topic for each in first.left] == ["a"]
    assert "brokers 9, which are neither alive nor SPUs" in first.left[0].reason
    known = world.assigner.clusters["c1"].spus
    refused = decide_adoptions(
        world.found,
        PublishedMaps(),
        AppliedRecords(),
        OPTIONS,
        spus=[*known, 9],
        occurred_at=0,
    )
    world.answer(*refused.events)
    assert world.statuses[-1].status is Status.REJECTED
    world.answer(world.events.join(9))
    world.adopt()
    assert world.maps() == {"a": ((1, 9),)}


def test_a_run_that_was_killed_sends_the_same_ids_again(world: Installation) -> None:
    """So that nothing is done twice while the job has not answered."""
    world.kafka("a", [[1]])
    world.kafka("b", [[2]])
    first, second = world.decide(), world.decide()
    assert first.events == second.events
    assert len({event.event_id for event in first.events}) == 2


@pytest.mark.parametrize(
    ("globs", "excluded", "meant"),
    [
        ((), (), ["other", "team-a", "team-b"]),
        (("team-*",), (), ["team-a", "team-b"]),
        ((), ("team-*",), ["other"]),
        (("team-*", "other"), ("*-b",), ["other", "team-a"]),
    ],
)
def test_globs_say_which_topics_are_meant(
    world: Installation, globs: tuple[str, ...], excluded: tuple[str, ...], meant: list[str]
) -> None:
    for name in ("team-a", "team-b", "other", "__consumer_offsets", "spu-events"):
        world.kafka(name, [[1]])
    assert list(sent(world.decide(globs=globs, excluded=excluded))) == meant


@pytest.mark.parametrize("glob", ["__consumer_offsets", "__*", "spu-events"])
def test_a_reserved_name_that_is_named_is_refused_in_so_many_words(
    world: Installation, glob: str
) -> None:
    """The job takes no such name; a glob that only meets it is not meant so."""
    for name in ("__consumer_offsets", "spu-events"):
        world.kafka(name, [[1]])
    assert world.decide(globs=("*",)).left == ()
    (left,) = world.decide(globs=(glob,)).left
    assert "the job takes no such name (RESERVED_NAME)" in left.reason


def test_a_topic_under_reassignment_is_left_until_that_is_done(world: Installation) -> None:
    """Its lists name where it comes from and where it goes to."""
    moving = FoundTopic(rows=((3, 1, 2),), topic_id="i", reassigned=(0,))
    world.found["a"] = moving
    decision = world.decide()
    assert (decision.events, decision.left[0].topic) == ((), "a")
    assert "Kafka is reassigning its partitions 0;" in decision.left[0].reason
    world.kafka("a", [[3, 1]])
    assert sent(world.decide()) == {"a": ((3, 1),)}


def test_what_was_changed_here_is_for_apply_to_carry_out(world: Installation) -> None:
    """To adopt Kafka's lists would take a decommission back."""
    world.kafka("a", [[1, 2]])
    world.adopt()
    world.answer(world.events.leave(1, mode=LeaveMode.DECOMMISSION))
    assert world.maps() != {"a": ((1, 2),)}
    decision = world.decide()
    assert (decision.events, decision.equal) == ((), ())
    assert decision.pending[0].reason == (
        "its map was changed by a repair, and Kafka has not followed yet"
    )


def test_new_partitions_that_kafka_has_not_yet_are_left_to_apply(world: Installation) -> None:
    """Whereas those that others added are adopted."""
    world.kafka("a", [[1, 2], [2, 3]])
    world.adopt()
    world.answer(world.events.grow("a", 4))
    assert "has grown to 4 partitions, and Kafka has 2" in world.decide().pending[0].reason
    assert sent(world.decide(overwrite=True)) == {"a": ((1, 2), (2, 3))}
    world.kafka("a", [[1, 2], [2, 3], [3, 1], [1, 2], [2, 1]])
    assert list(sent(world.decide())) == ["a"]


def test_a_topic_that_was_made_again_is_another_one(world: Installation) -> None:
    """What was planned for the one before does not hold for it."""
    world.kafka("a", [[1, 2]])
    world.adopt()
    world.note(Origin.FOUND, "a")
    world.answer(world.events.leave(1, mode=LeaveMode.DECOMMISSION))
    world.kafka("a", [[4, 3]], topic_id="another")
    assert sent(world.decide()) == {"a": ((4, 3),)}


@pytest.mark.parametrize("forget", ["delete", "release"])
def test_what_was_deleted_or_released_here_does_not_come_back_by_itself(
    world: Installation, forget: str
) -> None:
    """`apply --delete` is still to delete the one, and nobody is to manage the other."""
    world.kafka("a", [[1, 2]])
    world.adopt()
    world.note(Origin.FOUND, "a")
    world.answer(getattr(world.events, forget)("a"))
    decision = world.decide()
    assert (decision.events, decision.pending[0].reason) == (
        (),
        "its map was deleted or released",
    )
    world.adopt(overwrite=True)
    assert world.maps() == {"a": ((1, 2),)}


def test_a_topic_that_is_gone_is_released_on_request(world: Installation) -> None:
    """Of one that apply made, `plan` speaks."""
    for name in ("mine", "adopted"):
        world.kafka(name, [[1, 2]])
    world.adopt()
    world.applied = recorded(record("mine", Origin.CREATED, topic_id="id-of-mine"))
    world.found.clear()
    assert world.decide().gone == ("adopted",)
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


def test_the_longest_name_has_an_id_that_the_job_takes(world: Installation) -> None:
    """256 characters are the limit of an id, 249 that of a name."""
    name = "n" * 249
    world.kafka(name, [[1]], topic_id="22-letters-of-base-64_")
    world.adopt()
    world.found.clear()
    world.adopt(forget_gone=True)
    assert world.maps() == {}


def test_an_id_is_looked_for_in_the_map_too() -> None:
    """The job remembers some events of each topic for as long as it lives."""
    world = Installation()
    world.kafka("a", [[1]])
    (event,) = world.adopt().adopted
    assert isinstance(event, TopicAdopted)
    maps = PublishedMaps(maps=world.published)
    assert maps.knows(event.event_id, "a")
    assert not maps.knows(event.event_id, "b")
    assert PublishedMaps(remembered={new_event_hash("x")}).knows("x", "b")


class Following:
    """A process that follows topics; the job answers when it is told to."""

    def __init__(self, world: Installation) -> None:
        self.world = world
        self.followed = FollowedTopics(world.options)
        self.inbox: list[Event] = []

    def look(self, *, job_runs: bool = True) -> TopicsTurn:
        memory = self.world.assigner.clusters["c1"].memory.known
        remembered = frozenset(each for each in memory if each is not None)
        turn = self.followed.turn(
            self.world.found,
            PublishedMaps(maps=dict(self.world.published), remembered=remembered),
            self.world.applied,
            spus=[*self.world.assigner.clusters["c1"].spus, 9],
            occurred_at=0,
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
def following(world: Installation) -> Following:
    return Following(world)


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
