"""What a test is given of the broker that all tests share: it may not stop or kill it."""

from __future__ import annotations

from typing import Protocol


class SharedBroker(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...
