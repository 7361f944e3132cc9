"""`spu-assigner plan` and `apply`: what would make Kafka's topics as their maps, and making it."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.clusters.moves.options import MoveOptions, moves_options
from spu_assigner.stream.kafka.config.command_options import (
    BYTE_RATE,
    CONNECTION_OPTIONS,
    FILE,
    Command,
    OneForErrors,
    broker_options,
    json_option,
    with_target,
)
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import ClientError

if TYPE_CHECKING:  # What it imports is heavy, and `--help` needs none of it.
    from spu_assigner.stream.clusters.desired.command import DesiredRequest
    from spu_assigner.stream.clusters.moves.machine import MovesMachine
    from spu_assigner.stream.clusters.plan.model import TopicChange, TopicsPlan
    from spu_assigner.stream.clusters.plan.sources import PlanRequest


WIDTH: Final = 120  # of the table, where there is no terminal to ask
WAIT_SECONDS: Final = 30.0  # a job that has just been started answers within it
# What may be given together.
_CANCEL: Final = CONNECTION_OPTIONS | {"is_cancel", "forgotten", "cluster_id"}
_DESIRED: Final = CONNECTION_OPTIONS | {"desired", "cluster_id", "out", "wait", "output"}


class NotConfirmedError(AssignerError):
    """Topics would be deleted, and nobody has said that they are to be."""


_OPTIONS = (
    click.option("--cluster", "cluster_id", metavar="ID", default="", help="Whose replica maps."),
    click.option(
        "--maps",
        "file",
        metavar="FILE",
        type=FILE,
        help="Maps that `simulate` gives for the events of FILE, instead of the job's.",
    ),
    click.option(
        "--topics",
        "globs",
        metavar="GLOB",
        multiple=True,
        help="Only such topics; may be repeated.",
    ),
    click.option(
        "--foreign",
        metavar="GLOB",
        multiple=True,
        help="Change such topics though apply did not make them, but never delete them.",
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
        help="Topics as they are to be, in YAML: sends events instead of changing Kafka.",
    ),
)


def _plan_options(command: Command) -> Command:
    """Whose maps, of which topics, and where; the command is given it as `request`."""

    @broker_options
    @with_target
    @wraps(command)
    def requested(
        *, connection: Connection, target_connection: Connection | None, **given: Any
    ) -> Any:
        from spu_assigner.stream.clusters.plan.sources import PlanRequest

        names = ("cluster_id", "file", "globs", "delete", "recreate", "foreign")
        request = PlanRequest(
            connection=connection,
            target_connection=target_connection,
            **{name: given.pop(name) for name in names},
        )
        return command(request=request, **given)

    for option in reversed(_OPTIONS):
        requested = option(requested)
    return requested


@click.command("plan", cls=OneForErrors)
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
@click.option(
    "--throttle",
    metavar="RATE",
    type=BYTE_RATE,
    help="Estimate how long the moves take at this rate of each broker, such as 50MB/s.",
)
@_plan_options
def plan(
    *,
    request: PlanRequest,
    is_json: bool,
    out: Path | None,
    throttle: int | None,
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

    With --desired it shows instead which events the job is to be sent so that the cluster has the
    topics of a file: + is created, ~ grows, ! cannot be as desired, . is not in the file and stays;
    --out writes the events, for `produce events`.

    Exit status: 0 nothing to do; 2 something to do; 1 an error, wrong usage, or a topic that cannot
    be made as mapped.
    """
    from spu_assigner.stream.clusters.plan.applied import seen
    from spu_assigner.stream.clusters.plan.plan_file import (
        json_text,
        reassignment_text,
        write_whole,
    )
    from spu_assigner.stream.clusters.plan.rendering import plan_lines
    from spu_assigner.stream.clusters.plan.sources import plan_now, with_load

    if desired is not None:
        from spu_assigner.stream.clusters.desired.command import plan_desired

        status, events = plan_desired(_desired(request, desired), is_json=is_json)
        if out is not None and events is not None:
            write_whole(out, events)
        return status
    _require_cluster(request)
    with request.target() as target:
        found, sources = plan_now(request, target)
        ledger = sources.ledger
        noted = seen(sources.notes, sources.applied)
        if noted and ledger.is_there and target.may_write(ledger.topic):
            with suppress(ClientError):  # A plan is as good without it.
                ledger.record(noted)
        found = with_load(found, sources, request, target, throttle=throttle)
    if reassignment_file is not None:
        write_whole(reassignment_file, reassignment_text(found))
    if out is not None:
        write_whole(out, json_text(found))
    width = None if sys.stdout.isatty() else WIDTH
    for line in [json_text(found)] if is_json else plan_lines(found, width=width):
        click.echo(line)
    return 1 if found.refused else 2 if found.changes else 0


