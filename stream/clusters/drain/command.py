"""`spu-assigner drain` and `spu-assigner rebalance`: maps and data of a cluster that lives."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

import click
from spu_assigner.core.base.events import ClusterRebalance
from spu_assigner.core.base.limits import (
    BAND,
    BAND_MAX,
    BAND_PERCENT,
    BAND_PERCENT_MAX,
    MOVES_MAX,
    SPU_ID_MAX,
)
from spu_assigner.stream.clusters.moves.options import MoveOptions, moves_options
from spu_assigner.stream.clusters.plan.command import with_request
from spu_assigner.stream.kafka.config.command_options import (
    BYTE_SIZE,
    cluster_option,
    globs_option,
    seconds_option,
)

if TYPE_CHECKING:
    from spu_assigner.stream.clusters.plan.sources import PlanRequest

_OPTIONS: Final = (
    cluster_option("Whose SPUs the brokers are."),
    seconds_option("--wait", "wait_seconds", "How long the job may take to answer.", default=600.0),
    globs_option(
        "--foreign",
        "foreign",
        "Move such topics as mapped though apply did not make them; may be repeated.",
    ),
    click.option("--dry-run", is_flag=True, help="Show what would move, and change nothing."),
    click.option("--yes", is_flag=True, help="Change it without asking on a terminal."),
)


@click.command("drain")
@click.argument("broker", type=click.IntRange(0, SPU_ID_MAX))
@click.option("--undo", is_flag=True, help="Give the broker back what its last drain took.")
@with_request(*_OPTIONS)
@moves_options
def drain(
    *,
    request: PlanRequest,
    broker: int,
    undo: bool,
    wait_seconds: float,
    move_options: MoveOptions,
    dry_run: bool,
    yes: bool,
) -> int:
    """Empty a broker until Kafka shows that it holds nothing. Safe to repeat.

    \b
    1. decommissions the SPU of this id, and waits until no map uses it
    2. moves its replicas as `apply --moves` does: those of maps, and of Kafka's own topics and the
       product's, whose new brokers are chosen as those of a decommission
    3. looks in Kafka, and asks the broker, whether it holds nothing

    --dry-run shows, for each broker, replicas, leaders and bytes before and after, and what would
    stay and why; on a terminal the same is shown, and asked, before anything is changed.

    Other topics without a map are moved likewise where --foreign names them. Otherwise they are
    reported before anything is done (not with --force), and so are replicas on the broker that this
    user may not see. Killed at any point, it is finished by running it again.

    --undo, after a drain that has ended or was killed, lets the SPU join again as it was announced
    last, and gives it back its replicas and leads: maps, then data, have their lists of before. A
    list that was changed since the drain is named and left alone.

    Exit status: 0 the broker holds nothing, or has again what it had; 1 it holds something, some
    list is not as before, or an error; 2 wrong usage or settings.
    """
    from spu_assigner.stream.clusters.drain.draining import Draining
    from spu_assigner.stream.clusters.drain.job_wait import JobWait
    from spu_assigner.stream.clusters.drain.undoing import Undoing

    if undo and request.foreign:
        raise click.UsageError("--foreign cannot be given with --undo: what a drain took is known")
    draining = (Undoing if undo else Draining)(request, broker, move_options)
    return draining.dry_run() if dry_run else draining.run(JobWait(wait_seconds), yes=yes)


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
    metavar="N",
    type=click.IntRange(1, MOVES_MAX),
    default=MOVES_MAX,
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
@with_request(*_OPTIONS)
@moves_options
def rebalance(
    *,
    request: PlanRequest,
    wait_seconds: float,
    move_options: MoveOptions,
    bytes_max: int | None,
    dry_run: bool,
    yes: bool,
    **limits: Any,
) -> int:
    """Even out a cluster: its replica maps, and the data of its brokers. Safe to repeat.

    \b
    1. asks the job for a rebalance, and waits for its answer
    2. moves every partition that is not as mapped, as `apply --moves` does
    3. looks in Kafka whether every list is as mapped, and shows the load before, and as mapped

    Even means replicas and leaders by the capacity of SPUs; where topics say what they need of
    resources, every SPU within --band-percent of the fair dominant share. Killed at any point, it
    is finished by running it again. With --max-bytes it copies no more in this run, by the sizes
    that brokers report; with --max-moves the job is asked for no more moves than that. What is
    mapped already and not moved yet is moved, too. --dry-run shows, for each broker, replicas,
    leaders and bytes before and after; on a terminal the same is shown, and asked, first.

    Exit status: 0 the cluster is even, and Kafka shows every list as it is mapped; 3 as far as
    --max-bytes or --max-moves permit, and there is more to do: run it again; 1 some list is not as
    mapped, or an error; 2 wrong usage or settings.
    """
    from spu_assigner.stream.clusters.drain.job_wait import JobWait
    from spu_assigner.stream.clusters.drain.rebalancing import rebalance_now, rebalance_preview

    event = ClusterRebalance(
        event_id=f"rebalance/{uuid.uuid4()}", cluster_id=request.cluster_id, **limits
    )
    if dry_run:
        for line in rebalance_preview(request, move_options, event):
            click.echo(line)
        return 0
    wait = JobWait(wait_seconds)
    return rebalance_now(request, move_options, event, wait, bytes_max=bytes_max, yes=yes)
