"""The names by which a page on the loopback can be called.

A page elsewhere could have its own name lead to 127.0.0.1, and read through the user's browser what
listens there; the browser says that name in the request.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit


def foreign_name(host: str) -> str | None:
    """What is wrong with a Host header on the loopback; None: it is one of this machine's names."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        is_own = name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        is_own = False
    if is_own:
        return None
    return f"this page is not called {host[:250]!r}; expected localhost or 127.0.0.1"


def is_loopback(listener: socket.socket) -> bool:
    """Whether only this machine reaches what listens here."""
    return ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback
