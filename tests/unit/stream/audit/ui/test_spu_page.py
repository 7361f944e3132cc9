"""The page of an SPU, what Kafka shows beside the maps, and the links and lists around it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flask.testing import FlaskClient
from spu_assigner.core.base.constraints import Taint, TaintEffect
from spu_assigner.core.base.events import Event, LeaveMode
from spu_assigner.stream.audit.ui import app
from spu_assigner.stream.audit.ui.app import make_app
from spu_assigner.stream.client.announced import LABEL
from spu_assigner.stream.clusters.plan.model import KafkaCluster, Partition
from spu_assigner.stream.kafka.log_dirs import ReplicaSizes
from support.events.builders import Events
from support.pages.ui_pages import Still, Text, known_of, outputs, pages_of, read

MIB = 1024**2
OWN = {LABEL: "k"}
EVENTS = Events()
DAY: list[Event] = [
    EVENTS.join(1, rack="a", labels={**OWN, "tier": "ssd"}, resources={"disk": 9}),
    EVENTS.join(2, rack="b", labels=OWN, taints=(Taint("old", "<i>", TaintEffect.NO_LEADERS),)),
    EVENTS.join(3, rack="c", labels=OWN, capacity=50),
    EVENTS.adopt("t", [1, 2], [2, 3], [3, 1]),
    EVENTS.adopt("u", [3, 2], pinned=True),
    EVENTS.leave(3, mode=LeaveMode.OFFLINE),
]


def there(*partitions: tuple[int, list[int], list[int]]) -> tuple[Partition, ...]:
    return tuple(
        Partition(replicas=tuple(replicas), in_sync=frozenset(in_sync), leader=leader)
        for leader, replicas, in_sync in partitions
    )


KAFKA = KafkaCluster(
    kafka_id="k",
    brokers=(1, 2),
    topics={
        "t": there((1, [1, 2], [1, 2]), (2, [2, 3], [2]), (1, [3, 1], [1])),
        "u": there((-1, [3], [])),
        "theirs": there((2, [2], [2])),
    },
)


def pages(kafka: KafkaCluster | None = KAFKA) -> FlaskClient:
    still = Still(known_of(outputs([[event] for event in DAY])))
    still.kafka = kafka
    return make_app(still.as_live()).test_client()


def links(page: Text) -> list[str]:
    return [each["href"] or "" for tag, each in page.tags if tag == "a" and "href" in each]


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A broker that reports what it holds; which were asked."""
    asked: list[Any] = []

    def held(_: object, brokers: list[int]) -> ReplicaSizes:
        asked.append(brokers)
        of = {("t", 0): {1: 3 * MIB}, ("t", 2): {1: 2 * MIB}}
        return ReplicaSizes(brokers=frozenset(brokers), sizes=of if brokers == [1] else {})

    monkeypatch.setattr(app, "replica_sizes", held)
    return asked


def test_the_page_of_an_spu_shows_what_it_has_and_holds(sizes: list[Any]) -> None:
    """As mapped, as Kafka shows it, and the bytes that the broker reports."""
    page = read(pages(), "/clusters/c1/spus/1").text
    for words in (
        "SPU 1 online",
        "Rack a 1 core",
        "Replicas 2 of 6,998 slots",
        "Leaders as mapped 1",
        "Leads in Kafka 2 now",
        "In sync 2 of 2 replicas in Kafka",
        "Data 5.0 MiB as the broker reports",
        "kafka-clusterktierssddisk0 of 9 used",
        "t 2 1 2 2 yes 5.0 MiB",
    ):
        assert words in page, words
    assert sizes == [[1]]
    assert "old=<i>:no_leaders" in read(pages(None), "/clusters/c1/spus/2").text


def test_an_offline_broker_is_red_and_shows_what_it_leads_in_kafka(sizes: list[Any]) -> None:
    """Not what it would lead by the map; it is not asked for bytes."""
    shown = read(pages(), "/clusters/c1/spus/3")
    assert "Kafka does not see this broker. It leads 0 partitions in Kafka, and 2 as mapped." in (
        shown.text
    )
    assert "In sync 0 of 3 replicas" in shown.text
    assert "u 1 1 1 0 1 not" in shown.text
    assert ("span", {"class": "pill offline"}) in shown.tags
    assert sizes == []
    cluster = read(pages(), "/clusters/c1").text
    assert "Leads in Kafka" in cluster
    assert re.search(r"3 c offline 3 50 6\.0% – 0 map 2", cluster)


def test_topics_that_have_no_map_are_on_the_page_of_their_broker(sizes: list[Any]) -> None:
    shown = read(pages(), "/clusters/c1/spus/2")
    assert "theirs no map 0 0 1 1 yes" in shown.text
    assert "/clusters/c1/topics/t" in links(shown)
    assert "/clusters/c1/topics/theirs" not in links(shown)