@click.command("apply")
@click.argument("plan_file", metavar="[PLAN]", type=click.Path(path_type=Path), required=False)
@json_option
@click.option("--yes", "is_sure", is_flag=True, help="Delete topics without asking.")
@click.option("--moves", "has_moves", is_flag=True, help="Also move existing partitions.")
@click.option(
    "--cancel",
    "is_cancel",
    is_flag=True,
    help="Take back the moves that are under way, and nothing else.",
)
@moves_options
@_plan_options
@click.option(
    "--wait",
    type=click.FloatRange(min=0, min_open=True, max=86_400),
    default=WAIT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="With --desired: how long answers are waited for.",
)
def apply(
    *,
    request: PlanRequest,
    plan_file: Path | None,
    is_json: bool,
    desired: Path | None,
    wait: float,
    is_sure: bool,
    has_moves: bool,
    is_cancel: bool,
    move_options: MoveOptions | None,
) -> int:
    """Make Kafka's topics as the replica maps of a cluster say. Safe to repeat.

    Does what `spu-assigner plan` shows, with --moves to existing partitions, too: in waves, under a
    throttle that is always removed; the next run resumes one that was killed. What Kafka refuses is
    reported, and all else goes on.

    Topics are deleted with --delete alone, if apply made them (applied-topics keeps which), after
    their records and bytes were shown and confirmed: on a terminal, or by --yes.

    PLAN, what `plan --out` kept, is applied only if all that it speaks of is as it was, or is done
    already. With --desired, events are sent to the job, and their answers shown.

    Exit status: 0 all is done; 1 something is not; 2 wrong usage or settings; 3 with --desired, no
    answer in time.
    """
    from spu_assigner.stream.clusters.plan.plan_file import read_plan

    if is_cancel and desired is None:
        if others := _given_but(_CANCEL):
            raise click.UsageError(
                "--cancel takes back what is under way, and nothing beside it: leave out "
                f"{', '.join(others)}"
            )
        return _cancel(request, move_options or MoveOptions())
    if desired is not None:
        from spu_assigner.stream.clusters.desired.command import apply_desired

        return apply_desired(
            _desired(request, desired), output="json" if is_json else "table", wait=wait
        )
    if move_options is not None and not has_moves:
        raise click.UsageError("--concurrency, --throttle and their like need --moves")
    saved = None
    if plan_file is not None:
        choices = (request.cluster_id, request.file, request.globs, request.foreign)
        if any((*choices, request.delete, request.recreate)):
            raise click.UsageError(
                "PLAN says what to do: leave out --cluster, --maps, --topics, --delete, --recreate "
                "and --foreign"
            )
        saved = read_plan(plan_file)
        request = replace(request, cluster_id=saved.cluster_id)
    _require_cluster(request)
    if not has_moves:
        return _applied(request, saved, None, is_json=is_json, is_sure=is_sure)
    from spu_assigner.stream.clusters.moves.session import moving

    with moving(
        request.ledger_connection(),
        move_options or MoveOptions(),
        cluster_id=request.cluster_id,
        is_quiet=is_json,
    ) as runner:
        return _applied(request, saved, runner, is_json=is_json, is_sure=is_sure)


