"""What a plan means for the brokers: bytes, load before and after, and how it is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.schemas.messages.wire import Origin
from spu_assigner.stream.clusters.plan.decision import make_plan
from spu_assigner.stream.clusters.plan.model import (
    KafkaCluster,
    Maps,
    Partition,
    TopicsPlan,
    Wanted,
)
from spu_assigner.stream.clusters.plan.outlook import (
    PlanOutlook,
    out_of_sync,
    plan_outlook,
    reassigned_topics,
    unmapped_topics,
    unmatched_globs,
)
from spu_assigner.stream.clusters.plan.outlook_rendering import (
    copy_text,
    last_lines,
    outlook_lines,
    unmapped_line,
)
from spu_assigner.stream.clusters.plan.plan_file import plan_json
from spu_assigner.stream.kafka.log_dirs import ReplicaSizes, UnseenReplicas
from support.job.plans import kafka, maps, record, recorded, there

MIB = 1024**2
ALL: frozenset[int] = frozenset({1, 2, 3})


def sizes(found: Mapping[tuple[str, int], Mapping[int, int]]) -> ReplicaSizes:
    return ReplicaSizes(brokers=ALL, sizes=found)


def looked(
    asked: Maps, cluster: KafkaCluster, found: ReplicaSizes | None = None, **options: Any
) -> tuple[TopicsPlan, PlanOutlook]:
    made = recorded(*(record(topic, Origin.CREATED) for topic in cluster.ids))
    plan = make_plan(asked, cluster, applied=made, delete=True)
    return plan, plan_outlook(plan, cluster, found or ReplicaSizes(), **options)


def holdings(outlook: PlanOutlook) -> dict[int, tuple[object, ...]]:
    """By broker: replicas, leaders and bytes before and after; in, out and sent."""
    return {
        each.broker: (
            (each.before.replicas, each.before.leaders, each.before.size_bytes),
            (each.after.replicas, each.after.leaders, each.after.size_bytes),
            (each.bytes_in, each.bytes_out, each.bytes_sent),
        )
        for each in outlook.brokers
    }


def test_a_replica_that_comes_is_copied_from_the_leader_and_one_that_goes_frees_its_bytes() -> None:
    """The follower on 1 lags: what is copied is the whole partition, what it frees is its own."""
    cluster = kafka({"t": [[2, 1]], "other": [[1]]})
    found = sizes({("t", 0): {1: 90, 2: 100}, ("other", 0): {1: 7}})
    _, outlook = looked(maps({"t": [[2, 3]]}), cluster, found, throttle=50)
    assert holdings(outlook) == {
        1: ((2, 1, 97), (1, 1, 7), (0, 90, 0)),
        2: ((1, 1, 100), (1, 1, 100), (0, 0, 100)),
        3: ((0, 0, 0), (1, 0, 100), (100, 0, 0)),
    }
    assert (outlook.bytes_to_copy, outlook.replicas_to_copy, outlook.seconds) == (100, 1, 2.0)


def test_the_leader_of_now_sends_and_not_the_preferred_one() -> None:
    """It decides which broker a throttle holds back."""
    (partition,) = there([[1, 2]])
    cluster = kafka({"t": (replace(partition, leader=2),)})
    _, outlook = looked(maps({"t": [[1, 3]]}), cluster, sizes({("t", 0): {1: 5, 2: 5}}))
    assert {each.broker: each.bytes_sent for each in outlook.brokers} == {1: 0, 2: 5, 3: 0}


def test_another_order_of_a_list_copies_nothing() -> None:
    """Only the preferred leader changes."""
    cluster = kafka({"t": [[1, 2]]})
    _, outlook = looked(maps({"t": [[2, 1]]}), cluster, sizes({("t", 0): {1: 5, 2: 5}}))
    assert (outlook.bytes_to_copy, outlook.replicas_to_copy) == (0, 0)
    assert [each.after.leaders for each in outlook.brokers] == [0, 1, 0]
    lines = [*outlook_lines(outlook, width=120)]
    assert lines[0].split() == ["broker", "replicas", "leaders", "bytes", "in", "out"]


def test_of_a_copy_that_kafka_has_begun_only_the_rest_counts() -> None:
    """Kafka lists the replicas of a move first, then those that are given up."""
    cluster = kafka({"t": there([[2, 3, 1]], [[1, 2]])})
    found = sizes({("t", 0): {1: 100, 2: 100, 3: 40}})
    plan, outlook = looked(maps({"t": [[2, 3]]}), cluster, found)
    assert plan.moves == {}
    assert (outlook.bytes_to_copy, outlook.bytes_being_copied) == (60, 60)
    assert holdings(outlook)[3] == ((1, 0, 40), (1, 0, 100), (60, 0, 0))
    assert "60 B, 60 B of it by moves that Kafka has begun" in copy_text(outlook)


def test_new_topics_come_empty_and_deleted_ones_free_their_bytes() -> None:
    """Neither is copied."""
    cluster = kafka({"old": [[1, 2]], "grown": [[1]]})
    found = sizes({("old", 0): {1: 8, 2: 8}, ("grown", 0): {1: 2}})
    asked = maps({"old": None, "grown": [[1], [3]], "new": [[3, 2]]})
    _, outlook = looked(asked, cluster, found)
    assert holdings(outlook) == {
        1: ((2, 2, 10), (1, 1, 2), (0, 0, 0)),
        2: ((1, 0, 8), (1, 0, 0), (0, 0, 0)),
        3: ((0, 0, 0), (2, 2, 0), (0, 0, 0)),
    }
    assert outlook.bytes_to_copy == 0


def test_replicas_that_the_user_may_not_see_are_load_and_said_to_have_no_map() -> None:
    """Brokers report them, and who leads them is not known."""
    cluster = kafka({"t": [[1]]})
    unseen = UnseenReplicas(sizes={("hidden", 0): {1: 6, 2: 5}})
    plan, outlook = looked(maps({"t": [[3]]}), cluster, sizes({("t", 0): {1: 9}}), unseen=unseen)
    assert holdings(outlook) == {
        1: ((2, 1, 15), (1, 0, 6), (0, 9, 9)),
        2: ((1, 0, 5), (1, 0, 5), (0, 0, 0)),
        3: ((0, 0, 0), (1, 1, 9), (9, 0, 0)),
    }
    assert last_lines(outlook) == [
        "2 replicas of 1 topic that you may not see (hidden): not compared with any map, and "
        "counted above without leaders"
    ]
    assert plan_json(plan, outlook)["unseen"] == {
        "topics": ["hidden"],
        "replicas": 2,
        "silent_brokers": [],
    }


def test_what_no_broker_reports_is_not_known_and_not_nothing() -> None:
    """A user who may not Describe the cluster must not read that moving is free."""
    cluster = kafka({"t": [[1]], "u": [[1]]})
    asked = maps({"t": [[2]], "u": [[3]]})
    _, outlook = looked(asked, cluster, throttle=1)
    assert copy_text(outlook).startswith("2 replicas to copy; how many bytes is not known: ")
    shown = outlook.as_json()
    assert (shown["bytes_to_copy"], shown["seconds"], shown["replicas_unsized"]) == (None, None, 2)
    assert shown["brokers"][0]["bytes_before"] is None
    some = ReplicaSizes(brokers=frozenset({1}), sizes={("t", 0): {1: 6}})
    _, partly = looked(asked, cluster, some, throttle=2)
    assert copy_text(partly) == (
        "2 replicas to copy, 6 B, without 1 whose bytes no broker reports; 6 B to or from the "
        "busiest broker: at least 3 s at 2 B/s"
    )
    assert partly.as_json()["bytes_to_copy"] == 6


@pytest.mark.parametrize(
    ("topics", "line"),
    [
        (["a", "mapped", "__consumer_offsets", "replica-map"], "1 topic in Kafka has no map "),
        (["a", "deleted", "released"], "3 topics in Kafka have no map (adopt takes them in)"),
        (["mapped", "__transaction_state", "waits"], None),
    ],
)
def test_topics_without_a_map_are_counted_but_kafkas_and_the_products(
    topics: list[str], line: str | None
) -> None:
    """Whoever sees *nothing to do* must know of what it was not said."""
    asked = maps({"mapped": [[1]], "deleted": None, "released": None, "away": [[1]]}, waits="room")
    found = unmapped_topics(asked, kafka({name: [[1]] for name in topics}), lambda _: True)
    shown = unmapped_line(PlanOutlook(unmapped=found))
    assert shown == line or (line is not None and str(shown).startswith(line))


def test_partitions_that_kafka_only_adds_replicas_to_are_reported() -> None:
    """Its lists are the new ones at once: without a line `plan` had nothing to do or to say."""
    whole = Partition(replicas=(1, 2), in_sync=frozenset({1, 2}))
    copied = Partition(replicas=(1, 2), in_sync=frozenset({1}))
    other = Partition(replicas=(1, 3), in_sync=frozenset({1}))
    topics = {"whole": (whole,), "big": (copied, whole, copied), "moves": (other,), "un": (copied,)}
    cluster = replace(kafka({}), topics=topics)
    asked = maps({"whole": [[1, 2]], "big": [[1, 2]] * 3, "moves": [[1, 2]], "gone": [[1, 2]]})
    found = out_of_sync(asked, cluster)
    assert found == {"big": 2}
    assert last_lines(PlanOutlook(out_of_sync=found, unmapped=("un",))) == [
        "2 partitions of big have their lists and a replica that is not in sync: Kafka still "
        "copies it, or its broker is down",
        "1 topic in Kafka has no map (adopt takes it in)",
    ]


def test_moves_that_take_back_what_others_did_are_named() -> None:
    """Somebody reassigns an adopted topic; `apply --moves` would undo that without a word."""
    cluster = kafka({"theirs": [[2, 1]], "ours": [[2, 1]], "same": [[1, 2]]})
    asked = maps({"ours": [[1, 2]]})
    topics = {
        name: Wanted(replicas=((1, 2),), replication_factor=2, is_adopted=True)
        for name in ("theirs", "same")
    }
    asked = replace(asked, topics={**asked.topics, **topics})
    plan, _ = looked(asked, cluster)
    assert {*plan.moves} == {"ours", "theirs"}
    found = reassigned_topics(plan, asked)
    assert found == ("theirs",)
    assert last_lines(PlanOutlook(reassigned=found)) == [
        "theirs was adopted, and then reassigned in Kafka by others: `adopt` takes over what Kafka "
        "has now, `apply --moves` moves it back"
    ]


def test_a_glob_that_no_topic_matches_is_named() -> None:
    """A misspelt one had nothing to do, and status 0."""
    cluster = kafka({"team-a": [[1]], "unmapped": [[1]]})
    asked = maps({"team-a": [[1]]}, late="room")
    globs = ("team-*", "unmapped", "late", "taem-*")
    found = unmatched_globs(globs, asked, cluster)
    assert found == ("taem-*",)
    assert last_lines(PlanOutlook(unmatched=found)) == [
        "no topic matches --topics taem-*; check it"
    ]


def test_only_topics_that_were_asked_for_count_as_unmapped() -> None:
    """As `--topics` says."""
    cluster = kafka({"team-a": [[1]], "other": [[1]]})
    assert unmapped_topics(maps({}), cluster, lambda name: name.startswith("team-")) == ("team-a",)


ROW = st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True)
LISTS = st.lists(ROW, min_size=1, max_size=4)
TOPICS = st.dictionaries(st.sampled_from("abcdef"), LISTS)


@given(asked=TOPICS, found=TOPICS, data=st.data())
def test_every_byte_that_comes_was_sent_and_the_sums_hold(
    asked: dict[str, Any], found: dict[str, Any], data: st.DataObject
) -> None:
    """Whatever the plan, no replica, leader or byte is lost or invented."""
    cluster = replace(kafka(found), brokers=(1, 2, 3, 4, 5))
    known = ReplicaSizes(
        brokers=frozenset(cluster.brokers),
        sizes={
            (name, number): dict.fromkeys(row, data.draw(st.integers(0, 9)))
            for name, rows in found.items()
            for number, row in enumerate(rows)
        },
    )
    plan, outlook = looked(maps(asked), cluster, known)
    after = {**found, **{change.topic: change.after for change in plan.changes}}
    rows = [row for lists in after.values() for row in lists]
    assert sum(each.after.replicas for each in outlook.brokers) == sum(map(len, rows))
    assert sum(each.after.leaders for each in outlook.brokers) == len(rows)
    assert sum(each.bytes_in for each in outlook.brokers) == outlook.bytes_to_copy
    assert sum(each.bytes_sent for each in outlook.brokers) == outlook.bytes_to_copy
    for each in outlook.brokers:
        assert each.before.size_bytes is not None
        assert each.after.size_bytes == each.before.size_bytes + each.bytes_in - each.bytes_out
        assert each.after.size_bytes >= 0


def vast(topic: str) -> tuple[TopicsPlan, PlanOutlook]:
    found = sizes({(topic, 0): {1: 300 * MIB, 2: 300 * MIB}})
    return looked(maps({topic: [[2, 3]]}), kafka({topic: [[1, 2]]}), found, throttle=50_000_000)


@pytest.mark.parametrize("width", [20, 59, 60, 80, 200])
def test_the_table_fits_any_width_and_loses_nothing(width: int) -> None:
    """What is cut off cannot be decided on."""
    _, outlook = vast("t")
    head, *table = outlook_lines(outlook, width=width)
    assert head == (
        "1 replica to copy, 300.0 MiB; 300.0 MiB to or from the busiest broker: at least 7 s at "
        "47.7 MiB/s"
    )
    assert max(map(len, table)) <= width
    digits = sorted(each for each in "".join(table) if each.isdigit())
    (_, *whole) = outlook_lines(outlook, width=500)
    assert digits == sorted(each for each in "".join(whole) if each.isdigit())


def test_the_plan_for_programs_has_the_outlook_beside_what_it_had() -> None:
    """Fields are added, none is changed."""
    plan, outlook = vast("t")
    plain, document = plan_json(plan), plan_json(plan, outlook)
    assert {key: document[key] for key in plain} == plain
    others = {"unmapped", "unmatched", "reassigned", "out_of_sync", "unseen", "load"}
    assert {*document} - {*plain} == others
    assert document["load"]["bytes_to_copy"] == 300 * MIB
    assert document["load"]["brokers"][2] == {
        "broker": 3,
        "replicas_before": 0,
        "leaders_before": 0,
        "bytes_before": 0,
        "replicas_after": 1,
        "leaders_after": 0,
        "bytes_after": 300 * MIB,
        "bytes_in": 300 * MIB,
        "bytes_out": 0,
        "bytes_sent": 0,
    }
    assert json.loads(json.dumps(document)) is not None
