"""How a client reaches Kafka."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What every Kafka client of one command is given."""

    bootstrap_servers: str
    prefix: str = ""  # of each topic's name

    def client(self) -> dict[str, str | int]:
        """Settings for confluent-kafka."""
        return {"bootstrap.servers": self.bootstrap_servers}
