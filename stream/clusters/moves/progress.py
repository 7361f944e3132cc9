"""What is shown while partitions are moved: a bar on a terminal, else one line for each wave."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskProgressColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from spu_assigner.schemas.messages.wire import MovedPartition, MovesRun
from spu_assigner.stream.clusters.moves.waves import copied_bytes
from spu_assigner.stream.common.printable import counted
from spu_assigner.stream.common.quantities import bytes_text


class MovesOutput:
    """Lines on standard output, unless a program reads it; the bar on standard error.

    Args:
        is_quiet: print no line of a wave: standard output is one JSON object.
    """

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._is_quiet = is_quiet
        console = Console(stderr=True)
        self._bar = Progress(
            BarColumn(),
            TaskProgressColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=is_quiet or not console.is_interactive,
        )
        self._task = self._bar.add_task("", total=None)
        self._done = 0  # bytes of the waves that have ended
        self._wave_begun = time.monotonic()

    def resumed(self, left: MovesRun, *, not_begun: int) -> None:
        """What a run that was killed has left, and how many moves of it Kafka has not begun."""
        if not left.moves:
            self.say(f"apply: removes the throttle that {left.holder} has left")
            return
        again = f"; {not_begun} of it not begun, planned again" if not_begun else ""
        self.say(
            f"apply: resumes a wave of {counted(len(left.moves), 'partition')} that "
            f"{left.holder} has left{again}"
        )

    def planned(self, moves: Sequence[MovedPartition], waves: int) -> None:
        """What is to be moved, before the first wave."""
        total, self._done = sum(map(copied_bytes, moves)), 0
        self._bar.reset(self._task, total=total)
        self._line(
            f"moves    {counted(len(moves), 'partition')}, {bytes_text(total)} to copy, in "
            f"{counted(waves, 'wave')}"
        )

    def wave_begins(self) -> None:
        self._wave_begun = time.monotonic()

    def copied(self, size: int) -> None:
        """So much of the wave is there."""
        self._bar.start()
        self._bar.update(self._task, completed=self._done + size)

    def wave_ends(self, number: int, moved: Sequence[MovedPartition]) -> None:
        size = sum(map(copied_bytes, moved))
        self._done += size
        seconds = time.monotonic() - self._wave_begun
        self._line(
            f"wave {number:<4}{counted(len(moved), 'partition')} moved, {bytes_text(size)}, "
            f"{seconds:.1f} s"
        )

    def say(self, text: str) -> None:
        """A line for a person, whoever reads standard output."""
        self._bar.stop()
        click.echo(text, err=True)

    def end(self) -> None:
        """Leave no bar behind."""
        self._bar.stop()

    def _line(self, text: str) -> None:
        if not self._is_quiet:
            self._bar.stop()
            click.echo(text)
            sys.stdout.flush()
