"""Ctrl-C and termination, noted when they come and followed where it is safe.

An exception out of a signal handler would tear a call to the JVM in two, and what follows would
read the rest of that answer. So the handler only takes note, and the program looks between calls.
"""

from __future__ import annotations

import signal
from collections.abc import Callable


class Interrupts:
    """Notes SIGINT and SIGTERM, and calls `report` at the first; a second Ctrl-C does not wait. To
    be made after Spark has started, which sets a handler of its own."""

    def __init__(self, report: Callable[[], None]) -> None:
        self._report = report
        self._number: int | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    @property
    def noted(self) -> bool:
        """Whether the program is to end."""
        return self._number is not None

    def check(self) -> None:
        """Raises KeyboardInterrupt or SystemExit if the program is to end."""
        if self._number == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        if self._number is not None:
            raise KeyboardInterrupt

    def _note(self, number: int, _frame: object) -> None:
        if self._number == signal.SIGINT == number:
            raise KeyboardInterrupt
        if self._number is None:
            self._report()
        self._number = number
