"""What a plan says: a pure function of replica maps and of what is in Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.constraints.improvable import Improvable
from spu_assigner.schemas.messages.wire import Origin
from spu_assigner.stream.clusters.plan.applied import AppliedRecords
from spu_assigner.stream.clusters.plan.decision import StalePlanError, make_plan, rest_of
from spu_assigner.stream.clusters.plan.model import (
    ChangeKind,
    KafkaCluster,
    Maps,
    Partition,
    TopicsPlan,
    Wanted,
)
from spu_assigner.stream.clusters.plan.rendering import plan_lines
from support.events.plans import Topics, kafka, maps, record, recorded, there, wanted

OTHER_ID = "id-of-an-earlier-one"


def planned(
    maps: Maps, cluster: KafkaCluster, *, applied: AppliedRecords | None = None, **options: Any
) -> TopicsPlan:
    """A plan, by default of topics that apply made."""
    made = recorded(*(record(topic, Origin.CREATED) for topic in cluster.ids))
    return make_plan(maps, cluster, applied=made if applied is None else applied, **options)


def assert_lines(plan: TopicsPlan, expected: list[str]) -> None:
    """That a plan reads so, its sum aside; what is expected of a line is its beginning."""
    lines = list(plan_lines(replace(plan, unmapped=())))[:-1]
    assert [line[: len(each)] for line, each in zip(lines, expected, strict=False)] == expected
    assert len(lines) == len(expected), lines


MOVE = "to move by `apply --moves`"


@pytest.mark.parametrize(
    ("asked", "found", "lines"),
    [
        pytest.param(
            {"t": [[2, 1], [3, 2]]},
            {},
            ["+ t  2 partitions of 2 replicas", "    + 0  [2, 1]", "    + 1  [3, 2]"],
            id="a new topic gets exactly its map, the order in each list included",
        ),
        pytest.param(
            {"t": [[2, 1], [1, 3], [1, 2]]},
            {"t": [[1, 2], [1, 2]]},
            [
                f"~ t  2 → 3 partitions, 2 partitions {MOVE}",
                *("    ~ 0  [1, 2] → [2, 1]", "    ~ 1  [1, 2] → [1, 3]", "    + 2  [1, 2]"),
            ],
            id="partitions are added; another list or another order is a move",
        ),
        pytest.param(
            {"t": [[2, 3]]},
            {"t": there([[2, 3, 1]], [[1, 2]])},
            ["~ t  1 partition being moved by Kafka", "    ~ 0  [2, 3, 1] → [2, 3], in progress"],
            id="while Kafka moves, it lists the new replicas first and the old ones after them",
        ),
        pytest.param(
            {"t": [[2, 3]]},
            {"t": [[2, 3, 1]]},
            [f"~ t  1 partition {MOVE}", "    ~ 0  [2, 3, 1] → [2, 3]"],
            id="where all are in sync Kafka is not moving, the list is too long",
        ),
        pytest.param(
            {"t": [[1]]},
            {"t": [[1], [2]]},
            [
                "! t  has 2 partitions in Kafka and 1 in its map; Kafka takes none away: take "
                "it over as it is (`spu-assigner adopt`), or grow the map (`spu-assigner produce "
                "topic-grow --partitions 2`) and move the new ones"
            ],
            id="Kafka never takes a partition away",
        ),
        pytest.param(
            {"t": [[1, 9], [7, 2]]},
            {},
            ["! t  its map names SPUs 7, 9, and Kafka's live brokers are 1, 2, 3; start them, or"],
            id="Kafka would take a list of which one broker is alive",
        ),
        pytest.param(
            {"t": [[2, 9]], "u": [[8, 9]]},
            {"t": there([[1, 9]], [[1]]), "u": there([[1, 9]], [[1]])},
            [f"~ t  1 partition {MOVE}", "    ~ 0  [1, 9] → [2, 9]", "! u  its map names SPUs 8,"],
            id="of a move only the brokers that come must be alive",
        ),
        pytest.param(
            {"t": wanted([[2], [3, 1]], 0), "new": wanted([[1]], 0)},
            {"t": [[1, 2], [1, 2]]},
            [
                f"~ t  1 partition {MOVE}",
                "    ~ 1  [1, 2] → [3, 1]",
                "? new  the lists of partitions 0 wait for a replica; it is created with all",
                "? t  the lists of partitions 0 wait for a replica; what is in Kafka stays",
            ],
            id="a list that waits for a replica changes nothing",
        ),
        pytest.param(
            {"t": wanted([[1, 2], [1], [2, 3]], 1)},
            {"t": [[1, 2]]},
            ["? t  the lists of partitions 1 wait", "= 1 topic as mapped"],
            id="partitions are added by count, so once the lists of all are whole",
        ),
        pytest.param(
            {"t": None, "gone": None},
            {"t": [[1]], "foreign": [[1]]},
            [". t  is mapped no more; --delete deletes it"],
            id="a topic without a tombstone of its map is never named",
        ),
        pytest.param(
            {"t": [[1]] * 100},
            {},
            [*["+ t", *["    + "] * 16], "    … 84 more (-o json has all)"],
            id="a topic of thousands of partitions must not fill the screen",
        ),
    ],
)
def test_a_plan_makes_topics_as_mapped(
    asked: Mapping[str, Any], found: Topics, lines: list[str]
) -> None:
    """It is what a person decides by."""
    assert_lines(planned(maps(asked), kafka(found)), lines)


def test_the_sum_counts_what_is_to_be_done_and_what_cannot() -> None:
    """The last line, and the waiting creates, whose texts may hold anything."""
    asked = maps({"new": [[1]], "old": None, "same": [[1]], "bad": [[9]]}, late="waits\x1b[31m")
    lines = list(plan_lines(planned(asked, kafka({"old": [[1]], "same": [[1]]}), delete=True)))
    assert "? late  waits\\x1b[31m" in lines
    assert lines[-2] == (
        "1 to create, 0 to change, 1 to delete, 1 that cannot be made as mapped, 1 waiting"
    )
    nothing = list(plan_lines(planned(maps({}), kafka({}))))
    assert nothing == ["nothing to do: 0 to create, 0 to change, 0 to delete"]


@pytest.mark.parametrize("name", ["__consumer_offsets", "__cluster_metadata", "replica-map"])
@pytest.mark.parametrize(
    "options", [{}, {"delete": True, "is_foreign": lambda _: True, "recreate": True}]
)
def test_kafkas_and_the_products_own_topics_are_never_touched(
    name: str, options: dict[str, Any]
) -> None:
    """A map may bear any name; one such request, long deleted, must not fail every later plan."""
    (refused,) = planned(maps({name: [[1]]}), kafka({name: [[2]]}), **options).refused
    assert "use another name" in refused.reason
    plan = planned(maps({name: None}), kafka({name: [[2]]}), **options)
    assert plan == planned(maps({}), kafka({name: [[2]]}), **options)


# Whose a topic is.

FOREIGN = [[1, 2], [2, 3]]
CLASH = "! t  exists in Kafka, was not made by apply, and is not as mapped; it is left alone"
DELETED = ["- t  2 partitions"]
STAYS = ". t  is mapped no more; apply did not make it, so it stays"
FIRST = ["! t  exists in Kafka and was not made by apply; it is as mapped", "= 1 topic as mapped"]
RELEASED = Wanted(replicas=None, is_released=True, was_released=True)
ASKED_AGAIN = Wanted(replicas=None, was_released=True)  # and deleted again
ALL = {"delete": True, "is_foreign": lambda _: True, "recreate": True}
NONE = AppliedRecords()
INTENDED = AppliedRecords(intents={"t": record("t", Origin.INTENT)})
CREATED, FOUND, SEEN, GIVEN_BACK, EARLIER = (
    *(recorded(record("t", each)) for each in (Origin.CREATED, Origin.FOUND, Origin.SEEN)),
    recorded(record("t", Origin.RELEASED)),
    recorded(record("t", Origin.CREATED, OTHER_ID)),
)


@pytest.mark.parametrize(
    ("asked", "applied", "options", "lines"),
    [
        # Mapped no more: only what apply made is deleted, whatever else is recorded.
        (None, CREATED, {}, [". t  is mapped no more; --delete deletes it"]),
        (None, CREATED, {"delete": True}, DELETED),
        *((None, each, ALL, [STAYS]) for each in (NONE, FOUND, SEEN, GIVEN_BACK)),
        *((None, each, ALL, [STAYS]) for each in (EARLIER, INTENDED)),
        # Released: never deleted; also after the name was asked for and deleted again.
        (RELEASED, CREATED, ALL, [". t  was released; it stays in Kafka"]),
        (ASKED_AGAIN, CREATED, ALL, [STAYS]),
        # As mapped: first seen, unless apply made or found this very topic.
        *((FOREIGN, each, {}, FIRST) for each in (NONE, SEEN, GIVEN_BACK, EARLIER)),
        *((FOREIGN, each, {}, FIRST[1:]) for each in (CREATED, FOUND)),
        # Its lists may be quite others while it waits: not taken for one as mapped.
        (wanted([[2], [3]], 0, 1), NONE, {}, ["? t  the lists", "= 1 topic as mapped"]),
        # Not as mapped: another's, until a word is given.
        ([[1, 2], [3, 2]], NONE, {}, [CLASH]),
        ([[1, 2]] * 3, EARLIER, {}, [CLASH]),
        *(
            ([*FOREIGN, [3, 1]], each, options, ["~ t  2 → 3 partitions", "    + 2  [3, 1]"])
            for each, options in ((NONE, ALL), (FOUND, {}), (CREATED, {}))
        ),
    ],
)
def test_what_happens_to_a_topic_depends_on_whose_it_is(
    asked: Any, applied: AppliedRecords, options: dict[str, Any], lines: list[str]
) -> None:
    """`topic-create` is granted whatever Kafka has, and a tombstone gives no right to the data."""
    plan = planned(maps({"t": asked}), kafka({"t": FOREIGN}), applied=applied, **options)
    assert_lines(plan, lines)


@pytest.mark.parametrize("applied", [CREATED, FOUND, SEEN])
def test_a_topic_that_is_gone_is_created_again_only_on_request(applied: AppliedRecords) -> None:
    """It came back empty, and nothing was reported."""
    asked = maps({"t": [[1]]})
    refused = planned(asked, kafka({}), applied=applied)
    assert_lines(refused, ["! t  was in Kafka before; its data are gone: give --recreate to"])
    plan = planned(asked, kafka({}), applied=applied, recreate=True)
    again = "+ t  1 partition of 1 replica, again: its data are gone"
    assert_lines(plan, [again, "    + 0  [1]"])
    assert plan.changes[0].gone_id == "id-of-t"
    for other in (GIVEN_BACK, INTENDED):  # It is no concern any more, or was never made.
        (change,) = planned(asked, kafka({}), applied=other).changes
        assert change.gone_id is None


NAMES = st.sampled_from([*"abcdef", "a.b", "a_b", "__x", "replica-map"])
ROW = st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True)
LISTS = st.lists(ROW, min_size=1, max_size=5)


@st.composite
def wants(draw: st.DrawFn) -> Wanted:
    lists = draw(st.none() | LISTS)
    short = draw(st.sets(st.integers(0, len(lists or ()) - 1))) if lists else ()
    found = wanted(lists, *short)
    is_released = lists is None and draw(st.booleans())
    return replace(found, is_released=is_released, was_released=is_released)


@st.composite
def clusters(draw: st.DrawFn) -> KafkaCluster:
    topics = {}
    for name, lists in draw(st.dictionaries(NAMES, LISTS)).items():
        in_sync = [draw(st.lists(st.sampled_from(row), unique=True)) for row in lists]
        topics[name] = there(lists, in_sync)
    return KafkaCluster(
        kafka_id="k",
        brokers=(1, 2, 3, 4),
        topics=topics,
        ids={name: f"id-of-{name}" for name in topics},
        own=frozenset({"replica-map"}),
    )


@st.composite
def ledgers(draw: st.DrawFn) -> AppliedRecords:
    """Records of topics, of those that are there and of earlier ones of the same names."""
    return AppliedRecords(
        records={
            name: record(name, origin, draw(st.sampled_from([None, "id-of-an-earlier-one"])))
            for name, origin in draw(st.dictionaries(NAMES, st.sampled_from(Origin))).items()
            if origin is not Origin.INTENT
        }
    )


OPTIONS = st.fixed_dictionaries(
    {
        "delete": st.booleans(),
        "recreate": st.booleans(),
        "is_foreign": st.sampled_from([lambda _: False, lambda _: True, lambda name: name < "c"]),
    }
)


def applied_plan(plan: TopicsPlan, cluster: KafkaCluster) -> KafkaCluster:
    """A model of what Kafka does, moves included, once all is done."""
    topics = dict(cluster.topics)
    ids = dict(cluster.ids)
    for change in plan.changes:
        if change.kind is ChangeKind.DELETE:
            del topics[change.topic], ids[change.topic]
            continue
        assert len(change.after) >= len(topics.get(change.topic, ()))
        topics[change.topic] = there(change.after)
        ids.setdefault(change.topic, f"new-id-of-{change.topic}")
    return replace(cluster, topics=topics, ids=ids)


def noted(plan: TopicsPlan, after: KafkaCluster, applied: AppliedRecords) -> AppliedRecords:
    """A model of what apply records of what it did."""
    records = dict(applied.records)
    for change in plan.changes:
        topic = change.topic
        if change.kind is ChangeKind.DELETE:
            records.pop(topic, None)
        elif change.kind is ChangeKind.CREATE:
            records[topic] = record(topic, Origin.CREATED, after.ids[topic])
        elif not applied.is_known(topic, after.ids[topic]):
            records[topic] = record(topic, Origin.FOUND, after.ids[topic])
    for topic in plan.first_seen:
        records[topic] = record(topic, Origin.FOUND, after.ids[topic])
    return AppliedRecords(records=records)


def test_what_could_be_better_is_in_a_line_below_the_sum() -> None:
    """Only what could; of none there is no line."""
    plan = planned(maps({}), kafka({}))
    assert not any("could be better" in line for line in plan_lines(plan))
    could = replace(plan, improvable=Improvable(few_racks=3, one_leader=1), partitions_ahead=2)
    assert list(plan_lines(could))[-1] == (
        "could be better: 3 lists on fewer racks than the ring has, 1 topic led by one broker "
        "alone, 2 partitions not as mapped"
    )


def test_partitions_are_ahead_whose_lists_are_not_in_kafka_as_mapped() -> None:
    """New ones and those that Kafka is moving too; not one that waits for a replica, as no command
    can change it, and none that Kafka has beyond the map."""
    found = kafka({"same": [[1, 2], [2, 3]], "more": [[1], [2]], "moved": [[1, 2], [2, 1]]})
    mapped = {
        "same": wanted([[1, 2], [2, 3]]),
        "more": wanted([[1]]),
        "moved": wanted([[1, 2], [1, 2], [3, 1], [3]], 3),
        "new": wanted([[1], [2]]),
        "gone": wanted(None),
    }
    assert found.partitions_ahead(mapped) == 4


def decided_again(saved: TopicsPlan, cluster: KafkaCluster, **options: Any) -> TopicsPlan:
    """What is to be done now of a plan that was kept, of maps in a file."""
    lists = {**saved.unchanged, **{each.topic: each.after or None for each in saved.changes}}
    given = {"delete": True, "recreate": saved.recreate, "is_foreign": lambda _: True, **options}
    return rest_of(saved, planned(maps(lists), cluster, **given), cluster)


@given(st.dictionaries(NAMES, wants()), clusters(), ledgers(), OPTIONS)
def test_what_was_applied_needs_no_further_plan(
    topics: dict[str, Wanted],
    cluster: KafkaCluster,
    applied: AppliedRecords,
    options: dict[str, Any],
) -> None:
    """A second run does nothing, whatever was there, nor does a plan that was saved before."""
    first = planned(maps(topics), cluster, applied=applied, **options)
    again = decided_again(first, cluster, applied=applied)
    assert (again.changes, again.refused) == (first.changes, first.refused)
    after = applied_plan(first, cluster)
    records = noted(first, after, applied)
    assert decided_again(first, after, applied=records).changes == ()
    second = planned(maps(topics), after, applied=records, **options)
    assert second.changes == ()
    assert second.waiting == first.waiting
    assert second.first_seen == ()
    untouched = set(cluster.topics) - {change.topic for change in first.changes}
    assert all(after.topics[name] == cluster.topics[name] for name in untouched)
    assert not (untouched ^ set(cluster.topics)) - set(topics)


@given(st.dictionaries(NAMES, wants()), clusters(), ledgers(), OPTIONS)
def test_nothing_is_deleted_or_changed_that_is_not_ours(
    topics: dict[str, Wanted],
    cluster: KafkaCluster,
    applied: AppliedRecords,
    options: dict[str, Any],
) -> None:
    """The rule itself, stated once more: by Kafka's id, and by an explicit word."""
    for change in planned(maps(topics), cluster, applied=applied, **options).changes:
        topic, found = change.topic, applied.records.get(change.topic)
        if change.kind is ChangeKind.CREATE:
            assert topic not in cluster.topics
            continue
        is_same = found is not None and found.topic_id == cluster.ids[topic] == change.topic_id
        if change.kind is ChangeKind.DELETE:
            assert options["delete"]
            assert is_same
            assert found is not None
            assert found.origin is Origin.CREATED
            assert not topics[topic].is_released
        elif not options["is_foreign"](topic):
            assert is_same
            assert found is not None
            assert found.origin in (Origin.CREATED, Origin.FOUND)


