"""What a drain or a rebalance would do, before anything is done.

The event is applied to a copy of the job's state by the core, as the job would apply it; the maps
that follow are planned like those that the job has published. So the preview is exact as long as
nothing else changes the cluster, and as far as one event goes: a decommission of a very large SPU
goes on with later events.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import click
from spu_assigner.core.base.events import Event, Policy
from spu_assigner.core.base.records import Status, TopicStatus
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.clusters.drain.job_wait import DrainError, job_state
from spu_assigner.stream.clusters.moves.options import MoveOptions
from spu_assigner.stream.clusters.moves.reassigning import Reassigner, Replicas
from spu_assigner.stream.clusters.plan.model import ChangeKind, TopicChange, TopicsPlan
from spu_assigner.stream.clusters.plan.rendering import copy_text, load_lines
from spu_assigner.stream.clusters.plan.sources import PlanRequest, PlanSources, with_load
from spu_assigner.stream.clusters.plan.target_cluster import Target
from spu_assigner.stream.common.printable import counted
from spu_assigner.stream.common.quantities import duration_text
from spu_assigner.stream.kafka.config.command_options import table_width


def state_after(request: PlanRequest, event: Event) -> ClusterState:
    """The job's state of the cluster as it would be after an event.

    Raises:
        DrainError: the job writes without a pause, or would reject the event.
    """
    state = job_state(request)
    if state is None:
        raise DrainError(
            "the job is writing the state of this cluster, so nothing can be shown; run this again "
            "when it has caught up, or give --yes to move without a preview"
        )
    for record in step(state, event, default_policy=Policy.BALANCED):
        match record:
            case TopicStatus(status=Status.REJECTED) if record.cause == event.event_id:
                raise DrainError(
                    f"the job would reject this: {record.message} ({record.code}); fix that and "
                    "run this again"
                )
    return state


def preview_lines(
    kafka: Reassigner,
    target: Target,
    moves: Sequence[MovedPartition],
    plan: TopicsPlan,
    found: PlanSources,
    *,
    request: PlanRequest,
    options: MoveOptions,
) -> Iterator[str]:
    """What these moves cost: a sum, each broker before and after, lists with more on one rack."""
    lists: dict[str, dict[int, Replicas]] = {}
    for move in moves:
        lists.setdefault(move.topic, {})[move.partition] = move.after
    changes = [
        TopicChange(
            topic=topic,
            kind=ChangeKind.CHANGE,
            before=before,
            after=tuple(new.get(number, row) for number, row in enumerate(before)),
        )
        for topic, new in lists.items()
        if (before := found.cluster.rows(topic) or ())
    ]
    plan = with_load(replace(plan, changes=tuple(changes)), found, request, target)
    load = plan.load
    text = f"{counted(len(moves), 'partition')} of {counted(len(changes), 'topic')}"
    yield f"moves    {text}: {copy_text(load)}"
    most = max((each.bytes_in for each in load.brokers), default=0)
    if options.rate is not None and most:
        yield f"time     {duration_text(most / options.rate)} at least, at this throttle"
    yield from load_lines(load.brokers, width=table_width())
    racks = kafka.brokers()

    def fullest(row: Replicas) -> int:
        """How many replicas of a list are on one rack, among brokers with a rack."""
        counts = Counter(rack for each in row if (rack := racks.get(each)) is not None)
        return max(counts.values(), default=0)

    for change in changes:
        pairs = zip(change.before, change.after, strict=True)
        if worse := sum(fullest(after) > fullest(before) for before, after in pairs):
            yield f"racks    {change.topic}: {counted(worse, 'list')} with more on one rack"


def confirm(lines: Iterable[str], *, yes: bool) -> None:
    """Show a preview on a terminal and ask, unless `yes`; `click.Abort` if the answer is no."""
    if yes or not is_terminal():
        return
    for line in lines:
        click.echo(line)
    click.confirm("Go on?", abort=True)


def is_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty()
