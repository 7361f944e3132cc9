"""Threads that the end of a command does not wait for: Kafka, or a name server, may be silent.

While one is at work the interpreter must not be taken down; see `cli.main`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class DaemonThread(threading.Thread):
    """A daemon that may still ask when its process ends."""

    def __init__(self, target: Callable[[], None], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)


def is_any_running() -> bool:
    """Whether one of this process has not ended."""
    return any(isinstance(thread, DaemonThread) for thread in threading.enumerate())
