"""`spu-assigner whatif`: what a failure of SPUs or racks would cost."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import click
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import DEFAULT_POLICY, Policy
from spu_assigner.stream.kafka.config.command_options import (
    FILE,
    cluster_option,
    json_option,
    settings_options,
)

WIDTH: Final = 120  # of the tables, where there is no terminal to ask


class TwoForErrors(click.Command):
    """A command of which status 1 is an answer: every error of it is 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AssignerError as error:
            vars(error)["exit_status"] = 2
            raise


@click.command("whatif", cls=TwoForErrors)
@click.option(
    "--fail",
    metavar="WHAT",
    required=True,
    help="rack=NAME[,…] or spu=ID[,…]; or every case: any-1-rack, any-1-spu.",
)
@cluster_option("The cluster.")
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
@json_option
@settings_options("bootstrap_servers", "topic_prefix")
def whatif(
    *,
    fail: str,
    cluster_id: str,
    events: Path | None,
    policy: str,
    is_json: bool,
    **broker: Any,
) -> int:
    """Show what a failure of SPUs or racks would cost a cluster. Changes nothing.

    The first online replica of a partition leads. A partition that loses its leader gets the next
    one; a partition whose online replicas all fail is lost.

    If the failure lasts, each failed replica is to be re-created on another SPU: shown are the free
    slots and resources of those that take new replicas, and how many SPUs to add at least; and
    which SPUs new leaders put over the capacity of a resource.

    With any-… the bad cases are counted and the worst is shown: the most partitions lost, then the
    most replicas without a slot, and so on.

    Read from the job's topics in Kafka, unless --events is given.

    Exit status: 0 no partition is lost and no room is lacking, in any case; 1 otherwise; 2 wrong
    usage, or the cluster cannot be read.
    """
    from spu_assigner.stream.clusters.whatif.report import is_survived, whatif_report
    from spu_assigner.stream.clusters.whatif.sources import of_events, of_kafka

    if events is None:
        state, place = of_kafka(cluster_id, **broker)
    else:
        state, place = of_events(events, cluster_id, Policy(policy)), str(events)
    report = whatif_report(state, fail, source=place)
    if is_json:
        click.echo(json.dumps(report, ensure_ascii=False))
    else:
        from rich.console import Console
        from spu_assigner.stream.clusters.whatif.rendering import pieces

        console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
        for piece in pieces(report):
            console.print(piece)
    return 0 if is_survived(report) else 1
