"""`spu-assigner whatif`: what a failure of SPUs or racks would cost."""

from __future__ import annotations

import json
from pathlib import Path

import click
from spu_assigner.stream.kafka.config.command_options import (
    FILE,
    broker_options,
    cluster_option,
    errors_end_with,
    json_option,
    table_width,
)
from spu_assigner.stream.kafka.config.connection import Connection


@click.command("whatif", cls=errors_end_with(2))
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
@json_option
@broker_options
def whatif(
    *, fail: str, cluster_id: str, events: Path | None, is_json: bool, connection: Connection
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
    from spu_assigner.stream.clusters.whatif.report import is_survived, report_lines, whatif_report

    if events is None:
        from spu_assigner.stream.job.shard.published import read_cluster_state

        state = read_cluster_state(connection, cluster_id)
        prefix = f" with prefix {connection.prefix}" if connection.prefix else ""
        source = f"the topics of {connection.bootstrap_servers}{prefix}"
    else:
        from spu_assigner.stream.clusters.plan.sources import state_of_events

        state, source = state_of_events(events, cluster_id), str(events)
    report = whatif_report(state, fail, source=source)
    if is_json:
        click.echo(json.dumps(report, ensure_ascii=False))
    for line in () if is_json else report_lines(report, width=table_width()):
        click.echo(line)
    return 0 if is_survived(report) else 1
