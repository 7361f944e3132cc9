"""The browser that pages are tested with."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from support.pages.browser import BROWSER_VARIABLE, BrowserError, Complaints, find_chromium


def test_a_page_is_opened_and_read(browser: Browser, tmp_path: Path) -> None:
    """A test of a page must see what its scripts made, not what was sent."""
    file = tmp_path / "page.html"
    file.write_text("<h1>before</h1><script>document.querySelector('h1').append('+')</script>")
    with browser.new_page() as page:
        complaints = Complaints(page)
        page.goto(file.as_uri())
        assert page.text_content("h1") == "before+"
        assert complaints.found == []


def test_what_goes_wrong_in_a_page_is_reported(browser: Browser, tmp_path: Path) -> None:
    """A test that holds pages to no errors must see them."""
    file = tmp_path / "page.html"
    file.write_text("<script>console.error('first'); throw new Error('second')</script>")
    with browser.new_page() as page:
        complaints = Complaints(page)
        page.goto(file.as_uri())
        deadline = time.monotonic() + 60
        while len(complaints.found) < 2 and time.monotonic() < deadline:  # The page is there first.
            page.wait_for_timeout(50)
        assert sorted(complaints.found) == ["console: first", "script: second"]


def test_a_browser_that_cannot_be_had_is_reported_with_what_to_do(tmp_path: Path) -> None:
    """A skip without a reason would hide that pages go untested."""
    with pytest.raises(BrowserError, match=f"{BROWSER_VARIABLE} is '/no/browser'"):
        find_chromium({BROWSER_VARIABLE: "/no/browser"})
    nothing = {"PATH": str(tmp_path), "SPU_ASSIGNER_CACHE": str(tmp_path)}
    with pytest.raises(BrowserError, match="install Chromium"):
        find_chromium(nothing)
