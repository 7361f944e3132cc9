"""The pages: what they show of what was published, and that nothing foreign becomes markup."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random

import pytest
from flask.testing import FlaskClient
from spu_assigner.core.base.constraints import Constraints, Taint, TaintEffect
from spu_assigner.core.base.events import Event, LeaveMode, OnShortage, Policy
from spu_assigner.stream.audit.ui.app import make_app
from spu_assigner.stream.audit.ui.known import ANSWERS_MAX, DEAD_LETTERS_MAX, Known
from spu_assigner.stream.audit.ui.views import NODES_MAX
from spu_assigner.stream.kafka.topics import DEAD_LETTER, REPLICA_MAP, TOPIC_STATUS
from support.events.builders import Events
from support.pages.ui_pages import Output, Still, Text, known_of, outputs, pages_of, read, take
from support.pages.ui_story import story
from support.shard.stores import Raw

HOSTILE = "<script>alert(1)</script>\"'&{{7*7}}\u202e\x1b[31m"


def client(batches: Iterable[Sequence[Event | Raw]]) -> FlaskClient:
    return pages_of(known_of(outputs(batches)))


@pytest.fixture(scope="module")
def pages() -> FlaskClient:
    return client(story())


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/", 200, "prod-eu 16 online 1 saturated 2 offline 16 3 19 191 573 of 1,092 1"),
        ("/", 200, "edge-lab 4 online 4 0 2 10 22 of 80 nothing"),
        ("/clusters/prod-eu", 200, "leads next"),
        ("/clusters/prod-eu", 200, "rejected TOPIC_EXISTS"),
        ("/clusters/prod-eu", 200, "18 saturated"),
        ("/clusters/prod-eu", 200, "archive create 0 fluvio 4 24"),
        ("/clusters/prod-eu/topics/pinned", 200, "0 17 eu-west-1c 4 eu-west-1a 8 eu-west-1b"),
        ("/clusters/prod-eu/topics/pinned", 200, "1 3 eu-west-1a 9 eu-west-1b 14 eu-west-1c"),
        ("/clusters/prod-eu/topics/archive", 200, "INSUFFICIENT_SPUS: replication_factor 24 needs"),
        ("/dead-letters", 200, "UNDECODABLE"),
        ("/dead-letters", 200, '{"type":"topic_create","topic":"typed by hand"}'),
        ("/?page=-1&page=x", 200, "1–2 of 2 clusters"),
        ("/?page=99999999999999999999", 200, "1–2 of 2 clusters"),
        ("/?q=%22%3E%3Cscript%3Ealert(1)", 200, "No cluster's name contains “\"><script>"),
        ("/nowhere", 404, "no such thing"),
        ("/clusters/%3Cscript%3Ealert(1)", 404, "there is no cluster '<script>"),
        ("/clusters/prod-eu/topics/%3Cscript%3Ealert(1)", 404, "has no topic '<script>"),
    ],
)
def test_a_page_shows_what_was_published_or_that_there_is_no_such_thing(
    pages: FlaskClient, path: str, status: int, words: str
) -> None:
    """What each cluster has, who leads first, what waits, what was refused; text is escaped."""
    assert words in read(pages, path, status).text
    assert "<script>alert" not in pages.get(path).text


def ring_states(page: Text) -> dict[str | None, str | None]:
    """The SPUs that are drawn in the ring, or outside it."""
    drawn = [each for tag, each in page.tags if tag == "g" and "data-spu" in each]
    return {each["data-spu"]: each["data-state"] for each in drawn}


EVENTS = Events()
LEAVING = [EVENTS.create("t", 2, 1), EVENTS.leave(1, mode=LeaveMode.DECOMMISSION)]
RULES = Constraints(require=("tier in (ssd, nvme)",), apart_from=("u",))
NEED = {"demand": {"disk": 40}, "leader_demand": {"cores": 3}}


@pytest.mark.parametrize(
    ("batch", "states", "shown"),
    [
        (
            [EVENTS.join(1, capacity=4), *LEAVING],
            {"1": "leaving"},
            {"": "1 leaving", "/topics/t": "leaving"},
        ),
        (
            [*EVENTS.joins(0, 1, 2), EVENTS.cordon(1), EVENTS.leave(2)],
            {"0": "online", "1": "cordoned", "2": "offline"},
            {"": "1 online 1 cordoned 1 offline"},
        ),
        (  # It takes replicas; that it leads nothing is shown beside.
            [*EVENTS.joins(0, 1), EVENTS.demote(1)],
            {"0": "online", "1": "online"},
            {"": "online demoted"},
        ),
        (
            [
                EVENTS.join(0, labels={"tier": "ssd"}),
                EVENTS.join(1, taints=(Taint("pool", "<b>", TaintEffect.NO_NEW_REPLICAS),)),
                EVENTS.join(2),
                EVENTS.create("u", policy=Policy.MANUAL, replicas=[{"id": 0, "replicas": [2]}]),
                EVENTS.create("t", policy=Policy.BALANCED, constraints=RULES),
            ],
            {"0": "online", "1": "cordoned", "2": "online"},
            {
                "": "cordoned pool=<b>:no_new_replicas",
                "/topics/t": "Constraints requires tier in (ssd, nvme) apart from u Replica map",
                "/topics/u": "Replica map",
            },
        ),
        (  # To have no disk left is no reason to leave the ring.
            [
                *EVENTS.joins(0, 1, resources={"disk": 40, "cores": 10}, capacity=4),
                EVENTS.create("t", 1, 2, policy=Policy.BALANCED, **NEED),
            ],
            {"0": "online", "1": "online"},
            {
                "": "cores 0 of 10, disk 40 of 40 100.0% disk",
                "/topics/t": "Demand of a replica disk 40 cores 3 for a leader",
            },
        ),
    ],
    ids=["leaving", "cordoned", "demoted", "tainted", "resources"],
)
def test_what_an_spu_has_of_its_own_is_marked(
    batch: list[Event], states: dict[str, str], shown: dict[str, str]
) -> None:
    """In ring, table and map: it says why an SPU takes nothing, or leads nothing."""
    pages = client([[event] for event in batch])
    assert ring_states(read(pages, "/clusters/c1")) == states
    for path, words in shown.items():
        assert words in read(pages, f"/clusters/c1{path}").text


def test_topics_are_searched_and_paged_on_the_server() -> None:
    """A page of many topics is as small as one of few; none is left out between two."""
    events = Events()
    creates = [events.create(f"topic-{number:04}") for number in range(120)]
    pages = client([[events.join(0, capacity=500)], creates])
    shown = [read(pages, f"/clusters/c1/topics?page={page}").text for page in (1, 2, 3)]
    assert "1–50 of 120 topics" in shown[0]
    assert sum(text.count("topic-0") for text in shown) == 120
    assert "101–120 of 120 topics" in read(pages, "/clusters/c1/topics?page=99").text
    found = read(pages, "/clusters/c1/topics?q=C-011")
    assert "1–10 of 10 topics" in found.text
    assert "No topic's name contains" in read(pages, "/clusters/c1/topics?q=nothing").text


@pytest.mark.parametrize("path", ["", "/clusters/c1", "/clusters/c1/topics/t", "/dead-letters"])
def test_hostile_text_is_shown_and_never_markup(path: str) -> None:
    """Racks, event ids and dead letters may hold anything that a producer writes."""
    events = Events()
    pages = client(
        [
            [events.join(number, rack=HOSTILE, event_id=f"{HOSTILE}{number}") for number in (0, 1)],
            [
                events.create("t", 1, 2, event_id=f"{HOSTILE}2"),
                events.create("w", 1, 9, on_shortage=OnShortage.WAIT, event_id=f"{HOSTILE}3"),
                (HOSTILE.encode(), HOSTILE.encode()),
            ],
        ]
    )
    answer = pages.get(path or "/")
    page = read(pages, path or "/")
    scripts = [each for tag, each in page.tags if tag == "script"]
    assert [each.get("src") for each in scripts] == ["/static/ui.js"]
    assert not [each for _, each in page.tags if any(name.startswith("on") for name in each)]
    assert not re.search("[\u202e\x1b]", answer.text)
    assert "alert(1)" not in re.sub("&lt;script&gt;alert\\(1\\)&lt;/script&gt;", "", answer.text)
    if path:
        assert "<script>alert(1)</script>" in page.text


def test_nothing_can_be_changed_and_nothing_comes_from_elsewhere(pages: FlaskClient) -> None:
    """The page is for looking; what slipped through the escaping would still not run."""
    assert {pages.open("/", method=each).status_code for each in ("POST", "DELETE")} == {405}
    for path in ("/", "/static/ui.css", "/version", "/nowhere"):
        answer = pages.get(path)
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self'")
        assert "unsafe" not in policy
        assert "http" not in re.sub("http://www.w3.org/[0-9/a-z]*", "", answer.text)


def test_a_foreign_name_for_this_machine_is_refused() -> None:
    """A page elsewhere could point its own name here, and read through the user's browser."""
    still, evil = Still(Known()).as_live(), {"Host": "evil.test"}
    assert make_app(still).test_client().get("/", headers=evil).status_code == 400
    others = make_app(still, is_loopback=False).test_client()
    assert others.get("/", headers=evil).status_code == 200


