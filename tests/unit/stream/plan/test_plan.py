"""What a plan says: a pure function of replica maps and of what is in Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.schemas.messages.wire import AppliedTopic, Origin
from spu_assigner.stream.plan.applied import AppliedRecords
from spu_assigner.stream.plan.decision import GONE, NOT_OURS, RELEASED, make_plan, remaining
from spu_assigner.stream.plan.model import (
    ChangeKind,
    KafkaCluster,
    Maps,
    Partition,
    Row,
    Rows,
    TopicChange,
    TopicSize,
    TopicsPlan,
    Wanted,
)
from spu_assigner.stream.plan.rendering import plan_lines

Lists = Sequence[Sequence[int]]
BROKERS = (1, 2, 3)


def rows(lists: Lists) -> Rows:
    return tuple(map(tuple, lists))


def wanted(lists: Lists | None, factor: int | None = None) -> Wanted:
    if lists is None:
        return Wanted(replicas=None)
    width = max(map(len, lists)) if factor is None else factor
    return Wanted(replicas=rows(lists), replication_factor=width)


def maps(topics: Mapping[str, Wanted], **waiting: str) -> Maps:
    return Maps(cluster_id="c1", topics=topics, waiting=waiting)


def there(lists: Lists, in_sync: Lists | None = None) -> tuple[Partition, ...]:
    return tuple(
        Partition(replicas=tuple(row), in_sync=frozenset(seen))
        for row, seen in zip(lists, in_sync or lists, strict=True)
    )


def kafka(own: frozenset[str] = frozenset(), **topics: tuple[Partition, ...]) -> KafkaCluster:
    named = {name.replace("__dot__", "."): each for name, each in topics.items()}
    ids = {name: f"id-of-{name}" for name in named}
    return KafkaCluster(kafka_id="k", brokers=BROKERS, topics=named, ids=ids, own=own)


def record(topic: str, origin: Origin, topic_id: str | None = None, at: int = 1) -> AppliedTopic:
    """Of the topic that `kafka` has, unless an id is given."""
    return AppliedTopic(
        cluster_id="c1",
        topic=topic,
        topic_id=topic_id or f"id-of-{topic}",
        origin=origin,
        recorded_at=at,
        lists="",
    )


def recorded(**origins: Origin) -> AppliedRecords:
    return AppliedRecords(
        records={topic: record(topic, origin) for topic, origin in origins.items()}
    )


def all_made(cluster: KafkaCluster) -> AppliedRecords:
    """As if `apply` had made every topic that is there."""
    return AppliedRecords(
        records={
            topic: record(topic, Origin.CREATED, topic_id)
            for topic, topic_id in cluster.ids.items()
        }
    )


def planned(
    maps: Maps, cluster: KafkaCluster, *, applied: AppliedRecords | None = None, **options: Any
) -> TopicsPlan:
    """A plan, by default of topics that apply made."""
    return make_plan(
        maps, cluster, applied=all_made(cluster) if applied is None else applied, **options
    )


def only(plan: TopicsPlan) -> TopicChange:
    (change,) = plan.changes
    assert not plan.refused
    return change


def refusal(plan: TopicsPlan) -> str:
    (told,) = plan.refused
    assert plan.changes == ()
    return told.reason


def test_a_mapped_topic_that_is_not_there_is_created_with_its_map() -> None:
    """Exactly so, the order in each list included: the first leads."""
    plan = planned(maps({"t": wanted([[2, 1], [3, 2]])}), kafka())
    assert only(plan) == TopicChange(topic="t", kind=ChangeKind.CREATE, after=((2, 1), (3, 2)))


def test_a_topic_that_is_as_mapped_is_left_alone() -> None:
    """Also where a broker is down that it names: nothing can be done about that here."""
    plan = planned(maps({"t": wanted([[1, 9]])}), kafka(t=there([[1, 9]], [[1]])))
    assert (plan.changes, plan.refused) == ((), ())
    assert plan.unchanged == {"t": ((1, 9),)}


def test_more_partitions_are_added_and_the_old_ones_stay() -> None:
    """Kafka takes lists for the new ones alone."""
    plan = planned(maps({"t": wanted([[1], [2], [3]])}), kafka(t=there([[1]])))
    change = only(plan)
    assert (change.added, change.moves) == (((2,), (3,)), {})


def test_another_list_or_another_order_is_a_move() -> None:
    """The first of a list is the preferred leader."""
    plan = planned(maps({"t": wanted([[2, 1], [1, 3]])}), kafka(t=there([[1, 2], [1, 2]])))
    assert only(plan).moves == {0: ((1, 2), (2, 1)), 1: ((1, 2), (1, 3))}


def test_a_partition_that_kafka_is_moving_is_not_to_be_moved_again() -> None:
    """While it moves, Kafka lists the new replicas first and the old ones after them."""
    moving = there([[2, 3, 1]], [[1, 2]])
    plan = planned(maps({"t": wanted([[2, 3]])}), kafka(t=moving))
    assert (only(plan).moving, plan.moves) == (frozenset({0}), {})
    done = there([[2, 3, 1]])  # All are in sync: Kafka is not moving, the list is too long.
    assert planned(maps({"t": wanted([[2, 3]])}), kafka(t=done)).moves == {
        "t": {0: ((2, 3, 1), (2, 3))}
    }


def test_fewer_partitions_than_kafka_has_are_refused() -> None:
    """Kafka never takes one away."""
    told = refusal(planned(maps({"t": wanted([[1]])}), kafka(t=there([[1], [2]]))))
    assert "has 2 partitions in Kafka and 1 in its map" in told
    assert "--partitions 2" in told


def test_a_map_that_names_no_live_broker_is_refused() -> None:
    """Kafka would take a list of which one broker is alive, and the topic would be short."""
    told = refusal(planned(maps({"t": wanted([[1, 9], [7, 2]])}), kafka()))
    assert "names SPUs 7, 9, and Kafka's live brokers are 1, 2, 3" in told


def test_a_move_is_judged_by_the_brokers_that_come() -> None:
    """One that holds a replica already may be down for a while."""
    cluster = kafka(t=there([[1, 9]], [[1]]))
    assert only(planned(maps({"t": wanted([[2, 9]])}), cluster)).moves
    assert "names SPUs 8" in refusal(planned(maps({"t": wanted([[8, 9]])}), cluster))


def test_a_list_that_waits_for_a_replica_changes_nothing() -> None:
    """Kafka would drop a replica before another is there."""
    asked = maps({"t": wanted([[2], [3, 1]], factor=2)})
    change = only(planned(asked, kafka(t=there([[1, 2], [1, 2]]))))
    assert change.moves == {1: ((1, 2), (3, 1))}
    plan = planned(asked, kafka())
    assert (plan.changes, plan.refused) == ((), ())
    assert [told.topic for told in plan.waiting] == ["t"]


def test_partitions_are_added_once_the_lists_of_all_are_whole() -> None:
    """They are added by count: the second cannot come before the first."""
    asked = maps({"t": wanted([[1, 2], [1], [2, 3]], factor=2)})
    plan = planned(asked, kafka(t=there([[1, 2]])))
    assert plan.changes == ()
    assert plan.unchanged == {"t": ((1, 2),)}


def test_a_create_that_waits_for_room_is_told() -> None:
    """It has no map yet, and is no fault."""
    plan = planned(maps({}, late="waits for room"), kafka())
    assert [(told.topic, told.reason) for told in plan.waiting] == [("late", "waits for room")]
    assert plan.changes == ()


def test_a_topic_is_deleted_only_when_asked_and_by_its_own_tombstone() -> None:
    """A foreign topic has none, and is never named."""
    asked = maps({"t": wanted(None), "gone": wanted(None)})
    cluster = kafka(t=there([[1]]), foreign=there([[1]]))
    plan = planned(asked, cluster)
    assert (plan.changes, plan.deletable) == ((), ("t",))
    assert only(planned(asked, cluster, delete=True)) == TopicChange(
        topic="t", kind=ChangeKind.DELETE, before=((1,),), topic_id="id-of-t"
    )


RESERVED = pytest.mark.parametrize(
    "name", ["__consumer_offsets", "__cluster_metadata", "replica-map"]
)


def reserving(name: str) -> KafkaCluster:
    """Where a name that is Kafka's or the product's is there."""
    return KafkaCluster(
        kafka_id="k",
        brokers=BROKERS,
        topics={name: there([[2]])},
        ids={name: f"id-of-{name}"},
        own=frozenset({"replica-map"}),
    )


@RESERVED
def test_kafkas_and_the_products_own_topics_are_never_touched(name: str) -> None:
    """A map may bear any name."""
    for options in ({}, {"delete": True, "is_foreign": lambda _: True, "recreate": True}):
        plan = planned(maps({name: wanted([[1]])}), reserving(name), **options)
        assert "use another name" in refusal(plan)


@RESERVED
@pytest.mark.parametrize("delete", [False, True])
def test_a_tombstone_of_a_reserved_name_is_ignored(name: str, delete: bool) -> None:
    """One such request, long deleted, made every later plan end with status 1."""
    plan = planned(maps({name: wanted(None)}), reserving(name), delete=delete)
    assert plan == planned(maps({}), reserving(name))


def test_a_name_that_kafka_cannot_tell_from_another_is_refused() -> None:
    """It refuses one of two that differ by dots and underscores."""
    asked = maps({"a.b": wanted([[1]]), "c_d": wanted([[1]]), "c.d": wanted([[1]])})
    plan = planned(asked, kafka(a_b=there([[1]])))
    assert [change.topic for change in plan.changes] == ["c.d"]
    assert [told.topic for told in plan.refused] == ["a.b", "c_d"]
    assert "'a_b'" in plan.refused[0].reason


def test_lists_of_several_lengths_make_no_new_topic() -> None:
    """Kafka's controller refuses them; here it is said why."""
    plan = planned(maps({"t": wanted([[1], [1, 2]], factor=1)}), kafka())
    assert "lists of 1, 2 replicas" in refusal(plan)


