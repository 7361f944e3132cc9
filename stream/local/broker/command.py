"""`spu-assigner broker`: the embedded broker alone, for one machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import click

LOOK_SECONDS: Final = 0.5  # between looks whether it still runs


@click.group()
def broker() -> None:
    """Run the embedded Kafka broker alone."""


@broker.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep data and log there; without it they are gone at the end.",
)
@click.option("--port", type=click.IntRange(1, 65_535), help="[default: 9092 if free, else any]")
def start(data: Path | None, port: int | None) -> int:
    """Start a Kafka broker on this machine; Ctrl-C ends it."""
    from spu_assigner.stream.local.broker.embedded import DEFAULT_PORT, BrokerError, EmbeddedBroker

    with EmbeddedBroker(data, port=port, preferred_port=DEFAULT_PORT) as running:
        click.echo(f"Kafka broker  {running.bootstrap_servers}")
        click.echo(f"log           {running.log_path}")
        click.echo(f"for others    export KAFKA_BOOTSTRAP_SERVERS={running.bootstrap_servers}")
        while running.is_running:
            time.sleep(LOOK_SECONDS)
        raise BrokerError(f"the broker ended by itself; see {running.log_path}")
