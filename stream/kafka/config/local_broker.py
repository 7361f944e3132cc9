"""Where the embedded broker of this folder is: written while it runs, read by clients.

A client without an address tries the one of the folder it is started in, if a broker listens
there, before the default.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

HOME: Final = Path(".spu-assigner")  # of the embedded broker and the checkpoint
ADDRESS_FILE: Final = HOME / "broker-address"
CONNECT_SECONDS_MAX: Final = 1.0  # on the loopback; a port that nobody listens on refuses at once


@contextmanager
def announced(bootstrap_servers: str) -> Iterator[None]:
    """Keep the broker's address in this folder meanwhile; where that cannot be, clients name it."""
    is_new = not HOME.exists()
    with suppress(OSError):
        HOME.mkdir(mode=0o700, exist_ok=True)
        ADDRESS_FILE.write_text(bootstrap_servers, encoding="utf-8")
    try:
        yield
    finally:
        with suppress(OSError):
            if _written() == bootstrap_servers:  # and not that of a broker started since
                ADDRESS_FILE.unlink()
            if is_new:
                HOME.rmdir()  # Fails where something else has been put into it.


def local_broker() -> str | None:
    """The address of this folder's embedded broker; None if none listens there."""
    if (address := _written()) is None:
        return None
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS_MAX).close()
    except (OSError, ValueError, OverflowError):
        return None
    return address


def _written() -> str | None:
    try:
        return ADDRESS_FILE.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError):
        return None
