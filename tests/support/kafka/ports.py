"""Free ports of this machine."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from spu_assigner.stream.local.broker.process import BrokerError

START_TRIES_MAX = 3  # between finding free ports and using them another process may take one


def is_taken(reason: BaseException) -> bool:
    """Whether a broker did not start since another process has its port."""
    said = str(reason)
    return isinstance(reason, BrokerError) and ("in use" in said or "is taken" in said)


def free_ports(count: int) -> list[int]:
    """Different free ports: all are held until all are known."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
