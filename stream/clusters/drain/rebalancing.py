"""Evening out a cluster: the job is asked for a rebalance, and what is not as mapped is moved.

Rules: what is mapped and not moved yet is moved as well, so a run that was killed is repeated: the
job is asked again, and has nothing to add to what it was asked before. A limit of moves is for the
job, a limit of bytes for what this run copies. What a limit leaves to do is no fault, and is never
called even; a run that gets no further is one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import click
from spu_assigner.core.base.events import ClusterRebalance
from spu_assigner.core.base.limits import MOVES_MAX
from spu_assigner.core.base.records import TopicStatus
from spu_assigner.core.decision.rebalance import rebalance
from spu_assigner.stream.clusters.drain.job_wait import DrainError, JobWait, answers_to, job_state
from spu_assigner.stream.clusters.drain.preview import confirm, preview_lines, state_after
from spu_assigner.stream.clusters.moves.options import MoveOptions
from spu_assigner.stream.clusters.moves.reassigning import Reassigner
from spu_assigner.stream.clusters.moves.runner import moving, require_ready
from spu_assigner.stream.clusters.moves.status import BEYOND_LIMIT
from spu_assigner.stream.clusters.plan.model import TopicsPlan
from spu_assigner.stream.clusters.plan.rendering import load_lines, move_lines
from spu_assigner.stream.clusters.plan.sources import (
    PlanRequest,
    PlanSources,
    maps_of_state,
    plan_now,
    with_load,
)
from spu_assigner.stream.common.printable import counted
from spu_assigner.stream.kafka.config.command_options import table_width
from spu_assigner.stream.kafka.log_dirs import Partition

MORE_TO_DO: Final = 3  # exit status: run it again
LOOK_SECONDS: Final = 0.5
SEEN_SECONDS_MAX: Final = 5.0  # from the end of the moves to what each broker shows: milliseconds


def rebalance_now(
    request: PlanRequest,
    options: MoveOptions,
    event: ClusterRebalance,
    wait: JobWait,
    *,
    bytes_max: int | None,
    yes: bool,
) -> int:
    """Even out a cluster, if that is possible now; the exit status. What was done stays done."""
    connection = request.ledger_connection()
    confirm(rebalance_preview(request, options, event), yes=yes)
    unlike, _, _ = _unlike(request)
    require_ready(connection, options, unlike)
    answers = answers_to(request, [event], wait)
    for why in answers.rejected.values():
        raise DrainError(
            f"the job does not rebalance cluster {request.cluster_id!r}: {why}; fix that and run "
            "this again"
        )
    click.echo(f"mapped   {answers.accepted[event.event_id]}")
    unasked = _unasked(request, event)
    more = [f"{counted(unasked, 'move')} not asked for"] if unasked else []
    with moving(connection, options, cluster_id=request.cluster_id) as runner:
        with request.target() as target:
            plan, found = plan_now(request, target)
            plan = with_load(plan, found, request, target)
        report = runner.carry_out(plan.moved_partitions(), bytes_max=bytes_max)
    beyond = report.left if report.stopped == BEYOND_LIMIT else 0
    if beyond:  # Then it is what was asked for.
        report.stopped = None
        more.append(f"{counted(beyond, 'mapped partition')} not moved")
    left = move_lines(report)
    if beyond and not (report.moved or left):
        left.append("--max-bytes permits none of the moves that are left; give more")
    left += _not_as_mapped(request, is_awaited=not (left or beyond))
    unseen = plan.unseen.lines("counted above without leaders")
    for line in (*load_lines(plan.load.brokers, width=table_width()), *unseen):
        click.echo(line)
    for line in left:
        click.echo(f"rebalance: {line}", err=True)
    if left:
        return 1
    if more:
        click.echo(f"more     {' and '.join(more)} yet; run again for the rest")
        return MORE_TO_DO
    click.echo("even     Kafka shows every list as it is mapped")
    return 0


def rebalance_preview(
    request: PlanRequest, options: MoveOptions, event: ClusterRebalance
) -> Iterator[str]:
    """What a run without a limit of bytes would move, and what would stay and why."""
    maps = maps_of_state(state_after(request, event))
    with Reassigner(request.ledger_connection()) as kafka, request.target() as target:
        plan, found = plan_now(request, target, maps=maps)
        shown = (kafka, target, plan.moved_partitions(), plan, found)
        yield from preview_lines(*shown, request=request, options=options)
    for each in (*plan.refused, *plan.waiting):
        if each.topic in found.cluster.topics:
            yield f"stays    {each.topic}: {each.reason}"


def _unlike(request: PlanRequest) -> tuple[list[Partition], TopicsPlan, PlanSources]:
    """The partitions that are not as mapped, or being moved, by a plan made now."""
    with request.target() as target:
        plan, found = plan_now(request, target)
    return [(c.topic, at) for c in plan.changes for at in (*c.moves, *c.moving)], plan, found


def _not_as_mapped(request: PlanRequest, *, is_awaited: bool) -> list[str]:
    """What Kafka does not show as mapped, and why; with `is_awaited` it is waited for first."""
    deadline = time.monotonic() + SEEN_SECONDS_MAX
    unlike, plan, found = _unlike(request)
    while is_awaited and unlike and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        unlike, plan, found = _unlike(request)
    waiting = [each for each in plan.waiting if each.topic in found.cluster.topics]
    left = [f"{each.topic}: {each.reason}" for each in (*plan.refused, *waiting)]
    if is_awaited and unlike:
        are = "is" if len(unlike) == 1 else "are"
        left.append(f"{counted(len(unlike), 'partition')} {are} not as mapped yet; run this again")
    return left


def _unasked(request: PlanRequest, event: ClusterRebalance) -> int:
    """How many moves the limit of moves has left for later."""
    is_limited = (event.max_moves or 0) < MOVES_MAX
    if (state := job_state(request) if is_limited else None) is None:
        return 0
    answers = rebalance(state, replace(event, max_moves=MOVES_MAX))
    return sum(each.moves or 0 for each in answers if isinstance(each, TopicStatus))
