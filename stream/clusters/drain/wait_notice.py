"""What is said while somebody waits for the job: it may not run, and the wait is ten minutes."""

from __future__ import annotations

import time
from typing import Final

import click

NOTICE_SECONDS: Final = 15.0  # a job that runs has answered by then


class WaitNotice:
    """One line on standard error, once a wait is longer than that of a job that runs."""

    def __init__(self) -> None:
        self._due = time.monotonic() + NOTICE_SECONDS
        self._is_said = False

    def tick(self, text: str) -> None:
        """Say it, if it is time and was not said before."""
        if not self._is_said and time.monotonic() >= self._due:
            self._is_said = True
            click.echo(f"waits    {text}", err=True)
