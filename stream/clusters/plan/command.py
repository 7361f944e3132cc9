"""`spu-assigner plan` and `apply`: what would make Kafka's topics as their maps, and making it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource
from spu_assigner.stream.clusters.moves.options import MoveOptions, moves_options
from spu_assigner.stream.kafka.config.command_options import (
    CONNECTION_OPTIONS,
    FILE,
    Command,
    broker_options,
    errors_end_with,
    globs_option,
    json_option,
    seconds_option,
    table_width,
    with_options,
    with_target,
)

if TYPE_CHECKING:  # What it imports is heavy, and `--help` needs none of it.
    from spu_assigner.stream.clusters.desired.decision import DesiredEvents
    from spu_assigner.stream.clusters.plan.sources import PlanRequest

WAIT_SECONDS: Final = 30.0  # a job that has just been started answers within it

_OPTIONS: Final = (
    click.option("--cluster", "cluster_id", metavar="ID", default="", help="Whose replica maps."),
    click.option(
        "--maps",
        "file",
        metavar="FILE",
        type=FILE,
        help="Maps that `simulate` gives for the events of FILE, instead of the job's.",
    ),
    globs_option("--topics", "globs", "Only such topics; may be repeated."),
    globs_option(
        "--foreign",
        "foreign",
        "Change such topics though apply did not make them, but never delete them.",
    ),
    click.option(
        "--recreate",
        is_flag=True,
        help="Create topics again, empty, that were in Kafka and are gone.",
    ),
    click.option(
        "--delete",
        is_flag=True,
        help="Delete topics that apply made and whose replica maps were deleted.",
    ),
    click.option(
        "--desired",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Topics as they are to be, in YAML: events for the job, not changes of Kafka.",
    ),
)


def with_request(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """What is to be planned, and where; the command is given it as `request`."""

    def decorated(command: Command) -> Command:
        @broker_options
        @with_target
        @wraps(command)
        def requested(**given: Any) -> Any:
            from spu_assigner.stream.clusters.plan.sources import PlanRequest

            names = given.keys() & {field.name for field in fields(PlanRequest)}
            request = PlanRequest(**{name: given.pop(name) for name in names})
            return command(request=request, **given)

        return with_options(*options)(requested)

    return decorated


@click.command("plan", cls=errors_end_with(1))
@json_option
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
@with_request(*_OPTIONS)
def plan(
    *,
    request: PlanRequest,
    is_json: bool,
    out: Path | None,
    reassignment_file: Path | None,
    desired: Path | None,
) -> int:
    """Show what would make Kafka's topics as the replica maps of a cluster say. Changes none.

    SPU ids are the ids of Kafka's brokers. Only the assignment of replicas is compared, no setting.

    \b
    + topic  is created with exactly its map; one that was there and is gone only with --recreate
    ~ topic  gets more partitions (apply), or its partitions move to other brokers (apply --moves,
             or kafka-reassign-partitions with what --reassignment-file writes)
    - topic  is deleted, with its records and bytes (with --delete, and only if apply made it and
             its replica map was deleted)
    ! topic  cannot be made as mapped, and why; or is as mapped, and apply did not make it
    . topic  is mapped no more, and what follows
    ? topic  waits for SPUs or slots; what is in Kafka stays
    = count  of topics that are as mapped

    Then: the bytes to copy, what each broker holds before and after, and how many topics have no
    map. Topics that are as mapped are recorded in applied-topics as seen, if it is there.

    With --desired it shows which events the job is to be sent for the topics of a file: + created,
    ~ changed, ! cannot be as desired, . not in the file; --out writes them, for `produce events`.

    Exit status: 0 nothing to do; 2 something to do; 1 an error, wrong usage, or a topic that cannot
    be made as mapped.
    """
    from spu_assigner.stream.clusters.plan.rendering import json_text, plan_lines, reassignment_text
    from spu_assigner.stream.clusters.plan.sources import costed_plan, write_whole

    if desired is not None:
        from spu_assigner.schemas.json_lines.lines import event_to_json
        from spu_assigner.stream.clusters.desired.command import plan_desired

        events = _desired(request, desired)
        if out is not None:
            write_whole(out, "".join(f"{event_to_json(each)}\n" for each in events.events))
        return plan_desired(events, request.cluster_id, is_json=is_json)

    _require_cluster(request)
    found = costed_plan(request)
    if reassignment_file is not None:
        write_whole(reassignment_file, reassignment_text(found))
    if out is not None:
        write_whole(out, json_text(found))
    for line in [json_text(found)] if is_json else plan_lines(found, width=table_width()):
        click.echo(line)
    return 1 if found.refused else 2 if found.changes else 0


@click.command("apply")
@click.argument("plan_file", metavar="[PLAN]", type=click.Path(path_type=Path), required=False)
@json_option
@click.option("--create", "is_create", is_flag=True, help="With --desired: make the topics, too.")
@click.option("--yes", "is_sure", is_flag=True, help="Delete topics without asking.")
@click.option("--moves", "has_moves", is_flag=True, help="Also move existing partitions.")
@click.option(
    "--cancel",
    "is_cancel",
    is_flag=True,
    help="Take back the moves that are under way, and nothing else.",
)
@moves_options
@with_request(*_OPTIONS)
@seconds_option(
    "--wait",
    "wait",
    "With --desired: how long answers are waited for.",
    default=WAIT_SECONDS,
    is_positive=True,
)
def apply(
    *,
    request: PlanRequest,
    plan_file: Path | None,
    is_json: bool,
    desired: Path | None,
    wait: float,
    is_create: bool,
    is_sure: bool,
    has_moves: bool,
    is_cancel: bool,
    move_options: MoveOptions,
) -> int:
    """Make Kafka's topics as the replica maps of a cluster say. Safe to repeat.

    Does what `spu-assigner plan` shows, with --moves to existing partitions, too: in waves, under a
    throttle that is always removed; the next run resumes one that was killed. What Kafka refuses is
    reported, and all else goes on.

    Topics are deleted with --delete alone, if apply made them (applied-topics keeps which), after
    their records and bytes were shown and confirmed: on a terminal, or by --yes.

    PLAN, what `plan --out` kept, is applied only if all that it speaks of is as it was, or is done
    already. With --desired, events are sent to the job, and their answers shown; with --create the
    topics of the file are then created in Kafka, or grown.

    Exit status: 0 all is done; 1 something is not; 2 wrong usage or settings; 3 with --desired, no
    answer in time.
    """
    if is_cancel and desired is None:
        _require_alone("--cancel", {"is_cancel", "cluster_id"})
        from spu_assigner.stream.clusters.moves.runner import cancel

        text, left = cancel(request.ledger_connection(), cluster_id=request.cluster_id)
        click.echo(text)
        for line in left:
            click.echo(f"apply: {line}", err=True)
        return 1 if left else 0
    from spu_assigner.stream.clusters.plan.apply import apply_now

    if desired is not None:
        from spu_assigner.stream.client.sending import NOT_ANSWERED
        from spu_assigner.stream.clusters.desired.command import apply_desired
        from spu_assigner.stream.kafka.topics import REPLICA_MAP, topic_name

        events = _desired(request, desired)
        status = apply_desired(events, request.connection, is_json=is_json, wait=wait)
        if not is_create or status == NOT_ANSWERED:
            return status
        request = replace(request, configs=events.configs)
        status = max(status, apply_now(request, None, None, is_json=is_json, is_sure=False))
        if not is_json:
            maps = topic_name(REPLICA_MAP, prefix=request.connection.prefix)
            shown = f"`spu-assigner watch --cluster {request.cluster_id} --from-beginning`"
            click.echo(f"the replica maps are in topic {maps}; {shown} shows them")
        return status
    if is_create:
        raise click.UsageError("--create needs --desired")
    if move_options != MoveOptions() and not has_moves:
        raise click.UsageError("--throttle and --force need --moves")
    from spu_assigner.stream.clusters.moves.runner import moving
    from spu_assigner.stream.clusters.plan.sources import read_plan

    saved = None
    if plan_file is not None:
        how = {"plan_file", "output", "is_sure", "has_moves", "throttle", "force"}
        _require_alone("PLAN, which says what to do", how)
        saved = read_plan(plan_file)
        request = replace(request, cluster_id=saved.cluster_id)
    _require_cluster(request)
    if not has_moves:
        return apply_now(request, saved, None, is_json=is_json, is_sure=is_sure)
    connection = request.ledger_connection()
    cluster_id = request.cluster_id
    with moving(connection, move_options, cluster_id=cluster_id, is_quiet=is_json) as runner:
        return apply_now(request, saved, runner, is_json=is_json, is_sure=is_sure)


def _require_alone(what: str, allowed: Collection[str]) -> None:
    """Refuse what is given beside the connection and the parameters of the names `allowed`."""
    context = click.get_current_context()
    given = [
        each.opts[0] if isinstance(each, click.Option) else each.make_metavar(context).strip("[]")
        for each in context.command.params
        if each.name not in CONNECTION_OPTIONS | {*allowed}
        and context.get_parameter_source(each.name or "") is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"{', '.join(given)} cannot be given with {what}; leave it out")


def _desired(request: PlanRequest, file: Path) -> DesiredEvents:
    """What the job is to be sent; no option that means nothing for desired topics is given."""
    from spu_assigner.stream.clusters.desired.command import find_desired

    allowed = {"desired", "cluster_id", "out", "wait", "is_create", "output"}
    _require_alone("desired topics", allowed)
    _require_cluster(request)
    connection = request.connection
    target = request.target_connection or connection
    return find_desired(file, request.cluster_id, connection=connection, target=target)


def _require_cluster(request: PlanRequest) -> None:
    if not request.cluster_id:
        raise click.UsageError("Missing option '--cluster'.")
