"""`spu-assigner apply`: make Kafka's topics as their replica maps."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.plan.options import (
    PlanRequest,
    PlanSources,
    find,
    made_plan,
    plan_options,
    read_wanted,
    sized,
)

if TYPE_CHECKING:
    from spu_assigner.stream.plan.model import TopicsPlan
    from spu_assigner.stream.plan.target_cluster import Target


class NotConfirmedError(AssignerError):
    """Topics would be deleted, and nobody has said that they are to be."""


@click.command("apply")
@click.argument("plan_file", metavar="[PLAN]", type=click.Path(path_type=Path), required=False)
@click.option("--json", "is_json", is_flag=True, help="One JSON object.")
@click.option(
    "--reassignment-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the moves of existing partitions for kafka-reassign-partitions.",
)
@click.option("--yes", "is_sure", is_flag=True, help="Delete topics without asking.")
@plan_options
def apply(
    *,
    ask: PlanRequest,
    plan_file: Path | None,
    is_json: bool,
    reassignment_file: Path | None,
    is_sure: bool,
) -> int:
    """Make Kafka's topics as the replica maps of a cluster say. Safe to repeat.

    Does what `spu-assigner plan` shows: creates topics with exactly their maps, adds partitions,
    deletes topics (with --delete). Kafka is asked about everything before anything is done. What it
    refuses is reported, and all else goes on; a second run does what is left.

    The topic applied-topics, beside the mapped ones, keeps which topics apply has made, by Kafka's
    ids of them. No others are deleted; and before any is, its records and bytes are shown, and
    deletion is to be confirmed: on a terminal, or by --yes.

    PLAN, what `plan --out` kept, is applied only if all that it speaks of is as it was when
    planned, or is done already.

    Replicas of existing partitions are not moved: that is for kafka-reassign-partitions, with what
    --reassignment-file writes. `plan` says whether it is done.

    Exit status: 0 all is done, moves aside that a file was written of; 1 something is not; 2 wrong
    usage or settings.
    """
    from spu_assigner.stream.plan.applied_store import now_ms
    from spu_assigner.stream.plan.apply import apply_plan
    from spu_assigner.stream.plan.apply_rendering import (
        apply_json,
        apply_lines,
        left_lines,
        reporting,
    )
    from spu_assigner.stream.plan.notes import adopted
    from spu_assigner.stream.plan.plan_file import reassignment_json, write_json

    with ask.target() as target:
        if plan_file is not None:
            plan, found = _fresh(plan_file, ask, target)
        else:
            kept, found = made_plan(ask, target)
            plan = kept.plan
        if not is_sure:
            _confirm(plan)
        if reassignment_file is not None:
            write_json(reassignment_file, reassignment_json(plan))
        found.ledger.note(found.notes)
        found.ledger.record(adopted(plan, found.applied, now_ms=now_ms()))
        with reporting(plan, is_json=is_json) as tell:
            report = apply_plan(plan, target, found.ledger, tell)
    if is_json:
        document = apply_json(plan, report, found.notes)
        click.echo(json.dumps(document, separators=(",", ":")))
    else:
        for line in apply_lines(plan, report, found.notes):
            click.echo(line)
    for line in left_lines(plan, report, has_file=reassignment_file is not None):
        click.echo(f"apply: {line}", err=True)
    is_left = plan.refused or report.failed or (plan.moves and reassignment_file is None)
    return 1 if is_left else 0


def _confirm(plan: TopicsPlan) -> None:
    """Return if the deletions of a plan are wanted, with all the data that they concern.

    Raises:
        NotConfirmedError: they are not, or nobody can be asked.
    """
    from spu_assigner.stream.plan.model import ChangeKind
    from spu_assigner.stream.plan.rendering import counted, deletion

    deletes = plan.of(ChangeKind.DELETE)
    if not deletes:
        return
    for change in deletes:
        click.echo(f"- {change.topic}  {deletion(change)}", err=True)
    records = sum(change.size.records for change in deletes if change.size is not None)
    what = f"{counted(len(deletes), 'topic')} with {counted(records, 'record')}"
    if not sys.stdin.isatty():
        raise NotConfirmedError(
            f"{what} would be deleted, and there is no terminal to ask on; nothing was done. Give "
            "--yes to delete them"
        )
    if not click.confirm(f"Delete {what}?", err=True):
        raise NotConfirmedError(f"{what} are not to be deleted; nothing was done")


def _fresh(plan_file: Path, ask: PlanRequest, target: Target) -> tuple[TopicsPlan, PlanSources]:
    """A saved plan, what is still to be done of it."""
    from spu_assigner.stream.plan.model import ChangeKind, Maps, Wanted, remaining
    from spu_assigner.stream.plan.plan_file import read_plan, require_fresh

    given = ask.file or ask.cluster_id or ask.globs or ask.delete or ask.recreate or ask.foreign
    if given:
        raise click.UsageError(
            "PLAN says what to do: leave out --cluster, --maps, --topics, --delete, --recreate and "
            "--foreign"
        )
    kept = read_plan(plan_file)
    ask = replace(ask, cluster_id=kept.plan.cluster_id)
    maps = read_wanted(ask) if kept.is_live else None
    planned = {name: Wanted(replicas=rows) for name, rows in kept.plan.unchanged.items()}
    found = find(
        ask,
        target,
        maps or Maps(cluster_id=kept.plan.cluster_id, topics=planned),
        topics=[
            *kept.plan.unchanged,
            *(each.topic for each in kept.plan.changes if each.kind is not ChangeKind.DELETE),
        ],
        deleted=[change.topic for change in kept.plan.of(ChangeKind.DELETE)],
    )
    require_fresh(kept, found.cluster, maps, found.applied)
    return sized(remaining(kept.plan, found.cluster), found.cluster, target), found
