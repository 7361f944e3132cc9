"""How a client reaches Kafka: the one place where clients' settings are made.

Every Kafka client of the product, librdkafka's and Spark's, takes its settings from a `Connection`,
so that brokers and security are said once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from spu_assigner.stream.kafka.config.security import Security

SERVERS: Final = "bootstrap.servers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What every Kafka client of one command is given."""

    bootstrap_servers: str
    prefix: str = ""  # of each topic's name
    security: Security = field(default_factory=Security)

    def to_target(self, target: Self | None) -> Self:
        """To the Kafka cluster of the mapped topics, if it is another one, with this prefix."""
        return replace(target or self, prefix=self.prefix)

    def client(self) -> dict[str, Any]:
        """Settings for confluent-kafka."""
        return {SERVERS: self.bootstrap_servers, **self.security.client()}

    def kafka_python(self) -> dict[str, Any]:
        """Settings for kafka-python."""
        servers = self.bootstrap_servers.split(",")
        return {"bootstrap_servers": servers, **self.security.kafka_python()}

    def spark(self) -> dict[str, str]:
        """Options for Spark's Kafka source."""
        return {f"kafka.{SERVERS}": self.bootstrap_servers, **self.security.spark()}


def address(client: Mapping[str, Any]) -> str:
    """Where a client with these settings looks for Kafka, for messages."""
    return str(client.get(SERVERS))
