"""Kafka's own client quotas: a broker that gives a client little."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import py4j.java_gateway as py4j
from spu_assigner.stream.local.jvm.jars import ensure
from support.placers.kafka_java import running_java

RATES = ("producer_byte_rate", "consumer_byte_rate")


class Throttle:
    """Sets quotas through Kafka's admin client, which librdkafka has no call for."""

    def __init__(self, gateway: py4j.JavaGateway, bootstrap: str) -> None:
        self._java: Any = gateway.jvm
        settings = self._java.java.util.HashMap()
        settings.put("bootstrap.servers", bootstrap)
        self._admin = self._java.org.apache.kafka.clients.admin.Admin.create(settings)

    def set(self, client_id: str | None, rate: float | None) -> None:
        """Give a client so many bytes a second in and out.

        Args:
            client_id: None for each that has no rate of its own.
            rate: None to take the limit away.
        """
        java = self._java
        quota = java.org.apache.kafka.common.quota
        entity = java.java.util.HashMap()
        entity.put("client-id", client_id)
        changes = java.java.util.ArrayList()
        for name in RATES:
            value = None if rate is None else java.java.lang.Double(float(rate))
            changes.add(getattr(quota, "ClientQuotaAlteration$Op")(name, value))
        alterations = java.java.util.ArrayList()
        alterations.add(quota.ClientQuotaAlteration(quota.ClientQuotaEntity(entity), changes))
        self._admin.alterClientQuotas(alterations).all().get()

    def close(self) -> None:
        self._admin.close()


@contextmanager
def throttle(bootstrap: str) -> Iterator[Throttle]:
    """Quotas of a broker, for as long as the block lasts."""
    with running_java(ensure("broker")) as gateway:
        found = Throttle(gateway, bootstrap)
        try:
            yield found
        finally:
            found.close()
