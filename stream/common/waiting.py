"""A command reports what it waits for; the code that waits does not know the command.

with reporting_waits(report):  # the command
    …
    report_wait("for Kafka")   # the code that waits: reported once
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_REPORT: Final = ContextVar[Callable[[str], None] | None]("report", default=None)


@contextmanager
def reporting_waits(report: Callable[[str], None]) -> Iterator[None]:
    """Pass the first wait inside this context to `report`."""
    token = _REPORT.set(report)
    try:
        yield
    finally:
        _REPORT.reset(token)


def report_wait(text: str) -> None:
    """Report what is waited for: the first time, and only inside `reporting_waits`."""
    report = _REPORT.get()
    if report is not None:
        _REPORT.set(None)
        report(text)
