"""`spu-assigner whatif`: what a failure of SPUs or racks would cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from spu_assigner.stream.kafka.config.command_options import (
    FILE,
    broker_options,
    cluster_option,
    errors_end_with,
    json_option,
    reading,
    table_width,
)

if TYPE_CHECKING:
    from spu_assigner.core.state.cluster_state import ClusterState
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
    from spu_assigner.stream.clusters.whatif.report import is_survived, whatif_report

    if events is None:
        state, place = _of_kafka(cluster_id, connection)
    else:
        state, place = _of_events(cluster_id, events), str(events)
    report = whatif_report(state, fail, source=place)
    if is_json:
        click.echo(json.dumps(report, ensure_ascii=False))
    else:
        from rich.console import Console
        from spu_assigner.stream.clusters.whatif.rendering import pieces

        console = Console(highlight=False, width=table_width())
        for piece in pieces(report):
            console.print(piece)
    return 0 if is_survived(report) else 1


def _of_events(cluster_id: str, file: Path) -> ClusterState:
    """What the events of a file lead to, as `simulate` answers them."""
    # Heavy: `--help` needs none of it.
    from spu_assigner.core.assigner import Assigner
    from spu_assigner.stream.clusters.plan.wanted_maps import cluster_of, events_of

    assigner = Assigner()
    with reading(file) as source:
        for event in events_of(source, file):
            assigner.apply(event)
    return cluster_of(assigner, cluster_id, file)


def _of_kafka(cluster_id: str, connection: Connection) -> tuple[ClusterState, str]:
    """What a job has published, as far as it is committed now; and where that is."""
    from spu_assigner.stream.job.shard.published import read_cluster_state

    prefix = f" with prefix {connection.prefix}" if connection.prefix else ""
    place = f"the topics of {connection.bootstrap_servers}{prefix}"
    return read_cluster_state(connection, cluster_id), place
