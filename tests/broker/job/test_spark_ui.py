"""Spark's own page of a real job, as a browser shows it.

`python -m pytest tests/broker/job/test_spark_ui.py --write-pictures` keeps what docs/ shows.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from spu_assigner.stream.job.lifecycle import start
from spu_assigner.stream.kafka.config.settings import Settings
from support.events.builders import Events
from support.kafka.traffic import Kafka, process_all

PICTURES = Path(__file__).parents[3] / "docs"
PICTURE_SIZE_MAX = 150_000
MILLISECONDS_MAX = 60_000


def test_the_structured_streaming_page_names_the_query_and_its_batches(
    settings: Settings, browser: Browser, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """It runs, and its last batch is that of the last marker; the jobs page names batches too.

    The picture is kept by `make pictures` only, so that a test run changes nothing.
    """
    kafka, events = Kafka(settings), Events()
    kafka.send(events.joins(0, 1, 2))
    with start(replace(settings, query_name="the-assigner", ui_port=4040)) as job:
        for number in range(4):
            kafka.send(
                [events.create(f"topic-{number}", 6, 3), events.create(f"wide-{number}", 1, 9)]
            )
            kafka.wait("topic-status", 2 * (number + 1), job)
        process_all(job.query)
        last = kafka.markers()[-1].batch
        page = browser.new_page(viewport={"width": 1200, "height": 620})
        page.goto(f"{job.spark.sparkContext.uiWebUrl}/jobs/", timeout=MILLISECONDS_MAX)
        shown = page.locator("#completedJob-table tbody tr").first.inner_text()
        assert f"the-assigner, batch {last}" in shown
        page.goto(f"{job.spark.sparkContext.uiWebUrl}/StreamingQuery/", timeout=MILLISECONDS_MAX)
        (row,) = page.locator("#active-table, table").locator("tbody tr").all()[:1]
        cells = [cell.strip() for cell in row.locator("td").all_inner_texts()]
        assert {"the-assigner", "RUNNING"} <= {*cells}
        assert cells[-1] == str(last)
        page.get_by_role("link", name=str(job.query.runId)).click()
        page.wait_for_selector("#stat-table svg", timeout=MILLISECONDS_MAX)
        assert f"({last + 1} completed batches)" in page.inner_text("body")
        folder = PICTURES if request.config.getoption("--write-pictures") else tmp_path
        picture = folder / "spark-ui.png"
        page.screenshot(path=picture)
        assert 5_000 < picture.stat().st_size < PICTURE_SIZE_MAX