def test_a_plan_reads_as_a_diff() -> None:
    """It is what a person decides by."""
    asked = maps(
        {
            "new": wanted([[1, 2]]),
            "old": wanted(None),
            "same": wanted([[1]]),
            "wide": wanted([[2, 1], [2, 3], [1, 3]]),
            "bad": wanted([[9]]),
            "slow": wanted([[3]]),
        },
        late="its create waits\x1b[31m",
    )
    cluster = kafka(
        old=there([[1]]),
        same=there([[1]]),
        wide=there([[1, 2], [2, 3]]),
        slow=there([[3, 1]], [[1]]),
    )
    assert list(plan_lines(planned(asked, cluster, delete=True))) == [
        "+ new  1 partition of 2 replicas",
        "    + 0  [1, 2]",
        "- old  1 partition",
        "~ slow  1 partition being moved by Kafka",
        "    ~ 0  [3, 1] → [3], in progress",
        "~ wide  2 → 3 partitions, 1 partition to move with kafka-reassign-partitions",
        "    ~ 0  [1, 2] → [2, 1]",
        "    + 2  [1, 3]",
        "! bad  its map names SPUs 9, and Kafka's live brokers are 1, 2, 3; start them, or "
        "decommission these SPUs (`spu-assigner produce spu-left --mode decommission`)",
        "? late  its create waits\\x1b[31m",
        "= 1 topic as mapped",
        "1 to create, 2 to change, 1 to delete, 1 that cannot be made as mapped, 1 waiting",
    ]


