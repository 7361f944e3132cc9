"""`spu-assigner ui` in a real browser: what a job has written is seen, and what comes is followed.

The outputs are written by the parts of the job themselves, without Spark. With `--write-pictures`
what docs/ shows of a broker is kept.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from playwright.sync_api import Browser, Page, expect
from spu_assigner.core.base.events import LeaveMode
from spu_assigner.stream.client.announced import LABEL
from spu_assigner.stream.clusters.moves.run_record import Seat, begun_run
from spu_assigner.stream.kafka.acls import Role, acls
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from support.events.builders import Events
from support.job.kafka_operator import Operator
from support.job.small_job import SmallJob, small_job
from support.job.streams import TOPIC_EVENTS, Outgoing
from support.kafka.secured import PLAIN_PASSWORD, Secured
from support.kafka.shared_broker import SharedBroker
from support.pages.browser import Complaints
from support.pages.ui_story import story

PICTURES = Path(__file__).parents[3] / "docs"
PREFIX = "ui."
SEEN_MS = 60_000.0  # generous: a page looks every second
END_SECONDS_MAX = 60.0


@dataclass(frozen=True, kw_only=True)
class Served:
    """The process, and where its pages are."""

    process: subprocess.Popen[str]
    url: str  # ends with a slash

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Its status and what it said on standard error."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=END_SECONDS_MAX)
        return self.process.returncode, said


@contextmanager
def served(environ: Mapping[str, str]) -> Iterator[Served]:
    """Start it on a free port; ended on the way out, if it was not before."""
    process = subprocess.Popen(
        [sys.executable, "-m", "spu_assigner.stream.cli", "ui", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )
    try:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        if not words:
            raise AssertionError(f"the page did not start: {process.communicate()[1]}")
        yield Served(process=process, url=words[1])
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=END_SECONDS_MAX)


Shown = tuple[SmallJob, Served]  # a job that has answered a story, and the pages about it


def settings_of(servers: str, prefix: str = PREFIX) -> Settings:
    flags = {"bootstrap_servers": servers, "topic_prefix": prefix}
    return Settings.load(flags=flags, environ={})


def environ_of(servers: str, prefix: str = PREFIX) -> dict[str, str]:
    return {"KAFKA_BOOTSTRAP_SERVERS": servers, "SPU_ASSIGNER_TOPIC_PREFIX": prefix}


@pytest.fixture(scope="module")
def shown(kafka: SharedBroker) -> Iterator[Shown]:
    servers = kafka.bootstrap_servers
    create_topics({"bootstrap.servers": servers}, prefix=PREFIX)
    with small_job(settings_of(servers)) as job, served(environ_of(servers)) as pages:
        for batch in story():
            messages = [
                Outgoing(topic=TOPIC_EVENTS, key=each[0], value=each[1], partition=0)
                if isinstance(each, tuple)
                else Outgoing.of_event(each, 0)
                for each in batch
            ]
            job.streams.send(messages)
            job.answer(messages)
        yield job, pages


@pytest.fixture
def pictures(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where pictures go."""
    return PICTURES if request.config.getoption("--write-pictures") else tmp_path


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page in which nothing may go wrong."""
    with browser.new_page() as page:
        page.set_default_timeout(SEEN_MS)
        expect.set_options(timeout=SEEN_MS)
        complaints = Complaints(page)
        yield page
        assert complaints.found == []


def open_when_there(page: Page, pages: Served, cluster_id: str, path: str = "") -> None:
    """Through the list of clusters, which shows a new one as soon as it is known."""
    page.goto(pages.url)
    page.get_by_role("link", name=cluster_id, exact=True).wait_for()
    page.goto(f"{pages.url}clusters/{cluster_id}{path}")


@pytest.mark.smoke
def test_from_the_list_of_clusters_to_why_a_partition_is_there(
    shown: Shown, page: Page, pictures: Path
) -> None:
    """The way an operator goes: cluster, ring, topics, map, reason."""
    _, pages = shown
    page.set_viewport_size({"width": 1280, "height": 1420})
    page.goto(pages.url)
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="prod-eu"))
    expect(row).to_contain_text("1 saturated")
    page.get_by_role("link", name="prod-eu").click()

    ring = page.locator("svg.ring")
    expect(ring.locator("[data-spu='18']")).to_have_attribute("data-state", "saturated")
    expect(ring.locator("[data-state='online']")).to_have_count(16)
    expect(page.locator("#waiting")).to_contain_text("archive")
    page.screenshot(path=pictures / "ui-cluster.png")
    page.set_viewport_size({"width": 1280, "height": 720})

    page.get_by_role("link", name="Topics and their maps").click()
    page.get_by_label("Name contains").fill("PIN")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#topics tbody tr")).to_have_count(1)
    page.locator("#topics").get_by_role("link", name="pinned").click()
    rows = page.locator("table.map tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0).locator(".replica b")).to_have_text(["17", "4", "8"])

    page.goto(f"{pages.url}clusters/prod-eu/topics/orders")
    expect(page.locator("table.map")).to_be_visible()
    page.screenshot(path=pictures / "ui-topic.png", full_page=True)
    page.get_by_role("link", name="3", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Why partition 3 of orders is there")
    expect(page.locator(".reasons").first).to_contain_text("leader")
    expect(page.locator(".reasons").first).to_contain_text("the same comes out")

    page.get_by_role("link", name="Dead letters").click()
    expect(page.locator("#letters")).to_contain_text("UNDECODABLE")


def test_what_comes_is_shown_without_loading_the_page_again(
    shown: Shown, page: Page, kafka: SharedBroker
) -> None:
    """A page that is left open on a wall must be right."""
    events = Events("wall", first=5_000)
    job, pages = shown
    job.apply([*events.joins(0, 1, 2, capacity=10), events.create("t", 2, 2)])
    open_when_there(page, pages, "wall", "/topics/t")
    expect(page.locator("table.map tbody tr")).to_have_count(2)
    page.evaluate("window.wasLoadedOnce = true")
    job.apply([events.grow("t", 5)])
    expect(page.locator("table.map tbody tr")).to_have_count(5)
    assert page.evaluate("window.wasLoadedOnce")

    page.goto(f"{pages.url}clusters/wall")
    page.evaluate("window.wasLoadedOnce = true")
    job.apply([events.leave(1, mode=LeaveMode.OFFLINE)])
    expect(page.locator("svg.ring [data-spu='1']")).to_have_attribute("data-state", "offline")
    job.apply([events.join(1, capacity=10)])
    expect(page.locator("svg.ring [data-spu='1']")).to_have_attribute("data-state", "online")
    assert page.evaluate("window.wasLoadedOnce")

    page.get_by_role("link", name="Moves").click()
    expect(page.locator("#moves")).to_contain_text("No moves so far.")
    page.evaluate("window.wasLoadedOnce = true")
    with Seat(settings_of(kafka.bootstrap_servers).connection()) as seat:
        seat.take_over()
        for done in (1, 2):
            seat.write(replace(begun_run("wall"), moves_total=2, moves_done=done))
            expect(page.locator("#moves")).to_contain_text(f"{2 - done} pending, 0 failed")
    assert page.evaluate("window.wasLoadedOnce")


def test_a_page_of_what_is_not_there_yet_turns_into_it(shown: Shown, browser: Browser) -> None:
    """One waits for a topic that was just asked for."""
    job, pages = shown
    with browser.new_page() as page:
        expect.set_options(timeout=SEEN_MS)
        page.goto(f"{pages.url}clusters/late/topics/t")
        expect(page.get_by_role("heading", level=1)).to_have_text("There is no such thing")
        events = Events("late", first=7_000)
        job.apply([events.join(0), events.create("t", 2, 1)])
        expect(page.locator("table.map tbody tr")).to_have_count(2)


@pytest.mark.smoke
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_it_cleanly(kafka: SharedBroker, number: int, status: int) -> None:
    """A supervisor must not wait, and the log holds no trace back."""
    servers, prefix = kafka.bootstrap_servers, "ui-ended."
    create_topics({"bootstrap.servers": servers}, prefix=prefix)
    with served(environ_of(servers, prefix)) as pages:
        ended, said = pages.end(number)
        assert (ended, said.strip()) == (status, "")


def test_a_broker_that_goes_away_is_reported_and_followed_again(page: Page, tmp_path: Path) -> None:
    """What is known stays on the page meanwhile."""
    with EmbeddedBroker(tmp_path / "broker") as broker:
        servers = broker.bootstrap_servers
        create_topics({"bootstrap.servers": servers}, prefix=PREFIX)
        events = Events()
        with small_job(settings_of(servers)) as job:
            job.apply([*events.joins(0, 1, 2, capacity=10), events.create("t", 2, 2)])
            with served(environ_of(servers)) as pages:
                open_when_there(page, pages, "c1", "/topics/t")
                expect(page.locator("table.map tbody tr")).to_have_count(2)
                broker.stop()
                expect(page.locator("#banner")).to_contain_text("Nothing new is read")
                expect(page.locator("table.map tbody tr")).to_have_count(2)
                broker.start()
                expect(page.locator("#banner")).not_to_contain_text("Nothing new")
                job.apply([events.grow("t", 4)])
                expect(page.locator("table.map tbody tr")).to_have_count(4)


def test_a_consumers_rights_are_enough(secured: Secured, page: Page) -> None:
    """Who looks needs no more than who listens, over TLS and with a password."""
    prefix, user = "ui-secured.", f"{Role.CONSUMER}-29"
    secured.allow({user: acls(Role.CONSUMER, prefix=prefix, query_name="q", group="g")})
    create_topics(secured.plain, prefix=prefix)
    events = Events()
    with small_job(settings_of(secured.broker.bootstrap_servers, prefix)) as job:
        job.apply([*events.joins(0, 1, 2, capacity=10), events.create("t", 2, 2)])
    with Seat(settings_of(secured.broker.bootstrap_servers, prefix).connection()) as seat:
        seat.take_over()
        seat.write(begun_run("c1"))
    environ = secured.environ(
        user,
        SPU_ASSIGNER_SASL_MECHANISM="PLAIN",
        SPU_ASSIGNER_SASL_PASSWORD=PLAIN_PASSWORD,
        SPU_ASSIGNER_TOPIC_PREFIX=prefix,
    )
    with served(environ) as pages:
        open_when_there(page, pages, "c1", "/topics/t")
        page.get_by_role("link", name="1", exact=True).click()
        expect(page.locator(".reasons").first).to_contain_text("ring of 3")
        page.get_by_role("link", name="Moves").click()
        expect(page.locator("#moves")).to_contain_text("Run of cluster c1")


@pytest.mark.long("a broker of three stops, and is seen in a browser")
def test_a_broker_that_stops_is_shown_as_kafka_shows_it_on_any_screen(
    operator: Operator, browser: Browser, pictures: Path
) -> None:
    """What it leads and holds in sync is Kafka's word, not the map's; no page is wider than it."""
    cluster, events = operator.cluster, Events("prod-eu")
    create_topics(cluster.client, prefix=operator.prefix, replication_factor=3)
    maps = {
        "orders": [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2], [2, 1, 3], [3, 2, 1]],
        "payments": [[3, 1], [1, 2], [2, 3], [3, 2]],
        "sensors": [[2, 1], [1, 2]],
    }
    for topic, lists in maps.items():
        operator.make(topic, lists)
        operator.write(topic, b"a record" * 1000)
    with AdminClient(cluster.client) as admin:
        of = {LABEL: admin.describe_cluster().result(timeout=30).cluster_id}
    joins = [
        events.join(number, rack="abc"[number - 1], labels={**of, "tier": "ssd"}, capacity=100)
        for number in cluster.ids
    ]
    adopted = [events.adopt(operator.name(topic), *lists) for topic, lists in maps.items()]
    with small_job(operator.settings()) as job, served(operator.environ) as pages:
        job.apply([*joins, *adopted])
        with browser.new_page(viewport={"width": 1200, "height": 700}) as page:
            page.set_default_timeout(SEEN_MS)
            complaints = Complaints(page)
            open_when_there(page, pages, "prod-eu", "/spus/1")
            tiles = page.locator(".tiles")
            expect(tiles).to_contain_text("Leads in Kafka")
            expect(tiles).to_contain_text(re.compile(r"Data\s*[1-9][0-9.]* \w+B\s*as the broker"))
            expect(page.locator("tbody tr", has_text="payments")).to_contain_text("yes")
            with cluster.stopped(3):
                job.apply([events.leave(3, mode=LeaveMode.OFFLINE)])
                page.goto(f"{pages.url}clusters/prod-eu")
                row = page.locator("tr[data-spu='3']")
                expect(row).to_contain_text("offline")
                expect(row).to_contain_text("0 map 4")
                page.locator("svg.ring a", has=page.locator("[data-spu='3']")).click()
                banner = page.locator("#spu .banner.bad")
                expect(banner).to_contain_text("It leads 0 partitions in Kafka, and 4 as mapped")
                expect(tiles).to_contain_text(re.compile(r"In sync\s*0 of \d"))
                page.screenshot(path=pictures / "ui-broker.png")
                orders = f"clusters/prod-eu/topics/{operator.name('orders')}"
                page.set_viewport_size({"width": 420, "height": 800})
                of_cluster = [f"clusters/prod-eu{each}" for each in ("", "/topics", "/spus/3")]
                for path in ("", "moves", *of_cluster, orders):
                    page.goto(f"{pages.url}{path}")
                    assert page.evaluate("document.documentElement.scrollWidth") <= 420, path
                last = page.locator("table.map tbody tr").nth(2)
                expect(last).to_contain_text(re.compile("led by 1 in sync 1, 2"))
                page.get_by_role("link", name="2", exact=True).click()
                expect(page.locator(".chips .replica").first).to_contain_text("3c")
            assert complaints.found == []
