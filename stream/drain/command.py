"""`spu-assigner drain`: empty a broker, so that it may be switched off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from spu_assigner.stream.config.command_options import broker_options, target_options
from spu_assigner.stream.moves.options import MoveOptions, moves_options

if TYPE_CHECKING:
    from spu_assigner.stream.config.connection import Connection


@click.command("drain")
@click.argument("broker", type=click.IntRange(0, 2**31 - 1))
@click.option("--cluster", "cluster_id", metavar="ID", required=True, help="Whose SPU it is.")
@click.option(
    "--wait",
    "wait_seconds",
    metavar="SECONDS",
    type=click.FloatRange(0, 86_400),
    default=600.0,
    show_default=True,
    help="How long the job may take to answer the decommission.",
)
@click.option(
    "--foreign",
    metavar="GLOB",
    multiple=True,
    help="Move such topics as mapped though apply did not make them; may be repeated.",
)
@moves_options
@broker_options
@target_options
def drain(
    *,
    connection: Connection,
    target_connection: Connection | None,
    broker: int,
    cluster_id: str,
    wait_seconds: float,
    foreign: tuple[str, ...],
    move_options: MoveOptions | None,
) -> int:
    """Empty a broker until Kafka shows that it holds nothing. Safe to repeat.

    \b
    1. decommissions the SPU of this id, and waits until no map uses it
    2. moves its replicas as `apply --moves` does: those of maps, and of Kafka's own topics and the
       product's, whose new brokers are chosen as those of a decommission
    3. looks in Kafka whether it holds nothing

    Killed at any point, it is finished by running it again.

    Exit status: 0 Kafka shows that the broker holds nothing; 1 it holds something, or an error; 2
    wrong usage or settings.
    """
    from spu_assigner.stream.drain.draining import Draining
    from spu_assigner.stream.plan.sources import PlanRequest

    request = PlanRequest(
        connection=connection,
        target_connection=target_connection,
        cluster_id=cluster_id,
        file=None,
        foreign=foreign,
    )
    draining = Draining(request, broker, move_options or MoveOptions())
    draining.leave(wait_seconds)
    left = draining.move()
    for line in left:
        click.echo(f"drain: {line}", err=True)
    if left:
        return 1
    click.echo(f"empty    broker {broker} holds nothing; it may be switched off")
    return 0
