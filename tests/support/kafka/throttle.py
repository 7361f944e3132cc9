"""Kafka's own client quotas: a broker that gives a client little."""

from __future__ import annotations

from support.placers.kafka_reassign import run_tool

RATES = ("producer_byte_rate", "consumer_byte_rate")


def throttle(servers: str, client_id: str | None, rate: float | None) -> None:
    """Give a client so many bytes a second in and out.

    Args:
        client_id: None for each that has no rate of its own.
        rate: None to take the limit away.
    """
    entity = ("--entity-default",) if client_id is None else ("--entity-name", client_id)
    lines = RATES if rate is None else tuple(f"{name}={rate}" for name in RATES)
    change = ("--delete-config" if rate is None else "--add-config", ",".join(lines))
    fixed = ("--alter", "--entity-type", "clients")
    run_tool(servers, *fixed, *entity, *change, tool="kafka.admin.ConfigCommand")
