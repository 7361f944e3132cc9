"""Child processes: ended in time, with all that they have started, however this process ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from spu_assigner.stream.common.child_processes import run_to_end

PATIENCE_SECONDS = 60.0
# Starts another process, says which, and waits for it.
STARTS_ONE = ["/bin/sh", "-c", "sleep 600 & echo $!; wait"]


def run(command: list[str], log: Path, seconds_max: float = PATIENCE_SECONDS) -> int:
    with log.open("wb") as output:
        return run_to_end(command, output=output, seconds_max=seconds_max)


def said_pid(log: Path) -> int:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not log.is_file() or not log.read_text(encoding="ascii").endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return int(log.read_text(encoding="ascii"))


def is_gone(pid: int) -> bool:
    """Within some seconds; a process that ended and that nobody waits for is gone."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        (["/bin/sh", "-c", "echo one; echo two >&2; exit 3"], 3, "one\ntwo\n"),
        (["/nowhere/program"], 127, "/nowhere/program: No such file or directory\n"),
    ],
)
def test_a_command_s_status_is_given_and_its_words_are_kept(
    tmp_path: Path, command: list[str], status: int, said: str
) -> None:
    """Both of its outputs in one file, as on a terminal; or why it did not start, as a shell."""
    assert run(command, tmp_path / "log") == status
    assert (tmp_path / "log").read_text(encoding="utf-8") == said


def test_at_its_limit_a_command_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    """A JVM whose parent alone is killed goes on for minutes."""
    log = tmp_path / "log"
    with pytest.raises(subprocess.TimeoutExpired):
        run(STARTS_ONE, log, seconds_max=1.0)
    assert is_gone(said_pid(log))


def test_what_a_command_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    """It has ended by itself, and not what it has started."""
    log = tmp_path / "log"
    assert run(["/bin/sh", "-c", "sleep 600 & echo $!"], log) == 0
    assert is_gone(said_pid(log))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_command_ends_with_who_has_started_it(tmp_path: Path, number: signal.Signals) -> None:
    """Of a signal that leaves no time to tidy up, too."""
    log = tmp_path / "log"
    program = (
        "import sys; from pathlib import Path\n"
        "from spu_assigner.stream.common.child_processes import run_to_end\n"
        f"run_to_end({STARTS_ONE!r}, output=Path(sys.argv[1]).open('wb'), seconds_max=600)"
    )
    command = [sys.executable, "-c", program, str(log)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as parent:
        started = said_pid(log)
        os.kill(parent.pid, number)
    assert is_gone(started)
