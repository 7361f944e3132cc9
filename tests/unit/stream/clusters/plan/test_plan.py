"""What a plan says: a pure function of replica maps and of what is in Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.events import TopicAdopted
from spu_assigner.schemas.messages.wire import Origin
from spu_assigner.stream.clusters.plan.applied import AppliedRecords
from spu_assigner.stream.clusters.plan.decision import make_plan, remaining
from spu_assigner.stream.clusters.plan.model import (
    ChangeKind,
    KafkaCluster,
    Maps,
    TopicSize,
    TopicsPlan,
    Wanted,
)
from spu_assigner.stream.clusters.plan.rendering import plan_lines
from spu_assigner.stream.clusters.plan.wanted_maps import maps_of_file
from support.events.builders import Events
from support.job.kafka_operator import simulated
from support.job.plans import Topics, kafka, maps, record, recorded, there, wanted

OTHER_ID = "id-of-an-earlier-one"


def planned(
    maps: Maps, cluster: KafkaCluster, *, applied: AppliedRecords | None = None, **options: Any
) -> TopicsPlan:
    """A plan, by default of topics that apply made."""
    made = recorded(*(record(topic, Origin.CREATED) for topic in cluster.ids))
    return make_plan(maps, cluster, applied=made if applied is None else applied, **options)


def assert_lines(plan: TopicsPlan, expected: list[str]) -> None:
    """That a plan reads so, its sum aside; what is expected of a line is its beginning."""
    lines = list(plan_lines(plan))[:-1]
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
            {"t": [[1, 9]]},
            {"t": there([[1, 9]], [[1]])},
            ["= 1 topic as mapped"],
            id="a topic as mapped is left alone, though a broker is down that it names",
        ),
        pytest.param(
            {"t": [[1], [2], [3]]},
            {"t": [[1]]},
            ["~ t  1 → 3 partitions", "    + 1  [2]", "    + 2  [3]"],
            id="partitions are added, and the old ones stay",
        ),
        pytest.param(
            {"t": [[2, 1], [1, 3], [1, 2]]},
            {"t": [[1, 2], [1, 2]]},
            [
                f"~ t  2 → 3 partitions, 2 partitions {MOVE}",
                *("    ~ 0  [1, 2] → [2, 1]", "    ~ 1  [1, 2] → [1, 3]", "    + 2  [1, 2]"),
            ],
            id="another list or another order is a move: the first is the preferred leader",
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
            {"t": wanted([[2], [3, 1]], factor=2), "new": wanted([[1]], factor=2)},
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
            {"t": wanted([[1, 2], [1], [2, 3]], factor=2)},
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
            {"a.b": [[1]], "c_d": [[1]], "c.d": [[1]]},
            {"a_b": [[1]]},
            [
                *("+ c.d  1 partition of 1 replica", "    + 0  [1]"),
                *("! a.b  differs from topic 'a_b'", "! c_d  differs from topic 'c.d'"),
            ],
            id="Kafka refuses one of two names that differ by dots and underscores",
        ),
        pytest.param(
            {"t": wanted([[1], [1, 2]], factor=1)},
            {},
            ["! t  has lists of 1, 2 replicas; Kafka creates topics of one number"],
            id="Kafka's controller refuses a new topic with lists of several lengths",
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
    assert lines[-1] == (
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
CLASH = "! t  exists in Kafka, was not made by apply, and has "
DELETED = ["- t  2 partitions"]
STAYS = ". t  is mapped no more; apply did not make it, so it stays"
FIRST = ["! t  exists in Kafka and was not made by apply; it is as mapped", "= 1 topic as mapped"]
RELEASED = Wanted(replicas=None, is_released=True, released_at=5)
HOURS = 3_600_000
ALL = {"delete": True, "is_foreign": lambda _: True, "recreate": True}
NONE = AppliedRecords()
INTENDED = AppliedRecords(intents={"t": record("t", Origin.INTENT)})
CREATED, FOUND, SEEN, GIVEN_BACK, EARLIER = (
    *(recorded(record("t", each)) for each in (Origin.CREATED, Origin.FOUND, Origin.SEEN)),
    recorded(record("t", Origin.RELEASED)),
    recorded(record("t", Origin.CREATED, OTHER_ID)),
)


def name_asked_again(*, released_at: int, recorded_at: int) -> tuple[Wanted, AppliedRecords]:
    """A topic that was released, and whose name was asked for and deleted again."""
    made = record("t", Origin.CREATED, at=recorded_at)
    return Wanted(replicas=None, released_at=released_at), recorded(made)


@pytest.mark.parametrize(
    ("asked", "applied", "options", "lines"),
    [
        # Mapped no more: only what apply made is deleted, whatever else is recorded.
        (None, CREATED, {}, [". t  is mapped no more; --delete deletes it"]),
        (None, CREATED, {"delete": True}, DELETED),
        *((None, each, ALL, [STAYS]) for each in (NONE, FOUND, SEEN, GIVEN_BACK)),
        *((None, each, ALL, [STAYS]) for each in (EARLIER, INTENDED)),
        # Released: never deleted; also after the name was asked for and deleted again, unless
        # apply has surely made the topic after that.
        (RELEASED, CREATED, ALL, [". t  was released; it stays in Kafka"]),
        (*name_asked_again(released_at=0, recorded_at=9 * HOURS), ALL, [STAYS]),
        (*name_asked_again(released_at=5 * HOURS, recorded_at=3 * HOURS), ALL, [STAYS]),
        (*name_asked_again(released_at=5 * HOURS, recorded_at=5 * HOURS + 1), ALL, [STAYS]),
        (*name_asked_again(released_at=5 * HOURS, recorded_at=9 * HOURS), ALL, DELETED),
        # As mapped: first seen, unless apply made or found this very topic.
        *((FOREIGN, each, {}, FIRST) for each in (NONE, SEEN, GIVEN_BACK, EARLIER)),
        *((FOREIGN, each, {}, FIRST[1:]) for each in (CREATED, FOUND)),
        # Its lists may be quite others while it waits: not taken for one as mapped.
        (wanted([[2], [3]], factor=2), NONE, {}, ["? t  the lists", "= 1 topic as mapped"]),
        # Not as mapped: another's, until a word is given.
        ([[1, 2], [3, 2]], NONE, {}, [f"{CLASH}partition 1 on [2, 3], mapped to [3, 2]"]),
        ([[1, 2]] * 3, EARLIER, {}, [f"{CLASH}2 partitions in Kafka and 3 in its map; it is left"]),
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
    assert_lines(refused, ["+ t  (was in Kafka before; its data are gone): give --recreate to"])
    assert (refused.changes, len(refused.refused)) == ((), 1)
    plan = planned(asked, kafka({}), applied=applied, recreate=True)
    again = "+ t  1 partition of 1 replica (was in Kafka before; its data are gone)"
    assert_lines(plan, [again, "    + 0  [1]"])
    assert plan.changes[0].gone_id == "id-of-t"


@pytest.mark.parametrize("applied", [GIVEN_BACK, INTENDED])
def test_a_topic_that_is_no_concern_any_more_is_created_plainly(applied: AppliedRecords) -> None:
    """Whoever was given it back has deleted it, or it was never made."""
    (change,) = planned(maps({"t": [[1]]}), kafka({}), applied=applied).changes
    assert change.gone_id is None


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(None, ""), (1_023, ", 1023 B"), (1_024, ", 1.0 KiB"), (5_872_025, ", 5.6 MiB")],
)
def test_a_plan_says_how_much_data_is_deleted(size_bytes: int | None, text: str) -> None:
    """Before it is lost; bytes only where the brokers report them."""
    plan = planned(maps({"t": None}), kafka({"t": FOREIGN}), delete=True)
    size = TopicSize(records=1_234, size_bytes=size_bytes)
    sized = replace(plan, changes=(replace(plan.changes[0], size=size),))
    assert next(iter(plan_lines(sized))) == f"- t  2 partitions, 1,234 records{text}"


NAMES = st.sampled_from([*"abcdef", "a.b", "a_b", "__x", "replica-map"])
ROW = st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True)
LISTS = st.lists(ROW, min_size=1, max_size=5)


@st.composite
def wants(draw: st.DrawFn) -> Wanted:
    lists = draw(st.none() | LISTS)
    factor = None if lists is None else draw(st.integers(1, 3))
    found = wanted(lists, factor)
    is_released = lists is None and draw(st.booleans())
    return replace(found, is_released=is_released, released_at=1 if is_released else None)


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


@given(st.dictionaries(NAMES, wants()), clusters(), ledgers(), OPTIONS)
def test_what_was_applied_needs_no_further_plan(
    topics: dict[str, Wanted],
    cluster: KafkaCluster,
    applied: AppliedRecords,
    options: dict[str, Any],
) -> None:
    """A second run does nothing, whatever was there; and what waits or was refused, stays so."""
    first = planned(maps(topics), cluster, applied=applied, **options)
    after = applied_plan(first, cluster)
    second = planned(maps(topics), after, applied=noted(first, after, applied), **options)
    # A name that collided with a topic that is deleted now is free in the second run.
    freed = {each.topic for each in first.refused} - {each.topic for each in second.refused}
    assert {change.topic for change in second.changes} <= freed
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


@given(st.dictionaries(NAMES, wants()), clusters(), ledgers(), OPTIONS)
def test_nothing_remains_of_a_plan_that_was_applied(
    topics: dict[str, Wanted],
    cluster: KafkaCluster,
    applied: AppliedRecords,
    options: dict[str, Any],
) -> None:
    """A saved plan may be applied again."""
    plan = planned(maps(topics), cluster, applied=applied, **options)
    assert remaining(plan, cluster).changes == plan.changes
    assert remaining(plan, applied_plan(plan, cluster)).changes == ()


def test_what_remains_of_a_plan_is_what_was_not_done() -> None:
    """A run that broke off is finished by the same plan."""
    plan = planned(maps({"a": [[1]], "b": [[1], [2]]}), kafka({"b": [[1]]}))
    left = remaining(plan, kafka({"a": [[1]], "b": [[1]]}))
    assert [change.topic for change in left.changes] == ["b"]
    assert left.unchanged == {"a": ((1,),)}


def test_a_list_that_was_adopted_shorter_than_others_waits_for_nothing(tmp_path: Path) -> None:
    """It is to have the length that it has; one that lost a replica waits as always."""
    events = Events()
    adopted = TopicAdopted(event_id="a", cluster_id="c1", topic="t", replicas=((1, 2, 3), (2,)))
    adopting = [*events.joins(1, 2, 3), adopted]
    assert simulated(tmp_path / "maps", adopting) == {"t": [[1, 2, 3], [2]]}
    with (tmp_path / "maps").open("rb") as source:
        wanted = maps_of_file(source, tmp_path / "maps", "c1", lambda _: True).topics["t"]
    assert (wanted.lengths, wanted.short) == ((3, 1), frozenset())
    assert replace(wanted, lengths=(3, 2)).short == {1}
    plan = planned(maps({"t": wanted}), kafka({"t": [[1, 2, 3], [2]]}))
    assert (plan.changes, plan.waiting) == ((), ())
