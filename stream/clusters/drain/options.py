"""The options that `drain` and `rebalance` share."""

from __future__ import annotations

from functools import wraps
from typing import Any, Final

import click
from spu_assigner.stream.clusters.moves.options import MoveOptions, moves_options
from spu_assigner.stream.kafka.config.command_options import (
    Command,
    broker_options,
    cluster_option,
    with_target,
)
from spu_assigner.stream.kafka.config.connection import Connection

_OPTIONS: Final = (
    cluster_option("Whose SPUs the brokers are."),
    click.option(
        "--wait",
        "wait_seconds",
        metavar="SECONDS",
        type=click.FloatRange(0, 86_400),
        default=600.0,
        show_default=True,
        help="How long the job may take to answer.",
    ),
    click.option(
        "--foreign",
        metavar="GLOB",
        multiple=True,
        help="Move such topics as mapped though apply did not make them; may be repeated.",
    ),
)


def carrying_out(command: Command) -> Command:
    """What is moved and how; the command is given it as `request` and `move_options`."""

    @moves_options
    @broker_options
    @with_target
    @wraps(command)
    def requested(
        *,
        connection: Connection,
        target_connection: Connection | None,
        cluster_id: str,
        foreign: tuple[str, ...],
        move_options: MoveOptions | None,
        **given: Any,
    ) -> Any:
        from spu_assigner.stream.clusters.plan.sources import PlanRequest

        request = PlanRequest(
            connection=connection,
            target_connection=target_connection,
            cluster_id=cluster_id,
            file=None,
            foreign=foreign,
        )
        return command(request=request, move_options=move_options or MoveOptions(), **given)

    for option in reversed(_OPTIONS):
        requested = option(requested)
    return requested