def test_a_page_says_when_it_is_not_up_to_date() -> None:
    """What is shown may be old, or half of a picture."""
    still = Still(Known(), trouble="no Kafka broker answers")
    pages = make_app(still.as_live()).test_client()
    assert "Nothing new is read. no Kafka broker answers" in read(pages, "/").text
    still.trouble, still.is_loaded = None, False
    assert "The topics are being read" in read(pages, "/").text


def test_a_version_changes_with_its_cluster_alone() -> None:
    """A page renews itself when there is something new to it."""
    events, others = Events(), Events("c2")
    known = known_of(outputs([[events.join(0)], [others.join(0)]]))
    pages = pages_of(known)

    def versions() -> list[str]:
        paths = ("/version", "/version?cluster_id=c1", "/version?cluster_id=c2")
        return [pages.get(path).get_json()["version"] for path in paths]

    before = versions()
    assert before[1] in [each.get("data-version") for _, each in read(pages, "/clusters/c1").tags]
    take(known, *outputs([[others.join(0), others.join(1)]]))
    assert [old == new for old, new in zip(before, versions(), strict=True)] == [False, True, False]


def test_a_page_is_renewed_if_something_came_after_it_was_read() -> None:
    """Else it would show what was, under the version of what is, until the next change."""

    class Busy(Still):
        looks = 0

        @contextmanager
        def known(self) -> Iterator[Known]:
            """An SPU joins behind the second look: a page notes the version, then reads."""
            self.looks += 1
            with super().known() as known:
                yield known
                if self.looks == 2:
                    take(known, *outputs([[Events().join(0)]]))

    pages = make_app(Busy(Known()).as_live()).test_client()
    shown = read(pages, "/")
    assert "There is no cluster yet" in shown.text
    (version,) = [each["data-version"] for _, each in shown.tags if "data-version" in each]
    assert pages.get("/version").get_json()["version"] != version


