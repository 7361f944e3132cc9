"""`spu-assigner inspect`: what a job knows, read from its checkpoint, also while it runs."""

from __future__ import annotations

import sys
from typing import Final

import click
import msgspec
from spu_assigner.stream.kafka.config.command_options import (
    load_settings,
    output_option,
    settings_options,
)

WIDTH: Final = 160  # of tables, where there is no terminal to ask


@click.command("inspect")
@settings_options("checkpoint")
@click.option(
    "--batch",
    type=click.IntRange(min=0),
    help="The state after this batch. [default: the last committed one]",
)
@click.option("--cluster", "cluster_id", help="This cluster alone, in detail.")
@click.option("--topic", help="The map of this topic of the cluster.")
@output_option
def inspect(
    *,
    checkpoint: str | None,
    batch: int | None,
    cluster_id: str | None,
    topic: str | None,
    output: str,
) -> int:
    """Show what a job knows: clusters, SPUs, topics, what waits; from its checkpoint.

    The job may run meanwhile: the last committed batch is read, and nothing is written.
    """
    from spu_assigner.stream.audit.cluster_report import checkpoint_report
    from spu_assigner.stream.job.checkpoint_reading import inspect_checkpoint

    if topic is not None and cluster_id is None:
        raise click.UsageError("--topic goes with --cluster")
    place = load_settings({"checkpoint": checkpoint}).checkpoint
    found = inspect_checkpoint(place, batch=batch, starting=_say_starting)
    report = checkpoint_report(found, cluster_id=cluster_id, topic=topic)
    if output == "json":
        click.echo(msgspec.json.encode(report).decode())
        return 0
    from rich.console import Console
    from spu_assigner.stream.audit.report_table import tables

    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    for piece in tables(report, asked_topic=topic):
        console.print(piece)
    return 0


def _say_starting() -> None:
    """To a person who waits; a program that reads both streams expects no such line."""
    if sys.stderr.isatty():
        click.echo("inspect: starts Spark to read the checkpoint, which takes seconds", err=True)
