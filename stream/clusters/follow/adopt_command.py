"""`spu-assigner adopt`: the topics of a Kafka cluster enter the state as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import click
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.limits import CAPACITY_MAX, CORES_MAX
from spu_assigner.stream.common.interrupts import Interrupts
from spu_assigner.stream.common.printable import counted
from spu_assigner.stream.kafka.config.command_options import (
    OneForErrors,
    amounts,
    broker_options,
    cluster_option,
    json_option,
    with_target,
)
from spu_assigner.stream.kafka.config.connection import Connection

WAIT_SECONDS: Final = 60.0  # a job that has just been started answers within it
NOT_ANSWERED: Final = 3  # exit status, as of `produce --wait`


@click.command("adopt", cls=OneForErrors)
@cluster_option("The cluster that takes the topics over.")
@click.option(
    "--topics", "globs", metavar="GLOB", multiple=True, help="Only such topics; may be repeated."
)
@click.option(
    "--exclude",
    "excluded",
    metavar="GLOB",
    multiple=True,
    help="Not such topics; may be repeated.",
)
@click.option(
    "--pinned/--not-pinned",
    "pinned",
    default=None,
    help="Whether rebalances leave them.  [default: as before, else no]",
)
@click.option(
    "--policy",
    type=click.Choice([policy.value for policy in Policy]),
    help="What they grow by.  [default: as before; of new ones the job's]",
)
@click.option(
    "--capacity", type=click.IntRange(0, CAPACITY_MAX), help="Replica slots of brokers that join."
)
@click.option("--cores", type=click.IntRange(1, CORES_MAX), help="Cores of brokers that join.")
@amounts("--resources", "What they have of a resource, such as disk_bytes.", checked=True)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Take Kafka's side, too, where a map was changed or released here and Kafka has not "
    "followed yet, and where a topic holds fewer bytes than reserved.",
)
@click.option(
    "--forget-gone",
    is_flag=True,
    help="Release adopted topics that are in Kafka no more.",
)
@click.option(
    "--accept-cluster",
    is_flag=True,
    help="Go on though the SPUs were brokers of another Kafka cluster, or its brokers are SPUs of "
    "another cluster.",
)
@click.option(
    "--wait",
    "wait_seconds",
    type=click.FloatRange(min=0, min_open=True, max=86_400),
    default=WAIT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Give up when nothing was answered for so long.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be sent; send nothing.")
@json_option
@broker_options
@with_target
def adopt(
    *,
    connection: Connection,
    target_connection: Connection | None,
    capacity: int | None,
    cores: int | None,
    resources: Mapping[str, int],
    policy: str | None,
    accept_cluster: bool,
    wait_seconds: float,
    dry_run: bool,
    is_json: bool,
    **given: Any,
) -> int:
    """Take over the topics of a Kafka cluster as they are. Nothing moves. Safe to repeat.

    Brokers that are not known join first. Then a `TopicAdopted` is sent for each topic that has no
    replica map, or whose lists in Kafka differ from it, and its answer is awaited. A second run
    sends nothing. Where an SPU has the resource disk_bytes, the events also say how many bytes a
    partition holds, and topics that hold over 10 % more or fewer than is known are sent again.

    Left out are Kafka's own topics (`__*`), the product's, those that Kafka is reassigning, and
    those that differ because their map was changed here: `plan` shows these.

    \b
    + SPU, topic  joins, is adopted: it has no map
    ~ topic       is adopted: it differs from its map
    - topic       is released (with --forget-gone): it was adopted and is gone from Kafka
    ! topic       is not adopted, or was changed meanwhile, and why
    ? topic       differs since its map was changed here
    . topic       is gone from Kafka

    Exit status: 0 all is done; 1 something is not, an error, or wrong usage; 3 not answered in
    time. With --dry-run: 0 nothing to do; 2 something to do; 1 the rest.
    """
    from spu_assigner.stream.clusters.follow.adopt import AdoptRequest, adopt_topics
    from spu_assigner.stream.clusters.follow.adopt_rendering import (
        dry_run_lines,
        report_json,
        report_lines,
    )
    from spu_assigner.stream.clusters.follow.adoption import AdoptionOptions
    from spu_assigner.stream.clusters.follow.decision import Size
    from spu_assigner.stream.clusters.follow.rendering import Progress
    from spu_assigner.stream.kafka.open_transactions import why_unanswered

    request = AdoptRequest(
        connection=connection,
        target_connection=target_connection,
        options=AdoptionOptions(policy=None if policy is None else Policy(policy), **given),
        size=Size(cores=cores, capacity=capacity, resources=resources),
        accept_cluster=accept_cluster,
        dry_run=dry_run,
        wait_seconds=wait_seconds,
    )
    report = adopt_topics(
        request,
        say=lambda text: click.echo(f"adopt: {text}", err=True),
        progress=Progress("adopt", is_quiet=is_json),
        check=Interrupts(lambda: None).check,
    )
    if is_json:
        click.echo(json.dumps(report_json(report, dry_run=dry_run), separators=(",", ":")))
    else:
        for line in dry_run_lines(report) if dry_run else report_lines(report):
            click.echo(line)
    if report.unanswered:
        click.echo(
            f"adopt: {counted(report.unanswered, 'event')} not answered within {wait_seconds:g} s; "
            f"{why_unanswered(connection)} Run this again: what is equal by then is not sent",
            err=True,
        )
        return NOT_ANSWERED
    if not report.is_whole:
        return 1
    return 2 if dry_run and not report.is_nothing_to_do else 0
