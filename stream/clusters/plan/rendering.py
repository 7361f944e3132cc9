"""What `plan` and `apply` print, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from spu_assigner.schemas.messages.wire import Origin
from spu_assigner.stream.clusters.moves.status import MovesReport
from spu_assigner.stream.clusters.plan.applied import Notes
from spu_assigner.stream.clusters.plan.apply import ApplyReport
from spu_assigner.stream.clusters.plan.decision import GONE, GONE_FACT, GONE_FIX
from spu_assigner.stream.clusters.plan.model import ChangeKind, TopicChange, TopicReason, TopicsPlan
from spu_assigner.stream.clusters.plan.target_cluster import TopicFailure
from spu_assigner.stream.common.printable import counted, listed, printable
from spu_assigner.stream.common.quantities import bytes_text
from spu_assigner.stream.kafka.errors import GRANTING

ROWS_SHOWN_MAX: Final = 16  # of a topic; JSON has all
MOVER: Final = "`apply --moves`"
FIRST_SEEN: Final = (
    "exists in Kafka and was not made by apply; it is as mapped: the next apply records it as "
    "found, and never deletes it"
)
_SIGNS: Final = {ChangeKind.CREATE: "+", ChangeKind.CHANGE: "~", ChangeKind.DELETE: "-"}
_DONE: Final = {
    ChangeKind.CREATE: "created",
    ChangeKind.CHANGE: "grown",
    ChangeKind.DELETE: "deleted",
}
_RIGHTS: Final = {  # by Kafka's names
    ChangeKind.CREATE: "Create",
    ChangeKind.CHANGE: "Alter",
    ChangeKind.DELETE: "Delete",
}


def plan_lines(plan: TopicsPlan, *, load: Iterable[str] = ()) -> Iterator[str]:
    """The diff, a line for each topic that is not as mapped, with its lists; and its summary.

    Args:
        load: lines before the summary.
    """
    for change in plan.changes:
        yield f"{_SIGNS[change.kind]} {change.topic}  {_about(change)}"
        rows = list(_rows(change))
        yield from rows[:ROWS_SHOWN_MAX]
        if len(rows) > ROWS_SHOWN_MAX:
            yield f"    … {len(rows) - ROWS_SHOWN_MAX} more (-o json has all)"
    for each in plan.refused:
        if each.reason == GONE:  # It would be created, but is only on request.
            yield f"+ {printable(each.topic)}  ({GONE_FACT}): {GONE_FIX}"
        else:
            yield from _reason_lines("!", [each])
    for topic in plan.first_seen:
        yield f"! {topic}  {FIRST_SEEN}"
    yield from _reason_lines("?", plan.waiting)
    for topic in plan.deletable:
        yield f". {topic}  is mapped no more; --delete deletes it"
    yield from _reason_lines(".", plan.staying)
    if plan.unchanged:
        yield f"= {counted(len(plan.unchanged), 'topic')} as mapped"
    yield from load
    parts = [f"{len(plan.of(kind))} to {kind}" for kind in ChangeKind]
    for count, what in (
        (len(plan.refused), "that cannot be made as mapped"),
        (len(plan.first_seen), "not made by apply"),
        (len(plan.waiting), "waiting"),
    ):
        parts += [f"{count} {what}"] if count else []
    yield ("" if plan.changes else "nothing to do: ") + ", ".join(parts)


def apply_json(
    plan: TopicsPlan, report: ApplyReport, notes: Notes, moves: MovesReport | None = None
) -> dict[str, object]:
    """What was done, for programs.

    Args:
        moves: None: moves were not asked for.
    """
    changes = {change.topic: change for change in plan.changes}
    sizes = {topic: changes[topic].size for topic in report.deleted}
    refused, waiting, staying = (
        [{"topic": each.topic, "reason": each.reason} for each in reasons]
        for reasons in (plan.refused, plan.waiting, plan.staying)
    )
    return {
        "cluster_id": plan.cluster_id,
        "created": report.created,
        "recreated": [topic for topic in report.created if changes[topic].gone_id is not None],
        "grown": report.grown,
        "deleted": report.deleted,
        "deleted_data": {
            topic: {"records": size.records, "bytes": size.size_bytes}
            for topic, size in sizes.items()
            if size is not None
        },
        "failed": [{"topic": each.topic, "reason": each.reason} for each in report.failed],
        "refused": refused,
        "waiting": waiting,
        "to_move": {topic: sorted(each) for topic, each in plan.moves.items()},
        **({} if moves is None else _moves_json(moves)),
        "moving": {change.topic: sorted(change.moving) for change in plan.changes if change.moving},
        "deletable": plan.deletable,
        "staying": staying,
        "found": [each.topic for each in notes.records if each.origin is Origin.FOUND],
        "released": [each.topic for each in notes.records if each.origin is Origin.RELEASED],
        "unchanged": len(plan.unchanged),
    }


def _moves_json(moves: MovesReport) -> dict[str, object]:
    return {
        "moved": [{"topic": topic, "partition": number} for topic, number in moves.moved],
        "not_moved": [
            {"topic": topic, "partition": number, "reason": reason}
            for (topic, number), reason in moves.failed.items()
        ],
        "moves_left": moves.left,
        "stopped": moves.stopped,
    }


def move_lines(moves: MovesReport) -> Iterator[str]:
    """What was not moved, and what to do; a line each."""
    for (topic, number), reason in moves.failed.items():
        yield f"{printable(topic)}-{number}: {reason}"
    if moves.stopped is not None:
        yield f"stops with {counted(moves.left, 'partition')} to move: {moves.stopped}; run again"
    yield from moves.throttles


def done_line(change: TopicChange) -> str:
    """A change that was made."""
    what = deletion_text(change, with_partitions=False)
    if change.kind is ChangeKind.CREATE:
        what = counted(len(change.after), "partition")
    elif change.kind is ChangeKind.CHANGE:
        what = f"{len(change.before)} → {len(change.after)} partitions"
    return f"{_DONE[change.kind]:8} {change.topic}  {what}".rstrip()


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
    yield from _reason_lines("waiting ", plan.waiting)
    yield (
        f"{len(report.created)} created, {len(report.grown)} grown, {len(report.deleted)} deleted; "
        f"{len(plan.unchanged)} as mapped before"
    )


def left_lines(
    plan: TopicsPlan, report: ApplyReport, *, has_file: bool, is_moved: bool = False
) -> Iterator[str]:
    """What was not done, and what to do; a line for each topic, for rights one for all.

    Args:
        has_file: moves were written for Kafka's own tool.
        is_moved: moves were carried out.
    """
    denied: dict[ChangeKind, list[str]] = {}
    for failure in report.failed:
        if failure.is_denied:
            denied.setdefault(failure.kind, []).append(failure.topic)
        else:
            yield f"{failure.topic}: {_failure_text(failure)}"
    for kind, topics in denied.items():
        yield f"this user may not {_RIGHTS[kind]} {listed(topics)}; {GRANTING}, and run again"
    for each in plan.refused:
        yield f"{each.topic}: {printable(each.reason)}"
    if plan.moves and not is_moved:
        count = sum(map(len, plan.moves.values()))
        how = (
            "run kafka-reassign-partitions with the file that was written"
            if has_file
            else f"run {MOVER}, or give --reassignment-file for Kafka's own tool"
        )
        are = "is" if count == 1 else "are"
        yield f"{counted(count, 'partition')} of {listed(list(plan.moves))} {are} to move: {how}"


def _failure_text(failure: TopicFailure) -> str:
    reason = printable(failure.reason).rstrip(".")
    if failure.is_accepted:
        return f"is not as mapped: {reason}"
    return f"was not {_DONE[failure.kind]}: {reason}; fix that and run again"


def deletion_text(change: TopicChange, *, with_partitions: bool = True) -> str:
    """What is lost with a topic, as far as it is known."""
    parts = [counted(len(change.before), "partition")] if with_partitions else []
    if change.size is not None:
        parts.append(counted(change.size.records, "record"))
        if change.size.size_bytes is not None:
            parts.append(bytes_text(change.size.size_bytes))
    return ", ".join(parts)


def _about(change: TopicChange) -> str:
    if change.kind is ChangeKind.DELETE:
        return deletion_text(change)
    if change.kind is ChangeKind.CREATE:
        width = len(change.after[0])
        again = "" if change.gone_id is None else f" ({GONE_FACT})"
        return f"{counted(len(change.after), 'partition')} of {counted(width, 'replica')}{again}"
    parts = []
    if change.added:
        parts.append(f"{len(change.before)} → {len(change.after)} partitions")
    if change.moves:
        parts.append(f"{counted(len(change.moves), 'partition')} to move by {MOVER}")
    if change.moving:
        parts.append(f"{counted(len(change.moving), 'partition')} being moved by Kafka")
    return ", ".join(parts)


def _rows(change: TopicChange) -> Iterator[str]:
    for number, after in enumerate(change.after):
        if number >= len(change.before):
            yield f"    + {number}  {list(after)}"
        elif change.before[number] != after:
            progress = ", in progress" if number in change.moving else ""
            yield f"    ~ {number}  {list(change.before[number])} → {list(after)}{progress}"


def _reason_lines(sign: str, reasons: Sequence[TopicReason]) -> Iterator[str]:
    for each in reasons:
        yield f"{sign} {printable(each.topic)}  {printable(each.reason)}"
