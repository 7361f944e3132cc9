"""`spu-assigner whatif`: what a failure of SPUs or racks would cost."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import DEFAULT_POLICY, Policy
from spu_assigner.core.base.limits import CAPACITY_MAX
from spu_assigner.stream.clusters.whatif.failing import FailureSpec, failure_spec
from spu_assigner.stream.kafka.config.command_options import FILE, json_option, settings_options

if TYPE_CHECKING:
    from spu_assigner.stream.clusters.whatif.report import WhatifReport
    from spu_assigner.stream.clusters.whatif.sources import WhatifSource

WIDTH: Final = 120  # of the tables, where there is no terminal to ask


class TwoForErrors(click.Command):
    """A command of which status 1 is an answer: every error of it is 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AssignerError as error:
            vars(error)["exit_status"] = 2
            raise


def _spec(_ctx: click.Context, _parameter: click.Parameter, value: str) -> FailureSpec:
    try:
        return failure_spec(value)
    except ValueError as fault:
        raise click.BadParameter(str(fault)) from fault


@click.command("whatif", cls=TwoForErrors)
@click.option(
    "--fail",
    "spec",
    metavar="WHAT",
    required=True,
    callback=_spec,
    help="rack=NAME[,…] or spu=ID[,…]; or every case: any-1-rack, any-1-spu.",
)
@click.option(
    "--cluster",
    "cluster_id",
    metavar="ID",
    help="The cluster; may be left out where there is one alone.",
)
@click.option(
    "--checkpoint", metavar="PLACE", help="Read this checkpoint of the job, instead of Kafka."
)
@click.option(
    "--events", metavar="FILE", type=FILE, help="Events as for `simulate`, instead of Kafka."
)
@click.option(
    "--policy",
    type=click.Choice([each.value for each in Policy if each is not Policy.MANUAL]),
    default=DEFAULT_POLICY.value,
    show_default=True,
    help="With --events: policy of creates that name none.",
)
@click.option(
    "--added-capacity",
    metavar="SLOTS",
    type=click.IntRange(min=1, max=CAPACITY_MAX),
    help="Replica slots of an SPU that would be added.  [default: what most SPUs have]",
)
@json_option
@settings_options("bootstrap_servers", "topic_prefix")
def whatif(
    *,
    spec: FailureSpec,
    cluster_id: str | None,
    added_capacity: int | None,
    is_json: bool,
    **given: Any,
) -> int:
    """Show what a failure of SPUs or racks would cost a cluster. Changes nothing.

    The first online replica of a partition leads. A partition that loses its leader gets the next
    one; a partition whose online replicas all fail is lost.

    If the failure lasts, each failed replica is to be re-created on another SPU: shown are the free
    slots of those that take new replicas, and how many SPUs to add at least.

    Where topics need other resources, new leaders may need more of them: shown are the dominant
    share of each SPU before and after the failover, which SPUs it puts over capacity, and of each
    resource what it takes to re-create the replicas, what is left, and the least SPUs to add.

    With any-… the bad cases are counted and the worst is shown: the most partitions lost, then the
    most replicas without a slot, SPUs over capacity, leaders lost, and so on.

    Read from the job's topics in Kafka, unless --checkpoint or --events is given.

    Exit status: 0 no partition is lost and no room is lacking, in any case; 1 otherwise; 2 wrong
    usage, or the cluster cannot be read.
    """
    from spu_assigner.stream.clusters.whatif.report import whatif_report

    report = whatif_report(_source(cluster_id, **given), spec, added_capacity=added_capacity)
    if is_json:
        click.echo(json.dumps(dataclasses.asdict(report), ensure_ascii=False))
    else:
        _show(report)
    return 0 if report.is_survived else 1


def _source(
    cluster_id: str | None,
    *,
    checkpoint: str | None,
    events: Path | None,
    policy: str,
    **broker: Any,
) -> WhatifSource:
    """The cluster, from the one place that was named."""
    from spu_assigner.stream.clusters.whatif.sources import of_checkpoint, of_events, of_kafka

    if checkpoint is not None and events is not None:
        raise click.UsageError("--checkpoint and --events exclude each other: name one")
    if events is not None:
        return of_events(events, cluster_id, Policy(policy))
    if checkpoint is not None:
        return of_checkpoint(checkpoint, cluster_id)
    return of_kafka(cluster_id=cluster_id, **broker)


def _show(report: WhatifReport) -> None:
    from rich.console import Console
    from spu_assigner.stream.clusters.whatif.rendering import pieces

    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    for piece in pieces(report):
        console.print(piece)
