"""What `apply` did, for people and for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from spu_assigner.schemas.messages.wire import Origin
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.kafka.errors import GRANTING
from spu_assigner.stream.plan.apply import ApplyReport, FailedTopic
from spu_assigner.stream.plan.model import ChangeKind, TopicChange, TopicsPlan
from spu_assigner.stream.plan.notes import Notes
from spu_assigner.stream.plan.rendering import counted, size_text
from spu_assigner.stream.plan.target_cluster import listed

if TYPE_CHECKING:
    from rich.progress import Progress


def apply_json(plan: TopicsPlan, report: ApplyReport, notes: Notes) -> dict[str, object]:
    """What was done, for programs."""
    deleted = {change.topic: change.size for change in plan.of(ChangeKind.DELETE)}
    noted = {
        origin: [each.topic for each in notes.records if each.origin is origin]
        for origin in (Origin.FOUND, Origin.RELEASED)
    }
    return {
        "cluster_id": plan.cluster_id,
        "created": report.created,
        "recreated": [
            change.topic
            for change in plan.of(ChangeKind.CREATE)
            if change.gone_id is not None and change.topic in report.created
        ],
        "grown": report.grown,
        "deleted": report.deleted,
        "deleted_data": {
            topic: {"records": size.records, "bytes": size.size_bytes}
            for topic in report.deleted
            if (size := deleted[topic]) is not None
        },
        "failed": [
            {"topic": failed.topic, "reason": failed.failure.reason} for failed in report.failed
        ],
        "refused": [{"topic": told.topic, "reason": told.reason} for told in plan.refused],
        "waiting": [{"topic": told.topic, "reason": told.reason} for told in plan.waiting],
        "to_move": {topic: sorted(moves) for topic, moves in plan.moves.items()},
        "moving": {change.topic: sorted(change.moving) for change in plan.changes if change.moving},
        "deletable": plan.deletable,
        "staying": [{"topic": told.topic, "reason": told.reason} for told in plan.staying],
        "found": noted[Origin.FOUND],
        "released": noted[Origin.RELEASED],
        "unchanged": len(plan.unchanged),
    }


@contextmanager
def reporting(
    plan: TopicsPlan, *, is_json: bool
) -> Iterator[Callable[[Sequence[TopicChange]], None]]:
    """Print each change when it is done, and on a terminal how many of all are.

    Lines go to standard output, at once; the bar to standard error. With `is_json` there are no
    lines.
    """
    total = sum(
        bool(change.kind is not ChangeKind.CHANGE or change.added) for change in plan.changes
    )
    bar = _bar(total) if total and sys.stderr.isatty() else None

    def tell(changes: Sequence[TopicChange]) -> None:
        if bar is not None:
            bar.stop()  # It is cleared: a line may go to the same terminal.
        for change in changes if not is_json else ():
            click.echo(done_line(change))
        sys.stdout.flush()
        if bar is not None:
            bar.start()
            bar.advance(bar.task_ids[0], len(changes))

    if bar is None:
        yield tell
        return
    with bar:
        yield tell


def _bar(total: int) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    bar = Progress(
        "topics",
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.add_task("", total=total)
    return bar


def done_line(change: TopicChange) -> str:
    """A change that was made."""
    match change.kind:
        case ChangeKind.CREATE:
            return f"created  {change.topic}  {counted(len(change.after), 'partition')}"
        case ChangeKind.CHANGE:
            before, after = len(change.before), len(change.after)
            return f"grown    {change.topic}  {before} → {after} partitions"
        case ChangeKind.DELETE:
            size = "" if change.size is None else f"  {size_text(change.size)}"
            return f"deleted  {change.topic}{size}"


def apply_lines(plan: TopicsPlan, report: ApplyReport, notes: Notes) -> Iterator[str]:
    """What else there is to know, and the sum."""
    for record in notes.records:
        if record.origin is Origin.FOUND:
            yield f"found    {record.topic}  as mapped; apply did not make it"
        elif record.origin is Origin.RELEASED:
            yield f"released {record.topic}  it stays in Kafka"
    for change in plan.changes:
        if change.moving:
            yield f"moving   {change.topic}  {counted(len(change.moving), 'partition')}, by Kafka"
    for told in plan.waiting:
        yield f"waiting  {told.topic}  {printable(told.reason)}"
    yield (
        f"{len(report.created)} created, {len(report.grown)} grown, {len(report.deleted)} deleted; "
        f"{len(plan.unchanged)} as mapped before"
    )


def left_lines(plan: TopicsPlan, report: ApplyReport, *, has_file: bool) -> Iterator[str]:
    """What was not done, and what to do; a line for each topic, for rights one for all."""
    denied: dict[str, list[str]] = {}
    for failed in report.failed:
        if failed.failure.is_denied:
            denied.setdefault(failed.deed, []).append(failed.topic)
        else:
            yield f"{failed.topic}: {_failure_text(failed)}"
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


def _failure_text(failed: FailedTopic) -> str:
    reason = printable(failed.failure.reason).rstrip(".")
    again = "" if failed.deed == "Describe" else "; fix that and run again"
    what = {"Create": "was not created", "Alter": "was not grown", "Delete": "was not deleted"}
    return f"{what.get(failed.deed, 'is not as mapped')}: {reason}{again}"