@given(st.dictionaries(NAMES, wants()), clusters(), ledgers())
def test_each_mapped_topic_is_reported_once(
    topics: dict[str, Wanted], cluster: KafkaCluster, applied: AppliedRecords
) -> None:
    """None is left out in silence: changed, refused, as mapped, mapped no more, or waiting."""
    plan = planned(maps(topics), cluster, applied=applied)
    heads = [change.topic for change in plan.changes]
    heads += [each.topic for each in (*plan.refused, *plan.staying)]
    heads += [*plan.deletable, *plan.unchanged]
    assert len(heads) == len(set(heads))
    assert set(plan.first_seen) <= set(plan.unchanged)
    deleted = {name for name, each in topics.items() if each.replicas is None}
    ignored = {name for name in deleted if name.startswith("__") or name in cluster.own}
    ignored |= deleted - set(cluster.topics)
    waiting = {each.topic for each in plan.waiting}
    assert set(heads) | waiting == set(topics) - ignored


THEN = {"old": [[1]], "same": [[3]], "wide": [[1, 2]]}
ASKED = {"new": [[1, 2]], "old": None, "same": [[3]], "wide": [[2, 1], [3, 1]]}
SAME = kafka(THEN)
LATER = replace(SAME, ids={**SAME.ids, "old": "another"})


