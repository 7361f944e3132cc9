"""The supervisor of the broker, whose end with its parent is in tests/broker/local."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from spu_assigner.stream.local.broker.process import SUPERVISE

COMMAND = [sys.executable, "-I", "-S", str(SUPERVISE), "0.0"]


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        (["/bin/sh", "-c", "echo one; echo two >&2; exit 3"], 3, "one\ntwo\n"),
        (["/nowhere/program"], 127, "/nowhere/program: No such file or directory\n"),
    ],
)
def test_a_command_s_status_is_given_and_its_words_are_kept(
    command: list[str], status: int, said: str
) -> None:
    """Both of its outputs in one, as on a terminal; or why it did not start, as a shell."""
    with subprocess.Popen(
        [*COMMAND, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as done:
        assert done.stderr is not None
        assert done.stderr.read() == said
    assert done.returncode == status


def test_what_a_command_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    """It has ended by itself, and not what it has started."""
    log = tmp_path / "log"
    command = [*COMMAND, "/bin/sh", "-c", f"sleep 600 & echo $! > {log}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.wait(60) == 0
    stat = Path(f"/proc/{log.read_text().strip()}/stat")
    deadline = time.monotonic() + 60
    while stat.exists() and ") Z " not in stat.read_text():  # Nobody may wait for it.
        assert time.monotonic() < deadline