def test_a_damaged_message_takes_nothing_else_along() -> None:
    """One bad value must not hide a cluster; it is reported until a good one comes."""
    events = Events()
    good = outputs([[events.join(0)], [events.create("t", 1)]])
    bad = Output(topic=REPLICA_MAP, its_key=b"c1/t", its_value=b"none")
    for known in (known_of([bad]), known_of([*good, bad])):
        pages = pages_of(known)
        assert "c1 1 unreadable" in read(pages, "/").text
        assert "A message cannot be read; what was there" in read(pages, "/clusters/c1").text
        take(known, *good)
        assert "unreadable" not in read(pages, "/").text
    assert "Replica map" in read(pages, "/clusters/c1/topics/t").text


def test_messages_under_foreign_keys_are_counted_and_passed_over() -> None:
    """A message of another program on the topic is no cluster."""
    keys = (b"", b"no-slash", b"<script>/t", b"\xff/t", b"../t")
    known = known_of([Output(topic=REPLICA_MAP, its_key=key, its_value=b"x") for key in keys])
    assert (known.foreign, known.cluster_ids) == (5, [])
    assert "5 messages on the job's topics are none of the job's" in read(pages_of(known), "/").text


def test_the_last_answers_are_the_newest_of_all_partitions() -> None:
    """At the start one partition is read after the other, each from its oldest message on."""
    events = Events()
    requests = [[events.create(f"t{number}", 0)] for number in range(2 * ANSWERS_MAX)]
    letters: list[list[Event | Raw]] = [[(b"c1", b"x")]] * (2 * DEAD_LETTERS_MAX)
    found = [*outputs(requests), *outputs(letters)]
    timed = [replace(each, time_ms=number + 1) for number, each in enumerate(found)]
    draw = Random(1)
    known = known_of(sorted(timed, key=lambda each: (draw.randrange(4), each.time_ms)))
    for tail, topic, most in (  # A year of answers is not kept.
        (known.cluster("c1").statuses, TOPIC_STATUS, ANSWERS_MAX),
        (known.dead_letters, DEAD_LETTER, DEAD_LETTERS_MAX),
    ):
        times = [each.time_ms for each in timed if each.topic == topic]
        assert [each.time_ms for each in tail] == times[-most:]
    assert known.last_ms == timed[-1].time_ms


def test_the_page_says_how_old_the_last_batch_is() -> None:
    """That a job was killed a minute ago shows nowhere else."""
    now_ms = time.time_ns() // 1_000_000
    old = [replace(each, time_ms=now_ms - 90_000) for each in outputs([[Events().join(0)]])]
    pages = pages_of(known_of(old))
    assert re.search(r"last batch 1 min \d+ s ago", read(pages, "/").text)
    assert pages.get("/version").get_json()["last_ms"] == now_ms - 90_000
    assert "no batch yet" in read(pages_of(Known()), "/").text


@pytest.mark.parametrize("count", [0, 1, 2, NODES_MAX, NODES_MAX + 1, 2_000])
def test_a_ring_of_any_size_is_drawn(count: int) -> None:
    """One by one as long as they can be distinguished, then by rack; nobody is left out."""
    events = Events()
    joins = [events.join(number, rack=f"r{number % 7}") for number in range(count)]
    pages = client([[*joins, events.join(9_999), events.leave(9_999)]])
    page = read(pages, "/clusters/c1")
    assert "1 offline" in page.text
    groups = [each for tag, each in page.tags if tag == "g"]
    drawn = [each["data-spu"] for each in groups if each.get("data-state") == "online"]
    if count <= NODES_MAX:
        assert drawn == [str(number) for number in range(count)]
        pointers = [each for _, each in page.tags if each.get("class") == "pointer"]
        assert len(pointers) == min(count, 1)
    else:
        assert drawn == []
        assert sum(int(each.get("data-members") or 0) for each in groups) == count
