"""How far a command is, on standard error: a bar on a terminal, else one line at the start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click


class Progress:
    """Counts answers to what was sent.

    Args:
        command: who is at work.
        is_quiet: show nothing.
    """

    def __init__(self, command: str, *, is_quiet: bool = False) -> None:
        self._command = command
        self._is_quiet = is_quiet
        self._bar: Any = None

    @contextmanager
    def shown(self, count: int) -> Iterator[None]:
        """While so many events are sent and answered."""
        if self._is_quiet:
            yield
        elif sys.stderr.isatty():
            with click.progressbar(length=count, label=self._command, file=sys.stderr) as bar:
                self._bar = bar
                try:
                    yield
                finally:
                    self._bar = None
        else:
            click.echo(f"{self._command}: sends {count:,} events and waits for answers", err=True)
            sys.stderr.flush()
            yield

    def add(self, count: int) -> None:
        """So many more were answered."""
        if self._bar is not None:
            self._bar.update(count)
