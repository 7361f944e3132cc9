"""`spu-assigner recover`: the way back where a checkpoint is lost."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click
from spu_assigner.stream.kafka.config.command_options import (
    load_settings,
    output_option,
    settings_options,
)

if TYPE_CHECKING:
    from spu_assigner.stream.audit.rebuild import RecoverReport


@click.command("recover")
@click.option(
    "--checkpoint", metavar="NEW", required=True, help="Where to make it: a new folder, or a URL."
)
@click.option("--shards", metavar="N", help="Of the new checkpoint. [default: as many as before]")
@click.option(
    "--skip-lost",
    is_flag=True,
    help="Continue where the input is still there, if messages that were not read are gone.",
)
@click.option("--dry-run", is_flag=True, help="Read and check; write nothing, fence no job.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@settings_options("bootstrap_servers", "topic_prefix")
@output_option
def recover(*, skip_lost: bool, dry_run: bool, yes: bool, output: str, **flags: Any) -> int:
    """Make a new checkpoint out of the topics replica-map, assigner-state and assigner-commits.

    For a checkpoint that is lost or damaged, or to change the number of shards. A job of this query
    that still runs is fenced. Start the job with the new checkpoint; it resumes where the last
    batch ended.
    """
    from spu_assigner.stream.audit import rebuild

    settings = load_settings(flags)
    if dry_run:
        report = rebuild.survey(settings, skip_lost=skip_lost)
    else:
        if not yes and not sys.stdin.isatty():
            raise click.UsageError(
                "there is no terminal to confirm on; give --yes, or look with --dry-run"
            )
        if not yes:
            last = rebuild.last_marker(settings)
            click.confirm(
                f"A job of query {settings.query_name!r} that still runs is fenced, and checkpoint "
                f"{last.checkpoint_id} (batch {last.batch}) cannot be used any more. Continue?",
                abort=True,
            )
        report = rebuild.recover(settings, skip_lost=skip_lost)
    click.echo(json.dumps(report.to_json()) if output == "json" else _rendered(report))
    return 0


def _rendered(report: RecoverReport) -> str:
    before = report.recovered_from
    lines = [
        f"recovered   from batch {before.batch} of checkpoint {before.checkpoint_id}",
        f"state       {report.clusters} clusters, {report.spus} SPUs, {report.topics} topics "
        f"({report.partitions} partitions), {report.waiting} waiting; from {report.messages} "
        "messages",
    ]
    for topic, parts in report.positions.items():
        offsets = ", ".join(f"{each.partition}: {each.next}" for each in parts)
        lines.append(f"resumes     {topic} at {offsets or 'its beginning'}")
    lines += [f"skipped     {each}" for each in report.skipped]
    if report.checkpoint_id is None:
        lines.append("nothing was written; run it without --dry-run")
    else:
        lines.append(f"checkpoint  {report.checkpoint}, {report.shards} shards")
        lines.append(f"start       the job with --checkpoint {report.checkpoint}")
    return "\n".join(lines)