# Whose a topic is.

FOREIGN = there([[1, 2], [2, 3]])


@pytest.mark.parametrize(
    "applied",
    [
        AppliedRecords(),
        recorded(t=Origin.FOUND),
        recorded(t=Origin.SEEN),
        recorded(t=Origin.RELEASED),
        recorded(t=Origin.INTENT),
        AppliedRecords(records={"t": record("t", Origin.CREATED, "id-of-an-earlier-one")}),
        AppliedRecords(intents={"t": record("t", Origin.INTENT)}),
    ],
)
def test_a_topic_that_apply_did_not_make_is_never_deleted(applied: AppliedRecords) -> None:
    """Whatever else is recorded of it: a tombstone of a map gives no right to the data."""
    for options in ({}, {"delete": True, "is_foreign": lambda _: True, "recreate": True}):
        plan = planned(maps({"t": wanted(None)}), kafka(t=FOREIGN), applied=applied, **options)
        assert (plan.changes, plan.deletable, plan.refused) == ((), (), ())
        assert [(told.topic, told.reason) for told in plan.staying] == [("t", NOT_OURS)]


def test_a_released_topic_is_never_deleted() -> None:
    """Its request is forgotten, its data are kept, though apply made it."""
    asked = maps({"t": Wanted(replicas=None, is_released=True, released_at=5)})
    plan = planned(asked, kafka(t=FOREIGN), delete=True)
    assert (plan.changes, plan.deletable) == ((), ())
    assert [told.reason for told in plan.staying] == [RELEASED]


HOURS = 3_600_000


