"""Spark's own pages of a real job, as a browser shows them.

`python -m pytest tests/broker/job/test_spark_ui.py --write-pictures` keeps what docs/ shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from spu_assigner.stream.job.lifecycle import Job, start
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from spu_assigner.stream.local.jvm.java import Java
from support.events.builders import Events
from support.job.shards import SHARDS
from support.kafka.traffic import Kafka, process_all

PREFIX = "test-spark-ui."
QUERY = "the-assigner"
CLUSTERS = ("berlin", "hamburg", "munich")
PICTURES = Path(__file__).parents[3] / "docs"
PICTURE_SIZE_MAX = 150_000
PAGE_MILLISECONDS_MAX = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A job at work, and a page of a browser that can look at it."""

    job: Job
    kafka: Kafka
    page: Page

    def open(self, path: str) -> Page:
        self.page.goto(f"{self.job.ui_url}{path}", timeout=PAGE_MILLISECONDS_MAX)
        return self.page


@pytest.fixture(scope="module")
def shown(
    kafka: EmbeddedBroker,
    java: Java,
    browser: Browser,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Shown]:
    """The last batch has begun after all others were answered, and is answered too."""
    create_topics({"bootstrap.servers": kafka.bootstrap_servers}, prefix=PREFIX)
    settings = Settings.load(
        flags={
            "bootstrap_servers": kafka.bootstrap_servers,
            "topic_prefix": PREFIX,
            "query_name": QUERY,
            "checkpoint": str(tmp_path_factory.mktemp("spark-ui") / "checkpoint"),
            "shards": SHARDS,
            "master": "local[2]",
        },
        environ={},
    )
    messages = Kafka(settings)
    lives = [Events(name, first=1_000 * number) for number, name in enumerate(CLUSTERS)]
    messages.send([event for events in lives for event in events.joins(0, 1, 2)])
    with start(settings) as job:
        for number in range(4):
            messages.send([events.create(f"topic-{number}", 6, 3) for events in lives])
            messages.send([lives[0].create(f"wide-{number}", 1, 9)])
            messages.wait("topic-status", (number + 1) * (len(lives) + 1), job)
        process_all(job.query)
        yield Shown(job=job, kafka=messages, page=new_page(browser))


def new_page(browser: Browser) -> Page:
    return browser.new_page(viewport={"width": 1200, "height": 620})


def test_the_structured_streaming_page_names_the_query_and_its_batches(shown: Shown) -> None:
    """It runs, and its last batch is that of the last marker."""
    page = shown.open("/StreamingQuery/")
    (row,) = page.locator("#active-table, table").locator("tbody tr").all()[:1]
    cells = [cell.strip() for cell in row.locator("td").all_inner_texts()]
    assert QUERY in cells
    assert "RUNNING" in cells
    assert cells[-1] == str(shown.kafka.markers()[-1].batch)
    page.get_by_role("link", name=str(shown.job.query.runId)).click()
    page.wait_for_selector("#stat-table svg", timeout=PAGE_MILLISECONDS_MAX)
    assert QUERY in page.inner_text("body")
    completed = re.search(r"\((\d+) completed batches\)", page.inner_text("body"))
    assert completed is not None
    assert int(completed[1]) == len(shown.kafka.markers())


def test_the_jobs_page_shows_clusters_and_counts(shown: Shown) -> None:
    """What is known when a batch begins: who was in the one before, and what was answered."""
    page = shown.open("/jobs/")
    output = page.locator("#completedJob-table tbody tr").first.inner_text()
    assert QUERY in output
    before = shown.kafka.markers()[-1].batch
    assert f"batch = {before}" in output
    assert "answered before = " in output
    found = re.findall(r"clusters of the batch before = ([^\n]*?),? *(?:\n|answered)", output)
    assert found, output
    assert set(found[0].split(", ")) <= set(CLUSTERS)
    assert re.search(r"answered before = \d+ assigned(, \d+ rejected)?", output)


def test_the_pictures_that_readme_shows_can_be_made(
    shown: Shown, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """They are kept by `make pictures` only, so that a test run changes nothing."""
    folder = PICTURES if request.config.getoption("--write-pictures") else tmp_path
    folder.mkdir(exist_ok=True)
    for path, name in (("/jobs/", "spark-ui-jobs"), ("/StreamingQuery/", "spark-ui")):
        page = shown.open(path)
        if name == "spark-ui":
            page.get_by_role("link", name=str(shown.job.query.runId)).click()
            page.wait_for_selector("#stat-table svg", timeout=PAGE_MILLISECONDS_MAX)
        picture = folder / f"{name}.png"
        page.screenshot(path=picture)
        assert 5_000 < picture.stat().st_size < PICTURE_SIZE_MAX