@pytest.mark.parametrize("kafka", [None, KafkaCluster(kafka_id="x", brokers=(1,), topics={})])
def test_of_spus_that_are_no_brokers_of_this_kafka_only_the_map_is_shown(
    kafka: KafkaCluster | None,
) -> None:
    """Ids alone say nothing: other clusters have a broker 1, too."""
    shown = read(pages(kafka), "/clusters/c1/spus/3").text
    assert "SPU 3 offline" in shown
    assert "Kafka does not see" not in shown
    assert "t 2 1" in shown
    assert "Leads in Kafka" not in read(pages(kafka), "/clusters/c1").text
    assert "In Kafka" not in read(pages(kafka), "/clusters/c1/topics/t").text


def test_a_topic_shows_which_broker_leads_it_in_kafka_and_which_are_not_in_sync() -> None:
    shown = read(pages(), "/clusters/c1/topics/t").text
    assert "0 1 a 2 b led by 1 1 2 b" in shown
    assert "led by 1 in sync 1" in shown
    assert "no leader , on 3 in sync none" in read(pages(), "/clusters/c1/topics/u").text.replace(
        "no leader,", "no leader ,"
    )


def test_what_could_be_better_is_counted_on_the_cluster_page() -> None:
    """`u` is on one broker of two; of the topics that Kafka shows one list is not as mapped."""
    shown = read(pages(), "/clusters/c1").text
    assert "0 against a rule, 0 topics of one leader, 1 partitions not as mapped" in shown
    assert "partitions not as mapped" not in read(pages(None), "/clusters/c1").text


@pytest.mark.parametrize(
    "path", ["/clusters/c1", "/clusters/c1/topics/t"], ids=["ring and table", "map"]
)
def test_spus_link_to_their_pages(path: str) -> None:
    shown = links(read(pages(), path))
    assert {f"/clusters/c1/spus/{spu_id}" for spu_id in (1, 2, 3)} <= {*shown}


def test_no_such_spu_is_a_page_that_says_so() -> None:
    assert "has no SPU 9" in read(pages(), "/clusters/c1/spus/9", 404).text
    read(pages(), "/clusters/c1/spus/x", 404)


def test_a_page_is_renewed_when_kafka_shows_something_else() -> None:
    still = Still(known_of(outputs([DAY])))
    client = make_app(still.as_live()).test_client()
    before = client.get("/version?cluster_id=c1").data
    still.looks += 1
    assert client.get("/version?cluster_id=c1").data != before


def rows(page: Text) -> list[str]:
    shown = [each for each in links(page) if re.fullmatch("/clusters/c1/topics/[a-z]", each)]
    return [each[-1] for each in shown]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "abcd"),
        ("sort=partitions", "dbca"),
        ("sort=-partitions", "acbd"),
        ("sort=-topic", "dcba"),
        ("sort=<b>", "abcd"),
        ("state=repair", "b"),
        ("state=whole&sort=-topic", "dca"),
        ("state=pinned", "d"),
        ("state=pinned&q=a", ""),
        ("state=<i>", "abcd"),
    ],
)
def test_topics_are_sorted_and_filtered_by_the_address(query: str, expected: str) -> None:
    """Without a script, over all pages; what is no order and no state changes nothing."""
    events = Events()
    batch = [
        *events.joins(0, 1),
        events.adopt("a", *[[0]] * 4),
        events.adopt("b", [0, 1], [1, 0]),
        events.adopt("c", *[[0]] * 3),
        events.adopt("d", [0], pinned=True),
        events.leave(1, mode=LeaveMode.DECOMMISSION),
    ]
    client = pages_of(known_of(outputs([[event] for event in batch])))
    page = read(client, f"/clusters/c1/topics?{query}")
    assert "".join(rows(page)) == expected
    assert not [tag for tag, _ in page.tags if tag in ("b", "i")]


def test_the_order_and_the_state_stay_in_links_and_in_the_search() -> None:
    shown = read(pages(), "/clusters/c1/topics?state=whole&sort=partitions&q=t")
    assert "/clusters/c1/topics?q=t&state=whole&sort=-partitions" in links(shown)
    assert "/clusters/c1/topics?q=t&state=pinned&sort=partitions" in links(shown)
    hidden = [each for tag, each in shown.tags if tag == "input" and each.get("type") == "hidden"]
    assert [(each["name"], each["value"]) for each in hidden] == [
        ("state", "whole"),
        ("sort", "partitions"),
    ]


def test_the_ring_of_a_small_cluster_is_small() -> None:
    def box(count: int) -> str | None:
        joins = Events().joins(*range(count))
        page = read(pages_of(known_of(outputs([joins]))), "/clusters/c1")
        return next(each["viewbox"] for _, each in page.tags if "ring" in (each.get("class") or ""))

    assert (box(4), box(12), box(13)) == ("0 0 360 360", "0 0 360 360", "0 0 560 560")
