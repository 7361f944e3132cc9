"""What a plan says: a pure function of replica maps and of what is in Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.stream.plan_model import (
    Change,
    KafkaCluster,
    Kind,
    Maps,
    Partition,
    Plan,
    Row,
    Rows,
    Wanted,
    make_plan,
    remaining,
)
from spu_assigner.stream.plan_show import plan_lines

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


def only(plan: Plan) -> Change:
    (change,) = plan.changes
    assert not plan.refused
    return change


def refusal(plan: Plan) -> str:
    (told,) = plan.refused
    assert plan.changes == ()
    return told.reason


def test_a_mapped_topic_that_is_not_there_is_created_with_its_map() -> None:
    """Exactly so, the order in each list included: the first leads."""
    plan = make_plan(maps({"t": wanted([[2, 1], [3, 2]])}), kafka())
    assert only(plan) == Change(topic="t", kind=Kind.CREATE, after=((2, 1), (3, 2)))


def test_a_topic_that_is_as_mapped_is_left_alone() -> None:
    """Also where a broker is down that it names: nothing can be done about that here."""
    plan = make_plan(maps({"t": wanted([[1, 9]])}), kafka(t=there([[1, 9]], [[1]])))
    assert (plan.changes, plan.refused) == ((), ())
    assert plan.unchanged == {"t": ((1, 9),)}


def test_more_partitions_are_added_and_the_old_ones_stay() -> None:
    """Kafka takes lists for the new ones alone."""
    plan = make_plan(maps({"t": wanted([[1], [2], [3]])}), kafka(t=there([[1]])))
    change = only(plan)
    assert (change.added, change.moves) == (((2,), (3,)), {})


def test_another_list_or_another_order_is_a_move() -> None:
    """The first of a list is the preferred leader."""
    plan = make_plan(maps({"t": wanted([[2, 1], [1, 3]])}), kafka(t=there([[1, 2], [1, 2]])))
    assert only(plan).moves == {0: ((1, 2), (2, 1)), 1: ((1, 2), (1, 3))}


def test_a_partition_that_kafka_is_moving_is_not_to_be_moved_again() -> None:
    """While it moves, Kafka lists the new replicas first and the old ones after them."""
    moving = there([[2, 3, 1]], [[1, 2]])
    plan = make_plan(maps({"t": wanted([[2, 3]])}), kafka(t=moving))
    assert (only(plan).moving, plan.moves) == (frozenset({0}), {})
    done = there([[2, 3, 1]])  # All are in sync: Kafka is not moving, the list is too long.
    assert make_plan(maps({"t": wanted([[2, 3]])}), kafka(t=done)).moves == {
        "t": {0: ((2, 3, 1), (2, 3))}
    }


def test_fewer_partitions_than_kafka_has_are_refused() -> None:
    """Kafka never takes one away."""
    told = refusal(make_plan(maps({"t": wanted([[1]])}), kafka(t=there([[1], [2]]))))
    assert "has 2 partitions in Kafka and 1 in its map" in told
    assert "--partitions 2" in told


def test_a_map_that_names_no_live_broker_is_refused() -> None:
    """Kafka would take a list of which one broker is alive, and the topic would be short."""
    told = refusal(make_plan(maps({"t": wanted([[1, 9], [7, 2]])}), kafka()))
    assert "names SPUs 7, 9, and Kafka's live brokers are 1, 2, 3" in told


def test_a_move_is_judged_by_the_brokers_that_come() -> None:
    """One that holds a replica already may be down for a while."""
    cluster = kafka(t=there([[1, 9]], [[1]]))
    assert only(make_plan(maps({"t": wanted([[2, 9]])}), cluster)).moves
    assert "names SPUs 8" in refusal(make_plan(maps({"t": wanted([[8, 9]])}), cluster))


def test_a_list_that_waits_for_a_replica_changes_nothing() -> None:
    """Kafka would drop a replica before another is there."""
    asked = maps({"t": wanted([[2], [3, 1]], factor=2)})
    change = only(make_plan(asked, kafka(t=there([[1, 2], [1, 2]]))))
    assert change.moves == {1: ((1, 2), (3, 1))}
    plan = make_plan(asked, kafka())
    assert (plan.changes, plan.refused) == ((), ())
    assert [told.topic for told in plan.waiting] == ["t"]


def test_partitions_are_added_once_the_lists_of_all_are_whole() -> None:
    """They are added by count: the second cannot come before the first."""
    asked = maps({"t": wanted([[1, 2], [1], [2, 3]], factor=2)})
    plan = make_plan(asked, kafka(t=there([[1, 2]])))
    assert plan.changes == ()
    assert plan.unchanged == {"t": ((1, 2),)}


def test_a_create_that_waits_for_room_is_told() -> None:
    """It has no map yet, and is no fault."""
    plan = make_plan(maps({}, late="waits for room"), kafka())
    assert [(told.topic, told.reason) for told in plan.waiting] == [("late", "waits for room")]
    assert plan.changes == ()


def test_a_topic_is_deleted_only_when_asked_and_by_its_own_tombstone() -> None:
    """A foreign topic has none, and is never named."""
    asked = maps({"t": wanted(None), "gone": wanted(None)})
    cluster = kafka(t=there([[1]]), foreign=there([[1]]))
    plan = make_plan(asked, cluster)
    assert (plan.changes, plan.deletable) == ((), ("t",))
    assert only(make_plan(asked, cluster, delete=True)) == Change(
        topic="t", kind=Kind.DELETE, before=((1,),), topic_id="id-of-t"
    )


@pytest.mark.parametrize("lists", [None, [[1]]])
@pytest.mark.parametrize("name", ["__consumer_offsets", "__cluster_metadata", "replica-map"])
def test_kafkas_and_the_products_own_topics_are_never_touched(
    name: str, lists: Lists | None
) -> None:
    """A map may bear any name."""
    cluster = KafkaCluster(
        kafka_id="k",
        brokers=BROKERS,
        topics={name: there([[2]])},
        own=frozenset({"replica-map"}),
    )
    plan = make_plan(maps({name: wanted(lists)}), cluster, delete=True)
    assert "use another name" in refusal(plan)


def test_a_name_that_kafka_cannot_tell_from_another_is_refused() -> None:
    """It refuses one of two that differ by dots and underscores."""
    asked = maps({"a.b": wanted([[1]]), "c_d": wanted([[1]]), "c.d": wanted([[1]])})
    plan = make_plan(asked, kafka(a_b=there([[1]])))
    assert [change.topic for change in plan.changes] == ["c.d"]
    assert [told.topic for told in plan.refused] == ["a.b", "c_d"]
    assert "'a_b'" in plan.refused[0].reason


def test_lists_of_several_lengths_make_no_new_topic() -> None:
    """Kafka's controller refuses them; here it is said why."""
    plan = make_plan(maps({"t": wanted([[1], [1, 2]], factor=1)}), kafka())
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
    assert list(plan_lines(make_plan(asked, cluster, delete=True))) == [
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


NAMES = st.sampled_from([*"abcdef", "a.b", "a_b", "__x", "replica-map"])
ROW = st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True)
LISTS = st.lists(ROW, min_size=1, max_size=5)


