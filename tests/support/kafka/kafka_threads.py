"""Threads of Kafka's clients in this process: those of a client end when it is closed.

An admin client that is open when its interpreter ends can end the process by SIGSEGV.
"""

from __future__ import annotations

import gc
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient

PATIENCE_SECONDS: Final = 60.0  # a request under way when its broker ended is given up by then
_TASKS: Final = Path("/proc/self/task")
_OF_ANY_CLIENT: Final = "rdk:"
_OF_AN_ADMIN_CLIENT: Final = "rdk:bg"


def kafka_threads(prefix: str = _OF_ANY_CLIENT) -> list[str]:
    """librdkafka's names of those that run; none where there is no /proc."""
    names = []
    for task in _TASKS.iterdir() if _TASKS.is_dir() else ():
        with suppress(OSError):  # It has ended.
            names.append((task / "comm").read_text().strip())
    return sorted(name for name in names if name.startswith(prefix))


def open_admin_clients() -> list[str]:
    """How many are open when all that nobody refers to is gone, and what refers to which; or []."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        gc.collect()
        threads = kafka_threads(_OF_AN_ADMIN_CLIENT)
        if not threads or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    if not threads:
        return []
    referred = [
        f"{type(other).__module__}.{type(other).__name__}"
        for each in gc.get_objects()
        if isinstance(each, AdminClient)
        for other in gc.get_referrers(each)
    ]
    return [*threads, *sorted({*referred})]
