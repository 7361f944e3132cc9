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
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Run the command of the arguments until it ends, or its owner has; gives its status."""
    grace_seconds, command = float(sys.argv[1]), sys.argv[2:]
    supervisor = os.getpid()

    def die_with_supervisor() -> None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:  # It died before the kernel knew.
            os._exit(1)

    begin = die_with_supervisor if sys.platform == "linux" else None
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the product's to answer.
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            close_fds=False,  # the product's lock of the folder
            process_group=0,
            preexec_fn=begin,  # noqa: PLW1509  # it is safe: there are no threads yet
        )
    except OSError as reason:
        print(f"{command[0]}: {reason.strerror}", file=sys.stderr)
        return 127

    def stop() -> None:
        """Ask the command to end; past the grace, make it."""
        child.terminate()
        try:
            child.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            child.kill()

    def stop_after_product() -> None:
        while os.read(0, 64):
            pass
        stop()

    print(child.pid, flush=True)
    os.close(1)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=stop, daemon=True).start())
    threading.Thread(target=stop_after_product, daemon=True).start()
    status = child.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # what it has started and not ended
    return status % 256


if __name__ == "__main__":
    sys.exit(main())