@pytest.mark.parametrize(
    ("released_at", "recorded_at", "is_deleted"),
    [
        (0, 9 * HOURS, False),  # nobody knows which came first
        (5 * HOURS, 3 * HOURS, False),
        (5 * HOURS, 5 * HOURS + 1, False),  # two machines' clocks
        (5 * HOURS, 9 * HOURS, True),  # made again by apply, long after
    ],
)
def test_a_release_is_remembered_when_its_name_is_asked_for_and_deleted_again(
    released_at: int, recorded_at: int, is_deleted: bool
) -> None:
    """Also where no apply ran in between that would have recorded it."""
    asked = maps({"t": Wanted(replicas=None, released_at=released_at)})
    applied = AppliedRecords(records={"t": record("t", Origin.CREATED, at=recorded_at)})
    plan = planned(asked, kafka(t=FOREIGN), applied=applied, delete=True)
    assert bool(plan.changes) == is_deleted
    assert bool(plan.staying) != is_deleted


@pytest.mark.parametrize("origin", [None, Origin.SEEN, Origin.RELEASED])
def test_a_topic_at_first_contact_that_is_as_mapped_is_marked(origin: Origin | None) -> None:
    """Status 0: it is as it should be, and nobody has said whose it is."""
    applied = AppliedRecords() if origin is None else recorded(t=origin)
    plan = planned(maps({"t": wanted([[1, 2], [2, 3]])}), kafka(t=FOREIGN), applied=applied)
    assert (plan.changes, plan.refused, plan.first_seen) == ((), (), ("t",))
    assert plan.unchanged == {"t": ((1, 2), (2, 3))}


@pytest.mark.parametrize(
    ("lists", "told"),
    [
        ([[1, 2], [3, 2]], "has partition 1 on [2, 3], mapped to [3, 2]"),
        ([[1, 2], [2, 3], [3, 1]], "has 2 partitions in Kafka and 3 in its map"),
    ],
)
def test_a_name_clash_is_refused_until_a_word_is_given(lists: Lists, told: str) -> None:
    """`topic-create` is granted whatever Kafka has under that name."""
    asked, cluster = maps({"t": wanted(lists)}), kafka(t=FOREIGN)
    reason = refusal(planned(asked, cluster, applied=AppliedRecords()))
    assert told in reason
    assert "topic-release" in reason
    assert "--foreign t" in reason
    known = planned(asked, cluster)
    assert only(
        planned(asked, cluster, applied=AppliedRecords(), is_foreign=lambda _: True)
    ) == only(known)
    assert planned(asked, cluster, applied=recorded(t=Origin.FOUND)).changes == known.changes


def test_a_topic_made_again_by_others_is_at_first_contact() -> None:
    """Kafka's id says that it is another."""
    applied = AppliedRecords(records={"t": record("t", Origin.CREATED, "id-of-an-earlier-one")})
    asked = maps({"t": wanted([[1, 2], [2, 3]])})
    assert planned(asked, kafka(t=FOREIGN), applied=applied).first_seen == ("t",)
    clash = planned(maps({"t": wanted([[1, 2]] * 3)}), kafka(t=FOREIGN), applied=applied)
    assert "was not made by apply" in refusal(clash)


def test_a_topic_that_only_waits_is_not_taken_for_one_as_mapped() -> None:
    """Its lists may be quite others; nothing is changed, and nothing recorded."""
    plan = planned(
        maps({"t": wanted([[2]], factor=2)}), kafka(t=there([[1, 3]])), applied=AppliedRecords()
    )
    assert (plan.changes, plan.refused, plan.first_seen) == ((), (), ())


@pytest.mark.parametrize("origin", [Origin.CREATED, Origin.FOUND, Origin.SEEN])
def test_a_topic_that_is_gone_is_created_again_only_on_request(origin: Origin) -> None:
    """It came back empty, and nothing was reported."""
    asked = maps({"t": wanted([[1]])})
    assert refusal(planned(asked, kafka(), applied=recorded(t=origin))) == GONE
    again = only(planned(asked, kafka(), applied=recorded(t=origin), recreate=True))
    assert (again.kind, again.gone_id) == (ChangeKind.CREATE, "id-of-t")
    lines = list(plan_lines(planned(asked, kafka(), applied=recorded(t=origin), recreate=True)))
    assert lines[0] == ("+ t  1 partition of 1 replica (was in Kafka before; its data are gone)")


@pytest.mark.parametrize("origin", [Origin.RELEASED, Origin.INTENT])
def test_a_topic_that_is_no_concern_any_more_is_created_plainly(origin: Origin) -> None:
    """Whoever was given it back has deleted it, or it was never made."""
    asked = maps({"t": wanted([[1]])})
    applied = (
        recorded(t=origin)
        if origin is Origin.RELEASED
        else AppliedRecords(intents={"t": record("t", origin)})
    )
    assert only(planned(asked, kafka(), applied=applied)).gone_id is None


