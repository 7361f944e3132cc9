"""`spu-assigner drain`: empty a broker, so that it may be switched off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
from spu_assigner.core.base.limits import SPU_ID_MAX
from spu_assigner.stream.clusters.drain.options import carrying_out
from spu_assigner.stream.common.printable import printable

if TYPE_CHECKING:
    from spu_assigner.stream.clusters.moves.options import MoveOptions
    from spu_assigner.stream.clusters.plan.sources import PlanRequest

SHOWN_MAX: Final = 60  # characters of a value in a message


class BrokerIdType(click.ParamType[int]):
    """A broker's id in Kafka, which is that of its SPU."""

    name = "broker"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        is_short = len(text) <= len(str(SPU_ID_MAX))
        if not (is_short and text.isascii() and text.isdecimal() and int(text) <= SPU_ID_MAX):
            rule = f"expected a whole number from 0 to {SPU_ID_MAX}"
            shown = printable(text[:SHOWN_MAX])
            self.fail(f"{shown!r} is no broker's id; {rule}", param, ctx)
        return int(text)


@click.command("drain")
@click.argument("broker", type=BrokerIdType())
@carrying_out
def drain(
    *, request: PlanRequest, broker: int, wait_seconds: float, move_options: MoveOptions
) -> int:
    """Empty a broker until Kafka shows that it holds nothing. Safe to repeat.

    \b
    1. decommissions the SPU of this id, and waits until no map uses it
    2. moves its replicas as `apply --moves` does: those of maps, and of Kafka's own topics and the
       product's, whose new brokers are chosen as those of a decommission
    3. looks in Kafka, and asks the broker, whether it holds nothing

    Other topics without a map are moved likewise where --foreign names them. Otherwise they are
    reported before anything is done (not with --force), and so are replicas on the broker that this
    user may not see. Killed at any point, it is finished by running it again.

    Exit status: 0 the broker holds nothing; 1 it holds something, or an error; 2 wrong usage or
    settings.
    """
    from spu_assigner.stream.clusters.drain.draining import Draining

    draining = Draining(request, broker, move_options)
    draining.leave(wait_seconds)
    left = draining.move()
    for line in left:
        click.echo(f"drain: {line}", err=True)
    if left:
        return 1
    click.echo(draining.empty_line())
    return 0