def now(**topics: list[list[int]] | tuple[Partition, ...] | None) -> KafkaCluster:
    """What is there, but for these."""
    return kafka({name: lists for name, lists in {**THEN, **topics}.items() if lists is not None})


@pytest.mark.parametrize(
    ("cluster", "left"),
    [
        (SAME, ["new", "old", "wide"]),
        # Done in part: a run that broke off is finished by the same plan.
        (now(new=[[1, 2]], old=None), ["wide"]),
        (now(wide=[[1, 2], [3, 1]]), ["new", "old", "wide"]),
        (now(wide=[[2, 1], [3, 1]]), ["new", "old"]),
        (now(wide=there([[2, 1, 3]], [[3]])), ["new", "old", "wide"]),  # being moved
        (now(foreign=[[2], [3]]), ["new", "old", "wide"]),
    ],
)
def test_what_is_done_of_a_saved_plan_is_left_out(cluster: KafkaCluster, left: list[str]) -> None:
    """Topics that it does not name are none of its business."""
    saved = planned(maps(ASKED), SAME, delete=True)
    assert [change.topic for change in decided_again(saved, cluster).changes] == left


@pytest.mark.parametrize(
    ("cluster", "options", "fault"),
    [
        (now(new=[[2, 1]]), {}, "topic new needs something else now"),
        (now(same=[[1]]), {}, "topic same needs"),
        (now(wide=[[1, 2], [2, 3]]), {}, "topic wide needs"),
        (now(wide=None), {}, "topic wide needs"),
        (LATER, {}, "topic old needs"),
        (replace(SAME, kafka_id="other"), {}, "it is for Kafka cluster k, this is other"),
        (replace(SAME, brokers=(1, 3)), {}, "brokers were [1, 2, 3] and are [1, 3]"),
        # Only what apply made is deleted, though a file can be written by hand.
        (SAME, {"applied": AppliedRecords()}, "topic old needs"),
        # It was created by this plan, and would come back empty.
        (SAME, {"applied": recorded(record("new", Origin.CREATED))}, "topic new needs"),
    ],
)
def test_a_saved_plan_is_stale_once_something_else_is_to_be_done(
    cluster: KafkaCluster, options: dict[str, Any], fault: str
) -> None:
    """And nothing is done."""
    saved = planned(maps(ASKED), SAME, delete=True)
    with pytest.raises(StalePlanError) as caught:
        decided_again(saved, cluster, **options)
    assert fault in str(caught.value)
    assert str(caught.value).endswith("; nothing was done, plan again")


def test_what_else_is_to_be_known_is_a_line_each() -> None:
    """Who sees *nothing to do* must know of what it was not said."""
    topics: dict[str, Any] = {
        "adopted": [[2, 1]],
        "un": [[1]],
        "dropped": [[1]],
        "__consumer_offsets": [[1]],
        "replica-map": [[1]],
    }
    adopted = Wanted(replicas=((1, 2),), is_adopted=True)
    asked = maps({"adopted": adopted, "dropped": None}, late="room")
    plan = planned(asked, kafka(topics), globs=("*", "late", "taem-*"))
    assert list(plan_lines(plan))[-3:] == [
        "no topic matches --topics taem-*; check it",
        "adopted was adopted, and then reassigned in Kafka by others: `adopt` takes over what "
        "Kafka has now, `apply --moves` moves it back",
        "2 topics in Kafka have no map (adopt takes them in)",
    ]
    assert planned(asked, kafka(topics), globs=("u*",)).unmapped == ("un",)
