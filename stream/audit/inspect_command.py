"""`spu-assigner inspect`: what a job knows, from what it has published, also while it runs."""

from __future__ import annotations

import sys
from typing import Final

import click
import msgspec
from spu_assigner.stream.kafka.config.command_options import broker_options, output_option
from spu_assigner.stream.kafka.config.connection import Connection

WIDTH: Final = 160  # of tables, where there is no terminal to ask


@click.command("inspect")
@click.option("--cluster", "cluster_id", help="This cluster alone, in detail.")
@click.option("--topic", help="The map of this topic of the cluster.")
@output_option
@broker_options
def inspect(
    *, cluster_id: str | None, topic: str | None, output: str, connection: Connection
) -> int:
    """Show what a job knows: clusters, SPUs, topics, what waits; from what it has published. The
    job may run meanwhile, or not at all."""
    from spu_assigner.stream.audit.cluster_report import inspect_report
    from spu_assigner.stream.job.shard import published

    if topic is not None and cluster_id is None:
        raise click.UsageError("--topic goes with --cluster")
    if cluster_id is not None:
        state = published.read_cluster_state(connection, cluster_id)
        report = inspect_report([state], is_named=True, topic=topic)
    else:
        known = published.read_published(connection)
        report = inspect_report(map(known.unchecked, known.cluster_ids))
    if output == "json":
        click.echo(msgspec.json.encode(report).decode())
        return 0
    from rich.console import Console
    from spu_assigner.stream.audit.report_table import tables

    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    for piece in tables(report, asked_topic=topic):
        console.print(piece)
    return 0