def _applied(
    request: PlanRequest,
    saved: TopicsPlan | None,
    runner: MovesMachine | None,
    *,
    is_json: bool,
    is_sure: bool,
) -> int:
    """Apply a plan, and report; the exit status."""
    from spu_assigner.schemas.messages.wire import Origin
    from spu_assigner.stream.clusters.plan.applied import adopted
    from spu_assigner.stream.clusters.plan.apply import apply_plan
    from spu_assigner.stream.clusters.plan.plan_file import json_text
    from spu_assigner.stream.clusters.plan.rendering import (
        apply_lines,
        done_line,
        left_lines,
        move_lines,
        moves_json,
    )
    from spu_assigner.stream.clusters.plan.sources import plan_now

    def report(change: TopicChange) -> None:
        if not is_json:
            click.echo(done_line(change))

    with request.target() as target:
        plan, found = plan_now(request, target, saved)
        if not is_sure:
            _confirm(plan)
        notes = found.notes
        found.ledger.record(notes.records)
        found.ledger.forget(notes.forgotten)
        found.ledger.record(adopted(plan, found.applied, now_ms=int(time.time() * 1000)))
        applied = apply_plan(plan, target, found.ledger, report)
    moves = None if runner is None else runner.carry_out(plan.moved_partitions())
    applied = replace(
        applied,
        found=notes.topics(Origin.FOUND),
        released=notes.topics(Origin.RELEASED),
        moves=None if moves is None else moves_json(moves),
    )
    for line in [json_text(applied)] if is_json else apply_lines(applied):
        click.echo(line)
    left = [*left_lines(applied), *(() if moves is None else move_lines(moves))]
    for line in left:
        click.echo(f"apply: {line}", err=True)
    return 1 if left or not (moves is None or moves.is_whole) else 0


def _given_but(names: Collection[str]) -> list[str]:
    """What is given beside the parameters of these names, as people name it."""
    context = click.get_current_context()
    return [
        each.opts[0] if isinstance(each, click.Option) else each.make_metavar(context).strip("[]")
        for each in context.command.params
        if each.name not in names
        and context.get_parameter_source(each.name or "") is ParameterSource.COMMANDLINE
    ]


def _desired(request: PlanRequest, file: Path) -> DesiredRequest:
    """What is to be compared.

    Raises:
        click.UsageError: an option was given that means nothing for desired topics.
    """
    from spu_assigner.stream.clusters.desired.command import DesiredRequest

    if others := _given_but(_DESIRED):
        raise click.UsageError(
            f"{', '.join(others)} cannot be given with desired topics; leave it out"
        )
    _require_cluster(request)
    return DesiredRequest(
        connection=request.connection,
        target=request.target_connection or request.connection,
        cluster_id=request.cluster_id,
        file=file,
    )


def _cancel(request: PlanRequest, options: MoveOptions) -> int:
    from spu_assigner.stream.clusters.moves.session import cancel

    text, left = cancel(request.ledger_connection(), options, cluster_id=request.cluster_id)
    click.echo(text)
    for line in left:
        click.echo(f"apply: {line}", err=True)
    return 1 if left else 0


def _require_cluster(request: PlanRequest) -> None:
    if not request.cluster_id:
        raise click.UsageError("Missing option '--cluster'.")


def _confirm(plan: TopicsPlan) -> None:
    """Return if the deletions of a plan are wanted, with all the data that they concern.

    Raises:
        NotConfirmedError: they are not, or nobody can be asked.
    """
    from spu_assigner.stream.clusters.plan.model import ChangeKind
    from spu_assigner.stream.clusters.plan.rendering import deletion_text
    from spu_assigner.stream.common.printable import counted

    deletes = plan.of(ChangeKind.DELETE)
    if not deletes:
        return
    for change in deletes:
        click.echo(f"- {change.topic}  {deletion_text(change)}", err=True)
    records = sum(change.records or 0 for change in deletes)
    what = f"{counted(len(deletes), 'topic')} with {counted(records, 'record')}"
    if not sys.stdin.isatty():
        raise NotConfirmedError(
            f"{what} would be deleted, and there is no terminal to ask on; nothing was done. Give "
            "--yes to delete them"
        )
    if not click.confirm(f"Delete {what}?", err=True):
        raise NotConfirmedError(f"{what} are not to be deleted; nothing was done")
