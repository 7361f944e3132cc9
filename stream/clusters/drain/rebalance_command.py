"""`spu-assigner rebalance`: even out a cluster, maps and data."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click
from spu_assigner.core.base.limits import BAND, BAND_MAX, BAND_PERCENT, BAND_PERCENT_MAX, MOVES_MAX
from spu_assigner.stream.clusters.drain.options import carrying_out
from spu_assigner.stream.clusters.plan.command import WIDTH
from spu_assigner.stream.kafka.config.command_options import BYTE_SIZE

if TYPE_CHECKING:
    from spu_assigner.stream.clusters.moves.options import MoveOptions
    from spu_assigner.stream.clusters.plan.sources import PlanRequest

MORE_TO_DO: Final = 3  # exit status: run it again


@click.command("rebalance")
@click.option(
    "--max-bytes",
    "bytes_max",
    metavar="SIZE",
    type=BYTE_SIZE,
    help="Copy no more than so many bytes in this run, such as 50GB.",
)
@click.option(
    "--max-moves",
    "moves_max",
    metavar="N",
    type=click.IntRange(1, MOVES_MAX),
    help="Have the job move no more than so many replicas for this run.",
)
@click.option(
    "--band-percent",
    metavar="PERCENT",
    type=click.IntRange(0, BAND_PERCENT_MAX),
    help=f"Where topics have a demand: above the fair dominant share.  [default: {BAND_PERCENT}]",
)
@click.option(
    "--band",
    metavar="REPLICAS",
    type=click.IntRange(0, BAND_MAX),
    help=f"How far an SPU may stay from its fair share.  [default: {BAND}]",
)
@carrying_out
def rebalance(
    *,
    request: PlanRequest,
    bytes_max: int | None,
    moves_max: int | None,
    band_percent: int | None,
    band: int | None,
    wait_seconds: float,
    move_options: MoveOptions,
) -> int:
    """Even out a cluster: its replica maps, and the data of its brokers. Safe to repeat.

    \b
    1. asks the job for a rebalance, and waits for its answer
    2. moves every partition that is not as mapped, as `apply --moves` does
    3. looks in Kafka whether every list is as mapped, and shows the load before and after

    Even means replicas and leaders by the capacity of SPUs; where topics say what they need of
    resources, every SPU within --band-percent of the fair dominant share. Killed at any point, it
    is finished by running it again. With --max-bytes the job is asked for the first moves alone
    that copy no more, by the sizes that brokers report and those that topics say; what is mapped
    already and not moved yet counts. So it does with --max-moves, by the number of replicas.

    Exit status: 0 the cluster is even, and Kafka shows every list as it is mapped; 3 as far as
    --max-bytes or --max-moves permit, and there is more to do: run it again; 1 some list is not as
    mapped, or an error; 2 wrong usage or settings.
    """
    from spu_assigner.stream.clusters.drain.rebalancing import Rebalancing
    from spu_assigner.stream.clusters.plan.rendering import load_lines

    rebalancing = Rebalancing(
        request,
        move_options,
        bytes_max=bytes_max,
        moves_max=moves_max,
        band_percent=band_percent,
        band=band,
    )
    rebalancing.ask(wait_seconds)
    left = rebalancing.move()
    for line in load_lines(rebalancing.load(), width=None if sys.stdout.isatty() else WIDTH):
        click.echo(line)
    for line in rebalancing.unseen_lines():
        click.echo(line)
    for line in left:
        click.echo(f"rebalance: {line}", err=True)
    if left:
        return 1
    if (more := rebalancing.more_line()) is not None:
        click.echo(f"more     {more}")
        return MORE_TO_DO
    click.echo("even     Kafka shows every list as it is mapped")
    return 0
