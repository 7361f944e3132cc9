"""`spu-assigner apply`: make Kafka's topics as their replica maps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from spu_assigner.stream.plan_options import Ask, made_plan, plan_options, read_wanted
from spu_assigner.stream.printable import printable

if TYPE_CHECKING:
    from spu_assigner.stream.apply import Failed, Report
    from spu_assigner.stream.plan_cluster import Target
    from spu_assigner.stream.plan_model import Plan


@click.command("apply")
@click.argument("plan_file", metavar="[PLAN]", type=click.Path(path_type=Path), required=False)
@click.option("--json", "is_json", is_flag=True, help="One JSON object.")
@click.option(
    "--reassignment-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the moves of existing partitions for kafka-reassign-partitions.",
)
@plan_options
def apply(
    *, ask: Ask, plan_file: Path | None, is_json: bool, reassignment_file: Path | None
) -> int:
    """Make Kafka's topics as the replica maps of a cluster say. Safe to repeat.

    Does what `spu-assigner plan` shows: creates topics with exactly their maps, adds partitions,
    deletes topics (with --delete). Kafka is asked about everything before anything is done. What it
    refuses is told, and all else goes on; a second run does what is left.

    PLAN, what `plan --out` kept, is applied only if all that it speaks of is as it was when
    planned, or is done already.

    Replicas of existing partitions are not moved: that is for kafka-reassign-partitions, with what
    --reassignment-file writes. `plan` says whether it is done.

    Exit status: 0 all is done, moves aside that a file was written of; 1 something is not; 2 wrong
    usage or settings.
    """
    from spu_assigner.stream.apply import apply_plan
    from spu_assigner.stream.plan_file import reassignment_json, write_json

    with ask.target() as target:
        plan = _fresh(plan_file, ask, target) if plan_file else made_plan(ask, target).plan
        if reassignment_file is not None:
            write_json(reassignment_file, reassignment_json(plan))
        report = apply_plan(plan, target)
    if is_json:
        click.echo(json.dumps(_json(plan, report), separators=(",", ":")))
    else:
        for line in _lines(plan, report):
            click.echo(line)
    for line in _left(plan, report, has_file=reassignment_file is not None):
        click.echo(f"apply: {line}", err=True)
    is_left = plan.refused or report.failed or (plan.moves and reassignment_file is None)
    return 1 if is_left else 0


def _fresh(plan_file: Path, ask: Ask, target: Target) -> Plan:
    """A saved plan, what is still to be done of it."""
    from spu_assigner.stream.plan_file import read_plan, require_fresh
    from spu_assigner.stream.plan_model import remaining

    given = ask.file or ask.cluster_id or ask.globs or ask.delete
    if given:
        raise click.UsageError(
            "PLAN says what to do: leave out --cluster, --maps, --topics and --delete"
        )
    kept = read_plan(plan_file)
    ask = replace(ask, cluster_id=kept.plan.cluster_id)
    maps = read_wanted(ask) if kept.is_live else None
    cluster = target.look(
        [change.topic for change in kept.plan.changes],
        deleted=[change.topic for change in kept.plan.changes if change.topic_id is not None],
    )
    cluster = replace(cluster, own=ask.own_topics(cluster.kafka_id))
    require_fresh(kept, cluster, maps)
    return remaining(kept.plan, cluster)


def _json(plan: Plan, report: Report) -> dict[str, object]:
    return {
        "cluster_id": plan.cluster_id,
        "created": report.created,
        "grown": report.grown,
        "deleted": report.deleted,
        "failed": [
            {"topic": failed.topic, "reason": failed.failure.reason} for failed in report.failed
        ],
        "refused": [{"topic": told.topic, "reason": told.reason} for told in plan.refused],
        "waiting": [{"topic": told.topic, "reason": told.reason} for told in plan.waiting],
        "to_move": {topic: sorted(moves) for topic, moves in plan.moves.items()},
        "moving": {change.topic: sorted(change.moving) for change in plan.changes if change.moving},
        "deletable": plan.deletable,
        "unchanged": len(plan.unchanged),
    }


def _lines(plan: Plan, report: Report) -> Iterator[str]:
    from spu_assigner.stream.plan_show import counted

    changes = {change.topic: change for change in plan.changes}
    for topic in report.created:
        yield f"created  {topic}  {counted(len(changes[topic].after), 'partition')}"
    for topic in report.grown:
        change = changes[topic]
        yield f"grown    {topic}  {len(change.before)} → {len(change.after)} partitions"
    for topic in report.deleted:
        yield f"deleted  {topic}"
    for change in plan.changes:
        if change.moving:
            yield f"moving   {change.topic}  {counted(len(change.moving), 'partition')}, by Kafka"
    for told in plan.waiting:
        yield f"waiting  {told.topic}  {printable(told.reason)}"
    yield (
        f"{len(report.created)} created, {len(report.grown)} grown, {len(report.deleted)} deleted; "
        f"{len(plan.unchanged)} as mapped before"
    )


def _left(plan: Plan, report: Report, *, has_file: bool) -> Iterator[str]:
    """What was not done, and what to do; a line for each topic, for rights one for all."""
    from spu_assigner.stream.plan_cluster import listed
    from spu_assigner.stream.topics import GRANTING

    denied: dict[str, list[str]] = {}
    for failed in report.failed:
        if failed.failure.is_denied:
            denied.setdefault(failed.deed, []).append(failed.topic)
        else:
            yield f"{failed.topic}: {_told(failed)}"
    for right, topics in denied.items():
        yield f"this user may not {right} {listed(topics)}; {GRANTING}, and run again"
    for told in plan.refused:
        yield f"{told.topic}: {printable(told.reason)}"
    if plan.moves:
        count = sum(map(len, plan.moves.values()))
        how = "run it with the file that was written" if has_file else "give --reassignment-file"
        yield (
            f"{count} partitions of {listed(list(plan.moves))} are to move, which is for "
            f"kafka-reassign-partitions: {how}"
        )


def _told(failed: Failed) -> str:
    reason = printable(failed.failure.reason).rstrip(".")
    again = "" if failed.deed == "Describe" else "; mend that and run again"
    what = {"Create": "was not created", "Alter": "was not grown", "Delete": "was not deleted"}
    return f"{what.get(failed.deed, 'is not as mapped')}: {reason}{again}"