@st.composite
def wants(draw: st.DrawFn) -> Wanted:
    lists = draw(st.none() | LISTS)
    factor = None if lists is None else draw(st.integers(1, 3))
    return wanted(lists, factor)


@st.composite
def clusters(draw: st.DrawFn) -> KafkaCluster:
    topics = {}
    for name, lists in draw(st.dictionaries(NAMES, LISTS)).items():
        in_sync = [draw(st.lists(st.sampled_from(row), unique=True)) for row in lists]
        topics[name] = there(lists, in_sync)
    return KafkaCluster(
        kafka_id="k", brokers=(1, 2, 3, 4), topics=topics, own=frozenset({"replica-map"})
    )


def applied(plan: Plan, cluster: KafkaCluster) -> KafkaCluster:
    """A model of what Kafka does, moves included, once all is done."""
    topics = dict(cluster.topics)
    for change in plan.changes:
        if change.kind is Kind.DELETE:
            del topics[change.topic]
            continue
        assert len(change.after) >= len(topics.get(change.topic, ()))
        topics[change.topic] = there(change.after)
    return replace(cluster, topics=topics)


@given(st.dictionaries(NAMES, wants()), clusters(), st.booleans())
def test_what_was_applied_needs_no_further_plan(
    topics: dict[str, Wanted], cluster: KafkaCluster, delete: bool
) -> None:
    """A second run does nothing, whatever was there; and what is told to wait or refused, stays."""
    first = make_plan(maps(topics), cluster, delete=delete)
    after = applied(first, cluster)
    second = make_plan(maps(topics), after, delete=delete)
    # A name that collided with a topic that is deleted now is free in the second run.
    freed = {told.topic for told in first.refused} - {told.topic for told in second.refused}
    assert {change.topic for change in second.changes} <= freed
    assert second.waiting == first.waiting
    untouched = set(cluster.topics) - {change.topic for change in first.changes}
    assert all(after.topics[name] == cluster.topics[name] for name in untouched)
    assert not (untouched ^ set(cluster.topics)) - set(topics)


@given(st.dictionaries(NAMES, wants()), clusters())
def test_each_mapped_topic_is_told_of_once(
    topics: dict[str, Wanted], cluster: KafkaCluster
) -> None:
    """None is left out in silence: changed, refused, as mapped, mapped no more, or waiting."""
    plan = make_plan(maps(topics), cluster)
    heads = [change.topic for change in plan.changes]
    heads += [told.topic for told in plan.refused]
    heads += [*plan.deletable, *plan.unchanged]
    assert len(heads) == len(set(heads))
    absent = {name for name, each in topics.items() if each.replicas is None} - set(cluster.topics)
    waiting = {told.topic for told in plan.waiting}
    assert set(heads) | waiting == set(topics) - absent


@given(st.dictionaries(NAMES, wants()), clusters(), st.booleans())
def test_nothing_remains_of_a_plan_that_was_applied(
    topics: dict[str, Wanted], cluster: KafkaCluster, delete: bool
) -> None:
    """A saved plan may be applied again."""
    plan = make_plan(maps(topics), cluster, delete=delete)
    assert remaining(plan, cluster).changes == plan.changes
    assert remaining(plan, applied(plan, cluster)).changes == ()


def test_what_remains_of_a_plan_is_what_was_not_done() -> None:
    """A run that broke off is finished by the same plan."""
    plan = make_plan(maps({"a": wanted([[1]]), "b": wanted([[1], [2]])}), kafka(b=there([[1]])))
    left = remaining(plan, kafka(a=there([[1]]), b=there([[1]])))
    assert [change.topic for change in left.changes] == ["b"]
    assert left.unchanged == {"a": ((1,),)}


def test_rows_are_told_up_to_a_number() -> None:
    """A topic of thousands of partitions must not fill the screen; JSON has all."""
    lists: list[Row] = [(1,)] * 100
    lines = list(plan_lines(make_plan(maps({"t": wanted(lists)}), kafka())))
    assert len(lines) == 1 + 16 + 1 + 1
    assert lines[17] == "    … 84 more (--json has all)"
