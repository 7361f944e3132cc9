"""`spu-assigner drain`: empty a broker, so that it may be switched off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from spu_assigner.stream.drain.options import carrying_out

if TYPE_CHECKING:
    from spu_assigner.stream.moves.options import MoveOptions
    from spu_assigner.stream.plan.sources import PlanRequest


@click.command("drain")
@click.argument("broker", type=click.IntRange(0, 2**31 - 1))
@carrying_out
def drain(
    *, request: PlanRequest, broker: int, wait_seconds: float, move_options: MoveOptions
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

    draining = Draining(request, broker, move_options)
    draining.leave(wait_seconds)
    left = draining.move()
    for line in left:
        click.echo(f"drain: {line}", err=True)
    if left:
        return 1
    click.echo(f"empty    broker {broker} holds nothing; it may be switched off")
    return 0
