"""Programs of the product run as a user runs them, each in a session of its own, so that whatever
they have started is known and none of it is left running.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

END_SECONDS = 30.0
END_SECONDS_MAX = 240.0  # of a service: a job ends in seconds, a machine under load needs more
GRACE_SECONDS = 10.0  # for what a program has started, to end with it


@contextmanager
def running(
    command: Sequence[str],
    log: Path,
    environ: Mapping[str, str] | None = None,
    *,
    cwd: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """The program, ended with the block by SIGTERM if it still runs; then all that it started. What
    it says goes to `log`, and is shown when the block fails."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environ or {})},
            start_new_session=True,
            cwd=cwd,
        )
    try:
        yield process
    except BaseException:
        print(log.read_text(encoding="utf-8", errors="replace")[-10_000:])
        raise
    finally:
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
        for pid in left_after(process, GRACE_SECONDS):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


class Service:
    """A program in the background that is started again, as by a supervisor.

    Args:
        stack: ends it.
    """

    def __init__(self, stack: ExitStack, log: Path, command: Sequence[str], **environ: str) -> None:
        self._stack, self.log, self._command, self._environ = stack, log, command, environ
        self._start()

    def _start(self) -> None:
        self._process = self._stack.enter_context(running(self._command, self.log, self._environ))

    def kill(self) -> None:
        """The next one runs when this is back."""
        assert self._process.poll() is None, self.log.read_text("utf-8")[-2_000:]
        self._process.kill()
        self._process.wait()
        self._start()

    def end(self) -> None:
        """As a supervisor ends it; nothing of all that it said is a traceback."""
        self._process.terminate()
        status = self._process.wait(END_SECONDS_MAX)
        assert status == 128 + signal.SIGTERM, f"status {status}"
        assert "Traceback" not in self.log.read_text("utf-8")


def session(process: subprocess.Popen[bytes]) -> dict[int, str]:
    """The living processes that the program started, itself included: their command lines."""
    return sessions({process.pid})


def sessions(leaders: Container[int]) -> dict[int, str]:
    """The same of several programs, by their process ids."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):  # It has just ended.
            # After the name, which may hold anything: state, parent, group, session.
            state, _, _, leader = (folder / "stat").read_text().rpartition(") ")[2].split()[:4]
            if int(leader) in leaders and state != "Z":
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(folder.name)] = command.decode(errors="replace").strip()
    return found


def left_after(process: subprocess.Popen[bytes], seconds: float = 90.0) -> dict[int, str]:
    """What of the session still runs `seconds` after; returns as soon as nothing does."""
    deadline = time.monotonic() + seconds
    while (left := session(process)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    """Processor time, user and system, of the living session and of its children that have ended.
    What a process took whose parent did not wait for it is not in it."""
    ticks = 0
    for pid in session(process):
        with suppress(OSError):  # It has just ended.
            # From the state on: utime, stime, and those of children, are numbers 11 to 14.
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            ticks += sum(map(int, stat[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")
