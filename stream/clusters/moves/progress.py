"""What is shown while partitions are moved: a bar on a terminal, else one line for each wave."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Final

import click
from spu_assigner.schemas.messages.wire import MovedPartition, MovesRun
from spu_assigner.stream.clusters.moves.waves import copied_bytes
from spu_assigner.stream.common.printable import counted
from spu_assigner.stream.common.quantities import bytes_text, duration_text

BAR_WIDTH: Final = 24
RATE_SECONDS_LEAST: Final = 2.0  # before that an estimate says nothing


class MovesOutput:
    """Lines on standard output, unless a program reads it; the bar on standard error.

    Args:
        is_quiet: print no line of a wave: standard output is one JSON object.
    """

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._is_quiet = is_quiet
        self._has_bar = sys.stderr.isatty() and not is_quiet
        self._bar = ""
        self._total = 0
        self._done = 0  # of the waves that have ended
        self._begun = self._wave_begun = time.monotonic()

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
        self._total, self._done = sum(map(copied_bytes, moves)), 0
        self._begun = time.monotonic()
        self._line(
            f"moves    {counted(len(moves), 'partition')}, {bytes_text(self._total)} to copy, in "
            f"{counted(waves, 'wave')}"
        )

    def wave_begins(self) -> None:
        self._wave_begun = time.monotonic()

    def copied(self, size: int) -> None:
        """So much of the wave is there."""
        if self._has_bar and self._total:
            self._draw(bar_text(self._done + size, self._total, time.monotonic() - self._begun))

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
        self._draw("")
        click.echo(text, err=True)

    def end(self) -> None:
        """Leave no bar behind."""
        self._draw("")

    def _line(self, text: str) -> None:
        if not self._is_quiet:
            self._draw("")
            click.echo(text)
            sys.stdout.flush()

    def _draw(self, bar: str) -> None:
        if bar != self._bar:
            click.echo(f"\r{bar.ljust(len(self._bar))}\r{bar}", err=True, nl=False)
            self._bar = bar


def bar_text(done: int, total: int, seconds: float) -> str:
    """How far a run is, and how long it still takes at the speed so far."""
    done = min(done, total)
    filled = BAR_WIDTH * done // total
    text = (
        f"[{'#' * filled}{'-' * (BAR_WIDTH - filled)}] {100 * done // total:3}%  "
        f"{bytes_text(done)} of {bytes_text(total)}"
    )
    if done and seconds >= RATE_SECONDS_LEAST:
        rate = done / seconds
        text += f", {bytes_text(int(rate))}/s, {duration_text((total - done) / rate)} left"
    return text
