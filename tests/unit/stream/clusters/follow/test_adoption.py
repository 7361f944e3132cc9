"""Which topics are adopted: topics, maps and records in, events out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.events import (
    LeaveMode,
    Policy,
    TopicAdopted,
    TopicRelease,
)
from spu_assigner.core.base.records import Mode, Status
from spu_assigner.core.state.memory import event_hash
from spu_assigner.schemas.messages.wire import Origin
from spu_assigner.stream.clusters.follow.adoption import (
    AdoptionDecision,
    FoundTopic,
    PublishedMaps,
    decide_adoptions,
)
from spu_assigner.stream.clusters.plan.applied import AppliedRecords, adopted
from spu_assigner.stream.clusters.plan.model import ChangeKind, Rows, TopicChange, TopicsPlan
from support.events.installation import OPTIONS, Installation, Lists, rows
from support.job.plans import record, recorded


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


def test_another_products_topic_is_not_called_kafkas_own(world: Installation) -> None:
    """Strimzi's Topic Operator has such ones."""
    world.kafka("__strimzi_store_topic", [[1]])
    (left,) = world.decide(globs=("__*",)).left
    assert left.reason.startswith("begins with '__', as Kafka's own topics do, and the job takes ")


def test_a_glob_that_no_topic_matches_is_known(world: Installation) -> None:
    """`adopt --topics 'taem-*'` said that 0 topics were adopted, and status 0."""
    options = replace(world.options, globs=("team-*", "orders", "taem-*"))
    assert options.unmatched(("team-a", "orders")) == ("taem-*",)
    assert world.options.unmatched(()) == ()


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


def test_a_demotion_that_kafka_has_not_followed_is_not_taken_back(world: Installation) -> None:
    """`follow --topics` undid one within two seconds, and the broker was to lead again."""
    world.kafka("a", [[1, 2]])
    world.adopt()
    world.answer(world.events.demote(1))
    assert world.maps() == {"a": ((2, 1),)}
    decision = world.decide()
    assert decision.events == ()
    assert decision.pending[0].reason == (
        "its map was changed by a demotion, and Kafka has not followed yet"
    )


def test_new_partitions_stay_where_older_lists_were_changed_here_too(world: Installation) -> None:
    """Kafka takes no partition away: what has fewer than its map has not followed."""
    world.kafka("a", [[1, 2], [2, 3]])
    world.adopt()
    world.note(Origin.FOUND, "a")
    world.answer(world.events.demote(1), world.events.grow("a", 4))
    decision = world.decide()
    assert decision.events == ()
    assert "has grown to 4 partitions, and Kafka has 2" in decision.pending[0].reason


def test_a_repair_is_not_taken_back_when_the_topic_has_grown_since(world: Installation) -> None:
    """`apply` without --moves adds the partitions, and the map shows the growth alone.

    Nor in between, while some partitions have been moved.
    """
    world.kafka("a", [[1, 2], [2, 3], [1, 3]])
    world.adopt()
    world.note(Origin.FOUND, "a")
    world.answer(world.events.leave(1, mode=LeaveMode.DECOMMISSION), world.events.grow("a", 5))
    mapped = world.maps()["a"]
    change = TopicChange(
        topic="a",
        kind=ChangeKind.CHANGE,
        before=world.found["a"].rows,
        after=mapped,
        topic_id="id-of-a",
    )
    plan = TopicsPlan(cluster_id="c1", kafka_id="k", brokers=(1, 2, 3, 4), changes=(change,))
    world.applied = recorded(*adopted(plan, world.applied, now_ms=2))
    for moved in range(3):
        lists = [*mapped[:moved], *change.before[moved:], *mapped[3:]]
        world.kafka("a", [list(row) for row in lists])
        decision = world.decide()
        assert decision.events == ()
        assert decision.pending[0].reason == (
            "its map was changed before it grew, and Kafka has not followed yet"
        )
    world.kafka("a", [[4, 3], *map(list, mapped[1:])])
    assert sent(world.decide())["a"][0] == (4, 3)  # That was somebody else.


def test_a_repair_is_not_taken_back_when_the_demand_has_changed_since(world: Installation) -> None:
    """A new demand changes no list, and hides what did."""
    world.kafka("a", [[1, 2]])
    world.adopt()
    world.answer(
        *(world.events.join(spu_id, resources={"disk": 9}) for spu_id in (1, 2, 3, 4)),
        world.events.leave(1, mode=LeaveMode.DECOMMISSION),
        world.events.demand("a", demand={"disk": 1}),
    )
    assert world.published["a"].reason is not None
    assert world.published["a"].reason.mode is Mode.DEMAND
    assert [each.topic for each in world.decide().pending] == ["a"]


def test_a_repair_is_not_taken_back_when_the_constraints_have_changed_since(
    world: Installation,
) -> None:
    """New constraints change no list, and hide what did."""
    world.kafka("a", [[1, 2]])
    world.adopt()
    world.answer(
        *(world.events.join(spu_id, resources={"disk": 9}) for spu_id in (1, 2, 3, 4)),
        world.events.leave(1, mode=LeaveMode.DECOMMISSION),
        world.events.constraints("a", Constraints(leaders=("spu_id=1",))),
    )
    assert world.published["a"].reason is not None
    assert world.published["a"].reason.mode is Mode.CONSTRAINTS
    assert [each.topic for each in world.decide().pending] == ["a"]


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
    assert PublishedMaps(remembered={event_hash("x")}).knows("x", "b")
