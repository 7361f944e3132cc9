"""`spu-assigner plan`: what would make Kafka's topics as their replica maps."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.plan.options import PlanRequest, PlanSources, made_plan, plan_options

if TYPE_CHECKING:
    from spu_assigner.stream.plan.target_cluster import Target


class OneForErrors(click.Command):
    """A command of which status 2 is an answer: every error of it is 1, wrong usage too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            vars(error)["exit_code"] = 1
            raise

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            vars(error)["exit_code"] = 1
            raise
        except AssignerError as error:
            vars(error)["exit_status"] = 1
            raise


@click.command("plan", cls=OneForErrors)
@click.option("--json", "is_json", is_flag=True, help="One JSON object, with all lists.")
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Keep the plan, for `spu-assigner apply FILE`.",
)
@click.option(
    "--reassignment-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the moves of existing partitions for kafka-reassign-partitions.",
)
@click.option(
    "--read-only",
    is_flag=True,
    help="Do not record in applied-topics which topics were seen as mapped.",
)
@plan_options
def plan(
    *,
    ask: PlanRequest,
    is_json: bool,
    out: Path | None,
    reassignment_file: Path | None,
    read_only: bool,
) -> int:
    """Show what would make Kafka's topics as the replica maps of a cluster say. Changes none.

    SPU ids are the ids of Kafka's brokers. Only the assignment of replicas is compared: topics are
    created with the brokers' settings, and the settings of those that exist are not looked at.

    \b
    + topic  is created with exactly its map; one that was there and is gone only with --recreate
    ~ topic  gets more partitions, or its partitions move to other brokers: apply makes the first,
             kafka-reassign-partitions the second, by what --reassignment-file writes
    - topic  is deleted, with its records and bytes (with --delete, and only if apply made it and
             its replica map was deleted)
    ! topic  cannot be made as mapped, and why; or is as mapped, and apply did not make it
    . topic  is mapped no more, and what follows
    ? topic  waits for SPUs or slots; what is in Kafka stays
    = count  of topics that are as mapped

    Where applied-topics exists and this user may write to it, topics that are as mapped are
    recorded as seen, so that a later run notices when they are gone.

    Exit status: 0 nothing to do; 2 something to do; 1 an error, wrong usage, or a topic that cannot
    be made as mapped.
    """
    from spu_assigner.stream.plan.plan_file import plan_json, reassignment_json, write_json
    from spu_assigner.stream.plan.rendering import plan_lines

    with ask.target() as target:
        kept, found = made_plan(ask, target)
        if not read_only:
            _record_seen(found, target)
    document = plan_json(kept)
    if out is not None:
        write_json(out, document)
    if reassignment_file is not None:
        write_json(reassignment_file, reassignment_json(kept.plan))
    if is_json:
        click.echo(json.dumps(document, separators=(",", ":")))
    else:
        for line in plan_lines(kept.plan):
            click.echo(line)
    if kept.plan.refused:
        return 1
    return 2 if kept.plan.changes else 0


def _record_seen(found: PlanSources, target: Target) -> None:
    """Record what was seen where that is possible; a plan is as good without it."""
    from spu_assigner.stream.kafka.errors import ClientError
    from spu_assigner.stream.plan.notes import seen

    noted = seen(found.notes, found.applied)
    if noted and found.ledger.is_there and target.may_write(found.ledger.topic):
        with suppress(ClientError):
            found.ledger.note(noted)
