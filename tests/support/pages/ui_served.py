"""The command `ui`, running, for tests in a browser."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

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
