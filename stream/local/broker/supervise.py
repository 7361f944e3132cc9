"""Run one command that must not outlive this product: a small process between the two.

Run as a file of its own (`python -I -S supervise.py SECONDS COMMAND …`), and imports nothing of the
product. Its standard input is a pipe whose other end the product holds and never writes to: when
the product ends, in whatever way, the pipe closes and the command is stopped with its process
group. On Linux the kernel also kills the command should this process be killed. A function between
fork and exec in the product itself is unsafe: it has threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from typing import NoReturn

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Run the command of the arguments until it ends, or its owner has; gives its status."""
    grace_seconds, command = float(sys.argv[1]), sys.argv[2:]
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _nothing)  # A handler of ours, so that the wake-up pipe is fed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the product's to answer.
    asked_to_stop = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked_to_stop.append(number))
    child = os.fork()
    if child == 0:
        _become(command, supervisor=os.getppid())
    print(child, flush=True)
    os.close(1)
    while (status := _ended(child)) is None and not asked_to_stop:
        ready, _, _ = select.select([0, wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 64)
        if 0 in ready and not os.read(0, 64):
            break
    if status is None:
        status = _stop(child, wake_read, grace_seconds)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it has started and not ended
    return os.waitstatus_to_exitcode(status) % 256


def _nothing(number: int, frame: object) -> None:
    """A signal that is only to wake `select`."""


def _become(command: list[str], *, supervisor: int) -> NoReturn:
    """In the child: lead a group, die with the supervisor, then turn into the command."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:  # It died before the kernel knew.
            os._exit(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    try:
        os.execv(command[0], command)
    except OSError as reason:
        print(f"{command[0]}: {reason.strerror}", file=sys.stderr, flush=True)
        os._exit(127)


def _ended(child: int) -> int | None:
    pid, status = os.waitpid(child, os.WNOHANG)
    return status if pid == child else None


def _stop(child: int, wake_read: int, grace_seconds: float) -> int:
    """Ask the command to end; past the grace, make it."""
    deadline = time.monotonic() + grace_seconds
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGTERM)
    while (left := deadline - time.monotonic()) > 0:
        if (status := _ended(child)) is not None:
            return status
        if select.select([wake_read], [], [], left)[0]:
            os.read(wake_read, 64)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


if __name__ == "__main__":
    sys.exit(main())
