"""Spark's own pages of a real job, as a browser shows them.

`python -m pytest tests/broker/job/test_spark_ui.py --write-pictures` keeps what docs/ shows.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from spu_assigner.stream.job.lifecycle import start
from spu_assigner.stream.kafka.config.settings import Settings
from support.events.builders import Events
from support.kafka.traffic import Kafka, process_all

PICTURES = Path(__file__).parents[3] / "docs"
PICTURE_SIZE_MAX = 150_000
MILLISECONDS_MAX = 60_000


def test_sparks_pages_name_the_query_and_its_batches_and_show_our_figures(
    settings: Settings, browser: Browser, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """It runs, and its last batch is that of the last marker; its page of SQL has our figures. The
    picture is kept by `make pictures` only, so that a test run changes nothing."""
    kafka, events = Kafka(settings), Events()
    kafka.send(events.joins(0, 1, 2))
    with start(replace(settings, query_name="the-assigner", ui_port=4040)) as job:
        for number in range(4):
            kafka.send(
                [events.create(f"topic-{number}", 6, 3), events.create(f"wide-{number}", 1, 9)]
            )
            kafka.wait("topic-status", 2 * (number + 1), job)
        process_all(job.query)
        assert job.query.lastProgress is not None
        assert job.query.lastProgress["sink"]["metrics"]["requests rejected"] == "1"
        last = kafka.markers()[-1].batch
        folder = PICTURES if request.config.getoption("--write-pictures") else tmp_path
        page = browser.new_page(viewport={"width": 1200, "height": 620})
        page.goto(f"{job.spark.sparkContext.uiWebUrl}/jobs/", timeout=MILLISECONDS_MAX)
        shown = page.locator("#completedJob-table tbody tr").first.inner_text()
        assert f"the-assigner, batch {last}: 2 offsets" in shown
        keep(page, folder / "spark-jobs.png")
        page.goto(f"{job.spark.sparkContext.uiWebUrl}/SQL/", timeout=MILLISECONDS_MAX)
        page.get_by_role("link", name=f"the-assigner, batch {last}: 2 offsets").first.click()
        page.get_by_text("Sub Executions").locator("xpath=..").get_by_role("link").click()
        written = page.locator("#plan-viz-graph .node", has_text="WriteToDataSourceV2")
        written.click(timeout=MILLISECONDS_MAX)
        panel = page.locator("#plan-viz-details-panel")
        panel.get_by_text("requests rejected").wait_for(timeout=MILLISECONDS_MAX)
        shown = {
            tuple(row.locator("td").all_inner_texts()) for row in panel.locator("tbody tr").all()
        }
        assert shown >= {
            ("events", "2"),
            ("clusters", "1"),
            ("requests answered", "2"),
            ("requests rejected", "1"),
            ("dead letters", "0"),
            ("ring size of the fullest cluster", "3"),
            ("saturated SPUs of the fullest cluster", "0"),
            ("lag", "0"),
        }
        written.blur()  # Its name would hide other nodes.
        page.mouse.move(0, 0)
        page.locator(".tooltip").wait_for(state="hidden")
        page.evaluate("window.scrollTo(0, 0)")
        keep(page, folder / "spark-sql.png")
        page.goto(f"{job.spark.sparkContext.uiWebUrl}/StreamingQuery/", timeout=MILLISECONDS_MAX)
        (row,) = page.locator("#active-table, table").locator("tbody tr").all()[:1]
        cells = [cell.strip() for cell in row.locator("td").all_inner_texts()]
        assert {"the-assigner", "RUNNING"} <= {*cells}
        assert cells[-1] == str(last)
        page.get_by_role("link", name=str(job.query.runId)).click()
        page.wait_for_selector("#stat-table svg", timeout=MILLISECONDS_MAX)
        assert f"({last + 1} completed batches)" in page.inner_text("body")
        keep(page, folder / "spark-ui.png")


def keep(page: Page, picture: Path) -> None:
    page.screenshot(path=picture)
    assert 5_000 < picture.stat().st_size < PICTURE_SIZE_MAX
