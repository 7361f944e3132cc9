"""At which port the embedded broker listens."""

from __future__ import annotations

import socket
from pathlib import Path

from spu_assigner.stream.local.broker.embedded import _choose_ports


def test_the_preferred_port_is_taken_where_it_is_free(tmp_path: Path) -> None:
    """9092 is where clients look that are told nothing; another process may have it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        taken = _choose_ports(tmp_path, None, port)
        assert taken.client not in (port, taken.controller)
    assert _choose_ports(tmp_path, None, port).client == port
