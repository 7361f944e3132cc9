"""Commands that must not outlive this process, nor leave anything behind that they have started:
`supervise.py` runs between the two.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO


def supervised(command: Sequence[str], *, grace_seconds: float) -> list[str]:
    """The command line that runs a command under the supervisor.

    Its standard input must be a pipe that nothing is written to; on its standard output it says the
    command's process id. What the command itself says goes to the supervisor's standard error.

    Args:
        grace_seconds: how long the command may take to end when it is asked to.
    """
    supervise = Path(__file__).with_name("supervise.py")
    return [sys.executable, "-I", "-S", "-B", str(supervise), str(grace_seconds), *command]


def run_to_end(
    command: Sequence[str],
    *,
    output: IO[bytes],
    seconds_max: float,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Run a command, and end all that it has started; its exit status.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it did not end in time, and was killed.
    """
    process = subprocess.Popen(
        supervised(command, grace_seconds=0.0),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=output,
        env=None if environ is None else dict(environ),
        start_new_session=True,
    )
    try:
        return process.wait(seconds_max)
    finally:  # Ctrl-C too.
        with suppress(BrokenPipeError):
            process.stdin.close()  # type: ignore[union-attr]  # it is a pipe
        process.wait()