def test_a_plan_says_how_much_data_is_deleted() -> None:
    """Before it is lost."""
    plan = planned(maps({"t": wanted(None)}), kafka(t=FOREIGN), delete=True)
    size = TopicSize(records=1_234, size_bytes=5_872_025)
    sized = replace(plan, changes=(replace(plan.changes[0], size=size),))
    assert next(iter(plan_lines(sized))) == "- t  2 partitions, 1,234 records, 5.6 MiB"
    unknown = replace(size, size_bytes=None)
    sized = replace(plan, changes=(replace(plan.changes[0], size=unknown),))
    assert next(iter(plan_lines(sized))) == "- t  2 partitions, 1,234 records"


def test_marks_of_ownership_read_as_a_diff() -> None:
    """A person decides by them."""
    asked = maps(
        {
            "clash": wanted([[2]]),
            "gone": wanted([[1]]),
            "imported": wanted([[1]]),
            "mine": wanted(None),
            "released": Wanted(replicas=None, is_released=True, released_at=1),
            "withdrawn": wanted(None),
        }
    )
    one = there([[1]])
    cluster = kafka(clash=one, imported=one, mine=one, released=one, withdrawn=one)
    applied = recorded(gone=Origin.FOUND, mine=Origin.CREATED, released=Origin.CREATED)
    assert list(plan_lines(planned(asked, cluster, applied=applied))) == [
        "! clash  exists in Kafka, was not made by apply, and has partition 0 on [1], mapped to "
        "[2]; it is left alone. Release the request (`spu-assigner produce topic-release`) and "
        "choose another name, or give `--foreign clash` to have this topic changed",
        "+ gone  (was in Kafka before; its data are gone): give --recreate to create it again, "
        "empty, or delete its map (`spu-assigner produce topic-delete`)",
        "! imported  exists in Kafka and was not made by apply; it is as mapped: the next apply "
        "records it as found, and never deletes it",
        ". mine  is mapped no more; --delete deletes it",
        ". released  was released; it stays in Kafka",
        ". withdrawn  is mapped no more; apply did not make it, so it stays",
        "= 1 topic as mapped",
        "nothing to do: 0 to create, 0 to change, 0 to delete, 2 that cannot be made as mapped, "
        "1 not made by apply",
    ]


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
    """A second run does nothing, whatever was there; and what is told to wait or refused, stays."""
    first = planned(maps(topics), cluster, applied=applied, **options)
    after = applied_plan(first, cluster)
    second = planned(maps(topics), after, applied=noted(first, after, applied), **options)
    # A name that collided with a topic that is deleted now is free in the second run.
    freed = {told.topic for told in first.refused} - {told.topic for told in second.refused}
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
def test_each_mapped_topic_is_told_of_once(
    topics: dict[str, Wanted], cluster: KafkaCluster, applied: AppliedRecords
) -> None:
    """None is left out in silence: changed, refused, as mapped, mapped no more, or waiting."""
    plan = planned(maps(topics), cluster, applied=applied)
    heads = [change.topic for change in plan.changes]
    heads += [told.topic for told in (*plan.refused, *plan.staying)]
    heads += [*plan.deletable, *plan.unchanged]
    assert len(heads) == len(set(heads))
    assert set(plan.first_seen) <= set(plan.unchanged)
    deleted = {name for name, each in topics.items() if each.replicas is None}
    ignored = {name for name in deleted if name.startswith("__") or name in cluster.own}
    ignored |= deleted - set(cluster.topics)
    waiting = {told.topic for told in plan.waiting}
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
    plan = planned(maps({"a": wanted([[1]]), "b": wanted([[1], [2]])}), kafka(b=there([[1]])))
    left = remaining(plan, kafka(a=there([[1]]), b=there([[1]])))
    assert [change.topic for change in left.changes] == ["b"]
    assert left.unchanged == {"a": ((1,),)}


def test_rows_are_told_up_to_a_number() -> None:
    """A topic of thousands of partitions must not fill the screen; JSON has all."""
    lists: list[Row] = [(1,)] * 100
    lines = list(plan_lines(planned(maps({"t": wanted(lists)}), kafka())))
    assert len(lines) == 1 + 16 + 1 + 1
    assert lines[17] == "    … 84 more (--json has all)"
